"""Interquartile means, and bootstrap intervals of a mean over many values."""

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES_AT_A_TIME = 5000  # bounds the memory for thousands of values


def iqm(values: ArrayLike) -> float:
    """The interquartile mean: the mean of the middle half, with partial weights at its ends."""
    x = np.sort(np.asarray(values, dtype=np.float64))
    edges = np.arange(len(x) + 1) / len(x)
    weight = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    # A product with a matrix of one row: one of two vectors may round differently.
    return float((x[None] @ (weight / weight.sum()))[0])


def bootstrap(values: ArrayLike, seed: int = 0, resamples: int = 50_000) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean.

    For many values, such as the episodes of an evaluation. For a few seeds it is too narrow: see
    `common.intervals`.
    """
    x = np.asarray(values, dtype=np.float64)
    # A stream of its own: equal values have equal intervals, whatever else was computed before.
    random = np.random.Generator(np.random.Philox(seed))
    blocks = -(-resamples // RESAMPLES_AT_A_TIME)
    means = [x[random.integers(len(x), size=(RESAMPLES_AT_A_TIME, len(x)))].mean(1) for _ in range(blocks)]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)
