"""What can be read out of a memory by a linear map, beside what the observation alone tells.

Ridge regression on whole episodes: some to learn from, some to choose how strongly weights are held
back, and some that neither saw, to be scored on.

Shapes.  R rows, F features, C columns of what is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ..envs import Array
from ..report.intervals import Floats

Measure: TypeAlias = Literal["accuracy", "R2"]

LAMBDAS = 10.0 ** np.arange(-7, 3)  # times the rows that are learned from
SHARES = (0.6, 0.2)  # of the episodes to learn from and to choose by; the rest is for scoring
FEWEST = 50  # rows, below which nothing is said


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
    observation: float
    chance: float
    """By the commonest answer, or by the mean."""
    rows: int


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


def answers(memory: Floats, observation: Floats, questions: Sequence[Question], parts: Split) -> list[Answer]:
    """Every question that has an answer in all parts, and not always the same one."""
    found: list[Answer] = []
    for group in _alike(questions).values():
        rows = np.isfinite(group[0].values)
        inside = Split(*(part & rows for part in parts))
        asked = [q for q in group if all(_varies(q.values[part]) for part in inside)]
        if asked and min(part.sum() for part in inside) >= FEWEST:
            values = np.stack([q.values for q in asked], 1)
            by_memory, by_observation = (predict(x, values, inside) for x in (memory, observation))
            chance = np.broadcast_to(values[inside.train].mean(0), by_memory.shape)
            for i, question in enumerate(asked):
                told = [x[:, i] for x in (by_memory, by_observation, chance)]
                found.append(_answer(question, values[:, i], inside, told))
    order = {id_: place for place, id_ in enumerate((q.name, q.lag) for q in questions)}
    return sorted(found, key=lambda answer: order[answer.name, answer.lag])


def _alike(questions: Sequence[Question]) -> Mapping[bytes, list[Question]]:
    """Questions with answers in the same rows share all the work but the last product."""
    groups: dict[bytes, list[Question]] = {}
    for question in questions:
        groups.setdefault(np.isfinite(question.values).tobytes(), []).append(question)
    return groups


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(np.ptp(values) > 1e-6 * np.abs(values).max())


def _answer(question: Question, values: Floats, parts: Split, told: Sequence[Floats]) -> Answer:
    truth = values[parts.score]
    kinds = np.unique(values[np.isfinite(values)])
    measure: Measure = "accuracy" if len(kinds) == 2 else "R2"
    if measure == "accuracy":
        middle = kinds.mean()
        scores = [float(np.mean((x > middle) == (truth > middle))) for x in told]
    else:
        scores = [1 - float(np.mean((truth - x) ** 2) / np.var(truth)) for x in told]
    memory, observation, chance = scores
    return Answer(question.name, question.lag, measure, memory, observation, chance, len(truth))


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
