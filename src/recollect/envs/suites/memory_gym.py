"""Memory Gym: three tasks with images of 84 x 84, in finite and endless versions (`make memory-gym`).

Keyword arguments are the reset parameters of Memory Gym: --env.kwargs.command_count 5. Where a parameter is
a list of numbers to sample from, pass one number, or several as 0,1,2. Speeds, sizes and durations are in
its units; `default_reset_parameters` of its classes lists all of them. The endless tasks have no time limit
unless `max_steps` or env.time_limit sets one.

Differences from the package:

-   Images are (height, width, 3). Memory Gym returns (width, height, 3).
-   Reaching `max_steps` truncates. Memory Gym terminates, although the time is not observed.
-   A failure at the last command of MortarMayhem is not a success. Memory Gym reports success for every
    episode that reaches the last command; its rewards are right.
-   Closing an environment does not quit pygame, which all environments of a process share.
"""

import copy
import importlib.util
import json
import os
from functools import partial
from typing import Any

import gymnasium as gym

from ...common.errors import UsageError, nearest
from ..base import EnvConfig, Scalar, VecEnv
from ..gym import GymEnv

# Id -> module and class, one-line description.
_TASKS = {
    "MortarMayhem-v0": ("mortar_mayhem:MortarMayhemEnv", "see ten commands, then execute them in time"),
    "MortarMayhem-Grid-v0": (
        "mortar_mayhem_grid:GridMortarMayhemEnv",
        "see ten commands, then execute them in time on a grid",
    ),
    "MortarMayhemB-v0": ("mortar_mayhem_b:MortarMayhemTaskBEnv", "execute ten commands that stay visible"),
    "MortarMayhemB-Grid-v0": (
        "mortar_mayhem_b_grid:GridMortarMayhemTaskBEnv",
        "execute ten commands that stay visible on a grid",
    ),
    "Endless-MortarMayhem-v0": (
        "endless_mortar_mayhem:EndlessMortarMayhemEnv",
        "one more command after each round, then execute all of them",
    ),
    "MysteryPath-v0": ("mystery_path:MysteryPathEnv", "find an invisible path by remembering falls"),
    "MysteryPath-Grid-v0": (
        "mystery_path_grid:GridMysteryPathEnv",
        "find an invisible path on a grid by remembering falls",
    ),
    "Endless-MysteryPath-v0": (
        "endless_mystery_path:EndlessMysteryPathEnv",
        "follow an endless invisible path; a fall starts it again",
    ),
    "SearingSpotlights-v0": (
        "searing_spotlights:SearingSpotlightsEnv",
        "find a coin and the exit in the dark and avoid spotlights",
    ),
    "Endless-SearingSpotlights-v0": (
        "endless_searing_spotlights:EndlessSearingSpotlightsEnv",
        "collect coins in the dark and avoid spotlights",
    ),
}


class MemoryGymWrapper(gym.Wrapper):  # type: ignore[misc] # Gymnasium's types are not followed
    """One environment of Memory Gym with fixed reset parameters, corrected as stated above.

    reports_success  whether the task has a notion of success; endless tasks have none
    """

    def __init__(self, env: gym.Env[Any, Any], parameters: dict[str, Any], reports_success: bool) -> None:
        super().__init__(env)
        self._parameters = parameters
        self._reports_success = reports_success

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        obs, _ = self.env.reset(seed=seed, options=dict(self._parameters))
        return _transposed(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # Some tasks draw the action into the next image, and it may be a view of a buffer that the policy
        # overwrites until then.
        obs, reward, terminated, truncated, info = self.env.step(copy.copy(action))
        success = {}
        if self._reports_success and (terminated or truncated):
            success = {"success": bool(info.get("success", False)) and self._on_target()}
        return _transposed(obs), reward, terminated, truncated, success

    def _on_target(self) -> bool:
        """Whether the agent is on the target of the last command of MortarMayhem; True in other tasks."""
        env: Any = self.unwrapped
        return not hasattr(env, "_target_pos") or env.normalized_agent_position == env._target_pos

    def close(self) -> None:
        """Do nothing: Memory Gym would quit pygame, and with it the display of all other environments."""


def _transposed(obs: Any) -> Any:
    """Images (width, height, 3) -> (height, width, 3)."""
    if isinstance(obs, dict):
        return obs | {"visual_observation": obs["visual_observation"].transpose(1, 0, 2)}
    return obs.transpose(1, 0, 2)


def _class(name: str) -> Any:
    """The class of an id. Imports pygame with dummy drivers, which need no screen and no audio device."""
    for variable in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(variable, "dummy")
    module, _, class_name = _TASKS[name][0].partition(":")
    try:
        return getattr(importlib.import_module(f"memory_gym.{module}"), class_name)
    except ImportError as error:
        raise UsageError(
            f"memory_gym:{name} needs the package Memory Gym ({error}); pip install --no-deps memory-gym"
        ) from error


def _build(name: str, parameters: dict[str, Any], limit: int | None) -> gym.Env[Any, Any]:
    env = _class(name)()
    if limit is not None:
        env = gym.wrappers.TimeLimit(env, limit)
    return MemoryGymWrapper(env, parameters, reports_success=not name.startswith("Endless-"))


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of this id; config.kwargs are reset parameters."""
    if name not in _TASKS:
        raise UsageError(f"environment memory_gym:{name} is unknown; {nearest(name, sorted(_TASKS))}")
    if config.backend in ("envpool", "own"):
        raise UsageError(
            f"env.backend {config.backend} does not have memory_gym:{name}; use gymnasium or workers"
        )
    defaults = _class(name).default_reset_parameters
    parameters = _parameters(config, name, defaults)
    limit = config.time_limit
    if "max_steps" in defaults:
        max_steps = parameters.get("max_steps", defaults["max_steps"])
        limit = limit or (max_steps if max_steps > 0 else None)
        # -1 turns the limit of Memory Gym off, which terminates. TimeLimit counts instead and truncates.
        parameters["max_steps"] = -1
    factory = partial(_build, name, parameters, limit)
    bound = _bound(factory(), name, config)
    envs = GymEnv(factory, config)
    envs.time_limit = limit or bound
    return envs


def _parameters(config: EnvConfig, name: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """config.kwargs as reset parameters of Memory Gym, checked against its defaults."""
    parameters: dict[str, Any] = {}
    for key, value in config.kwargs.items():
        if key not in defaults:
            known = ", ".join(sorted(defaults))
            raise UsageError(f"memory_gym:{name} has no parameter {key}; known: {known}")
        is_list = isinstance(defaults[key], list)
        default = defaults[key][0] if is_list else defaults[key]
        values = _parse_list(value) if is_list else [value]
        types = (int, float) if type(default) is float else (type(default),)
        if not all(type(x) in types for x in values):
            expected = types[-1].__name__
            raise UsageError(f"memory_gym:{name}: {key} is {value!r}; it must be of type {expected}")
        parameters[key] = values if is_list else value
    return parameters


def _parse_list(value: Scalar) -> list[Any]:
    """A number, or a text such as 0,1,2 -> a list of numbers; any other text -> a list of that text."""
    try:
        return list(json.loads(f"[{value}]")) if isinstance(value, str) else [value]
    except ValueError:
        return [value]


def _bound(env: gym.Env[Any, Any], name: str, config: EnvConfig) -> int | None:
    """The largest number of steps of an episode by the rules of the task; None if it is unbounded."""
    try:
        env.reset(seed=0)  # sets max_episode_steps from the parameters
    # The type of the error depends on where the task first uses the wrong parameter.
    except Exception as error:
        if not config.kwargs:
            raise
        raise UsageError(
            f"memory_gym:{name} cannot start an episode with env.kwargs {dict(config.kwargs)}: {error!r}"
        ) from error
    steps = int(env.unwrapped.max_episode_steps)
    return steps if steps > 0 else None


def listing() -> dict[str, str]:
    """Id -> one-line description; empty if Memory Gym is not installed."""
    if importlib.util.find_spec("memory_gym") is None:
        return {}
    return {name: about for name, (_, about) in _TASKS.items()}
