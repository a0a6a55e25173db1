"""The result of an environment's method `action_masks()`, as in sb3-contrib, as an entry of its info."""

from collections.abc import Callable
from typing import Any

import gymnasium

from .spaces import ACTION_MASK

METHOD = "action_masks"


class MaskInInfo(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc] # its base is Any to mypy
    """Calls the method in each reset and step, so that its error is one of the reset or the step.

    It is not called where the episode has ended: the environment need not have an answer.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Reset the environment."""
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, self._extended(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the environment."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info if terminated or truncated else self._extended(info)

    def _extended(self, info: dict[str, Any]) -> dict[str, Any]:
        return info if ACTION_MASK in info else {**info, ACTION_MASK: self.env.get_wrapper_attr(METHOD)()}


def with_masks(factory: Callable[[], gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    """An environment whose masks are in its info, if it has the method."""
    env = factory()
    return MaskInInfo(env) if env.has_wrapper_attr(METHOD) else env
