"""Linear maps by ridge regression.

Shapes.  R steps, F features, C targets.
"""

from typing import NamedTuple

import numpy as np

from ..common.intervals import Floats
from ..envs import Array

LAMBDAS = 10.0 ** np.arange(-7, 3)  # ridge penalties, per fitted step


class Split(NamedTuple):
    """Which steps (R,) are fitted, choose the penalty and are scored."""

    train: Array
    choose: Array
    score: Array


class LinearMap(NamedTuple):
    """x (R, F) -> predictions (R, C), by weights of standardised features.

    known  which features are used (F,)
    """

    known: Array
    mean: Floats
    deviation: Floats
    weights: Floats  # (used features, C)
    centre: Floats  # (C,)

    def __call__(self, x: Floats) -> Floats:
        scaled = (x[:, self.known] - self.mean) / self.deviation
        return np.asarray(scaled @ self.weights + self.centre)


def standardise(x: Floats, columns: int) -> LinearMap:
    """The map of features (R, F) to columns that are all 0: it has their means and deviations."""
    mean, deviation = x.mean(0), x.std(0)
    # A feature that varies by rounding only would become noise of deviation 1 when it is standardised.
    known = deviation > 1e-6 * (np.abs(x).max(initial=0) + 1e-12)
    zeros = np.zeros((int(known.sum()), columns)), np.zeros(columns)
    return LinearMap(known, mean[known], deviation[known], *zeros)


def fit(x: Floats, y: Floats, parts: Split) -> LinearMap:
    """The map from x (R, F) to y (R, C) by ridge regression.

    W = (X' X + n lambda 1)^-1 X' Y, of standardised features; lambda for each column by the error at the
    steps that choose it. One decomposition X' X = Q diag(s) Q' serves every lambda.
    """
    empty, centre = standardise(x[parts.train], y.shape[1]), y[parts.train].mean(0)
    if not empty.known.any():
        return empty._replace(centre=centre)
    train, choose = ((x[part][:, empty.known] - empty.mean) / empty.deviation for part in parts[:2])
    # Rounding can make the smallest eigenvalues negative, hence the maximum below.
    s, q = np.linalg.eigh(train.T @ train / len(train))
    rotated = q.T @ (train.T @ (y[parts.train] - centre)) / len(train)  # (F, C)
    weights = np.stack([q @ (rotated / (np.maximum(s, 0)[:, None] + penalty)) for penalty in LAMBDAS])
    errors = np.square(choose @ weights + centre - y[parts.choose]).mean(1)  # (lambdas, C)
    best = np.take_along_axis(weights, errors.argmin(0)[None, None], 0)[0]
    return empty._replace(weights=best, centre=centre)


def predict(x: Floats, y: Floats, parts: Split) -> Floats:
    """Predictions of y (R, C) from x (R, F), at the scored steps."""
    return fit(x, y, parts)(x[parts.score])
