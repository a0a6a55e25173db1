"""Intervals over a few seeds that hold what they promise.

The percentile bootstrap is too narrow for a few seeds: of intervals that claim 95 % about 75 % hold
for 3 seeds, 85 % for 5, and 91 % for 10 (docs/reports.md has the table, benchmarks/intervals.py
makes it). Two things are missing, and both are known. Resamples of n values vary less than the
values by (n - 1) / n, and a deviation that is itself estimated asks for Student's t instead of the
normal distribution. So the percentiles are taken, and their distances from the estimate multiplied
by what is missing. For many seeds the factor is 1.

Shares (of runs above a score, of pairs that are won) get score intervals instead: a bootstrap of
runs that all won knows no doubt at all.

Shapes.  n seeds, P points of a curve, R resamples.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .statistics import iqm

Floats: TypeAlias = NDArray[np.float64]

RESAMPLES = 50_001  # with 2,001 the end of an interval of lumpy scores depended on the draw
MERGED = 20  # seeds: of more, resamples hardly ever agree
ENDS = [1250, 48_750]  # of so many sorted resamples: what 2.5 % are below, and what 2.5 % are above
NORMAL = 1.959964  # the 97.5 % quantile


class Interval(NamedTuple):
    """Where 95 of 100 such intervals hold what they are about."""

    low: float
    high: float


# One group of seeds ---------------------------------------------------------------------------


def mean_weights(n: int) -> Floats:
    """What sorted values (n,) are multiplied by for their mean."""
    return np.full(n, 1 / n)


@lru_cache
def iqm_weights(n: int) -> Floats:
    """What sorted values (n,) are multiplied by for their interquartile mean."""
    # The mean of a step from 0 to 1 is the sum of the weights of its ones.
    steps = [iqm(np.arange(n) >= n - ones) for ones in range(n + 1)]
    return np.diff(steps)[::-1]


def band(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Values of seeds (n, P) -> the interval of their weighted mean at each point (P,), (P,)."""
    ordered = np.sort(values, axis=0)
    low, high = ends_of_means(ordered, weights)
    return stretched(weights @ ordered, low, high, one_factor(len(values)))


def stretched(centre: Floats, low: Floats, high: Floats, factor: float) -> tuple[Floats, Floats]:
    """Percentiles, further away from the estimate."""
    below, above = np.maximum(centre - low, 0), np.maximum(high - centre, 0)
    return centre - factor * below, centre + factor * above


def one_factor(n: int) -> float:
    """How much wider than the percentiles the interval of one group must be."""
    return math.sqrt(n / (n - 1)) * student(n - 1) / NORMAL


def ends_of_means(ordered: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Sorted values (n, P) -> the percentiles of their resampled weighted mean (P,), (P,)."""
    drawn, times = resamples(tuple(weights))
    return quantiles(ordered.T @ drawn.T, times)


def quantiles(values: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Values (..., U), each drawn so many times (U,) -> ends of the middle 95 % of draws (...,), (...,)."""
    order = np.argsort(values, axis=-1)
    below = np.cumsum(times[order], axis=-1)
    places = [(below <= end).sum(-1, keepdims=True) for end in ENDS]
    low, high = (np.take_along_axis(values, np.take_along_axis(order, at, -1), -1)[..., 0] for at in places)
    return low, high


@lru_cache
def resamples(weights: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Rows (U, n) whose product with sorted values is the weighted mean of a resample, and how often each
    was drawn (U,).

    A resample of sorted values is known by the places it takes, so all points of all curves share one set
    of resamples and are one product. Most resamples have the same interquartile mean as others.
    """
    n = len(weights)
    places = np.sort(_random().integers(n, size=(RESAMPLES, n)), axis=1)
    rows = np.arange(RESAMPLES)[:, None] * n
    spread = np.tile(weights, RESAMPLES)
    sums = np.bincount((rows + places).ravel(), spread, RESAMPLES * n).reshape(RESAMPLES, n)
    if n > MERGED:
        return np.asarray(sums, dtype=np.float64), np.ones(RESAMPLES)
    distinct, times = np.unique(np.round(sums, 12), axis=0, return_counts=True)
    return np.asarray(distinct, dtype=np.float64), times.astype(np.float64)


# Several groups -------------------------------------------------------------------------------

Statistic: TypeAlias = Callable[[Sequence[Floats]], Floats]


def stratified(strata: Sequence[Floats], statistic: Statistic) -> Interval | None:
    """The interval of a statistic of several groups of seeds, each resampled in itself.

    statistic  groups of rows (R, n) each -> (R,)
    None where a group has one seed: nothing is known of chance there.
    """
    if any(len(scores) < 2 for scores in strata):
        return None
    ordered = [np.sort(scores) for scores in strata]  # the order of seeds must not matter
    low, high = percentiles(ordered, statistic)
    centre = statistic([scores[None] for scores in ordered])
    bounds = stretched(centre, np.array([low]), np.array([high]), factor(ordered))
    return Interval(float(bounds[0][0]), float(bounds[1][0]))


def percentiles(strata: Sequence[Floats], statistic: Statistic) -> tuple[float, float]:
    """The stratified percentile bootstrap, as the literature has it."""
    random = _random()
    drawn = [x[random.integers(len(x), size=(RESAMPLES, len(x)))] for x in strata]
    low, high = np.partition(statistic(drawn), ENDS)[ENDS]
    return float(low), float(high)


def factor(strata: Sequence[Floats]) -> float:
    """How much wider than the percentiles an interval over several groups must be.

    Each group counts as much as it adds to the variance; Welch's degrees of freedom.
    """
    sizes = np.array([len(scores) for scores in strata])
    variances = np.array([np.var(scores, ddof=1) for scores in strata]) / sizes
    if variances.sum() == 0:
        return 1.0
    parts = variances / variances.sum()
    missing = 1 / (parts * (sizes - 1) / sizes).sum()
    freedom = 1 / (parts**2 / (sizes - 1)).sum()
    return math.sqrt(missing) * student(float(freedom)) / NORMAL


@lru_cache
def student(freedom: float) -> float:
    """The 97.5 % quantile of Student's t."""
    angles, mass = _student_angles(min(freedom, MANY_DEGREES))
    return math.sqrt(min(freedom, MANY_DEGREES)) * math.tan(float(np.interp(0.95, mass, angles)))


def student_p(t: float, freedom: float) -> float:
    """The probability that Student's t is further from 0 than t, on either side."""
    freedom = min(freedom, MANY_DEGREES)
    angles, mass = _student_angles(freedom)
    return max(0.0, 1 - float(np.interp(math.atan(abs(t) / math.sqrt(freedom)), angles, mass)))


MANY_DEGREES = 1000.0  # of freedom: beyond, t is normal to three digits


@lru_cache
def _student_angles(freedom: float) -> tuple[Floats, Floats]:
    """Angles, and how probable it is that atan(|t| / sqrt(freedom)) is below each.

    t = sqrt(freedom) tan(angle), whose density is cos(angle)^(freedom - 1).
    """
    cells = 20_000
    edges = np.linspace(0, math.pi / 2, cells + 1)
    density = np.cos((edges[1:] + edges[:-1]) / 2) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum(density)])
    return edges, mass / mass[-1]


def _random() -> np.random.Generator:
    """The same numbers every time: a report of the same runs is the same report."""
    return np.random.Generator(np.random.Philox(0))


# Shares ---------------------------------------------------------------------------------------


def share_interval(share: Floats, n: int) -> tuple[Floats, Floats]:
    """Of n runs, the share that did something (...,): Wilson's interval of its probability."""
    return _score_interval(share, lambda p: p * (1 - p) / n)


def wins_interval(share: Floats, n: int, m: int) -> tuple[Floats, Floats]:
    """Of n m pairs, the share that the first won (...,): the interval of the probability to win."""
    return _score_interval(share, lambda p: wins_variance(p, n, m))


def wins_variance(p: Floats, n: int, m: int) -> Floats:
    """Of the share of n m pairs that are won, where the probability to win is p (...,).

    Pairs share runs, so they are no n m trials: the variance is that of Hanley and McNeil, in the form of
    Newcombe's fifth method (2006).
    """
    extra = (n + m) / 2 - 1
    return p * (1 - p) / (n * m) * (1 + extra * ((1 - p) / (2 - p) + p / (1 + p)))


def paired_interval(lost: float, won: float, n: int) -> Interval:
    """Of n pairs, a share was lost and another won: the interval of the difference, lost minus won.

    Newcombe's (1998) way from the intervals of two shares to that of their difference, where no pair can
    be both. Pairs that never differ leave as much doubt as n of them do.
    """
    shares = np.array([lost, won])
    (p, q), (low, high) = shares, share_interval(shares, n)
    odds = p * q / max((1 - p) * (1 - q), 1e-12)
    bound = -math.sqrt(odds)  # how far the one says that the other is not

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(one**2 - 2 * bound * one * other + other**2, 0.0))

    below, above = reach(p - low[0], high[1] - q), reach(high[0] - p, q - low[1])
    return Interval(float(p - q - below), float(p - q + above))


def mean_of_shares(shares: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """The mean of independent shares (K, ...) and its interval: distances squared and added."""
    mean, k = shares.mean(0), len(shares)
    below = np.sqrt(((shares - low) ** 2).sum(0)) / k
    above = np.sqrt(((high - shares) ** 2).sum(0)) / k
    # Distances that are added up may pass the ends of what a share can be.
    return mean, np.maximum(mean - below, 0), np.minimum(mean + above, 1)


def most_failures(n: int) -> float:
    """Of n runs none failed: the probability of failing is below this, with 95 % confidence."""
    return float(1 - 0.05 ** (1 / n))


def _score_interval(share: Floats, variance: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """Every probability that the share seen is not too far from, found by halving."""

    def edge(far: float) -> Floats:
        inside, outside = share.astype(np.float64), np.full(share.shape, far)
        for _ in range(40):
            middle = (inside + outside) / 2
            fits = np.abs(share - middle) <= NORMAL * np.sqrt(variance(middle))
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return inside

    return edge(0.0), edge(1.0)
