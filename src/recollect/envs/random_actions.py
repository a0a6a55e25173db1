"""Random actions among those that an action mask allows."""

import numpy as np

from .spaces import ActionSpec, Array


def draw_allowed(spec: ActionSpec, allowed: Array, random: np.random.Generator) -> Array:
    """Policy actions (N, K), uniformly random among the allowed choices of a mask (N, P)."""
    # The place of the largest of uniform numbers is uniform; those of forbidden choices are negative.
    draws = np.where(allowed, random.random(allowed.shape), -1.0)
    parts = np.split(draws, np.cumsum(spec.sizes)[:-1], axis=1)
    return np.stack([part.argmax(1) for part in parts], 1)
