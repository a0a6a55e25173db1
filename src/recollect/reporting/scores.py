"""Final scores: one number per run, means over seeds, and scales that make environments comparable.

Shapes.  n seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ..common.intervals import Floats, Interval, are_equal, band, iqm_weights, mean_weights
from ..common.statistics import iqm
from .groups import Group
from .reference_scores import reference_score
from .runs import LeftOut, Run, is_number

ScoreSource: TypeAlias = Literal["success", "return", "training"]
UNBOUNDED = (-math.inf, math.inf)
SCORE_RANGES = {"success": (0.0, 1.0), "return": UNBOUNDED, "training": UNBOUNDED}  # of means and intervals


@dataclass(frozen=True)
class FinalScores:
    """The final scores of one model in one environment."""

    env: str
    label: str
    source: ScoreSource
    """success, return: success rate or mean return of the evaluation; training: last mean of 100 returns."""
    seeds: tuple[int, ...]
    scores: Floats
    """One score per seed (n,)."""
    mean: float
    iqm: float
    mean_interval: Interval | None
    """None for one seed."""
    iqm_interval: Interval | None
    mean_return: float
    """Equal to the mean if scores are returns."""
    failed: tuple[int, ...] = ()
    """Seeds whose run failed, as one that diverged. They have no score, and are in no mean."""

    @property
    def ranked(self) -> Floats:
        """The scores, with one below all others for each run that failed (n + failed,).

        Without them a model whose bad runs diverge would be compared by its good ones alone.
        """
        return np.append(self.scores, np.full(len(self.failed), -np.inf))

    @property
    def all_equal(self) -> bool:
        """Whether all seeds have the same score, so that the interval of the mean has no width."""
        return are_equal(self.scores)


@dataclass(frozen=True)
class Scale:
    """The normalised scale of one environment: 0 at low, 1 at high."""

    env: str
    low: float
    high: float
    low_is: Literal["random", "worst"]
    """random: the score of a random agent, if some run is better; else worst: the worst run."""
    high_is: Literal["reference", "best"]
    """reference: a score of reference_scores.py, if there is one above low; else best: the best run."""

    def normalised(self, scores: Floats) -> Floats:
        """Scores (n,) on this scale; all 0 if high equals low."""
        return (scores - self.low) / ((self.high - self.low) or 1.0)


def final_scores(groups: Sequence[Group]) -> tuple[list[FinalScores], list[LeftOut]]:
    """The scores of every group that has some, and the finished runs without a score."""
    finals: list[FinalScores] = []
    left_out: list[LeftOut] = []
    sources = {env: _source([g for g in groups if g.env == env]) for env in {g.env for g in groups}}
    for group in groups:
        source = sources[group.env]
        scored = {run.seed: score for run in group.finished if math.isfinite(score := _score(run, source))}
        reason = "no return is known: fewer than 100 training episodes finished"
        left_out += [LeftOut(run.folder, reason) for run in group.finished if run.seed not in scored]
        if scored:
            finals.append(_final_scores(group, source, scored))
    return finals, left_out


def scales(finals: Sequence[FinalScores], random: Mapping[str, Mapping[str, Any]]) -> list[Scale]:
    """One scale per environment.

    random  environment -> evaluation of a random agent, for environments that have one
    """
    return [
        _scale([final for final in finals if final.env == env], random.get(env, {}))
        for env in dict.fromkeys(final.env for final in finals)
    ]


def _scale(finals: Sequence[FinalScores], random: Mapping[str, Any]) -> Scale:
    env, source = finals[0].env, finals[0].source
    scores = np.concatenate([final.scores for final in finals])
    chance = random.get("success" if source == "success" else "mean")
    reference = reference_score(env, source)
    worst, best = float(scores.min()), float(scores.max())
    low_is: Literal["random", "worst"]
    # Otherwise the scale would be reversed, or have no length.
    if chance is not None and rounded(chance) < (best if reference is None else reference):
        low, low_is = rounded(chance), "random"
    else:
        low, low_is = worst, "worst"
    if reference is None or reference <= low:
        return Scale(env, low, best, low_is, "best")
    return Scale(env, low, reference, low_is, "reference")


def _source(groups: Sequence[Group]) -> ScoreSource:
    """The kind of score of one environment: all runs of it are compared by the same kind."""
    evaluations = [run.evaluation for group in groups for run in group.finished]
    # Training returns include exploration, evaluations do not, so a mixture would favour evaluated models.
    if not all(evaluations):
        return "training"
    return "success" if all(is_number(e and e.get("success")) for e in evaluations) else "return"


def rounded(score: float) -> float:
    """Without the last digits, which depend on the order of a sum: equal scores would win or lose by them."""
    return round(float(f"{score:.12g}"), 12)


def _score(run: Run, source: ScoreSource) -> float:
    if source == "training" or run.evaluation is None:
        return rounded(run.metrics["return"][-1])
    return rounded(run.evaluation["success" if source == "success" else "mean"])


def _final_scores(group: Group, source: ScoreSource, scored: dict[int, float]) -> FinalScores:
    scores = np.array(list(scored.values()))
    return_source: ScoreSource = "return" if source == "success" else source
    returns = [_score(run, return_source) for run in group.finished if run.seed in scored]
    ends = SCORE_RANGES[source]
    return FinalScores(
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
        failed=group.failed,
    )


def weighted_mean_interval(
    scores: Floats, weights: Floats, ends: tuple[float, float] = UNBOUNDED
) -> Interval | None:
    """Interval of a weighted mean of sorted scores (n,), clipped to the ends; None for one seed."""
    if len(scores) < 2:
        return None
    low, high = band(scores[:, None], weights)
    return Interval(max(ends[0], float(low[0])), min(ends[1], float(high[0])))
