"""Interquartile means, and bootstrap intervals of a mean over many values."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES_AT_A_TIME = 5000  # bounds the memory for thousands of values


def iqm(values: ArrayLike) -> float:
    """The interquartile mean: the mean of the middle half, with partial weights at its ends."""
    x = np.sort(np.asarray(values, dtype=np.float64))
    return float(_iqm_rows(x[None])[0])


def _iqm_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sorted rows (R, n) -> their interquartile means (R,)."""
    n = rows.shape[1]
    edges = np.arange(n + 1) / n
    weight = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return np.asarray(rows @ (weight / weight.sum()))


def bootstrap(values: ArrayLike, seed: int = 0, resamples: int = 50_000) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean.

    For many values, such as the episodes of an evaluation. For a few seeds it is too narrow: see
    `common.intervals`.
    """
    x = np.asarray(values, dtype=np.float64)
    random = np.random.Generator(np.random.Philox(seed))
    blocks = -(-resamples // RESAMPLES_AT_A_TIME)
    means = [x[random.integers(len(x), size=(RESAMPLES_AT_A_TIME, len(x)))].mean(1) for _ in range(blocks)]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)
