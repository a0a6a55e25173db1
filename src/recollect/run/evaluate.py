"""Play episodes with an agent that no longer learns, and count honestly."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import gymnasium
import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.errors import UsageError
from ..common.statistics import bootstrap, iqm
from ..envs import Array, EnvConfig, Envs, make_for_evaluation


class PlayerLike(Protocol):
    """Anything that acts for N environments at once."""

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Any:
        """Actions for observations, as the environments take them."""


class RandomPlayer:
    """Acts uniformly at random: the baseline every agent must beat."""

    def __init__(self, space: gymnasium.Space[Any], num_envs: int, seed: int) -> None:
        self._spaces = [space] * num_envs
        space.seed(rng.torch_seed(seed, rng.Purpose.ACT) >> 32)

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Array:
        """One sample of the action space for each environment."""
        return np.stack([np.asarray(space.sample()) for space in self._spaces])


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of finished episodes, and what they say."""

    env: str
    task: dict[str, Any]
    """What else makes the environment the task it is."""
    agent: str
    seed: int
    deterministic: bool
    returns: list[float]
    lengths: list[int]
    successes: list[float]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    def summary(self) -> dict[str, Any]:
        """What is quoted: mean, deviation, interquartile mean, 95 % interval of the mean, if there is one."""
        low, high = bootstrap(self.returns) if len(self.returns) > 1 else (None, None)
        reported = [x for x in self.successes if np.isfinite(x)]
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "std": float(np.std(self.returns)),
            "iqm": iqm(self.returns),
            "low": low,
            "high": high,
            "length": float(np.mean(self.lengths)),
            "success": float(np.mean(reported)) if reported else None,
        }

    def as_json(self) -> dict[str, Any]:
        """Everything, for --json."""
        successes = [x if np.isfinite(x) else None for x in self.successes]
        return {**asdict(self), "successes": successes, **self.summary()}


def play_episodes(
    envs: Envs,
    player: PlayerLike,
    episodes: int,
    seeds: list[int],
    on_episode: Callable[[float], None] | None = None,
) -> tuple[list[float], list[int], list[float]]:
    """Returns, lengths and successes; environment j plays a fixed share of the episodes.

    Counting the first episodes to finish, as is common, would favour short ones.
    """
    num = envs.num_envs
    share = np.array([episodes // num + (j < episodes % num) for j in range(num)])
    found: list[list[tuple[float, int, float]]] = [[] for _ in range(num)]
    returns, lengths = np.zeros(num), np.zeros(num, dtype=np.int64)
    obs, reward = envs.adapter.reset(seeds), np.zeros(num)
    first, tail = np.ones(num, dtype=bool), np.zeros(num, dtype=bool)
    while any(len(column) < n for column, n in zip(found, share, strict=True)):
        step = envs.adapter.step(player.act(obs, reward, first))
        returns += np.where(tail, 0.0, step.reward)
        lengths += ~tail
        ended = (step.terminated | step.truncated) & ~tail
        for j in np.flatnonzero(ended):
            if len(found[j]) < share[j]:
                success = np.nan if step.success is None else float(step.success[j])
                found[j].append((float(returns[j]), int(lengths[j]), success))
                if on_episode:
                    on_episode(float(returns[j]))
            returns[j], lengths[j] = 0.0, 0
        obs, reward, first, tail = step.obs, step.reward, tail, ended
    flat = [episode for column in found for episode in column]
    columns = [list(column) for column in zip(*flat, strict=True)]
    return columns[0], columns[1], columns[2]


def evaluate(
    agent: Agent | None,
    env: EnvConfig,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    name: str = "agent",
    factory: Callable[[], gymnasium.Env[Any, Any]] | None = None,
    on_episode: Callable[[float], None] | None = None,
) -> Evaluation:
    """Play with an agent, or at random without one, on seeds no training ever sees."""
    if episodes < 1:
        raise UsageError(f"{episodes} episodes: at least 1 is needed")
    num = min(episodes, 50)
    envs = make_for_evaluation(replace(env, num_envs=num), factory)
    try:
        if agent is None:
            player: PlayerLike = RandomPlayer(envs.adapter.action_space, num, seed)
        else:
            check_spaces(agent, envs, env.id)
            player = agent.player(num, deterministic, seed)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 0, num)
        played = play_episodes(envs, player, episodes, seeds, on_episode)
    finally:
        envs.adapter.close()
    return Evaluation(env.id, describe_task(env), name, seed, deterministic, *played)


def describe_task(env: EnvConfig) -> dict[str, Any]:
    """What, beside its id, makes an environment another task, as plain data."""
    return {"kwargs": dict(env.kwargs), "mask": list(env.mask), "time_limit": env.time_limit}


def check_spaces(agent: Agent, envs: Envs, env_id: str) -> None:
    """An agent acts only in spaces like its own."""
    if agent.obs_spec.leaves != envs.obs_spec.leaves:
        raise UsageError(
            f"{env_id} gives observations {envs.obs_spec.leaves}, the agent takes {agent.obs_spec.leaves}"
        )
    mine, theirs = agent.action_spec, envs.action_spec
    if (mine.kind, mine.sizes, mine.shape) != (theirs.kind, theirs.sizes, theirs.shape):
        raise UsageError(f"{env_id} takes actions {theirs}, the agent gives {mine}")
