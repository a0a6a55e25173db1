"""Action masks as environments and the loops of users give them.

Shapes.  N environments, P choices of all action components.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..common.errors import UsageError
from .spaces import Array


def read_mask(mask: Any, sizes: Sequence[int], num_envs: int) -> Array:
    """An action mask -> (N, P) bool; True: allowed.

    mask   (N, P), or a tuple with one array (N, choices) for each component; without N if N is 1
    sizes  number of choices of each component
    """
    is_tuple = isinstance(mask, tuple) and any(map(np.ndim, mask))  # not of the numbers of one mask
    try:
        parts = [np.asarray(part) for part in (mask if is_tuple else (mask,))]
    except ValueError:
        raise UsageError(
            "the action mask has parts of different shapes; it must be one array, or a tuple with one array "
            "for each action component"
        ) from None
    # Shapes and not the number of entries alone: those of a tuple with a mask for each environment, as
    # `call` of Gymnasium's vector environments returns it, would be mixed up.
    needed = list(sizes) if len(parts) > 1 else [sum(sizes)]
    has_envs = num_envs == 1 or all(part.shape[:1] == (num_envs,) for part in parts)
    if not has_envs or [part.size for part in parts] != [num_envs * size for size in needed]:
        shapes = ", ".join(str(part.shape) for part in parts)
        choices = f", or a tuple with {list(sizes)} entries for the components" if len(sizes) > 1 else ""
        raise UsageError(
            f"the action mask has shape {shapes}, but needed are {sum(sizes)} entries for each of {num_envs} "
            f"environments, one for each choice, as an array ({num_envs}, {sum(sizes)}){choices}"
        )
    joined = np.concatenate([part.reshape(num_envs, -1) for part in parts], 1)
    other = joined[(joined != 0) & (joined != 1)]  # as of a mask that is added to logits, whose 0 allows
    if other.size:
        raise UsageError(f"the action mask has {other[0]}: only 0, 1, True and False are allowed")
    return joined.astype(bool)


def find_blocked(allowed: Array, sizes: Sequence[int]) -> Array:
    """The environments (n,) in which a mask (N, P) allows no choice of some component."""
    return np.flatnonzero(~np.logical_or.reduceat(allowed, np.cumsum((0, *sizes[:-1])), 1).all(1))
