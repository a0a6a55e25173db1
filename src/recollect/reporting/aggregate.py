"""Models beside each other: within one environment, and over all of them.

Shapes.  n seeds of one model, m of another, K environments, P points of a profile.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

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
from .scores import Final, Scale
from .significance import LEVEL, holm, rank_test, welch

PROFILE_POINTS = 51
MANY = 8  # models; of more, only pairs with the best are shown


@dataclass(frozen=True)
class Difference:
    """Two models in one environment; `better` has the higher mean."""

    env: str
    better: str
    worse: str
    by: float
    """The difference of the means."""
    interval: Interval | None
    """None where one of them has one seed."""
    iqm_by: float
    """The difference of the interquartile means."""
    iqm_interval: Interval | None
    p: float
    """Of equal means, by Welch's t-test; adjusted for the family once that is known. NaN for one seed."""
    wins: float
    """How often a seed of `better` is above a seed of `worse`; a tie counts half."""
    wins_interval: Interval

    @property
    def differs(self) -> bool:
        """Whether the means differ at the level of the report."""
        return self.p < LEVEL


@dataclass(frozen=True)
class Aggregate:
    """One model over all environments, in scores from 0 to 1."""

    label: str
    seeds: int
    """Runs, of all environments together."""
    mean: float
    iqm: float
    mean_interval: Interval | None
    iqm_interval: Interval | None


@dataclass(frozen=True)
class Profile:
    """The share of runs above each score (P,), with its interval."""

    label: str
    share: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Improvement:
    """How probable it is that a run of one model is above one of another, over their environments."""

    label: str
    other: str
    probability: float
    interval: Interval
    p: float
    """Of equal distributions (rank_test); adjusted for the family once that is known."""
    envs: int

    @property
    def differs(self) -> bool:
        """Whether the probability is not one half, at the level of the report."""
        return self.p < LEVEL


Strata = Mapping[str, Sequence[Floats]]  # model -> normalised scores (n,) in each environment


def complete(finals: Sequence[Final], scales: Sequence[Scale]) -> Strata:
    """The normalised scores of every model that has some in all environments."""
    scale_of = {scale.env: scale for scale in scales}
    found: dict[str, list[Floats]] = {}
    for final in sorted(finals, key=lambda final: final.env):
        found.setdefault(final.label, []).append(scale_of[final.env].normalised(final.scores))
    return {label: strata for label, strata in found.items() if len(strata) == len(scale_of)}


def aggregates(strata: Strata) -> list[Aggregate]:
    """Every model, the best first."""
    made = [
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
    return sorted(made, key=lambda aggregate: -aggregate.iqm)


def pooled_iqm(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) of several environments -> the interquartile mean of all their scores (R,)."""
    rows = np.sort(np.concatenate(groups, axis=1), axis=1)
    return np.asarray(rows @ iqm_weights(rows.shape[1]))


def mean_of_means(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) of several environments -> the mean of their means (R,)."""
    return np.mean([rows.mean(1) for rows in groups], axis=0)


def profile_grid(strata: Strata) -> Floats:
    """The scores that profiles are of (P,): from the worst run, or 0, to the best run, or 1."""
    scores = [x for groups in strata.values() for x in groups]
    low = min([0.0, *(x.min() for x in scores)])
    return np.linspace(low, max([1.0, *(x.max() for x in scores)]), PROFILE_POINTS)


def profiles(strata: Strata, grid: Floats) -> list[Profile]:
    """Which share of the runs is above each score: the mean over environments."""
    made: list[Profile] = []
    for label, groups in strata.items():
        shares = np.stack([(x[:, None] > grid).mean(0) for x in groups])
        ends = [share_interval(share, len(x)) for share, x in zip(shares, groups, strict=True)]
        low, high = (np.stack(column) for column in zip(*ends, strict=True))
        made.append(Profile(label, *mean_of_shares(shares, low, high)))
    return made


def improvements(finals: Sequence[Final], ranked: Sequence[str]) -> list[Improvement]:
    """Each pair of models over the environments that both have been in, the higher ranked first."""
    by_env = {(final.env, final.label): final.scores for final in finals}
    envs = sorted({final.env for final in finals})
    made: list[Improvement] = []
    for label, other in combinations(ranked, 2):
        common = [env for env in envs if (env, label) in by_env and (env, other) in by_env]
        if common:
            both = [(by_env[env, label], by_env[env, other]) for env in common]
            probability, interval = improvement(both)
            made.append(Improvement(label, other, probability, interval, rank_test(both), len(common)))
    return made


def improvement(both: Sequence[tuple[Floats, Floats]]) -> tuple[float, Interval]:
    """Scores (n,) and (m,) in each environment -> the probability that the first wins."""
    shares = np.array([won(x, y) for x, y in both])
    ends = [
        wins_interval(np.array(share), len(x), len(y)) for share, (x, y) in zip(shares, both, strict=True)
    ]
    low, high = (np.array(column) for column in zip(*ends, strict=True))
    mean, below, above = mean_of_shares(shares, low, high)
    return float(mean), Interval(float(below), float(above))


def won(x: Floats, y: Floats) -> float:
    """The share of pairs in which x (n,) is above y (m,); a tie counts half."""
    above, equal = x[:, None] > y, x[:, None] == y
    return float(np.mean(above + 0.5 * equal))


def differences(finals: Sequence[Final]) -> list[Difference]:
    """Pairs of models within each environment, the better first."""
    made: list[Difference] = []
    for env in sorted({final.env for final in finals}):
        ranked = sorted((f for f in finals if f.env == env), key=lambda final: -final.mean)
        by_label = {final.label: final for final in ranked}
        made += [difference(by_label[a], by_label[b]) for a, b in combinations(by_label, 2)]
    return made


def difference(better: Final, worse: Final) -> Difference:
    """Two models of one environment."""
    x, y = better.scores, worse.scores
    by = better.mean - worse.mean
    wins, wins_over = improvement([(x, y)])
    return Difference(
        env=better.env,
        better=better.label,
        worse=worse.label,
        by=by,
        interval=stratified([x, y], difference_of_means),
        iqm_by=better.iqm - worse.iqm,
        iqm_interval=stratified([x, y], difference_of_iqms),
        p=welch(x, y),
        wins=wins,
        wins_interval=wins_over,
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
    """All tests of a report, whose p-values are adjusted together (Holm)."""

    differences: list[Difference]
    improvements: list[Improvement]

    @property
    def tests(self) -> int:
        """How many there are."""
        return sum(not math.isnan(p) for p in self._p_values())

    def adjusted(self) -> "Family":
        """The same with adjusted p-values."""
        p_values, count = holm(self._p_values()), len(self.differences)
        return Family(
            [replace(x, p=p) for x, p in zip(self.differences, p_values[:count], strict=True)],
            [replace(x, p=p) for x, p in zip(self.improvements, p_values[count:], strict=True)],
        )

    def _p_values(self) -> list[float]:
        return [x.p for x in self.differences] + [x.p for x in self.improvements]
