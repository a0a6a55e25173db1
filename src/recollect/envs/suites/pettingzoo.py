"""PettingZoo: environments of several agents, which share one policy (extra `pettingzoo`).

pettingzoo:butterfly/pistonball-v6 is an id of its registry. pettingzoo:package.module is the `parallel_env`
of a module, or else its `env`; package.module:function another function. Keyword arguments of the function:
--env.kwargs.n_pistons 10. With --env.self-play K they are games whose agents act in turn (turns.py).

Each agent is one of the N environments of the interface, with its own observations, rewards and ends, so
that N environments of A agents are N A sequences of the batch. Of an environment, the agents that have no
episode wait for its next one.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np

from ...common.errors import UsageError, install_hint, nearest
from ...common.named import import_named
from ..base import EnvConfig, Step, VecEnv
from ..given import is_pettingzoo
from ..gym import GymEnv
from ..spaces import ACTION_MASK, Array
from ..team import REWARD, STATE, SUCCESS, TERMINATED, TRUNCATED, WAITING, Team
from ..turns import TurnsEnv

IMPORTS_MODULES = True  # by its ids, which thus need permission where a file names them
FUNCTIONS = ("parallel_env", "env")


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of the function that an id names."""
    return make_given(config, _function(config, name))


def make_given(config: EnvConfig, factory: Callable[..., Any]) -> VecEnv:
    """N environments of a function or class, which takes config.kwargs."""
    if config.trial > 1:
        raise UsageError(
            f"env.trial {config.trial}: trials of several agents are not supported, and {config.id} has "
            "several"
        )
    if config.self_play:
        return TurnsEnv(partial(_in_turn, partial(factory, **config.kwargs)), config)
    if config.backend in ("envpool", "own"):
        raise UsageError(
            f"env.backend {config.backend} does not have environments of PettingZoo, as {config.id} is; use "
            "gymnasium or workers"
        )
    return TeamEnv(partial(factory, **config.kwargs), config)


def listing() -> dict[str, str]:
    """The ids of its registry; empty if PettingZoo is not installed."""
    if not _is_installed():
        return {}
    together, games = _registry("parallel"), _registry("aec")
    in_turn = dict.fromkeys(games, "agents that act in turn, by --env.self-play K")
    return in_turn | dict.fromkeys(together, "several agents, which share one policy")


def _is_installed() -> bool:
    return importlib.util.find_spec("pettingzoo") is not None


def _registry(kind: Literal["parallel", "aec"]) -> list[str]:
    """The ids of PettingZoo; its older versions have no registry."""
    import pettingzoo

    return sorted(getattr(pettingzoo, f"{kind}_registry", ()))


def _function(config: EnvConfig, name: str) -> Callable[..., Any]:
    """The function that builds an environment, by an id, package.module or package.module:function."""
    env_id = config.id
    if not _is_installed():
        raise UsageError(f"{env_id} needs PettingZoo: {install_hint('pettingzoo')}")
    if "/" in name:
        return _registered(config, name)
    path, _, function = name.partition(":")
    if not path:
        raise UsageError(f"environment {env_id} names no module; it is pettingzoo:package.module")
    module = import_named(path, f"environment {env_id}")
    # `env` is by convention the one whose agents act in turn.
    names = (function,) if function else FUNCTIONS[::-1] if config.self_play else FUNCTIONS
    functions = [getattr(module, key) for key in names if callable(getattr(module, key, None))]
    if not functions:
        raise UsageError(
            f"environment {env_id}: module {path} has no function {' or '.join(names)}; name one as "
            f"pettingzoo:{path}:function"
        )
    return functions[0]


def _registered(config: EnvConfig, name: str) -> Callable[..., Any]:
    """What builds the environment of an id of the registry."""
    import pettingzoo

    kind: Literal["parallel", "aec"] = "aec" if config.self_play else "parallel"
    known = _registry(kind)
    if name not in known and name in _registry("aec"):
        raise UsageError(f"the agents of {config.id} act in turn: train with --env.self-play 8, for example")
    if name not in known:
        raise UsageError(f"environment {config.id} is unknown to PettingZoo; {nearest(name, known)}")

    def build(**kwargs: Any) -> Any:
        try:
            return pettingzoo.make(kind, name, **kwargs)
        except pettingzoo.env_registry.exceptions.FailedToImport as error:
            raise UsageError(f"environment {config.id} lacks a package: {error}") from error

    return build


def _build(
    factory: Callable[[], Any], time_limit: int | None, agent_id: bool, state: bool
) -> gymnasium.Env[Any, Any]:
    team = Team(_as_parallel(factory()), agent_id, state)
    return team if time_limit is None else gymnasium.wrappers.TimeLimit(team, time_limit)


def _as_parallel(env: Any) -> Any:
    """A parallel environment; one whose agents act in turn (AEC) is converted if it allows it."""
    from pettingzoo import ParallelEnv
    from pettingzoo.utils.conversions import aec_to_parallel

    if isinstance(_checked(env), ParallelEnv):
        return env
    try:
        return aec_to_parallel(env)
    except AssertionError as error:
        raise UsageError(
            f"the agents of {env} act in turn (AEC), and its metadata do not allow the conversion to a "
            "parallel environment: is_parallelizable is not True. Train with --env.self-play, or write a "
            "ParallelEnv"
        ) from error


def _in_turn(factory: Callable[..., Any], **kwargs: Any) -> Any:
    """An environment whose agents act in turn (AEC), in which those of a parallel one do not see the actions
    of the others before all have acted.
    """
    from pettingzoo import ParallelEnv
    from pettingzoo.utils.conversions import parallel_to_aec

    env = factory(**kwargs)
    if isinstance(env, gymnasium.Env):
        raise UsageError(
            f"env.self_play needs a game of several agents (PettingZoo), and {env!r:.80} has one"
        )
    return parallel_to_aec(env) if isinstance(_checked(env), ParallelEnv) else env


def _checked(env: Any) -> Any:
    """An environment of PettingZoo, or UsageError."""
    if not is_pettingzoo(env):
        raise UsageError(
            f"the environment's function returned {env!r:.80}; it must return an environment of PettingZoo"
        )
    return env


class TeamEnv(VecEnv):
    """N environments of A agents each, as N A environments of one agent: entry e A + a is agent a of e."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, factory: Callable[[], Any], config: EnvConfig) -> None:
        build = partial(_build, factory, config.time_limit, config.agent_id, config.hidden)
        self._inner = GymEnv(build, config)
        team = self._inner.example
        while isinstance(team, gymnasium.Wrapper):
            team = team.env
        self.agents = team.names
        self._shape = config.num_envs, len(self.agents)
        self.num_envs = config.num_envs * len(self.agents)
        self.observation_space, self.action_space = team.single_space, team.single_action_space
        self.backend, self.time_limit = self._inner.backend, self._inner.time_limit
        self.fps = self._inner.fps
        self.note = f"{len(self.agents)} agents of each environment share one policy"
        self._idle = self._waiting = np.zeros(self._shape, dtype=bool)

    def reset(self, seeds: list[int]) -> Any:
        """Each environment from the seed of its first agent."""
        obs = self._inner.reset(seeds[:: len(self.agents)])
        self._waiting = self._of_agents(WAITING, bool)
        self._idle = self._waiting
        return self._flat(obs)

    def step(self, action: Array) -> Step:
        step = self._inner.step(action.reshape(*self._shape, *action.shape[1:]))
        acted = ~self._idle
        terminated, truncated = (self._of_agents(key, bool) for key in (TERMINATED, TRUNCATED))
        waiting = self._of_agents(WAITING, bool)
        # Here the whole team was truncated: by env.time_limit, or by a failure, of which info has nothing.
        cut = step.truncated[:, None]
        waiting = np.where(cut, ~acted, waiting)
        truncated |= cut & acted & ~terminated
        self._waiting, self._idle = waiting, terminated | truncated | waiting
        reward = self._of_agents(REWARD, np.float64)
        aborted = None if step.aborted is None else (step.aborted[:, None] & acted).ravel()
        reward, terminated, truncated = (x.ravel() for x in (reward, terminated, truncated))
        return Step(self._flat(step.obs), reward, terminated, truncated, self._success(), aborted)

    def _of_agents(self, key: str, dtype: Any) -> Array:
        """An entry of info, (environments, A); 0 where an environment reports none."""
        return np.array(self._inner.info.get(key, np.zeros(self._shape)), dtype=dtype)

    def _success(self) -> Array | None:
        info = self._inner.info
        return (
            np.where(info[f"_{SUCCESS}"][:, None], info[SUCCESS], np.nan).ravel() if SUCCESS in info else None
        )

    def _flat(self, x: Any) -> Any:
        """Arrays (environments, A, ...), nested as in their space, with one axis for both."""
        if isinstance(x, dict):
            return {key: self._flat(part) for key, part in x.items()}
        if isinstance(x, tuple):
            return tuple(map(self._flat, x))
        return x.reshape(self.num_envs, *x.shape[2:])

    def waiting(self) -> Array:
        return self._waiting.ravel()

    def action_mask(self) -> Any:
        """The entry `action_mask` of the info of each agent; none where all episodes have ended."""
        masks = self._inner.info.get(ACTION_MASK)
        if masks is not None:
            return self._flat(masks)
        return None if self._inner.action_mask() is None else [None] * self.num_envs

    def hidden(self) -> dict[str, Array]:
        """The state of the environment, which all its agents share, as PettingZoo's `state()` returns it."""
        state = self._inner.info.get(STATE)
        if state is None:
            return {}
        return {f"state[{i}]": x.repeat(len(self.agents)) for i, x in enumerate(state.T)}

    def names(self) -> dict[str, list[str]]:
        return self._inner.names()

    def check_seed(self, seed: int) -> None:
        self._inner.check_seed(seed)

    @property
    def restarts(self) -> int:
        return self._inner.restarts

    def render(self) -> Array | None:
        return self._inner.render()

    def close(self) -> None:
        self._inner.close()
