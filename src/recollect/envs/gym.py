"""Gymnasium: any registered or third-party environment, in this process or in one process each."""

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from enum import EnumMeta
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import iterate

from ..common.errors import UsageError
from .base import EnvConfig, EnvState, Step, VecEnv
from .cartpole import CartPole
from .failures import ABORTED, FAILURES, Restarts, cannot_build
from .given import is_pettingzoo
from .info import read_numbers, read_success
from .local import LocalEnvs
from .mask_wrapper import METHOD, with_masks
from .registered import NEW_LANDER, OLD_LANDER, find_spec
from .rendering import as_rgb, images_per_second, rendered
from .spaces import ACTION_MASK, NEW_EPISODE, Array
from .trial import Trial
from .workers import WorkerEnvs

Factory = Callable[[], gym.Env[Any, Any]]


def make(config: EnvConfig, factory: Factory | None = None) -> VecEnv:
    """Gymnasium environments by id, or from a callable that builds one."""
    if factory is None:
        name, spec = find_spec(config.id)
        options = dict(config.kwargs)
        plain = not options and config.trial == 1 and config.backend != "workers"
        if name == "CartPole-v1" and plain:
            return CartPole(config.num_envs, config.time_limit or 500)
        if config.time_limit is not None:
            options["max_episode_steps"] = config.time_limit
        # `Envs` checks the data itself, and Gymnasium's checker would cost a tenth of each step.
        factory = partial(gym.make, spec, disable_env_checker=True, **options)
    else:
        factory = partial(_build_given, partial(factory, **config.kwargs), config.time_limit)
    env = GymEnv(factory, config)
    if config.id == OLD_LANDER:
        env.note = f"{OLD_LANDER} is not in Gymnasium: {NEW_LANDER} is used instead (EnvPool has both)"
    return env


class SeveralAgentsError(Exception):
    """A function builds environments of PettingZoo, which pettingzoo.py adapts."""


def _build_given(factory: Factory, time_limit: int | None) -> gym.Env[Any, Any]:
    env = factory()
    if is_pettingzoo(env):
        raise SeveralAgentsError
    if not isinstance(env, gym.Env):
        raise UsageError(
            f"the environment's function returned {env!r:.80}; it must return a gymnasium.Env, or an "
            "environment of PettingZoo"
        )
    return env if time_limit is None else _limited(env, time_limit)


def _limited(env: gym.Env[Any, Any], steps: int) -> gym.Env[Any, Any]:
    """An environment with a time limit in place of any that it has, as `gym.make` replaces that of an id."""
    limited, inner = False, env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, gym.wrappers.TimeLimit):
            inner._max_episode_steps = steps  # private, but wrappers between cannot be built again
            limited = True
        inner = inner.env
    return env if limited else gym.wrappers.TimeLimit(env, steps)


def _as_trials(factory: Factory, episodes: int) -> gym.Env[Any, Any]:
    return Trial(factory(), episodes)


class GymEnv(VecEnv):
    """Any Gymnasium environment. Classic control in this process is native, everything else barrier.

    factory  builds one environment; worker processes are sent it
    """

    def __init__(self, factory: Factory, config: EnvConfig) -> None:
        self.num_envs = config.num_envs
        self.backend = "workers" if config.backend == "workers" else "gymnasium"
        self._trial = config.trial
        if config.action_mask:
            factory = partial(with_masks, factory)
        self.factory = partial(_as_trials, factory, config.trial) if config.trial > 1 else factory
        self._timeout = config.step_timeout
        # An error in this process is most likely one of the environment's code. A worker process may also
        # have crashed, and a long run should survive that.
        on_error = config.on_error or ("restart" if self.backend == "workers" else "stop")
        self._restarts = Restarts(config.id, self.num_envs, on_error == "restart")
        self._fresh = False
        self._info: dict[str, Any] = {}
        self._all_ended = False
        self._build()
        self.observation_space = self._vec.single_observation_space
        self.action_space = self._vec.single_action_space
        self.tier = self._tier()
        self.time_limit = _wrapped_limit(self.example)
        if not config.action_mask and self.reports_mask():
            self.note = "the environment has action masks: --env.action-mask True would use them"
        if isinstance(self._vec, LocalEnvs):
            self.fps = images_per_second(self._vec.envs[0].metadata)

    def _build(self) -> None:
        try:
            self._vec = self._new(self.num_envs, self._restarts)
        except (UsageError, SeveralAgentsError):
            raise
        except FAILURES as error:
            raise cannot_build(error) from error
        self._fresh = True

    def _new(self, num_envs: int, restarts: Restarts) -> WorkerEnvs | LocalEnvs:
        if self.backend == "workers":
            workers = WorkerEnvs(self.factory, num_envs, restarts, self._timeout)
            check_distinct([workers.example])
            return workers
        local = LocalEnvs([self.factory] * num_envs, restarts)
        check_distinct(local.envs)
        return local

    @property
    def example(self) -> gym.Env[Any, Any]:
        """One environment, whose wrappers can be inspected; with worker processes a closed one."""
        return self._vec.envs[0] if isinstance(self._vec, LocalEnvs) else self._vec.example

    @property
    def info(self) -> dict[str, Any]:
        """What the environments reported with the present row, as Gymnasium's vector environments join it."""
        return self._info

    def _tier(self) -> Literal["native", "barrier"]:
        # Worker processes and third-party wrappers hold state that get_state does not know of.
        if isinstance(self._vec, LocalEnvs):
            env: gym.Env[Any, Any] = self._vec.envs[0]
            limited = False
            while isinstance(env, gym.wrappers.TimeLimit | gym.wrappers.OrderEnforcing):
                limited |= isinstance(env, gym.wrappers.TimeLimit)
                env = env.env
            if limited and type(env).__module__.startswith("gymnasium.envs.classic_control."):
                return "native"
        return "barrier"

    def reset(self, seeds: list[int]) -> Any:
        """Build new environments and reset them, because a reset may leave state behind (Box2D's world)."""
        if not self._fresh:  # new environments have no earlier state, so they need not be built twice
            self._vec.close()
            self._build()
        self._fresh = False
        obs, self._info = self._vec.reset(seed=list(seeds))
        self._all_ended = False
        return obs

    def step(self, action: Array) -> Step:
        obs, reward, terminated, truncated, self._info = self._vec.step(action)
        truncated = truncated & ~terminated  # terminated takes precedence: no bootstrap
        self._all_ended = bool((terminated | truncated).all())
        success = read_success(self._info, self.num_envs, self._restarts.name)
        return Step(obs, reward, terminated, truncated, success, self._info.get(f"_{ABORTED}"))

    def check_seed(self, seed: int) -> None:
        if self.tier == "native":
            return
        vec = self._new(2, Restarts(self._restarts.name, 2, allowed=False))
        try:
            one, other = iterate(vec.observation_space, vec.reset(seed=[seed, seed])[0])
            if not data_equivalence(one, other, exact=True):
                name = type(self.example.unwrapped).__name__
                warnings.warn(
                    f"{name} does not repeat from its seed, so this run cannot be resumed or repeated: draw "
                    "every random number from self.np_random",
                    stacklevel=2,
                )
        finally:
            vec.close()

    @property
    def restarts(self) -> int:
        return int(self._restarts.counts.sum())

    def action_mask(self) -> Any:
        """The entry `action_mask` of info, to which `with_masks` adds the result of `action_masks()`.

        Where all episodes have ended, none needs to be in info.
        """
        return self._info.get(ACTION_MASK, [None] * self.num_envs if self._all_ended else None)

    def reports_mask(self) -> bool:
        return super().reports_mask() or self.example.has_wrapper_attr(METHOD)

    def hidden(self) -> dict[str, Array]:
        """The numbers and vectors of numbers in `info`."""
        return read_numbers(self._info, self.num_envs)

    def new_episode(self) -> Array | None:
        """The entry `new_episode` of info, which the wrapper Trial sets."""
        if self._trial == 1:
            return None
        return np.asarray(self._info.get(NEW_EPISODE, np.zeros(self.num_envs, dtype=bool)))

    @property
    def local_envs(self) -> Sequence[gym.Env[Any, Any]]:
        """The environments, if they are in this process."""
        return self._vec.envs if isinstance(self._vec, LocalEnvs) else ()

    def names(self) -> dict[str, list[str]]:
        """Of the attributes action_names and observation_names, or what Atari and MiniGrid have."""
        if not isinstance(self._vec, LocalEnvs):
            return {}
        env: Any = self._vec.envs[0].unwrapped
        actions = getattr(env, "action_names", None)
        if actions is None and hasattr(env, "get_action_meanings"):
            actions = env.get_action_meanings()
        if actions is None and isinstance(getattr(env, "actions", None), EnumMeta):
            actions = [action.name for action in env.actions]
        by_kind = {"actions": actions, "observations": getattr(env, "observation_names", None)}
        return {kind: [str(name) for name in names] for kind, names in by_kind.items() if names is not None}

    def render(self) -> Array | None:
        if not isinstance(self._vec, LocalEnvs):
            return None
        env = self._vec.envs[0]
        if "rgb_array" not in env.metadata.get("render_modes", ()):
            return None
        # Set here and not at construction, where some environments then render every step.
        env.unwrapped.render_mode = "rgb_array"
        return as_rgb(rendered(env.render))

    def get_state(self) -> EnvState:
        assert self.tier == "native" and isinstance(self._vec, LocalEnvs)
        envs = [env.unwrapped for env in self._vec.envs]
        # Private attributes, which Gymnasium offers no access to: the environments that the next step will
        # reset, and the steps that TimeLimit has counted.
        arrays = {
            "state": np.array([env.state for env in envs]),
            "resets": np.array(self._vec._autoreset_envs),
        }
        data = {
            # An environment may keep its state as float64 after a reset and as float32 after a step.
            "kinds": [np.asarray(env.state).dtype.str for env in envs],
            "random": [env.np_random.bit_generator.state for env in envs],
            # All limits around an environment have counted the same steps.
            "elapsed": [next(_time_limits(env))._elapsed_steps for env in self._vec.envs],
            "beyond": [getattr(env, "steps_beyond_terminated", None) for env in envs],
        }
        return EnvState(arrays, data)

    def set_state(self, state: EnvState) -> None:
        assert self.tier == "native" and isinstance(self._vec, LocalEnvs)
        self.reset([0] * self.num_envs)  # creates the attributes that are set below
        self._vec._autoreset_envs = state.arrays["resets"].copy()
        rows = zip(self._vec.envs, state.arrays["state"], state.data["random"], strict=True)
        for i, (env, row, random) in enumerate(rows):
            inner: Any = env.unwrapped
            inner.state = row.astype(state.data["kinds"][i])
            # Restored last: the reset above has drawn from this generator.
            inner.np_random.bit_generator.state = random
            for limit in _time_limits(env):
                limit._elapsed_steps = state.data["elapsed"][i]
            if hasattr(inner, "steps_beyond_terminated"):
                inner.steps_beyond_terminated = state.data["beyond"][i]

    def close(self) -> None:
        self._vec.close()


# Environments that were built, by their ids, as long as they exist.
_BUILT: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def check_distinct(envs: Sequence[Any]) -> None:
    """Raise UsageError if an environment was built before, also for other environments, as of a validation.

    The steps of several would mix in one, and a reset could not begin from a new one.
    """
    for env in envs:
        inner = env.unwrapped
        if _BUILT.get(id(inner)) is inner:
            name = type(inner).__name__
            raise UsageError(
                f"the function that builds environments returned the same {name} again; it must build a new "
                f"one in each call: lambda: {name}(...)"
            )
        _BUILT[id(inner)] = inner


def _time_limits(env: gym.Env[Any, Any]) -> Iterator[Any]:
    """The TimeLimit wrappers around an environment, from the outermost on."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            yield env
        env = env.env


def _wrapped_limit(env: gym.Env[Any, Any]) -> int | None:
    """The time limit that ends episodes: the shortest, as the longer ones are never reached; None: no limit.

    A wrapper around it that repeats actions ends episodes after fewer steps of its own, which no attribute
    tells.
    """
    return min((int(limit._max_episode_steps) for limit in _time_limits(env)), default=None)


def listing() -> dict[str, str]:
    """The ids that Gymnasium ships; third-party environments run as package.module:Id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suites = ("classic_control", "box2d", "toy_text")
        known = [
            (name, suite)
            for name, spec in gym.registry.items()
            for suite in suites
            if f"gymnasium.envs.{suite}." in str(spec.entry_point)
        ]
    about = {
        "classic_control": "classic control, fully observed (native state)",
        "box2d": "Box2D physics",
        "toy_text": "small tabular world",
    }
    return {name: about[suite] for name, suite in sorted(known)}
