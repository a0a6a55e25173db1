"""Memory Gym: pictures of 84 x 84, a finite and an endless form of three tasks (`make memory-gym`).

Keyword arguments are the reset parameters of Memory Gym, by its names: --env.kwargs.command_count 5.
Where it takes a list of numbers to draw from, one is given, or several as 0,1,2. Speeds, sizes and
durations are in its own units; `default_reset_parameters` of its classes holds all of them. The endless
tasks have no time limit until `max_steps` or env.time_limit sets one.

What is changed here, and nothing else:

-   Pictures are (height, width, 3). Memory Gym gives (width, height, 3).
-   Running out of `max_steps` truncates. Memory Gym terminates, though the time is not seen.
-   A failure at the last command of MortarMayhem is no success. Memory Gym reports one for every
    episode that gets as far as the last command; its rewards are right.
-   Closing an environment leaves pygame alone, which all of them share.
"""

import copy
import importlib.util
import json
import os
from functools import partial
from typing import Any

import gymnasium as gym

from ..common.errors import UsageError, nearest
from .base import EnvConfig, Scalar, VecEnv
from .gym import GymEnv

# id -> the module and class, and what it tests
_TASKS = {
    "MortarMayhem-v0": ("mortar_mayhem:MortarMayhemEnv", "see ten commands, then walk them in time"),
    "MortarMayhem-Grid-v0": (
        "mortar_mayhem_grid:GridMortarMayhemEnv",
        "see ten commands, then walk them in time from tile to tile",
    ),
    "MortarMayhemB-v0": ("mortar_mayhem_b:MortarMayhemTaskBEnv", "walk ten commands that stay in sight"),
    "MortarMayhemB-Grid-v0": (
        "mortar_mayhem_b_grid:GridMortarMayhemTaskBEnv",
        "walk ten commands that stay in sight from tile to tile",
    ),
    "Endless-MortarMayhem-v0": (
        "endless_mortar_mayhem:EndlessMortarMayhemEnv",
        "one more command after each round, all to be walked again",
    ),
    "MysteryPath-v0": ("mystery_path:MysteryPathEnv", "find an unseen path, remembering every fall"),
    "MysteryPath-Grid-v0": (
        "mystery_path_grid:GridMysteryPathEnv",
        "find an unseen path from tile to tile, remembering every fall",
    ),
    "Endless-MysteryPath-v0": (
        "endless_mystery_path:EndlessMysteryPathEnv",
        "an unseen path without an end, walked again after each fall",
    ),
    "SearingSpotlights-v0": (
        "searing_spotlights:SearingSpotlightsEnv",
        "find a coin and the exit in the dark, away from the lights",
    ),
    "Endless-SearingSpotlights-v0": (
        "endless_searing_spotlights:EndlessSearingSpotlightsEnv",
        "coins in the dark, one after the other, away from the lights",
    ),
}


class Task(gym.Wrapper):  # type: ignore[misc] # Gymnasium's types are not followed
    """One environment of Memory Gym with its parameters, and with the changes that are stated above."""

    def __init__(self, env: gym.Env[Any, Any], parameters: dict[str, Any], reports: bool) -> None:
        super().__init__(env)
        self._parameters, self._reports = parameters, reports

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        obs, _ = self.env.reset(seed=seed, options=dict(self._parameters))
        return _upright(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # Some tasks keep the action for the next picture, and it may be a view.
        obs, reward, terminated, truncated, info = self.env.step(copy.copy(action))
        success = {}
        if self._reports and (terminated or truncated):
            success = {"success": bool(info.get("success", False)) and self._on_target()}
        return _upright(obs), reward, terminated, truncated, success

    def _on_target(self) -> bool:
        """Whether the agent stands where the last command of MortarMayhem sends it."""
        env: Any = self.unwrapped
        return not hasattr(env, "_target_pos") or env.normalized_agent_position == env._target_pos

    def close(self) -> None:
        """Do nothing: Memory Gym would quit pygame, and with it the screen of every other one."""


def _upright(obs: Any) -> Any:
    if isinstance(obs, dict):
        return obs | {"visual_observation": obs["visual_observation"].transpose(1, 0, 2)}
    return obs.transpose(1, 0, 2)


def _class(name: str) -> Any:
    """A class of Memory Gym, which must find no screen and no loudspeaker."""
    for variable in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(variable, "dummy")
    module, _, kind = _TASKS[name][0].partition(":")
    try:
        return getattr(importlib.import_module(f"memory_gym.{module}"), kind)
    except ImportError as error:
        raise UsageError(f"memory_gym:{name} needs Memory Gym: make memory-gym ({error})") from error


def _build(name: str, parameters: dict[str, Any], limit: int | None) -> gym.Env[Any, Any]:
    env = _class(name)()
    if limit is not None:
        env = gym.wrappers.TimeLimit(env, limit)
    return Task(env, parameters, reports=not name.startswith("Endless-"))


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of this id; config.kwargs are reset parameters."""
    if name not in _TASKS:
        raise UsageError(f"environment memory_gym:{name} is unknown; {nearest(name, sorted(_TASKS))}")
    if config.backend in ("envpool", "own"):
        raise UsageError(f"env.backend {config.backend}: memory_gym:{name} is for gymnasium and workers")
    defaults = _class(name).default_reset_parameters
    parameters = _parameters(config, name, defaults)
    limit = config.time_limit
    if "max_steps" in defaults:
        most = parameters.get("max_steps", defaults["max_steps"])
        limit = limit or (most if most > 0 else None)
        # A wrapper counts instead, because its cut can be told from an end.
        parameters["max_steps"] = -1
    factory = partial(_build, name, parameters, limit)
    bound = _bound(factory(), name, config)
    envs = GymEnv(factory, config)
    envs.time_limit = limit or bound
    return envs


def _parameters(config: EnvConfig, name: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """config.kwargs as Memory Gym takes them."""
    parameters: dict[str, Any] = {}
    for key, value in config.kwargs.items():
        if key not in defaults:
            known = ", ".join(sorted(defaults))
            raise UsageError(f"memory_gym:{name} has no parameter {key}; known: {known}")
        listed = isinstance(defaults[key], list)
        default = defaults[key][0] if listed else defaults[key]
        values = _several(value) if listed else [value]
        kinds = (int, float) if type(default) is float else (type(default),)
        if not all(type(x) in kinds for x in values):
            needed = kinds[-1].__name__
            raise UsageError(f"memory_gym:{name}: {key} is {value!r}, a value of type {needed} is needed")
        parameters[key] = values if listed else value
    return parameters


def _several(value: Scalar) -> list[Any]:
    """One number, or the numbers in a text such as 0,1,2; a text that holds none stays a text."""
    try:
        return list(json.loads(f"[{value}]")) if isinstance(value, str) else [value]
    except ValueError:
        return [value]


def _bound(env: gym.Env[Any, Any], name: str, config: EnvConfig) -> int | None:
    """No episode has more steps than this by the task's own rules; None where they set no bound."""
    try:
        env.reset(seed=0)
    # What a parameter upsets, and with which error, depends on where the task first uses it.
    except Exception as error:
        if not config.kwargs:
            raise
        raise UsageError(f"memory_gym:{name} cannot begin with {dict(config.kwargs)}: {error!r}") from error
    steps = int(env.unwrapped.max_episode_steps)
    return steps if steps > 0 else None


def listing() -> dict[str, str]:
    """Every id and what it tests, where Memory Gym is installed."""
    if importlib.util.find_spec("memory_gym") is None:
        return {}
    return {name: about for name, (_, about) in _TASKS.items()}
