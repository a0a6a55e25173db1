"""Models compared with each other: within one environment, and over all of them.

Shapes.  n seeds of one model, m of another, K environments, P points of a profile.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import numpy as np

from ..common.intervals import (
    Floats,
    Interval,
    iqm_weights,
    mean_of_shares,
    share_interval,
    stratified,
    wins_interval,
)
from .scores import FinalScores, Scale
from .significance import LEVEL, compare_means, holm, rank_test

PROFILE_POINTS = 51
MANY_MODELS = 8  # with more, only pairs with the best model are shown


@dataclass(frozen=True)
class ModelDifference:
    """Two models in one environment; `better` has the higher mean."""

    env: str
    better: str
    worse: str
    by: float
    """The difference of the means."""
    interval: Interval | None
    """None if one of them has a single seed."""
    iqm_by: float
    """The difference of the interquartile means."""
    iqm_interval: Interval | None
    p: float
    """Of equal means (compare_means); adjusted by Family.adjusted. NaN for a single seed."""
    wins: float
    """Share of pairs of seeds in which `better` has the higher score; a tie counts half, and a failed run
    loses to any score."""
    wins_interval: Interval
    failed: int
    """Runs of the two that failed. They are in no mean; with any, p is that of the rank test, in which they
    are below all scores."""

    @property
    def differs(self) -> bool:
        """Whether `better` is better at the 5 % level: with failed runs, not by its mean alone."""
        return self.p < LEVEL and not self.loses

    @property
    def loses(self) -> bool:
        """Whether `better` has the higher mean because its bad runs failed, and loses in the rank test."""
        return self.p < LEVEL and self.failed > 0 and self.wins < 0.5


@dataclass(frozen=True)
class Aggregate:
    """Normalised scores of one model over all environments."""

    label: str
    seeds: int
    """Number of runs in all environments together."""
    mean: float
    iqm: float
    mean_interval: Interval | None
    iqm_interval: Interval | None


@dataclass(frozen=True)
class Profile:
    """Performance profile: the share of runs above each score (P,), with its interval."""

    label: str
    share: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Improvement:
    """Probability that a run of one model beats a run of another, over the environments of both."""

    label: str
    other: str
    probability: float
    interval: Interval
    p: float
    """Of equal distributions (rank_test); adjusted by Family.adjusted."""
    envs: int

    @property
    def differs(self) -> bool:
        """Whether the probability differs from one half at the 5 % level."""
        return self.p < LEVEL


Strata: TypeAlias = Mapping[str, Sequence[Floats]]  # model -> normalised scores (n,) in each environment


def complete_strata(finals: Sequence[FinalScores], scales: Sequence[Scale]) -> Strata:
    """Normalised scores of the models that have scores in every environment."""
    scale_of = {scale.env: scale for scale in scales}
    strata: dict[str, list[Floats]] = {}
    # In a fixed order, because environments draw their resamples from one stream, one after another.
    for final in sorted(finals, key=lambda final: final.env):
        strata.setdefault(final.label, []).append(scale_of[final.env].normalised(final.scores))
    return {label: groups for label, groups in strata.items() if len(groups) == len(scale_of)}


def aggregate_scores(strata: Strata) -> list[Aggregate]:
    """Every model, the highest interquartile mean first."""
    aggregates = [
        Aggregate(
            label,
            sum(map(len, scores)),
            mean=float(np.mean([x.mean() for x in scores])),
            iqm=float(pooled_iqm([x[None] for x in scores])[0]),
            mean_interval=stratified(scores, mean_of_means),
            iqm_interval=stratified(scores, pooled_iqm),
        )
        for label, scores in strata.items()
    ]
    return sorted(aggregates, key=lambda aggregate: -aggregate.iqm)


def pooled_iqm(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) of several environments -> the interquartile mean of all their scores (R,)."""
    rows = np.sort(np.concatenate(groups, axis=1), axis=1)
    return np.asarray(rows @ iqm_weights(rows.shape[1]))


def mean_of_means(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) of several environments -> the mean of their means (R,)."""
    # Every environment has the same weight, however many seeds it has.
    return np.mean([rows.mean(1) for rows in groups], axis=0)


def profile_grid(strata: Strata) -> Floats:
    """Scores at which profiles are computed (P,): from the worst run (at most 0) to the best (at least 1)."""
    scores = [x for groups in strata.values() for x in groups]
    low = min([0.0, *(x.min() for x in scores)])
    return np.linspace(low, max([1.0, *(x.max() for x in scores)]), PROFILE_POINTS)


def profiles(strata: Strata, grid: Floats) -> list[Profile]:
    """The share of runs above each score, as the mean over environments."""
    curves: list[Profile] = []
    for label, groups in strata.items():
        shares = np.stack([(x[:, None] > grid).mean(0) for x in groups])
        ends = [share_interval(share, len(x)) for share, x in zip(shares, groups, strict=True)]
        low, high = (np.stack(column) for column in zip(*ends, strict=True))
        curves.append(Profile(label, *mean_of_shares(shares, low, high)))
    return curves


def improvements(finals: Sequence[FinalScores], ranked: Sequence[str]) -> list[Improvement]:
    """Each pair of models over the environments in which both have scores, the higher ranked first."""
    by_env = {(final.env, final.label): final.ranked for final in finals}
    envs = sorted({final.env for final in finals})
    pairs: list[Improvement] = []
    for label, other in combinations(ranked, 2):
        common = [env for env in envs if (env, label) in by_env and (env, other) in by_env]
        if common:
            scores = [(by_env[env, label], by_env[env, other]) for env in common]
            probability, interval = improvement(scores)
            pairs.append(Improvement(label, other, probability, interval, rank_test(scores), len(common)))
    return pairs


def improvement(strata: Sequence[tuple[Floats, Floats]]) -> tuple[float, Interval]:
    """Scores (n,) and (m,) in each environment -> the probability that a run of the first model wins."""
    shares = np.array([win_share(x, y) for x, y in strata])
    ends = [_win_ends(float(share), len(x), len(y)) for share, (x, y) in zip(shares, strata, strict=True)]
    low, high = (np.array(column) for column in zip(*ends, strict=True))
    mean, below, above = mean_of_shares(shares, low, high)
    return float(mean), Interval(float(below), float(above))


@lru_cache
def _win_ends(share: float, n: int, m: int) -> tuple[float, float]:
    """The interval of a share of n m pairs. Few shares are possible, and each takes a search."""
    low, high = wins_interval(np.array(share), n, m)
    return float(low), float(high)


def win_share(x: Floats, y: Floats) -> float:
    """The share of pairs in which x (n,) is above y (m,); a tie counts half."""
    above, equal = x[:, None] > y, x[:, None] == y
    return float(np.mean(above + 0.5 * equal))


def model_differences(finals: Sequence[FinalScores]) -> list[ModelDifference]:
    """All pairs of models within each environment, the better model first."""
    pairs: list[ModelDifference] = []
    for env in sorted({final.env for final in finals}):
        ranked = sorted((f for f in finals if f.env == env), key=lambda final: -final.mean)
        by_label = {final.label: final for final in ranked}
        pairs += [model_difference(by_label[a], by_label[b]) for a, b in combinations(by_label, 2)]
    return pairs


def model_difference(better: FinalScores, worse: FinalScores) -> ModelDifference:
    """Compare two models of one environment."""
    x, y, ranked = better.scores, worse.scores, (better.ranked, worse.ranked)
    wins, interval_of_wins = improvement([ranked])
    failed = len(better.failed) + len(worse.failed)
    return ModelDifference(
        env=better.env,
        better=better.label,
        worse=worse.label,
        by=better.mean - worse.mean,
        interval=stratified([x, y], difference_of_means),
        iqm_by=better.iqm - worse.iqm,
        iqm_interval=stratified([x, y], difference_of_iqms),
        p=rank_test([ranked]) if failed else compare_means(x, y),
        wins=wins,
        wins_interval=interval_of_wins,
        failed=failed,
    )


def difference_of_means(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) and (R, m) of two models -> (R,)."""
    return np.asarray(groups[0].mean(1) - groups[1].mean(1))


def difference_of_iqms(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) and (R, m) of two models -> (R,)."""
    first, second = (np.sort(rows, axis=1) @ iqm_weights(rows.shape[1]) for rows in groups)
    return np.asarray(first - second)


@dataclass(frozen=True)
class Family:
    """All tests of a report; their p-values are adjusted together (Holm)."""

    differences: list[ModelDifference]
    improvements: list[Improvement]

    @property
    def tests(self) -> int:
        """Number of tests; a pair with a single seed has none."""
        return sum(not math.isnan(p) for p in self._p_values())

    def adjusted(self) -> "Family":
        """The same tests with adjusted p-values."""
        p_values, count = holm(self._p_values()), len(self.differences)
        return Family(
            [replace(x, p=p) for x, p in zip(self.differences, p_values[:count], strict=True)],
            [replace(x, p=p) for x, p in zip(self.improvements, p_values[count:], strict=True)],
        )

    def _p_values(self) -> list[float]:
        return [x.p for x in self.differences] + [x.p for x in self.improvements]
