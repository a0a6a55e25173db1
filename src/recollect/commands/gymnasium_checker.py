"""Gymnasium's checker of environments, for those that report action masks as well."""

import contextlib
import warnings
from collections.abc import Iterator
from functools import wraps
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from ..envs import ActionSpec
from ..envs.action_masks import read_mask
from ..envs.mask_wrapper import METHOD
from ..envs.spaces import ACTION_MASK


def warnings_of_checker(env: Any, masked: ActionSpec | None) -> list[str]:
    """What the checker warns of; a broken rule is an exception, mostly an AssertionError.

    masked  the actions of an environment that reports action masks; None: it reports none
    """
    replaced = _without_forbidden_actions(env, masked) if masked else contextlib.nullcontext()
    with warnings.catch_warnings(record=True) as caught, replaced:
        warnings.simplefilter("always")
        check_env(env, skip_render_check=True)
    return [str(warning.message) for warning in caught]


@contextlib.contextmanager
def _without_forbidden_actions(env: Any, spec: ActionSpec) -> Iterator[None]:
    """Replace the forbidden actions of the checker, which does not read masks, by allowed ones.

    On the instance and not by a wrapper, because the checker reads the signatures of the environment itself.
    """
    reset, step, mask = env.reset, env.step, None

    @wraps(reset)
    def reset_and_read_mask(*args: Any, **kwargs: Any) -> Any:
        nonlocal mask
        result = reset(*args, **kwargs)
        mask = _read_mask(env, *result)
        return result

    @wraps(step)
    def step_with_allowed_action(action: Any) -> Any:
        nonlocal mask
        obs, reward, terminated, truncated, info = step(_allowed_action(spec, mask, action))
        # No action is taken after an end, so there need be no mask.
        mask = None if terminated or truncated else _read_mask(env, obs, info)
        return obs, reward, terminated, truncated, info

    env.reset, env.step = reset_and_read_mask, step_with_allowed_action
    try:
        yield
    finally:
        del env.reset, env.step


def _read_mask(env: Any, obs: Any, info: Any) -> Any:
    """The mask of the present state, from the first source that has one; None if none has."""
    for source in (obs, info):
        if isinstance(source, dict) and ACTION_MASK in source:
            return source[ACTION_MASK]
    return getattr(env, METHOD)() if hasattr(env, METHOD) else None


def _allowed_action(spec: ActionSpec, mask: Any, action: Any) -> Any:
    """The action with the first allowed choice of each component whose choice is forbidden."""
    if mask is None:
        return action
    chosen = spec.from_env(np.asarray(action)[None])[0].tolist()
    parts = np.split(read_mask(mask, spec.sizes, 1)[0], np.cumsum(spec.sizes)[:-1])
    allowed = [i if part[i] else int(part.argmax()) for i, part in zip(chosen, parts, strict=True)]
    return action if allowed == chosen else spec.to_env(np.array([allowed]))[0]
