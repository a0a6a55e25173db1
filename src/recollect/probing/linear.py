"""Linear read-outs of a memory state, beside those of the observation, of untrained memories, and chance.

Ridge regression on whole episodes: some are fitted, some choose the ridge penalty, and the rest are scored.

A random recurrence retains much of its input, so the read-out of a trained memory alone does not show that
anything was learned; only the gain over memories of the same shape with initial weights does. A flexible
read-out fits something in any state: chance is its score for the values of another episode at the same
steps (a control task, Hewitt and Liang, 2019), and the difference to it is the selectivity.

Shapes.  R steps, F features, C targets, E episodes, P permutations.
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
PERMUTATIONS = 5  # of episodes, over which chance is averaged


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
    """Read-out of the values of another episode at the same steps, the mean over several permutations of the
    episodes; NaN if none match."""
    selectivity: float
    """memory - chance."""
    selectivity_interval: Interval | None
    """95 % interval of the selectivity, over episodes and permutations; None if too few are scored, or if
    fewer than two permutations match."""
    rows: int

    @property
    def learned(self) -> bool:
        """Whether training improved the read-out: the interval of the gain is above 0."""
        return self.gain_interval is not None and self.gain_interval.low > 0

    @property
    def held(self) -> bool:
        """Whether the state holds more of it than the observation says, and than chance gives."""
        intervals = self.beyond_interval, self.selectivity_interval
        return self.memory > 0 and all(one is not None and one.low > 0 for one in intervals)


class Sources(NamedTuple):
    """Features of each step (R, F)."""

    memory: Floats
    untrained: Sequence[Floats]
    observation: Floats


class Places(NamedTuple):
    """Episode and step of its episode of each time step (R,)."""

    episode: Array
    step: Array


class Chance(NamedTuple):
    """The read-out of a target's values in other episodes, one for each permutation.

    values      scores (P,); empty if no permutation has enough steps
    influences  how far their mean would move with the weight of each episode (E,); their sum is 0
    """

    values: Floats
    influences: Floats


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
            chances = _measure_chances(sources.memory, values, known, parts, places)
            for i, target in enumerate(varying):
                columns = [prediction[:, i] for prediction in predictions]
                episodes = places.episode[known.score]
                read_outs.append(_score(target, known, columns, episodes, chances[i]))
    order = {key: place for place, key in enumerate((target.name, target.lag) for target in targets)}
    return sorted(read_outs, key=lambda one: order[one.name, one.lag])


def leave_out_unknown(target: Target, parts: Split) -> Split:
    """The parts without the steps at which the target is NaN."""
    known = np.isfinite(target.values)
    return Split(*(part & known for part in parts))


def _measure_chances(
    memory: Floats, values: Floats, known: Split, parts: Split, places: Places
) -> list[Chance]:
    """The read-outs of each column of values (R, C), all known at the same steps, in other episodes.

    known  the parts without the steps at which the values are not known
    """
    scores: list[list[float]] = [[] for _ in values.T]
    names = np.unique(places.episode[known.score])
    influences = np.zeros((values.shape[1], len(names)))
    fewest = min(len(np.unique(places.episode[part])) for part in parts)
    # Each pair of episodes is in one of these permutations only.
    for shift in range(1, min(PERMUTATIONS, fewest - 1) + 1):
        rows = match_steps(parts, places, shift)
        others = np.where(rows[:, None] >= 0, values[rows], np.nan)
        matched = Split(*(part & np.isfinite(others[:, 0]) for part in known))
        if min(part.sum() for part in matched) < FEWEST:
            continue
        predicted = predict(memory, others, matched)
        pairs = [np.searchsorted(names, places.episode[x]) for x in (matched.score, rows[matched.score])]
        for i, other in enumerate(others.T):
            if not all(_varies(other[part]) for part in matched):
                continue
            kinds = np.unique(values[np.isfinite(values[:, i]), i])
            good, total = _sums(other[matched.score], predicted[:, i], kinds)
            scores[i].append(_share(good, total))
            # A step depends on two episodes: that of the state and that of the value.
            moved = (good - scores[i][-1] * total) / total.sum()
            influences[i] += sum(np.bincount(pair, moved, len(names)) for pair in pairs)
    return [Chance(np.array(x), y / max(1, len(x))) for x, y in zip(scores, influences, strict=True)]


def match_steps(parts: Split, places: Places, shift: int) -> Array:
    """For each step (R,) the row of the same step of the episode `shift` places later in its part.

    -1 where that episode is shorter, or is the same one.
    """
    out = np.full(places.step.shape, -1)
    longest = int(places.step.max()) + 1
    for part in parts:
        names, which = np.unique(places.episode[part], return_inverse=True)
        if len(names) <= shift:
            continue
        table = np.full((len(names), longest), -1)
        table[which, places.step[part]] = np.flatnonzero(part)
        out[part] = table[(which + shift) % len(names), places.step[part]]
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
    target: Target, parts: Split, predictions: Sequence[Floats], episodes: Array, chance: Chance
) -> ReadOut:
    """predictions: from the memory, the observation and each untrained memory, at the scored steps."""
    truth = target.values[parts.score]
    kinds = np.unique(target.values[np.isfinite(target.values)])
    # By the values of all steps, so that the measure does not depend on which episodes happen to be scored.
    measure: Measure = "accuracy" if len(kinds) == 2 else "R2"
    sums = [_sums(truth, x, kinds) for x in predictions]
    memory, observation, *untrained = (_share(*each) for each in sums)
    of_untrained = np.mean([good for good, _ in sums[2:]], axis=0)
    good, total = sums[0]
    gain = _over_episodes(good - of_untrained, total, episodes)
    before = float(np.mean(untrained))
    by_chance = float(chance.values.mean()) if len(chance.values) else math.nan
    selectivity = None
    if len(chance.values) > 1:
        # A share of all steps, so that the ratio of each resample is the memory's minus chance.
        selectivity = _over_episodes(good - by_chance * total, total, episodes, chance.influences)
    return ReadOut(
        target.name,
        target.lag,
        measure,
        memory,
        before,
        memory - before,
        gain and _over_draws(gain, memory, np.array(untrained), 1),
        observation,
        _over_episodes(good - sums[1][0], total, episodes),
        by_chance,
        memory - by_chance,
        selectivity and _over_draws(selectivity, memory, chance.values, 0),
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


def _over_draws(over_episodes: Interval, memory: float, others: Floats, further: int) -> Interval:
    """The interval of the difference to the mean of other scores (D,), of which a few were drawn.

    further  1: the memory may be one more of the draws, as one that training did not change is one more
             untrained network; it then varies by as much as one of them from the mean of the others. 0: only
             the mean of the draws is uncertain

    Independent of the episodes, so squares are added.
    """
    count = len(others)
    if count < 2:
        return over_episodes
    difference = memory - float(others.mean())
    spread = student(count - 1) * float(others.std(ddof=1)) * math.sqrt(further + 1 / count)
    below, above = (math.hypot(end - difference, spread) for end in over_episodes)
    return Interval(difference - below, difference + above)


def _over_episodes(
    good: Floats, total: Floats, episodes: Array, influences: Floats | None = None
) -> Interval | None:
    """The interval of a ratio of sums over steps, with whole episodes resampled.

    influences  of the weight of each episode on what is subtracted from the ratio (E,)
    """
    names, which = np.unique(episodes, return_inverse=True)
    if len(names) < FEWEST_EPISODES:
        return None
    goods, totals = (np.bincount(which, x, len(names)) for x in (good, total))
    drawn, times = resamples(tuple(mean_weights(len(names))))
    # A ratio of sums in each resample, not a mean of ratios: episodes differ in length and in variance.
    ratios = (drawn @ goods) / (drawn @ totals)
    if influences is not None:
        ratios = ratios - len(names) * (drawn @ influences)
    low, high = quantiles(ratios, times)
    centre = np.array([_share(good, total)])
    ends = stretched(centre, np.array([low]), np.array([high]), one_factor(len(names)))
    return Interval(float(ends[0][0]), float(ends[1][0]))
