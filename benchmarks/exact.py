"""Exact tests for two groups of seeds. Both are two-sided: of all ways to deal the same results out to two
groups of these sizes, the share that is at least as extreme as what was observed."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import comb


def fisher(a: int, of_a: int, b: int, of_b: int) -> float:
    """Fisher's exact test: a of of_a runs against b of of_b."""
    both = range(max(0, a + b - of_b), min(of_a, a + b) + 1)
    ways = {k: comb(of_a, k) * comb(of_b, a + b - k) for k in both}
    return float(Fraction(sum(way for way in ways.values() if way <= ways[a]), sum(ways.values())))


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """The Mann-Whitney test, exact with ties; infinite: a run that never got there, later than all others."""
    pooled = sorted([*a, *b])
    last = {value: place for place, value in enumerate(pooled, 1)}
    # Twice the mean rank of equal values, so that all ranks are whole.
    rank = {value: last[value] + last[value] - pooled.count(value) + 1 for value in last}
    centre = len(a) * (len(pooled) + 1)
    observed = abs(sum(rank[value] for value in a) - centre)
    sums = _rank_sums([rank[value] for value in pooled], len(a))
    extreme = sum(ways for total, ways in sums.items() if abs(total - centre) >= observed)
    return float(Fraction(extreme, comb(len(pooled), len(a))))


def _rank_sums(ranks: Sequence[int], size: int) -> Counter[int]:
    """Sum of ranks -> in how many groups of a size it comes out."""
    ways = [Counter({0: 1}), *(Counter[int]() for _ in range(size))]  # by how many were dealt so far
    for rank in ranks:
        for dealt in range(size, 0, -1):
            for total, count in ways[dealt - 1].items():
                ways[dealt][total + rank] += count
    return ways[size]
