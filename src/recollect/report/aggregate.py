"""Models beside each other: within one environment, and over all of them.

Shapes.  n seeds of one model, m of another, K environments, P points of a profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from .intervals import (
    Floats,
    Interval,
    iqm_weights,
    mean_of_shares,
    share_interval,
    stratified,
    wins_interval,
)
from .scores import Final, Scale

PROFILE_POINTS = 51
MANY = 8  # models; of more, only the best is held against each of the others


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
    wins: float
    """How often a seed of `better` is above a seed of `worse`; a tie counts half."""
    wins_interval: Interval
    seeds_needed: int | None
    """Of each, to tell a difference of this size in four of five tries; None if it cannot be said."""

    @property
    def certain(self) -> bool:
        """Whether the interval of the difference holds no 0."""
        return self.interval is not None and (self.interval.low > 0 or self.interval.high < 0)


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
    envs: int


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
    """The scores that profiles are of (P,): from the worst run, or 0, to 1."""
    scores = [x.min() for groups in strata.values() for x in groups]
    return np.linspace(min([0.0, *scores]), 1.0, PROFILE_POINTS)


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
    for label, other in pairs(ranked):
        common = [env for env in envs if (env, label) in by_env and (env, other) in by_env]
        if common:
            both = [(by_env[env, label], by_env[env, other]) for env in common]
            made.append(Improvement(label, other, *improvement(both), len(common)))
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
        made += [difference(by_label[a], by_label[b]) for a, b in pairs(list(by_label))]
    return made


def difference(better: Final, worse: Final) -> Difference:
    """Two models of one environment."""
    x, y = better.scores, worse.scores
    by = better.mean - worse.mean
    wins, wins_over = improvement([(x, y)])
    interval = stratified([x, y], difference_of_means)
    return Difference(
        better.env, better.label, worse.label, by, interval, wins, wins_over, seeds_needed(x, y)
    )


def difference_of_means(groups: Sequence[Floats]) -> Floats:
    """Rows (R, n) and (R, m) of two models -> (R,)."""
    return np.asarray(groups[0].mean(1) - groups[1].mean(1))


def seeds_needed(x: Floats, y: Floats) -> int | None:
    """Of each of two models, to tell a difference as large as this one, four times in five.

    n = (1.96 + 0.84)^2 (s_x^2 + s_y^2) / d^2, and two for the estimates of the deviations.
    """
    by = abs(float(x.mean() - y.mean()))
    if min(len(x), len(y)) < 2:
        return None
    spread = float(np.sqrt(np.var(x, ddof=1) + np.var(y, ddof=1)))
    if by <= 1e-3 * spread:
        return None
    return int(np.ceil(7.85 * (spread / by) ** 2)) + 2


def pairs(ranked: Sequence[str]) -> list[tuple[str, str]]:
    """All of few models; of many, the first against each of the others."""
    if len(ranked) <= MANY:
        return list(combinations(ranked, 2))
    return [(ranked[0], other) for other in ranked[1:]]
