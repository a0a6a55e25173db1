"""What Gymnasium's vector environments report in `info`; `_name` marks which of them reported `name`."""

from typing import Any

import numpy as np

from ..common.errors import EnvDataError
from .spaces import ACTION_MASK, NEW_EPISODE, Array

SUCCESS_KEYS = ("success", "is_success")  # keys of info, the first of which counts


def read_success(info: dict[str, Any], num_envs: int, name: str) -> Array | None:
    """`success` or `is_success` of info (N,), NaN where it is not reported; None if nobody reports it.

    name  of the environments in messages
    """
    for key in SUCCESS_KEYS:
        if key in info:
            reported = np.broadcast_to(info.get(f"_{key}", True), (num_envs,))
            values = info[key]
            if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
                return np.where(reported, values.astype(np.float64), np.nan)
            # Those of single environments are joined to one dict of arrays, if they are dicts.
            each = [values] * num_envs if isinstance(values, dict) else values
            return np.array(
                [
                    as_success(value, key, f"environment {i} ({name})") if given else np.nan
                    for i, (value, given) in enumerate(zip(each, reported, strict=True))
                ]
            )
    return None


def reported_success(info: dict[str, Any]) -> tuple[str, Any]:
    """The key and the value of `success` or `is_success` in the info of one agent; None if it has none."""
    key = next((key for key in SUCCESS_KEYS if key in info), SUCCESS_KEYS[0])
    return key, info.get(key)


def as_success(value: Any, key: str, reporter: str) -> float:
    """What an environment reported as `success`, as a number; NaN for None.

    reporter  who reported it, in messages
    """
    if value is None:
        return np.nan
    try:
        if np.ndim(value) == 0:
            return float(value)
    except (TypeError, ValueError):
        pass
    kind = type(value).__name__ + (f" of shape {value.shape}" if isinstance(value, np.ndarray) else "")
    shown = " ".join(repr(value).split())  # the repr of an array may have several lines
    raise EnvDataError(
        f"{reporter} reported {key} = {shown:.80} in info, which is of type {kind}; it must be one number or "
        "a bool: correct the environment"
    )


def read_numbers(info: dict[str, Any], num_envs: int) -> dict[str, Array]:
    """The numbers of info, and the entries of its vectors, each (N,); NaN where they are not reported."""
    variables: dict[str, Array] = {}
    for name, value in info.items():
        x = np.asarray(value)
        if name.startswith("_") or name in (ACTION_MASK, NEW_EPISODE) or not x.ndim or len(x) != num_envs:
            continue
        reported = np.broadcast_to(info.get(f"_{name}", True), (num_envs,))
        if x.dtype == object:
            x = _join(x, reported)
        if x.dtype.kind not in "biuf" or x.ndim > 2:
            continue
        columns = {name: x} if x.ndim == 1 else {f"{name}[{i}]": column for i, column in enumerate(x.T)}
        for key, column in columns.items():
            variables[key] = np.where(reported, column.astype(np.float64), np.nan)
    return variables


def _join(values: Array, reported: Array) -> Array:
    """The values of single environments (N,) as numbers (N, ...), NaN where none is reported.

    Gymnasium joins numbers and arrays itself, but leaves np.bool_ and lists as they are. Values that are no
    numbers, or have different shapes, are returned unchanged.
    """
    arrays: list[Array] = []
    for value in values[reported]:
        if not isinstance(value, np.bool_ | bool | int | float | np.number | list | tuple | np.ndarray):
            return values
        try:
            arrays.append(np.asarray(value))
        except ValueError:  # a list of lists that differ in length
            return values
    if not arrays or len({x.shape for x in arrays}) > 1 or any(x.dtype.kind not in "biuf" for x in arrays):
        return values
    joined = np.full((len(values), *arrays[0].shape), np.nan)
    joined[reported] = arrays
    return joined
