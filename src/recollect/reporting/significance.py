"""Tests of differences between two groups of seeds, and the adjustment for multiple tests.

At the 5 % level, one test in 20 reports a difference between equal models. A report makes many tests, so
their p-values are adjusted (Holm, 1979): the probability that a report of equal models names any difference
stays below 5 %, even if the tests depend on each other.

Shapes.  n seeds of one model, m of another.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ..common.intervals import Floats, student_p

LEVEL = 0.05
STEPS = 1000  # of the range of scores, to which the permutation test rounds them
FINEST = 20_000  # steps of the statistic of the rank test within a stratum; its time is the square of it
MANY_SEEDS = 30  # with more in both groups, Welch's test and the permutation test agree

SeedScores: TypeAlias = Sequence[float] | Floats


def welch(x: Floats, y: Floats) -> float:
    """Welch's t-test, two-sided: p of equal means of x (n,) and y (m,); NaN for one seed."""
    if min(len(x), len(y)) < 2:
        return math.nan
    difference = abs(float(x.mean() - y.mean()))
    variances = np.array([x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)])
    spread = math.sqrt(variances.sum())
    if spread <= 1e-12 * max(1.0, float(abs(x).max()), float(abs(y).max())):
        return 1.0 if difference <= spread else 0.0
    freedom = variances.sum() ** 2 / (variances**2 / [len(x) - 1, len(y) - 1]).sum()
    return student_p(difference / spread, float(freedom))


def permutation_test(x: Floats, y: Floats) -> float:
    """Exact permutation test of the means of x (n,) and y (m,), two-sided; NaN if a group has one seed.

    The null distribution is that of all assignments of the scores to two groups of these sizes. Scores are
    rounded to STEPS of their range, so that the sums of all assignments can be counted. Assignments within
    the rounding error of the observed one count as extreme, so that p is never too small.
    """
    if min(len(x), len(y)) < 2:
        return math.nan
    if len(x) > len(y):
        x, y = y, x  # the smaller group has fewer sums
    pooled = np.concatenate([x, y])
    scores = np.rint((pooled - pooled.min()) / (np.ptp(pooled) or 1.0) * STEPS).astype(int)
    probabilities = _sums(scores.tolist(), len(x))
    expected = scores.sum() * len(x) / len(pooled)
    distance = np.abs(np.arange(len(probabilities)) - expected)
    # Half a step for each of the n scores, in both sums and twice in their expectation.
    error = 2 * len(x)
    return min(1.0, float(probabilities[distance >= abs(scores[: len(x)].sum() - expected) - error].sum()))


def compare_means(x: Floats, y: Floats) -> float:
    """p of equal means of x (n,) and y (m,): the larger p-value of Welch's and the permutation test.

    Welch's test alone is wrong where few seeds either succeed or fail: two groups without spread, three
    failures and three successes, get p = 0, although equal models do this in one of 32 pairs if half of their
    seeds fail. The permutation test holds for any distribution of scores. In return, its p-value has a lower
    bound (smallest_p).
    """
    if min(len(x), len(y)) > MANY_SEEDS:
        return welch(x, y)
    return max(welch(x, y), permutation_test(x, y))


def smallest_p(n: int, m: int) -> float:
    """The smallest possible p-value of the permutation test of two groups of n and m scores: of groups of one
    size, two assignments have the largest difference, otherwise one."""
    return (1 + (n == m)) / math.comb(n + m, n)


def fisher(a: int, of_a: int, b: int, of_b: int) -> float:
    """Fisher's exact test, two-sided: a of of_a runs compared with b of of_b runs."""
    counts = range(max(0, a + b - of_b), min(of_a, a + b) + 1)
    ways = {k: math.comb(of_a, k) * math.comb(of_b, a + b - k) for k in counts}
    return float(Fraction(sum(way for way in ways.values() if way <= ways[a]), sum(ways.values())))


def mann_whitney(a: SeedScores, b: SeedScores) -> float:
    """The Mann-Whitney test, two-sided and exact with ties; infinite values rank last."""
    return rank_test([(a, b)])


def rank_test(strata: Sequence[tuple[SeedScores, SeedScores]]) -> float:
    """Stratified rank test, two-sided and exact with ties: p of the scores (n,) and (m,) having the same
    distribution in every stratum; NaN if a group has one seed.

    The statistic is the share of the n m pairs in which the first is larger, averaged over the strata. Its
    null distribution is that of all assignments of the scores of a stratum to two groups of these sizes.
    """
    if any(min(len(a), len(b)) < 2 for a, b in strata):
        return math.nan
    # A common denominator: strata of different sizes have different steps. Where it is large, steps are
    # rounded, and whatever rounding may have moved below the observed value counts as well.
    common = math.lcm(*(len(a) * len(b) for a, b in strata))
    unit = min(common, FINEST)
    moved = len(strata) if common > FINEST else 0
    ways, observed = np.ones(1), 0
    for a, b in strata:
        probabilities, balance = _pairs_won(a, b)
        pairs = len(a) * len(b)
        spread = np.zeros(len(ways) + 2 * unit)
        for won in np.flatnonzero(probabilities):
            place = unit + round((won - pairs) * unit / pairs)
            spread[place : place + len(ways)] += probabilities[won] * ways
        ways, observed = spread, observed + round(balance * unit / pairs)
    distance = np.abs(np.arange(len(ways)) - len(strata) * unit)
    return min(1.0, float(ways[distance >= abs(observed) - moved].sum()))


def _pairs_won(a: SeedScores, b: SeedScores) -> tuple[Floats, int]:
    """Pairs won minus pairs lost by the first group: the probabilities of -n m to n m (2 n m + 1,) under
    random assignment to the groups, and the observed number."""
    n, m = len(a), len(b)
    pooled = np.concatenate([a, b])
    # Twice the mean rank of equal values, so that all ranks are integers.
    ranks = (pooled[:, None] > pooled).sum(1) + (pooled[:, None] >= pooled).sum(1) + 1
    sums = _sums(ranks.tolist(), n)
    lowest = n * (n + 1)  # twice the sum of the first n ranks
    return sums[lowest : lowest + 2 * n * m + 1], int(ranks[:n].sum()) - lowest - n * m


def _sums(scores: Sequence[int], size: int) -> Floats:
    """Probability of each sum of scores (or ranks) in a group of this size under random assignment."""
    largest = sum(sorted(scores)[-size:])
    ways = np.zeros((size + 1, largest + 1))  # by number of scores in the group so far, and their sum
    ways[0, 0] = 1
    for score in scores:
        more = ways.copy()
        more[1:, score:] += ways[:-1, : largest + 1 - score]
        ways = more
    # The counts overflow a float from about 500 values per group; a report has tens.
    return np.asarray(ways[size] / ways[size].sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values with Holm's adjustment; NaN (no test) is not counted and stays NaN."""
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, largest = list(p_values), 0.0
    for rank, i in enumerate(sorted(tested, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
