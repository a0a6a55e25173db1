"""EnvPool: environments in C++ threads, several times faster than in Python (extra `fast`)."""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import gymnasium
import numpy as np

from ...common.errors import UsageError, install_hint
from ..base import EnvConfig, Step, VecEnv
from ..spaces import ACTION_MASK, Array

REIMPLEMENTED = ("gymnasium", "minigrid")  # packages whose ids are the same tasks in EnvPool


@cache
def _envpool() -> Any:
    """The package envpool, or None if this extra is not installed."""
    if importlib.util.find_spec("envpool") is None:
        return None
    import envpool

    return envpool


def has(name: str) -> bool:
    """Whether EnvPool is installed and has an environment."""
    return _envpool() is not None and name in _envpool().list_all_envs()


def supports(config: EnvConfig) -> bool:
    """Whether EnvPool is installed and has the id; with backend auto, also the same task and the options."""
    if config.backend == "auto" and (config.kwargs or config.trial > 1 or config.on_error == "restart"):
        return False  # its keyword arguments are not Gymnasium's, and it can neither keep a task nor restart
    return has(config.id) and not (config.backend == "auto" and _is_another_task(config.id))


def _is_another_task(name: str) -> bool:
    """Whether Gymnasium has an environment of this id that is not the one EnvPool has reimplemented.

    Many of EnvPool's 1,600 ids are plain, as Snake-v1 and Maze-v0, so others register the same.
    """
    spec = gymnasium.registry.get(name)
    if spec is None or spec.entry_point is None:
        return False
    point = spec.entry_point
    module = point if isinstance(point, str) else getattr(point, "__module__", "")
    return module.partition(":")[0].partition(".")[0] not in REIMPLEMENTED


def unavailable_reason(config: EnvConfig) -> str:
    """Why EnvPool cannot run the environment, and what to do."""
    if _envpool() is None:
        return f"env.backend envpool: EnvPool is not installed; {install_hint('fast')}"
    return f"env.backend envpool: EnvPool has no environment {config.id}; try --env.backend gymnasium"


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments in one pool."""
    if not has(name):
        raise UsageError(unavailable_reason(config))
    if config.on_error == "restart":
        raise UsageError(
            "env.on_error restart needs environments in Python, since an error in the C++ code of EnvPool "
            "ends the process; use --env.backend gymnasium or workers"
        )
    return EnvPool(config, name)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress EnvPool's warning about space bounds that do not fit float32; it comes with each pool."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


NO_LIMIT = 2**31 - 1  # EnvPool's max_episode_steps of environments without a time limit


class EnvPool(VecEnv):
    """One pool of environments.

    EnvPool cannot save its state, and its `reset` ignores seeds. So `reset` builds a new pool.

    Some of its environments (CliffWalking-v1) ignore the time limit. `step` truncates their episodes itself.
    """

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, config: EnvConfig, name: str) -> None:
        self.num_envs = config.num_envs
        self.backend = "envpool"
        self._name = name
        self._options: dict[str, Any] = {**config.kwargs, "num_threads": config.threads}
        if config.time_limit is not None:
            self._options["max_episode_steps"] = config.time_limit
        self._info: dict[str, Any] = {}
        self._build([0] * self.num_envs)  # for the spaces and the time limit; `reset` replaces this pool
        with _without_warnings():
            self.observation_space = self._pool.observation_space
            self.action_space = self._pool.action_space
        limit = int(self._pool.spec.config.max_episode_steps)
        self.time_limit = limit if limit < NO_LIMIT else None
        self._dtype = np.dtype(self.action_space.dtype)
        self._begin()

    def _begin(self) -> None:
        """All environments are at the first step of an episode."""
        self._cut: Array | None = None  # environments truncated here, which the next step resets
        self._until_check = self.time_limit or NO_LIMIT  # steps before which no episode can reach the limit

    def _build(self, seeds: list[int]) -> None:
        with _without_warnings():
            try:
                self._pool = _envpool().make(
                    self._name,
                    env_type="gymnasium",
                    num_envs=self.num_envs,
                    # A list, because EnvPool turns one seed s into s + i for environment i: runs with
                    # neighbouring seeds would share most environments. It takes 31 of our 63 bits.
                    seed=[seed >> 32 for seed in seeds],
                    **self._options,
                )
            except (TypeError, ValueError, AssertionError) as error:
                # The other lines are signatures of C++ and all of EnvPool's own settings.
                reason = str(error).partition("\n")[0]
                raise UsageError(
                    f"EnvPool cannot build {self._name} with {self._options}: {reason}; change env.kwargs or "
                    "env.time_limit, or try --env.backend gymnasium"
                ) from error

    def reset(self, seeds: list[int]) -> Any:
        self._build(seeds)
        with _without_warnings():
            obs, self._info = self._pool.reset()
        self._begin()
        return obs

    def step(self, action: Array) -> Step:
        # A termination at the time limit arrives as a truncation: EnvPool does not distinguish the two.
        obs, reward, terminated, truncated, self._info = self._pool.step(action.astype(self._dtype))
        if self._cut is not None:
            rows = np.flatnonzero(self._cut)
            _overwrite((obs, self._info), self._pool.reset(rows.astype(np.int32)), rows)
            reward, terminated, truncated = (
                np.where(self._cut, np.zeros_like(x), x) for x in (reward, terminated, truncated)
            )
            self._cut = None
        self._until_check -= 1
        if self._until_check <= 0 and self.time_limit is not None:
            elapsed = self._info["elapsed_step"]
            cut = (elapsed >= self.time_limit) & ~terminated & ~truncated
            self._cut = cut if cut.any() else None
            truncated = truncated | cut
            self._until_check = max(1, self.time_limit - int(elapsed.max()))
        return Step(obs, reward, terminated, truncated & ~terminated)

    def action_mask(self) -> Any:
        """The entry `action_mask` of info."""
        return self._info.get(ACTION_MASK)

    def close(self) -> None:
        self._pool.close()


def _overwrite(target: Any, source: Any, rows: Array) -> None:
    """Write the entries of `source`, nested alike, into these rows of the arrays of `target`."""
    if isinstance(target, dict):
        pairs: Any = [(part, source[key]) for key, part in target.items()]
    elif isinstance(target, tuple):
        pairs = zip(target, source, strict=True)
    else:
        target[rows] = source
        return
    for part, new in pairs:
        _overwrite(part, new, rows)


def listing() -> dict[str, str]:
    """EnvPool's ids of Gymnasium tasks, with a description each."""
    if _envpool() is None:
        return {}
    families = ("CartPole", "Acrobot", "Pendulum", "MountainCar", "LunarLander", "BipedalWalker")
    names = [name for name in _envpool().list_all_envs() if name.startswith(families)]
    return dict.fromkeys(sorted(names), "the Gymnasium task in C++ threads")
