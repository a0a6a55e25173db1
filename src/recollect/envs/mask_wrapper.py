"""The result of an environment's method `action_masks()`, as in sb3-contrib, as an entry of its info."""

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import spaces

from .spaces import ACTION_MASK

METHOD = "action_masks"


class MaskInInfo(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc] # its base is Any to mypy
    """Calls the method in each reset and step, so that its error is one of the reset or the step.

    It is not called where the episode has ended: the environment need not have an answer.
    """

    def reset(self, **arguments: Any) -> tuple[Any, Any]:
        """Reset the environment, which need not take every argument of Gymnasium."""
        obs, info = self.env.reset(**arguments)
        return obs, self._extended(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the environment."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info if terminated or truncated else self._extended(info)

    def _extended(self, info: Any) -> Any:
        has_mask = not isinstance(info, dict) or ACTION_MASK in info  # what is no dict is refused later
        return info if has_mask else {**info, ACTION_MASK: self.env.get_wrapper_attr(METHOD)()}


def with_masks(factory: Callable[[], gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    """An environment whose masks are in its info, if it has the method and no mask in its observation."""
    env = factory()
    space = env.observation_space
    has_mask = isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces
    return MaskInInfo(env) if env.has_wrapper_attr(METHOD) and not has_mask else env
