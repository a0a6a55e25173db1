"""How good runs became: one number a run, its mean over seeds, and scores that tasks can share.

Shapes.  n seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ..common.intervals import Floats, Interval, band, iqm_weights, mean_weights
from ..common.statistics import iqm
from .groups import Group
from .references import reference
from .runs import LeftOut, Run, is_number

Source: TypeAlias = Literal["success", "return", "training"]


@dataclass(frozen=True)
class Final:
    """One group at its end."""

    env: str
    label: str
    source: Source
    """success, return: shares and means of the evaluation; training: the last mean of 100 returns."""
    seeds: tuple[int, ...]
    scores: Floats
    """One number a seed (n,)."""
    mean: float
    iqm: float
    mean_interval: Interval | None
    """None for one seed."""
    iqm_interval: Interval | None
    mean_return: float
    """The same as the mean where scores are returns."""

    @property
    def all_equal(self) -> bool:
        """Whether no two seeds differ: then an interval of their mean has no width, and says too much."""
        return len(self.scores) > 1 and bool(np.ptp(self.scores) <= 1e-9 * (1 + abs(self.mean)))


@dataclass(frozen=True)
class Scale:
    """What makes scores of one environment comparable with those of others: 0 at low, 1 at high."""

    env: str
    low: float
    high: float
    low_is: Literal["random", "worst"]
    """What low is: an agent that acts at random, where some run is better, or else the worst run."""
    high_is: Literal["reference", "best"]
    """What high is: a score from outside (references.py), where there is one, or else the best run."""

    def normalised(self, scores: Floats) -> Floats:
        """Scores (n,) on this scale; all 0 where all runs are as good as the low end."""
        return (scores - self.low) / ((self.high - self.low) or 1.0)


def finals(groups: Sequence[Group]) -> tuple[list[Final], list[LeftOut]]:
    """The end of every group that has one, and the finished runs of which no score is known."""
    found: list[Final] = []
    left_out: list[LeftOut] = []
    sources = {env: _source([g for g in groups if g.env == env]) for env in {g.env for g in groups}}
    for group in groups:
        source = sources[group.env]
        scored = {run.seed: score for run in group.finished if math.isfinite(score := _score(run, source))}
        why = "no return is known of it: fewer than 100 training episodes ended"
        left_out += [LeftOut(run.folder, why) for run in group.finished if run.seed not in scored]
        if scored:
            found.append(_final(group, source, scored))
    return found, left_out


def scales(finals: Sequence[Final], random: Mapping[str, Mapping[str, Any]]) -> list[Scale]:
    """One for each environment; random: environment -> what acting at random reaches, where it is known."""
    return [
        _scale([final for final in finals if final.env == env], random.get(env, {}))
        for env in dict.fromkeys(final.env for final in finals)
    ]


def _scale(finals: Sequence[Final], random: Mapping[str, Any]) -> Scale:
    env, source = finals[0].env, finals[0].source
    scores = np.concatenate([final.scores for final in finals])
    chance = random.get("success" if source == "success" else "mean")
    outside = reference(env, source)
    high = float(scores.max()) if outside is None else outside
    high_is: Literal["reference", "best"] = "best" if outside is None else "reference"
    if chance is not None and chance < high:
        return Scale(env, float(chance), high, "random", high_is)
    return Scale(env, float(scores.min()), high, "worst", high_is)


def _source(groups: Sequence[Group]) -> Source:
    """Runs of one environment are compared by one kind of score: the best that all of them have."""
    evaluations = [run.evaluation for group in groups for run in group.finished]
    if not all(evaluations):
        return "training"
    return "success" if all(is_number(e and e.get("success")) for e in evaluations) else "return"


def _score(run: Run, source: Source) -> float:
    if source == "training" or run.evaluation is None:
        return float(run.metrics["return"][-1])
    return float(run.evaluation["success" if source == "success" else "mean"])


def _final(group: Group, source: Source, scored: dict[int, float]) -> Final:
    scores = np.array(list(scored.values()))
    by_return: Source = "return" if source == "success" else source
    returns = [_score(run, by_return) for run in group.finished if run.seed in scored]
    ends = (0.0, 1.0) if source == "success" else (-math.inf, math.inf)
    return Final(
        group.env,
        group.label,
        source,
        tuple(scored),
        scores,
        mean=float(scores.mean()),
        iqm=iqm(scores),
        mean_interval=weighted_mean_interval(scores, mean_weights(len(scores)), ends),
        iqm_interval=weighted_mean_interval(scores, iqm_weights(len(scores)), ends),
        mean_return=float(np.mean(returns)),
    )


def weighted_mean_interval(
    scores: Floats, weights: Floats, ends: tuple[float, float] = (-math.inf, math.inf)
) -> Interval | None:
    """Of a weighted mean of sorted scores (n,), which cannot pass the ends; None for one seed."""
    if len(scores) < 2:
        return None
    low, high = band(scores[:, None], weights)
    return Interval(max(ends[0], float(low[0])), min(ends[1], float(high[0])))
