"""Tests of differences between two groups of seeds, and what may be said where there are many.

One test in 20 finds a difference where there is none. A report makes many tests and reads out those that
found something, so their p-values are adjusted (Holm, 1979): the chance that a report of equal models
reads out any difference stays below 5 %, whatever the tests have in common.

Shapes.  n seeds of one model, m of another.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from .intervals import Floats, student_p

LEVEL = 0.05


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


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """The Mann-Whitney test, two-sided and exact with ties.

    infinite  a run that never got there, later than all others
    """
    pooled = sorted([*a, *b])
    last = {value: place for place, value in enumerate(pooled, 1)}
    # Twice the mean rank of equal values, so that all ranks are whole.
    rank = {value: last[value] + last[value] - pooled.count(value) + 1 for value in last}
    centre = len(a) * (len(pooled) + 1)
    observed = abs(sum(rank[value] for value in a) - centre)
    sums = _rank_sums([rank[value] for value in pooled], len(a))
    extreme = sum(ways for total, ways in sums.items() if abs(total - centre) >= observed)
    return float(Fraction(extreme, math.comb(len(pooled), len(a))))


def _rank_sums(ranks: Sequence[int], size: int) -> Counter[int]:
    """Sum of ranks -> in how many groups of a size it comes out."""
    ways = [Counter({0: 1}), *(Counter[int]() for _ in range(size))]  # by how many were dealt so far
    for rank in ranks:
        for dealt in range(size, 0, -1):
            for total, count in ways[dealt - 1].items():
                ways[dealt][total + rank] += count
    return ways[size]


def holm(p_values: Sequence[float]) -> list[float]:
    """The same, adjusted for how many there are; NaN is no test and stays."""
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, largest = list(p_values), 0.0
    for rank, i in enumerate(sorted(tested, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
