"""EnvPool: environments in C++ threads, several times faster than Python's (extra `fast`)."""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import numpy as np

from ..common.errors import UsageError
from .base import EnvConfig, Step, VecEnv
from .spaces import Array


@cache
def _pool() -> Any:
    """The package, or None; an extra, so it may be missing."""
    if importlib.util.find_spec("envpool") is None:
        return None
    import envpool

    return envpool


def supports(config: EnvConfig) -> bool:
    """Whether EnvPool is here, knows the id, and need not be told keyword arguments."""
    if config.kwargs and config.backend == "auto":
        return False  # its keyword arguments are not Gymnasium's
    return _pool() is not None and config.id in _pool().list_all_envs()


def unavailable_reason(config: EnvConfig) -> str:
    """Why it cannot be had, in one line."""
    if _pool() is None:
        return "env.backend envpool: EnvPool is not installed; pip install 'recollect[fast]'"
    return f"env.backend envpool: EnvPool has no {config.id}; --env.backend gymnasium may"


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of one pool."""
    if _pool() is None or name not in _pool().list_all_envs():
        raise UsageError(unavailable_reason(config))
    return EnvPool(config, name)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Its spaces warn, whenever a pool first needs them, of bounds that do not fit float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


NO_LIMIT = 2**31 - 1  # what it writes where there is none


class EnvPool(VecEnv):
    """One pool. It cannot save its state and ignores reset seeds, so a reset makes it anew."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, config: EnvConfig, name: str) -> None:
        self.num_envs, self.backend = config.num_envs, "envpool"
        self._name = name
        self._options: dict[str, Any] = {**config.kwargs, "num_threads": config.threads}
        if config.time_limit is not None:
            self._options["max_episode_steps"] = config.time_limit
        self._build([0] * self.num_envs)
        with _without_warnings():
            self.observation_space = self._pool.observation_space
            self.action_space = self._pool.action_space
        limit = int(self._pool.spec.config.max_episode_steps)
        self.time_limit = limit if limit < NO_LIMIT else None
        self._dtype = np.dtype(self.action_space.dtype)

    def _build(self, seeds: list[int]) -> None:
        with _without_warnings():
            try:
                self._pool = _pool().make(
                    self._name,
                    env_type="gymnasium",
                    num_envs=self.num_envs,
                    seed=[seed >> 32 for seed in seeds],  # it takes 31 bits of our 63
                    **self._options,
                )
            except (TypeError, ValueError, AssertionError) as error:
                message = f"EnvPool cannot make {self._name} with {self._options}: {error}"
                raise UsageError(message) from error

    def reset(self, seeds: list[int]) -> Any:
        self._build(seeds)
        with _without_warnings():
            return self._pool.reset()[0]

    def step(self, action: Array) -> Step:
        obs, reward, terminated, truncated, _ = self._pool.step(action.astype(self._dtype))
        return Step(obs, reward, terminated, truncated & ~terminated)

    def close(self) -> None:
        self._pool.close()


def listing() -> dict[str, str]:
    """The ids that run faster here than in Gymnasium."""
    if _pool() is None:
        return {}
    families = ("CartPole", "Acrobot", "Pendulum", "MountainCar", "LunarLander", "BipedalWalker")
    names = [n for n in _pool().list_all_envs() if n.startswith(families)]
    return dict.fromkeys(sorted(names), "the Gymnasium task in C++ threads")
