"""Tests of differences between two groups of seeds, and what may be said where there are many.

One test in 20 finds a difference where there is none. A report makes many tests and reads out those that
found something, so their p-values are adjusted (Holm, 1979): the chance that a report of equal models
reads out any difference stays below 5 %, whatever the tests have in common.

Shapes.  n seeds of one model, m of another.
"""

import math
from collections.abc import Sequence

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


def mann_whitney(x: Floats, y: Floats) -> float:
    """p of neither of x (n,) and y (m,) tending to be larger; ties and infinities are ranked as they are.

    The normal approximation with its corrections for ties and for continuity.
    """
    both = np.concatenate([x, y])
    n, m, total = len(x), len(y), len(x) + len(y)
    above = float(np.sum((x[:, None] > y) + 0.5 * (x[:, None] == y)))
    counts = np.unique(both, return_counts=True)[1]
    ties = float((counts**3 - counts).sum()) / (total * (total - 1)) if total > 1 else 0.0
    variance = n * m / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0
    away = max(0.0, abs(above - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(away / math.sqrt(2))


def fisher(x: int, n: int, y: int, m: int) -> float:
    """Fisher's exact test: p of x of n and y of m being draws of one probability, on both sides."""
    total, hits = n + m, x + y

    def weight(k: int) -> int:
        return math.comb(n, k) * math.comb(m, hits - k)

    here = weight(x)
    places = range(max(0, hits - m), min(n, hits) + 1)
    return sum(weight(k) for k in places if weight(k) <= here) / math.comb(total, hits)


def holm(p_values: Sequence[float]) -> list[float]:
    """The same, adjusted for how many there are; NaN is no test and stays."""
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, largest = list(p_values), 0.0
    for rank, i in enumerate(sorted(tested, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(tested) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
