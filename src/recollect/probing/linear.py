"""What can be read out of a memory by a linear map: beside the observation, an untrained memory and chance.

Ridge regression on whole episodes: some to learn from, some to choose how strongly weights are held
back, and some that neither saw, to be scored on.

A random recurrence keeps much of what it was given, so a read-out of a trained memory alone shows nothing
that was learned. What was learned is what it has more than memories of the same shape with initial weights.
And a flexible read-out finds something in anything: chance is what it finds of the answers of another
episode at the same steps (a control task, as of Hewitt and Liang, 2019).

Shapes.  R rows, F features, C columns of what is asked for, E episodes.
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
)
from ..envs import Array

Measure: TypeAlias = Literal["accuracy", "R2"]

LAMBDAS = 10.0 ** np.arange(-7, 3)  # times the rows that are learned from
SHARES = (0.6, 0.2)  # of the episodes to learn from and to choose by; the rest is for scoring
FEWEST = 50  # rows, below which nothing is said
FEWEST_EPISODES = 5  # that are scored, below which there is no interval


class Question(NamedTuple):
    """Something that may be known.

    values  (R,); NaN where there is no answer, and rows are left out
    lag     steps ago; None where it is not about the past
    """

    name: str
    values: Floats
    lag: int | None = None


@dataclass(frozen=True)
class Answer:
    """How well a question is answered on episodes that nothing was learned from."""

    name: str
    lag: int | None
    measure: Measure
    """accuracy where there are two answers, else R2: 1 is perfect, 0 is as good as the mean."""
    memory: float
    untrained: float
    """The mean over memories of the same shape with initial weights, given the same steps."""
    gain: float
    """memory - untrained: what was learned."""
    gain_interval: Interval | None
    """Of the gain, over episodes; None where too few are scored."""
    observation: float
    chance: float
    """What the memory tells of the answers of another episode at the same steps; NaN where none match."""
    rows: int

    @property
    def learned(self) -> bool:
        """Whether training made the memory hold it better: the interval of the gain is above 0."""
        return self.gain_interval is not None and self.gain_interval.low > 0


class Sources(NamedTuple):
    """What is read from, row by row (R, F)."""

    memory: Floats
    untrained: Sequence[Floats]
    observation: Floats


class Places(NamedTuple):
    """Where rows (R,) lie: in which episode, and at which of its steps."""

    episode: Array
    step: Array


class Split(NamedTuple):
    """Which rows (R,) are learned from, chosen by and scored on."""

    train: Array
    choose: Array
    score: Array


def split(episode: Array, random: np.random.Generator) -> Split:
    """Whole episodes (R,) into three parts."""
    names = random.permutation(np.unique(episode))
    ends = np.cumsum([round(share * len(names)) for share in SHARES])
    train, choose, score = (np.isin(episode, part) for part in np.split(names, ends))
    return Split(train, choose, score)


def answers(sources: Sources, questions: Sequence[Question], parts: Split, places: Places) -> list[Answer]:
    """Every question that has an answer in all parts, and not always the same one."""
    known: list[Answer] = []
    for group in _alike(questions).values():
        inside = _inside(group, parts)
        asked = [q for q in group if all(_varies(q.values[part]) for part in inside)]
        if asked and min(part.sum() for part in inside) >= FEWEST:
            values = np.stack([q.values for q in asked], 1)
            told = [predict(x, values, inside) for x in (sources.memory, sources.observation)]
            untrained = [predict(x, values, inside) for x in sources.untrained]
            for i, question in enumerate(asked):
                columns = [x[:, i] for x in (*told, *untrained)]
                chance = _chance(sources.memory, question, parts, places)
                episodes = places.episode[inside.score]
                known.append(_answer(question, inside, columns, episodes, chance))
    order = {id_: place for place, id_ in enumerate((q.name, q.lag) for q in questions)}
    return sorted(known, key=lambda answer: order[answer.name, answer.lag])


def _inside(group: Sequence[Question], parts: Split) -> Split:
    """The parts without rows that have no answer."""
    rows = np.isfinite(group[0].values)
    return Split(*(part & rows for part in parts))


def _chance(memory: Floats, question: Question, parts: Split, places: Places) -> float:
    """The same read-out where each step has the answer of another episode's step of that number."""
    other = question._replace(values=of_another(question.values, parts, places))
    inside = _inside([other], parts)
    if min(part.sum() for part in inside) < FEWEST or not all(_varies(other.values[x]) for x in inside):
        return math.nan
    kinds = np.unique(question.values[np.isfinite(question.values)])
    predicted = predict(memory, other.values[:, None], inside)[:, 0]
    return _share(*_sums(other.values[inside.score], predicted, kinds))


def of_another(values: Floats, parts: Split, places: Places) -> Floats:
    """Each row's value (R,) replaced by that of the next episode of its part at the same step; NaN where
    that episode is over by then."""
    out = np.full(values.shape, np.nan)
    longest = int(places.step.max()) + 1
    for part in parts:
        names, which = np.unique(places.episode[part], return_inverse=True)
        table = np.full((len(names), longest), np.nan)
        table[which, places.step[part]] = values[part]
        out[part] = table[(which + 1) % len(names), places.step[part]]
    return out


def _alike(questions: Sequence[Question]) -> Mapping[bytes, list[Question]]:
    """Questions with answers in the same rows share all the work but the last product."""
    groups: dict[bytes, list[Question]] = {}
    for question in questions:
        groups.setdefault(np.isfinite(question.values).tobytes(), []).append(question)
    return groups


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(np.ptp(values) > 1e-6 * np.abs(values).max())


def _answer(
    question: Question, parts: Split, told: Sequence[Floats], episodes: Array, chance: float
) -> Answer:
    """told: what the memory, the observation and each untrained memory say in the rows that are scored."""
    truth = question.values[parts.score]
    kinds = np.unique(question.values[np.isfinite(question.values)])
    measure: Measure = "accuracy" if len(kinds) == 2 else "R2"
    sums = [_sums(truth, x, kinds) for x in told]
    memory, observation, *untrained = (_share(*each) for each in sums)
    of_untrained = np.mean([good for good, _ in sums[2:]], axis=0)
    total = sums[0][1]
    interval = _over_episodes(sums[0][0] - of_untrained, total, episodes)
    before = float(np.mean(untrained))
    return Answer(
        question.name,
        question.lag,
        measure,
        memory,
        before,
        memory - before,
        interval,
        observation,
        chance,
        len(truth),
    )


def _sums(truth: Floats, predicted: Floats, kinds: Floats) -> tuple[Floats, Floats]:
    """Rows' contributions to what is explained and to all there is to explain: their ratio is the measure."""
    if len(kinds) == 2:
        middle = kinds.mean()
        return ((predicted > middle) == (truth > middle)).astype(float), np.ones(len(truth))
    total = np.square(truth - truth.mean())
    return total - np.square(truth - predicted), total


def _share(good: Floats, total: Floats) -> float:
    return float(good.sum() / total.sum())


def _over_episodes(good: Floats, total: Floats, episodes: Array) -> Interval | None:
    """The interval of a ratio of sums over rows, with whole episodes resampled."""
    names, which = np.unique(episodes, return_inverse=True)
    if len(names) < FEWEST_EPISODES:
        return None
    goods, totals = (np.bincount(which, x, len(names)) for x in (good, total))
    drawn, times = resamples(tuple(mean_weights(len(names))))
    low, high = quantiles((drawn @ goods) / (drawn @ totals), times)
    centre = np.array([_share(good, total)])
    ends = stretched(centre, np.array([low]), np.array([high]), one_factor(len(names)))
    return Interval(float(ends[0][0]), float(ends[1][0]))


def predict(x: Floats, y: Floats, parts: Split) -> Floats:
    """What ridge regression says of y (R, C) from x (R, F), in the rows that are scored.

    W = (X' X + n lambda 1)^-1 X' Y, of features of deviation 1; lambda for each column by the rows to
    choose by. One decomposition X' X = Q diag(s) Q' serves every lambda.
    """
    mean, deviation = x[parts.train].mean(0), x[parts.train].std(0)
    known = deviation > 1e-6 * (np.abs(x[parts.train]).max(initial=0) + 1e-12)
    if not known.any():
        return np.broadcast_to(y[parts.train].mean(0), (int(parts.score.sum()), y.shape[1])).copy()
    train, choose, score = ((x[part][:, known] - mean[known]) / deviation[known] for part in parts)
    centre = y[parts.train].mean(0)
    s, q = np.linalg.eigh(train.T @ train / len(train))
    rotated = q.T @ (train.T @ (y[parts.train] - centre)) / len(train)  # (F, C)
    weights = np.stack([q @ (rotated / (np.maximum(s, 0)[:, None] + held)) for held in LAMBDAS])
    errors = np.square(choose @ weights + centre - y[parts.choose]).mean(1)  # (lambdas, C)
    best = np.take_along_axis(weights, errors.argmin(0)[None, None], 0)[0]
    return np.asarray(score @ best + centre)
