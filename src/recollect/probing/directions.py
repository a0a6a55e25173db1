"""Memory states as a linear space: read-outs are directions in which a state can be moved.

A read-out is r = w . x, with x the features of a state at mean 0 and variance 1 in the fitted episodes. A
state s moves along it by c = cov(s, r) / var(r) per unit of r, the slope of each of its floats on r.

Shapes.  R recorded steps of T steps of N environments, W floats of a state, F features.
"""

import numpy as np
import torch

from ..agent.agent import Branch
from ..common.intervals import Floats
from ..envs import Array
from ..run.recording import Record, memory_states
from .readout import Material, flatten
from .ridge import LinearMap, standardise

SMALLEST = 1e-6  # share of the largest variance, below which a component of the features is rounding


class Directions:
    """The read-outs of the memory states of a branch.

    features    x of all recorded steps (R, F)
    covariance  of the features (F, F)
    cross       covariances of floats and features (W, F)
    variance    of the floats (W,)
    """

    @torch.no_grad()
    def __init__(self, branch: Branch, record: Record, material: Material) -> None:
        train, features = material.parts.train, material.sources.memory
        self.scales = standardise(features[train], 1)
        self.features = (features[:, self.scales.known] - self.scales.mean) / self.scales.deviation
        fitted = self.features[train]
        self.covariance = fitted.T @ fitted / len(fitted)
        self._axes()
        here = unravel(material.selected, train, False)
        rows = np.zeros((*here.shape, fitted.shape[1]), dtype=np.float32)
        rows[material.selected] = self.features
        total, squares, products = np.zeros(()), np.zeros(()), np.zeros(())
        # strict=False: row T has a state, but is no step.
        for chosen, x, state in zip(here, rows, memory_states(branch, record.rows), strict=False):
            if chosen.any():
                s = flatten(state).cpu().double().numpy()[chosen]
                total, squares = total + s.sum(0), squares + np.square(s).sum(0)
                products = products + s.T @ x[chosen]
        # The features are centred, so means of products are covariances.
        self.cross, mean = products / len(fitted), total / len(fitted)
        self.variance = np.maximum(squares / len(fitted) - np.square(mean), 0)

    def _axes(self) -> None:
        """The principal components of the features."""
        size, axes = np.linalg.eigh(self.covariance)
        large = size > SMALLEST * size.max(initial=0)
        self.sizes, self.axes = size[large], axes[:, large]

    def weights(self, fitted: LinearMap) -> Floats:
        """w (F,) of a fitted read-out of one quantity."""
        raw = np.zeros(len(fitted.known))
        raw[fitted.known] = fitted.weights[:, 0] / fitted.deviation
        return np.asarray(raw[self.scales.known] * self.scales.deviation)

    def draw(self, share: float, random: np.random.Generator) -> Floats:
        """w (F,) of a random read-out that depends on a share of the variance of the features.

        r = sum of a_k z_k with z_k the components at variance 1, l_k their variances, and a_k^2 in
        proportion to g_k^2 l_k^q, g_k normal. Its share is sum(l_k a_k^2) / F, which grows with q.
        """
        normal, relative = random.standard_normal(len(self.sizes)), self.sizes / self.sizes.max()
        low, high = -8.0, 8.0
        for _ in range(30):
            q = (low + high) / 2
            a = normal * np.power(relative, q / 2)
            a /= np.linalg.norm(a)
            low, high = (q, high) if a**2 @ self.sizes / len(self.covariance) < share else (low, q)
        return np.asarray(self.axes @ (a / np.sqrt(self.sizes)))

    def deviation(self, w: Floats) -> float:
        """The standard deviation of a read-out."""
        return float(np.sqrt(np.maximum(w @ self.covariance @ w, 0)))

    def slope(self, w: Floats) -> Floats:
        """cov(s, r) / var(r) of each float (W,); 0 for a read-out that does not vary."""
        variance = self.deviation(w) ** 2
        return np.asarray(self.cross @ w / variance if variance > 0 else np.zeros(len(self.cross)))

    def share(self, w: Floats) -> float:
        """Mean over the floats of the share of their variance that a read-out explains."""
        varies = self.variance > 1e-9 * self.variance.max(initial=0)
        explained = np.square(self.slope(w) * self.deviation(w))
        return float(np.mean(explained[varies] / self.variance[varies])) if varies.any() else 0.0


def unravel(selected: Array, values: Array, rest: float) -> Array:
    """Values of the selected steps (R,) as (T, N); `rest` at all others."""
    out = np.full(selected.shape, rest, dtype=values.dtype)
    out[selected] = values
    return out
