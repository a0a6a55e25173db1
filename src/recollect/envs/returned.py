"""What the environments of users return from `reset` and `step`, checked where it arrives."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import concatenate

from ..common.errors import EnvDataError


def read_reset(result: Any, env: int, kind: object) -> tuple[Any, dict[str, Any]]:
    """Observation and info.

    env   number of the environment in messages; kind: the environment
    """
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise EnvDataError(
            f"reset of {_name(env, kind)} returned {_shape(result)}; Gymnasium's returns the observation and "
            "info, a dict: correct the environment"
        )
    return result


def read_step(result: Any, env: int, kind: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Observation, reward, both ends, and info."""
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
        raise EnvDataError(
            f"step of {_name(env, kind)} returned {_shape(result)}; Gymnasium's returns five values: the "
            "observation, the reward, terminated, truncated, and info, a dict: correct the environment"
        )
    obs, reward, terminated, truncated, info = result
    for end in (terminated, truncated):
        if isinstance(end, bool | np.bool_):
            continue
        # A string and NaN would count as true.
        if end is None or isinstance(end, str) or np.size(end) != 1 or end != end:
            raise EnvDataError(
                f"step of {_name(env, kind)} returned {end!r:.80} for terminated or truncated, not a bool"
            )
    try:
        # Most are floats. A string of digits would be a number, and so, with a warning, an array of one.
        if not isinstance(reward, float) and (isinstance(reward, str) or np.ndim(reward)):
            raise TypeError
        number = float(reward)
    except TypeError:
        raise EnvDataError(
            f"step of {_name(env, kind)} returned the reward {reward!r:.80}; it must be one number: correct "
            "the environment"
        ) from None
    return obs, number, bool(terminated), bool(truncated), info


def fits(space: gym.Space[Any], obs: Any) -> bool:
    """Whether each part has the shape of its space, a type for it, and no integer that the type of the space
    does not have: writing would cast, broadcast and wrap around."""
    if isinstance(space, gym.spaces.Dict):
        return all(fits(part, obs[name]) for name, part in space.spaces.items())
    if isinstance(space, gym.spaces.Tuple):
        return all(fits(part, x) for part, x in zip(space.spaces, obs, strict=True))
    x = np.asarray(obs)
    if x.shape != space.shape or not np.can_cast(x.dtype, space.dtype, "same_kind"):
        return False
    if x.dtype == space.dtype or x.dtype.kind not in "iu" or space.dtype.kind not in "iu" or not x.size:
        return True
    most = np.iinfo(space.dtype)
    return bool(x.min() >= most.min and x.max() <= most.max)


def wraps(space: gym.Space[Any]) -> bool:
    """Whether a space has integers that numpy would wrap around where they are written."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
        return any(map(wraps, parts))
    return space.dtype is not None and space.dtype.kind in "iu" and space.dtype.itemsize < 8


def join(space: gym.Space[Any], observations: Sequence[Any], buffer: Any, wrap: bool) -> Any:
    """Observations written into a buffer (n, ...); a ValueError for one that does not fit.

    wrap  `wraps(space)`
    """
    if wrap and not all(fits(space, obs) for obs in observations):
        raise ValueError("another shape, type or range")
    return concatenate(space, observations, buffer)


def is_writable(space: gym.Space[Any], obs: Any) -> bool:
    """`fits`, also for observations of another structure."""
    try:
        return fits(space, obs)
    except (LookupError, TypeError, ValueError):
        return False


def outline(space: gym.Space[Any], obs: Any) -> str:
    """An observation that is not in its space, in a few words."""
    if not isinstance(obs, np.ndarray):
        return repr(obs)[:80]
    if obs.shape != space.shape:
        return f"shape {obs.shape}"
    known = obs.dtype.kind in "iuf" and obs.size
    return f"type {obs.dtype}" + (f" with values from {obs.min()} to {obs.max()}" if known else "")


def _name(env: int, kind: object) -> str:
    return f"environment {env} ({type(getattr(kind, 'unwrapped', kind)).__name__})"


def _shape(result: Any) -> str:
    """What was returned instead, in a few words."""
    if not isinstance(result, tuple):
        return f"a value of type {type(result).__name__}"
    return f"{len(result)} values, the last one of type {type(result[-1]).__name__}" if result else "nothing"
