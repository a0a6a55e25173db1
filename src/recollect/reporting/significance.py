"""Tests of differences between two groups of seeds, and what may be said where there are many.

One test in 20 finds a difference where there is none. A report makes many tests and reads out those that
found something, so their p-values are adjusted (Holm, 1979): the chance that a report of equal models
reads out any difference stays below 5 %, whatever the tests have in common.

Shapes.  n seeds of one model, m of another.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ..common.intervals import Floats, student_p

LEVEL = 0.05

Scores: TypeAlias = Sequence[float] | Floats


def welch(x: Floats, y: Floats) -> float:
    """Welch's t-test: p of the means of x (n,) and y (m,) being equal, on both sides; NaN for one seed."""
    if min(len(x), len(y)) < 2:
        return math.nan
    by = abs(float(x.mean() - y.mean()))
    parts = np.array([x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)])
    spread = math.sqrt(parts.sum())
    if spread <= 1e-12 * max(1.0, float(abs(x).max()), float(abs(y).max())):
        return 1.0 if by <= spread else 0.0
    freedom = parts.sum() ** 2 / (parts**2 / [len(x) - 1, len(y) - 1]).sum()
    return student_p(by / spread, float(freedom))


def fisher(a: int, of_a: int, b: int, of_b: int) -> float:
    """Fisher's exact test, two-sided: a of of_a runs against b of of_b."""
    both = range(max(0, a + b - of_b), min(of_a, a + b) + 1)
    ways = {k: math.comb(of_a, k) * math.comb(of_b, a + b - k) for k in both}
    return float(Fraction(sum(way for way in ways.values() if way <= ways[a]), sum(ways.values())))


def mann_whitney(a: Scores, b: Scores) -> float:
    """The Mann-Whitney test, two-sided and exact with ties.

    infinite  a run that never got there, later than all others
    """
    return rank_test([(a, b)])


def rank_test(strata: Sequence[tuple[Scores, Scores]]) -> float:
    """p of the scores (n,) and (m,) being draws of one distribution in every stratum, two-sided and exact
    with ties; NaN where a group is one seed.

    The statistic is the share of the n m pairs in which the first is larger, averaged over the strata. Its
    distribution is over all ways to deal the scores of each stratum out to two groups of these sizes.
    """
    if any(min(len(a), len(b)) < 2 for a, b in strata):
        return math.nan
    unit = math.lcm(*(len(a) * len(b) for a, b in strata))  # strata of other sizes count in other units
    ways, observed = np.ones(1), 0
    for a, b in strata:
        chances, here = _pairs_won(a, b)
        step = unit // (len(a) * len(b))
        spread = np.zeros(len(ways) + 2 * unit)
        for place in np.flatnonzero(chances):
            spread[place * step : place * step + len(ways)] += chances[place] * ways
        ways, observed = spread, observed + step * here
    away = np.abs(np.arange(len(ways)) - len(strata) * unit)
    return min(1.0, float(ways[away >= abs(observed)].sum()))


def _pairs_won(a: Scores, b: Scores) -> tuple[Floats, int]:
    """Pairs won minus pairs lost by the first group: the probabilities of -n m to n m (2 n m + 1,) if groups
    are dealt out at random, and the number observed."""
    n, m = len(a), len(b)
    both = np.concatenate([a, b])
    # Twice the mean rank of equal values, so that all ranks are whole.
    ranks = (both[:, None] > both).sum(1) + (both[:, None] >= both).sum(1) + 1
    sums = _rank_sums(ranks.tolist(), n)
    lowest = n * (n + 1)  # twice the sum of the first n ranks
    return sums[lowest : lowest + 2 * n * m + 1], int(ranks[:n].sum()) - lowest - n * m


def _rank_sums(ranks: Sequence[int], size: int) -> Floats:
    """How probable each sum of ranks is in a group of this size, dealt out at random."""
    most = sum(sorted(ranks)[-size:])
    ways = np.zeros((size + 1, most + 1))  # by how many were dealt so far, and their sum
    ways[0, 0] = 1
    for rank in ranks:
        more = ways.copy()
        more[1:, rank:] += ways[:-1, : most + 1 - rank]
        ways = more
    # The counts of 500 values of each group pass what a float holds; a report has tens.
    return np.asarray(ways[size] / ways[size].sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """The same, adjusted for how many there are; NaN is no test and stays."""
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, largest = list(p_values), 0.0
    for rank, i in enumerate(sorted(tested, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
