"""Linear read-outs of a memory state, beside those of the observation, of untrained memories, and chance.

Ridge regression on whole episodes: some are fitted, some choose the ridge penalty, and the rest are scored.

A random recurrence retains much of its input, so the read-out of a trained memory alone does not show that
anything was learned; only the gain over memories of the same shape with initial weights does. A flexible
read-out fits something in any state: chance is its score for the values of another episode at the same
steps (a control task, Hewitt and Liang, 2019).

Shapes.  R steps, F features, C targets, E episodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ..common.intervals import (
    Floats,
    Interval,
    mean_weights,
    one_factor,
    quantiles,
    resamples,
    stretched,
    student,
)
from ..envs import Array
from .ridge import Split, predict

Measure: TypeAlias = Literal["accuracy", "R2"]

SHARES = (0.6, 0.2)  # of the episodes: fitted, and to choose the penalty; the rest is scored
FEWEST = 50  # steps of each part, below which a target is left out
FEWEST_EPISODES = 5  # scored episodes, below which there is no interval


class Target(NamedTuple):
    """A quantity to predict.

    values  (R,); steps with NaN are left out
    lag     how many steps ago; None if it is not about the past
    """

    name: str
    values: Floats
    lag: int | None = None


@dataclass(frozen=True)
class ReadOut:
    """How well a target is predicted in episodes that were not fitted."""

    name: str
    lag: int | None
    measure: Measure
    """accuracy for two values, else R2: 1 is perfect, 0 is no better than the mean."""
    memory: float
    untrained: float
    """Mean over memories of the same shape with initial weights, given the same steps."""
    gain: float
    """memory - untrained."""
    gain_interval: Interval | None
    """95 % interval of the gain, over episodes and untrained memories; None if too few are scored."""
    observation: float
    beyond_interval: Interval | None
    """95 % interval of memory - observation over episodes; None if too few are scored."""
    chance: float
    """Read-out of the values of another episode at the same steps; NaN if none match."""
    rows: int

    @property
    def learned(self) -> bool:
        """Whether training improved the read-out: the interval of the gain is above 0."""
        return self.gain_interval is not None and self.gain_interval.low > 0

    @property
    def held(self) -> bool:
        """Whether the state holds more of it than the observation says, and than chance gives."""
        beyond = self.beyond_interval is not None and self.beyond_interval.low > 0
        return beyond and self.memory > max(0.0, self.chance if math.isfinite(self.chance) else 0.0)


class Sources(NamedTuple):
    """Features of each step (R, F)."""

    memory: Floats
    untrained: Sequence[Floats]
    observation: Floats


class Places(NamedTuple):
    """Episode and step of its episode of each time step (R,)."""

    episode: Array
    step: Array


def split_episodes(episode: Array, random: np.random.Generator) -> Split:
    """Split whole episodes, given by their number for each step (R,), into three parts."""
    # Whole episodes, because steps of one episode are alike: scores on the rest of a fitted one would be too
    # high.
    names = random.permutation(np.unique(episode))
    ends = np.cumsum([round(share * len(names)) for share in SHARES])
    train, choose, score = (np.isin(episode, part) for part in np.split(names, ends))
    return Split(train, choose, score)


def read_targets(sources: Sources, targets: Sequence[Target], parts: Split, places: Places) -> list[ReadOut]:
    """The read-out of every target that varies in all parts."""
    read_outs: list[ReadOut] = []
    for group in _group_by_steps(targets).values():
        known = leave_out_unknown(group[0], parts)
        varying = [target for target in group if all(_varies(target.values[part]) for part in known)]
        if varying and min(part.sum() for part in known) >= FEWEST:
            values = np.stack([target.values for target in varying], 1)
            inputs = (sources.memory, sources.observation, *sources.untrained)
            predictions = [predict(x, values, known) for x in inputs]
            for i, target in enumerate(varying):
                columns = [prediction[:, i] for prediction in predictions]
                chance = _measure_chance(sources.memory, target, parts, places)
                episodes = places.episode[known.score]
                read_outs.append(_score(target, known, columns, episodes, chance))
    order = {key: place for place, key in enumerate((target.name, target.lag) for target in targets)}
    return sorted(read_outs, key=lambda one: order[one.name, one.lag])


def leave_out_unknown(target: Target, parts: Split) -> Split:
    """The parts without the steps at which the target is NaN."""
    known = np.isfinite(target.values)
    return Split(*(part & known for part in parts))


def _measure_chance(memory: Floats, target: Target, parts: Split, places: Places) -> float:
    """The same read-out with the values of another episode at the same steps."""
    other = target._replace(values=swap_episodes(target.values, parts, places))
    known = leave_out_unknown(other, parts)
    if min(part.sum() for part in known) < FEWEST or not all(_varies(other.values[x]) for x in known):
        return math.nan
    kinds = np.unique(target.values[np.isfinite(target.values)])
    predicted = predict(memory, other.values[:, None], known)[:, 0]
    return _share(*_sums(other.values[known.score], predicted, kinds))


def swap_episodes(values: Floats, parts: Split, places: Places) -> Floats:
    """Replace each value (R,) by that of the next episode of its part at the same step.

    NaN where that episode is shorter.
    """
    out = np.full(values.shape, np.nan)
    longest = int(places.step.max()) + 1
    for part in parts:
        names, which = np.unique(places.episode[part], return_inverse=True)
        if len(names) < 2:  # no other episode
            continue
        table = np.full((len(names), longest), np.nan)
        table[which, places.step[part]] = values[part]
        out[part] = table[(which + 1) % len(names), places.step[part]]
    return out


def _group_by_steps(targets: Sequence[Target]) -> Mapping[bytes, list[Target]]:
    """Targets that are known at the same steps: they share all the work but the last product."""
    groups: dict[bytes, list[Target]] = {}
    for target in targets:
        groups.setdefault(np.isfinite(target.values).tobytes(), []).append(target)
    return groups


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(np.ptp(values) > 1e-6 * np.abs(values).max())


def _score(
    target: Target, parts: Split, predictions: Sequence[Floats], episodes: Array, chance: float
) -> ReadOut:
    """predictions: from the memory, the observation and each untrained memory, at the scored steps."""
    truth = target.values[parts.score]
    kinds = np.unique(target.values[np.isfinite(target.values)])
    # By the values of all steps, so that the measure does not depend on which episodes happen to be scored.
    measure: Measure = "accuracy" if len(kinds) == 2 else "R2"
    sums = [_sums(truth, x, kinds) for x in predictions]
    memory, observation, *untrained = (_share(*each) for each in sums)
    of_untrained = np.mean([good for good, _ in sums[2:]], axis=0)
    total = sums[0][1]
    interval = _over_episodes(sums[0][0] - of_untrained, total, episodes)
    if interval is not None:
        interval = _over_networks(interval, memory, np.array(untrained))
    beyond = _over_episodes(sums[0][0] - sums[1][0], total, episodes)
    before = float(np.mean(untrained))
    return ReadOut(
        target.name,
        target.lag,
        measure,
        memory,
        before,
        memory - before,
        interval,
        observation,
        beyond,
        chance,
        len(truth),
    )


def _sums(truth: Floats, predicted: Floats, kinds: Floats) -> tuple[Floats, Floats]:
    """Contributions of each step to the numerator and the denominator of the measure."""
    if len(kinds) == 2:
        middle = kinds.mean()
        return ((predicted > middle) == (truth > middle)).astype(float), np.ones(len(truth))
    total = np.square(truth - truth.mean())
    return total - np.square(truth - predicted), total


def _share(good: Floats, total: Floats) -> float:
    return float(good.sum() / total.sum())


def _over_networks(over_episodes: Interval, memory: float, untrained: Floats) -> Interval:
    """The interval of the gain over untrained networks (U,), of which a few were drawn.

    A memory that training did not change would be one more of them, so the gain varies by as much as one of
    them from the mean of the others. Independent of the episodes, so squares are added.
    """
    count = len(untrained)
    if count < 2:
        return over_episodes
    gain = memory - float(untrained.mean())
    spread = student(count - 1) * float(untrained.std(ddof=1)) * math.sqrt(1 + 1 / count)
    below, above = (math.hypot(end - gain, spread) for end in over_episodes)
    return Interval(gain - below, gain + above)


def _over_episodes(good: Floats, total: Floats, episodes: Array) -> Interval | None:
    """The interval of a ratio of sums over steps, with whole episodes resampled."""
    names, which = np.unique(episodes, return_inverse=True)
    if len(names) < FEWEST_EPISODES:
        return None
    goods, totals = (np.bincount(which, x, len(names)) for x in (good, total))
    drawn, times = resamples(tuple(mean_weights(len(names))))
    # A ratio of sums in each resample, not a mean of ratios: episodes differ in length and in variance.
    low, high = quantiles((drawn @ goods) / (drawn @ totals), times)
    centre = np.array([_share(good, total)])
    ends = stretched(centre, np.array([low]), np.array([high]), one_factor(len(names)))
    return Interval(float(ends[0][0]), float(ends[1][0]))
