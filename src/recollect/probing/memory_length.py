"""How many steps of memory an agent uses: the fewest that keep nearly all of its score, with an interval.

Shapes.  E episodes, K numbers of steps, R resamples.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..common.intervals import Floats, Interval, mean_weights, one_factor, quantiles, resamples

NEARLY = 0.05  # share of the score, or of the loss with a reset at every step, that counts as small


@dataclass(frozen=True)
class MemoryLength:
    """The fewest last steps whose loss is at most a twentieth of the loss with a reset at every step.

    The loss is that of score, or the divergence of the policy.
    """

    steps: float
    """Infinite (null in probe.json): more than were measured."""
    interval: Interval
    measured: int
    """The largest number of steps that was measured."""


def search_fewest(is_enough: Callable[[int], bool], longest: int | None, largest: int) -> None:
    """Try 2, 4, 8, ... steps until a number is enough, then numbers between it and the last that is not.

    The result is exact up to 32 steps, and to a thirty-second above: every trial plays all episodes.

    longest  the steps of the longest episode, which are enough without a trial; None if memories last longer
    largest  number of steps that can be tried
    """
    low, high = 1, 2
    ends = math.inf if longest is None else longest
    while high < ends and high <= largest and not is_enough(high):
        low, high = high, 2 * high
    if high > largest and high < ends:
        return
    high = int(min(high, ends))
    while not _adjacent(low, high) and (middle := (low + high) // 2) <= largest:
        if is_enough(middle):
            high = middle
        else:
            low = middle


def _adjacent(low: int, high: int) -> bool:
    """Whether no number between two is worth a trial."""
    return high - low <= 1 + low // 32


def measure_length(losses: Mapping[int, Floats], longest: int | None) -> MemoryLength:
    """The memory length and its 95 % interval over episodes.

    losses   number of last steps, ascending from 1 -> loss of each episode (E,)
    longest  the steps of the longest episode; None if memories last longer
    """
    if longest is not None and _adjacent(max((k for k in losses if k < longest), default=1), longest):
        # As many steps as the longest episode has lose nothing, which needs no measurement.
        losses = {k: x for k, x in losses.items() if k < longest} | {longest: np.zeros(len(losses[1]))}
    pairs = np.stack([*losses.values()], axis=1)  # (E, K)
    steps, means = np.array([*losses, math.inf]), pairs.mean(0)
    drawn, times = resamples(tuple(mean_weights(len(pairs))))
    # Whole episodes are resampled, with all their losses: the same episodes are hard for every number of
    # steps. The factor widens for few episodes, as in intervals of means.
    resampled = means + one_factor(len(pairs)) * (drawn @ pairs - means)
    low, high = quantiles(_find_fewest(resampled, steps), times)
    return MemoryLength(
        float(_find_fewest(means[None], steps)[0]), Interval(float(low), float(high)), max(losses)
    )


def _find_fewest(means: Floats, steps: Floats) -> Floats:
    """Mean losses (R, K) -> the first of the steps (K + 1,) with a small loss, else the last (R,)."""
    enough = means <= NEARLY * means[:, :1]
    return np.asarray(steps[np.where(enough.any(1), enough.argmax(1), -1)])
