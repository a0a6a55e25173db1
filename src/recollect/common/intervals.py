"""95 % confidence intervals with the right coverage for few seeds.

The percentile bootstrap is too narrow for few seeds: its 95 % intervals cover the true value in about 75 %
of cases for 3 seeds, 85 % for 5, and 91 % for 10 (table in docs/reports.md, computed by
benchmarks/intervals.py). There are two reasons. The variance of resamples of n values is smaller than that
of the values by the factor (n - 1) / n. And a standard deviation that is itself estimated needs Student's t
instead of the normal distribution. So the distances of the percentiles from the estimate are multiplied by a
factor for both, which is 1 for many seeds.

Sums over few episodes that may be skewed get a bootstrap-t (ratio_interval).

Shares (of runs above a score, of pairs that are won) get score intervals instead: a bootstrap of runs that
all won would have width 0.

Shapes.  n seeds, P points of a curve, R resamples.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .statistics import bootstrap, iqm

Floats: TypeAlias = NDArray[np.float64]

RESAMPLES = 50_001  # with 2,001, intervals of scores with few distinct values depended on the draw
MERGED = 20  # seeds; resamples of more seeds are almost never equal, so merging them gains nothing
BLOCK = 32  # points whose resamples are computed together
SMALLEST_ERROR = 0.25  # of a resample, in standard errors of the sample
ENDS = [1250, 48_750]  # indices of the 2.5 % and 97.5 % quantiles among sorted resamples
NORMALS = {0.95: 1.959964, 0.9: 1.644854}  # level -> half the width of a standard normal interval
NORMAL = NORMALS[0.95]


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


# One group of seeds ---------------------------------------------------------------------------


def mean_weights(n: int) -> Floats:
    """The weights of sorted values (n,) in their mean."""
    return np.full(n, 1 / n)


@lru_cache
def iqm_weights(n: int) -> Floats:
    """The weights of sorted values (n,) in their interquartile mean."""
    # The weighted mean of values that are 0 or 1 is the sum of the weights of the ones.
    steps = [iqm(np.arange(n) >= n - ones) for ones in range(n + 1)]
    return np.diff(steps)[::-1]


def band(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Values of seeds (n, P) -> the interval of their weighted mean at each point (P,), (P,)."""
    ordered = np.sort(values, axis=0)
    low, high = ends_of_means(ordered, weights)
    return stretched(weights @ ordered, low, high, one_factor(len(values)))


def mean_interval(values: Floats) -> Interval | None:
    """The interval of the mean of few or many values (n,); None for one value, or if all are equal."""
    if len(values) < 2 or are_equal(values):
        return None
    low, high = np.array(bootstrap(values))[:, None]
    ends = stretched(values.mean(keepdims=True), low, high, one_factor(len(values)))
    return Interval(float(ends[0][0]), float(ends[1][0]))


def are_equal(values: Floats) -> bool:
    """Whether several values (n,) are all the same, so that a bootstrap interval would have no width."""
    return len(values) > 1 and bool(np.ptp(values) <= 1e-9 * (1 + abs(values[0])))


def stretched(centre: Floats, low: Floats, high: Floats, factor: float) -> tuple[Floats, Floats]:
    """Percentiles of resamples, with their distances from the estimate multiplied by a factor."""
    below, above = np.maximum(centre - low, 0), np.maximum(high - centre, 0)
    return centre - factor * below, centre + factor * above


def one_factor(n: int) -> float:
    """The factor by which the interval of one group is wider than the percentiles."""
    return math.sqrt(n / (n - 1)) * student(n - 1) / NORMAL


def ends_of_means(ordered: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Sorted values (n, P) -> the percentiles of their resampled weighted mean (P,), (P,)."""
    drawn, times = resamples(tuple(weights))
    # The means of all points at once would not fit into the cache, and take three times as long.
    starts = range(0, max(ordered.shape[1], 1), BLOCK)
    blocks = [quantiles(ordered[:, start : start + BLOCK].T @ drawn.T, times) for start in starts]
    lows, highs = zip(*blocks, strict=True)
    return np.concatenate(lows), np.concatenate(highs)


def quantiles(values: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Values (..., U), each drawn `times` (U,) -> ends of the middle 95 % of draws (...,), (...,)."""
    # Each was drawn at least once, so an end is among so many extreme values. Sorting all takes
    # six times as long.
    count = min(ENDS[0] + 1, values.shape[-1])
    places = np.argpartition(values, (count - 1, values.shape[-1] - count), axis=-1)
    return _end(values, times, places[..., :count], 1), _end(values, times, places[..., -count:], -1)


def _end(values: Floats, times: Floats, places: NDArray[np.intp], direction: int) -> Floats:
    """The draw (...,) of index ENDS[0], counted from below (1) or from above (-1)."""
    kept = np.take_along_axis(values, places, -1)
    order = np.argsort(kept, axis=-1)[..., ::direction]
    counted = np.cumsum(np.take_along_axis(times[places], order, -1), axis=-1)
    at = np.take_along_axis(order, (counted <= ENDS[0]).sum(-1, keepdims=True), -1)
    return np.take_along_axis(kept, at, -1)[..., 0]


@lru_cache
def resamples(weights: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Resamples as rows of weights (U, n), and how often each was drawn (U,).

    The product of a row with sorted values is the weighted mean of the resample. Rows depend on ranks and
    not on values, so all points of all curves share them and need one matrix product. Equal rows are merged,
    because most resamples have the same interquartile mean as others.
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


def ratio_interval(sums: Floats, counts: Floats) -> Interval:
    """The interval of a mean over steps, from the sums (E,) and the counts (E,) of several episodes.

    A bootstrap-t: the distance of each resample from the estimate is divided by its own standard error.
    Percentiles are too narrow above where few episodes have most of the sum, as with divergences.
    """
    n, ratio = len(sums), float(sums.sum() / counts.sum())
    drawn, times = resamples(tuple(mean_weights(n)))
    drawn_counts = drawn @ counts
    ratios = (drawn @ sums) / drawn_counts
    squares = drawn @ sums**2 - 2 * ratios * (drawn @ (sums * counts)) + ratios**2 * (drawn @ counts**2)
    errors = np.sqrt(np.maximum(squares, 0)) / drawn_counts
    error = float(np.sqrt(np.mean((sums - ratio * counts) ** 2)) / counts.mean())
    # Without a limit, a resample of equal episodes, whose error is 0, would be infinitely far.
    distances = (ratios - ratio) / np.maximum(errors, max(SMALLEST_ERROR * error, 1e-300))
    low, high = quantiles(distances, times)
    return Interval(float(ratio - high * error), float(ratio - low * error))


# Several groups -------------------------------------------------------------------------------

Statistic: TypeAlias = Callable[[Sequence[Floats]], Floats]


def stratified(strata: Sequence[Floats], statistic: Statistic) -> Interval | None:
    """The interval of a statistic of several groups of seeds, each resampled separately.

    statistic  resamples (R, n) of each group -> (R,)

    None if a group has one seed, whose variance is unknown.
    """
    if any(len(scores) < 2 for scores in strata):
        return None
    ordered = [np.sort(scores) for scores in strata]  # so that the order of seeds changes nothing
    low, high = percentiles(ordered, statistic)
    centre = statistic([scores[None] for scores in ordered])
    bounds = stretched(centre, np.array([low]), np.array([high]), factor(ordered))
    return Interval(float(bounds[0][0]), float(bounds[1][0]))


def percentiles(strata: Sequence[Floats], statistic: Statistic) -> tuple[float, float]:
    """The stratified percentile bootstrap, as in the literature."""
    places = _places(tuple(map(len, strata)))
    drawn = [x[chosen.astype(np.intp)] for x, chosen in zip(strata, places, strict=True)]
    low, high = np.partition(statistic(drawn), ENDS)[ENDS]
    return float(low), float(high)


@lru_cache(16)
def _places(sizes: tuple[int, ...]) -> list[NDArray[np.int_]]:
    """The seeds (R, n) that are drawn from groups of these sizes."""
    # Drawing takes longer than most statistics, and a report has many groups of equal sizes.
    random = _random()
    return [random.integers(n, size=(RESAMPLES, n)).astype(np.min_scalar_type(n)) for n in sizes]


def factor(strata: Sequence[Floats], level: float = 0.95) -> float:
    """The factor by which an interval over several groups is wider than the percentiles.

    Groups are weighted by their share of the variance; the degrees of freedom are Welch's.
    """
    sizes = np.array([len(scores) for scores in strata])
    return combined_factor(np.array([np.var(scores, ddof=1) for scores in strata]) / sizes, sizes, level)


def combined_factor(variances: Floats, sizes: NDArray[np.int_], level: float = 0.95) -> float:
    """The factor for a sum over groups, from the variance that each contributes (K,) and its seeds (K,)."""
    if variances.sum() == 0:
        return 1.0
    parts = variances / variances.sum()
    missing = 1 / (parts * (sizes - 1) / sizes).sum()
    freedom = 1 / (parts**2 / (sizes - 1)).sum()
    return math.sqrt(missing) * student(float(freedom), level) / NORMALS[level]


@lru_cache
def student(freedom: float, level: float = 0.95) -> float:
    """The value that the absolute value of Student's t, with so many degrees of freedom, exceeds with
    probability 1 - level."""
    angles, mass = _student_angles(min(freedom, MANY_DEGREES))
    return math.sqrt(min(freedom, MANY_DEGREES)) * math.tan(float(np.interp(level, mass, angles)))


def student_p(t: float, freedom: float) -> float:
    """The two-sided p-value of a value t of Student's t."""
    freedom = min(freedom, MANY_DEGREES)
    angles, mass = _student_angles(freedom)
    return max(0.0, 1 - float(np.interp(math.atan(abs(t) / math.sqrt(freedom)), angles, mass)))


MANY_DEGREES = 1000.0  # of freedom; beyond, Student's t equals the normal distribution to three digits


@lru_cache
def _student_angles(freedom: float) -> tuple[Floats, Floats]:
    """Angles, and the probability that atan(|t| / sqrt(freedom)) is below each.

    t = sqrt(freedom) tan(angle), whose density is cos(angle)^(freedom - 1).
    """
    cells = 20_000
    edges = np.linspace(0, math.pi / 2, cells + 1)
    density = np.cos((edges[1:] + edges[:-1]) / 2) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum(density)])
    return edges, mass / mass[-1]


def _random() -> np.random.Generator:
    """A generator with a fixed seed, so that the same runs always give the same report."""
    return np.random.Generator(np.random.Philox(0))


# Shares ---------------------------------------------------------------------------------------


def share_interval(share: Floats, n: int) -> tuple[Floats, Floats]:
    """Wilson's interval of a probability, from the share (...,) of n runs in which the event happened."""
    return _score_interval(share, lambda p: p * (1 - p) / n)


def wins_interval(share: Floats, n: int, m: int) -> tuple[Floats, Floats]:
    """The interval of the probability of winning, from the share (...,) of n m pairs that were won."""
    return _score_interval(share, lambda p: wins_variance(p, n, m))


def wins_variance(p: Floats, n: int, m: int) -> Floats:
    """The variance of the share of n m pairs that are won, for a probability p (...,) of winning.

    Pairs share runs, so they are not n m independent trials. The variance is that of Hanley and McNeil, in
    the form of Newcombe's fifth method (2006).
    """
    extra = (n + m) / 2 - 1
    return p * (1 - p) / (n * m) * (1 + extra * ((1 - p) / (2 - p) + p / (1 + p)))


def paired_interval(lost: float, won: float, n: int) -> Interval:
    """The interval of the difference of two shares of n pairs, lost minus won.

    Newcombe's (1998) method for paired shares that exclude each other. Where no pair differs, its width is
    that of n observations without an event.
    """
    shares = np.array([lost, won])
    (p, q), (low, high) = shares, share_interval(shares, n)
    odds = p * q / max((1 - p) * (1 - q), 1e-12)
    bound = -math.sqrt(odds)  # correlation of the two shares

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(one**2 - 2 * bound * one * other + other**2, 0.0))

    below, above = reach(p - low[0], high[1] - q), reach(high[0] - p, q - low[1])
    return Interval(float(p - q - below), float(p - q + above))


def mean_of_shares(shares: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """The mean of independent shares (K, ...) and its interval, from the sums of squared distances."""
    mean, k = shares.mean(0), len(shares)
    below = np.sqrt(((shares - low) ** 2).sum(0)) / k
    above = np.sqrt(((high - shares) ** 2).sum(0)) / k
    # Combined distances may exceed the range of a share.
    return mean, np.maximum(mean - below, 0), np.minimum(mean + above, 1)


def most_failures(n: int) -> float:
    """The largest probability of failure, with 95 % confidence, if none of n runs failed."""
    return float(1 - 0.05 ** (1 / n))


def describe_equal(n: int, of: str = "seeds") -> str:
    """In place of an interval, if n values are all equal: a binomial bound on others."""
    return (
        f"all {n} {of} are equal; with 95 % confidence, at most {most_failures(n):.0%} of further {of} differ"
    )


def _score_interval(share: Floats, variance: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """Wilson's interval: all probabilities from which the share is not significantly far, by bisection."""

    def edge(far: float) -> Floats:
        inside, outside = share.astype(np.float64), np.full(share.shape, far)
        for _ in range(40):
            middle = (inside + outside) / 2
            fits = np.abs(share - middle) <= NORMAL * np.sqrt(variance(middle))
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return inside

    return edge(0.0), edge(1.0)
