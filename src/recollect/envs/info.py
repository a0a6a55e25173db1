"""What Gymnasium's vector environments report in `info`; `_name` marks which of them reported `name`."""

from typing import Any

import numpy as np

from .spaces import ACTION_MASK, NEW_EPISODE, Array


def read_success(info: dict[str, Any], num_envs: int) -> Array | None:
    """`success` or `is_success` of info (N,), NaN where it is not reported; None if nobody reports it."""
    for key in ("success", "is_success"):
        if key in info:
            reported = np.broadcast_to(info.get(f"_{key}", True), (num_envs,))
            return np.where(reported, np.asarray(info[key], dtype=np.float64), np.nan)
    return None


def read_numbers(info: dict[str, Any], num_envs: int) -> dict[str, Array]:
    """The numbers of info, and the entries of its vectors, each (N,); NaN where they are not reported."""
    variables: dict[str, Array] = {}
    for name, value in info.items():
        x = np.asarray(value)
        if name.startswith("_") or name in (ACTION_MASK, NEW_EPISODE) or x.dtype.kind not in "bif":
            continue
        if x.ndim not in (1, 2) or len(x) != num_envs:
            continue
        reported = np.broadcast_to(info.get(f"_{name}", True), (num_envs,))
        columns = {name: x} if x.ndim == 1 else {f"{name}[{i}]": column for i, column in enumerate(x.T)}
        for key, column in columns.items():
            variables[key] = np.where(reported, column.astype(np.float64), np.nan)
    return variables
