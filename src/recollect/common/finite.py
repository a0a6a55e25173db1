"""The search for numbers that are not finite, quick where there are none."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def squared(x: np.ndarray[Any, Any]) -> float:
    """The squared norm of a vector; inf if a square overflows, NaN if x holds a NaN."""
    with np.errstate(over="ignore"):
        return float(np.dot(x, x))


def find_not_finite(arrays: Mapping[str, np.ndarray[Any, Any]]) -> tuple[str, tuple[int, ...]] | None:
    """The name of an array with a NaN or an infinity and the place of the first; None if there is none."""
    suspects = []
    with np.errstate(over="ignore"):
        for name, x in arrays.items():
            if x.dtype.kind == "f":
                flat = x.reshape(-1)
                # One pass. Squares of finite float32 numbers may overflow, so it only rules arrays out.
                if not math.isfinite(np.dot(flat, flat)):
                    suspects.append(name)
    for name in suspects:
        places = np.argwhere(~np.isfinite(arrays[name]))
        if len(places):
            return name, tuple(int(i) for i in places[0])
    return None
