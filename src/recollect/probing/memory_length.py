"""How many steps of memory an agent uses: the fewest that keep nearly all of its score, with an interval.

Shapes.  E episodes, K numbers of steps, R resamples.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    while high - low > 1 and (middle := (low + high) // 2) <= largest:
        if is_enough(middle):
            high = middle
        else:
            low = middle


def measure_length(losses: Mapping[int, Floats], longest: int | None) -> MemoryLength:
    """The memory length and its 95 % interval over episodes.

    losses   number of last steps, ascending from 1 -> loss of each episode (E,)
    longest  the steps of the longest episode; None if memories last longer
    """
    if longest is not None and max((k for k in losses if k < longest), default=0) == longest - 1:
        # As many steps as the longest episode has lose nothing, which needs no measurement.
        losses = {k: x for k, x in losses.items() if k < longest} | {longest: np.zeros(len(losses[1]))}
    pairs = np.stack([*losses.values()], axis=1)  # (E, K)
    steps, means = np.array([*losses, math.inf]), pairs.mean(0)
    drawn, times = resamples(tuple(mean_weights(len(pairs))))
    # Whole episodes are resampled, with all their losses: the same episodes are hard for every number of
    # steps. The factor widens for few episodes, as in intervals of means.
    resampled = means + one_factor(len(pairs)) * (drawn @ pairs - means)
    fewest = _find_fewest(resampled)
    # The fewest of a resample may be a number that was not tried, above the last tried one that is too few.
    above = np.concatenate([[1.0], np.where(np.isfinite(steps[1:]), steps[:-1] + 1, math.inf)])
    low, high = quantiles(above[fewest], times)[0], quantiles(steps[fewest], times)[1]
    return MemoryLength(
        float(steps[_find_fewest(means[None])[0]]), Interval(float(low), float(high)), max(losses)
    )


def _find_fewest(means: Floats) -> NDArray[np.intp]:
    """Mean losses (R, K) -> the first place with a small loss, else K (R,)."""
    enough = means <= NEARLY * means[:, :1]
    return np.where(enough.any(1), enough.argmax(1), means.shape[1])
