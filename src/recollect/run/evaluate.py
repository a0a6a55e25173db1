"""Evaluation: play whole episodes with a trained agent, each environment a fixed number of them."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch

from ..agent.agent import Agent
from ..common import notebook, rng
from ..common.errors import UsageError
from ..common.statistics import bootstrap, iqm
from ..envs import Array, EnvConfig, Envs, make_for_evaluation
from ..envs.spaces import ACTION_MASK, HIDDEN, NEW_EPISODE, ExtendedObs

# Environments of an evaluation at most. A constant, because returns depend on how episodes are distributed.
MAX_ENVS = 50


class PlayerLike(Protocol):
    """Anything that acts for N environments at once, such as `agent.player.Player`."""

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Any:
        """Actions for a batch of observations, as the environments take them."""


class RandomPlayer:
    """Acts uniformly at random, among the allowed actions if there is a mask: a baseline for all agents."""

    def __init__(self, envs: Envs, seed: int) -> None:
        self._action_spec, space = envs.action_spec, envs.adapter.action_space
        self._spaces = [space] * envs.num_envs  # one generator, so samples of environments differ
        space.seed(rng.torch_seed(seed, rng.Purpose.ACT) >> 32)
        self._rng = rng.generator(seed, rng.Purpose.ACT)

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Array:
        """One sample of the action space for each environment."""
        if isinstance(obs, ExtendedObs) and ACTION_MASK in obs:
            spec, allowed = self._action_spec, obs[ACTION_MASK]
            # The place of the largest of uniform numbers is uniform; those of forbidden choices are negative.
            draws = np.where(allowed, self._rng.random(allowed.shape), -1.0)
            parts = np.split(draws, np.cumsum(spec.sizes)[:-1], axis=1)
            return spec.to_env(np.stack([part.argmax(1) for part in parts], 1))
        return np.stack([np.asarray(space.sample()) for space in self._spaces])


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Returns, lengths and successes of evaluation episodes, one per episode.

    task        what else, beside the id, defines the environment
    successes   NaN where the environment reports none
    by_episode  with trials, each of which counts as one episode above: the returns of the episodes of each
    """

    env: str
    task: dict[str, Any]
    agent: str
    seed: int
    deterministic: bool
    returns: list[float]
    lengths: list[int]
    successes: list[float]
    by_episode: list[list[float]] = field(default_factory=list)

    def __repr__(self) -> str:
        s = self.summary()
        interval = "" if s["low"] is None else f" ({s['low']:.4g} to {s['high']:.4g})"
        success = "" if s["success"] is None else f", success {s['success']:.1%}"
        return f"Evaluation({self.env}, {s['episodes']} episodes, mean {self.mean:.4g}{interval}{success})"

    def _repr_html_(self) -> str:
        """The notebook view: a table."""
        shown = {
            key: x if isinstance(x, int) else f"{x:.4g}" for key, x in self.summary().items() if x is not None
        }
        return notebook.table({"environment": self.env, "agent": self.agent, **shown})

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    def summary(self) -> dict[str, Any]:
        """Mean, standard deviation, interquartile mean, and the 95 % interval of the mean if it exists."""
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
        """All episodes and the summary, for --json."""
        # JSON has no NaN.
        successes = [x if np.isfinite(x) else None for x in self.successes]
        return {**asdict(self), "successes": successes, **self.summary()}


class Played(NamedTuple):
    """Finished episodes, and of trials the returns of the episodes of each; without trials, none."""

    returns: list[float]
    lengths: list[int]
    successes: list[float]
    by_episode: list[list[float]]


def play_episodes(
    envs: Envs,
    player: PlayerLike,
    episodes: int,
    seeds: list[int],
    on_episode: Callable[[float], None] | None = None,
) -> Played:
    """Play episodes, which are ordered by environment; a trial counts as one.

    Environment j plays a fixed share of the episodes, and all of them count. Counting the first episodes
    to finish, as is common, would be biased towards short episodes.
    """
    num = envs.num_envs
    share = np.array([episodes // num + (j < episodes % num) for j in range(num)])
    finished: list[list[tuple[float, int, float, list[float]]]] = [[] for _ in range(num)]
    # Returns of the running trials before each of their episodes but the first.
    before: list[list[float]] = [[] for _ in range(num)]
    returns = np.zeros(num)
    lengths = np.zeros(num, dtype=np.int64)
    obs = envs.adapter.reset(seeds)
    reward = np.zeros(num)
    first = np.ones(num, dtype=bool)
    tail = np.zeros(num, dtype=bool)  # where the observation is final: the next step only resets
    while any(len(played) < n for played, n in zip(finished, share, strict=True)):
        step = envs.adapter.step(player.act(obs, reward, first))
        returns += np.where(tail, 0.0, step.reward)
        lengths += ~tail
        ended = (step.terminated | step.truncated) & ~tail
        for j in np.flatnonzero(begins_episode(step.obs, num) & ~tail):
            before[j].append(float(returns[j]))
        for j in np.flatnonzero(ended):
            # All environments step together, so one that has played its share goes on; its extra episodes are
            # dropped.
            if len(finished[j]) < share[j]:
                success = np.nan if step.success is None else float(step.success[j])
                parts = split_return(before[j], float(returns[j]))
                finished[j].append((float(returns[j]), int(lengths[j]), success, parts))
                if on_episode:
                    on_episode(float(returns[j]))
            returns[j], lengths[j], before[j] = 0.0, 0, []
        # A step from a tail row opens an episode, so `first` is the `tail` of the step before.
        obs, reward, first, tail = step.obs, step.reward, tail, ended
    flat = [episode for played in finished for episode in played]
    played = Played(*(list(column) for column in zip(*flat, strict=True)))
    _warn_of_limit(envs.imposed_limit, played.lengths)
    return played


def begins_episode(obs: Any, num_envs: int) -> Array:
    """Where an observation is the first of an episode of a trial (N,)."""
    if isinstance(obs, ExtendedObs) and NEW_EPISODE in obs:
        return np.asarray(obs[NEW_EPISODE][:, 0] > 0)
    return np.zeros(num_envs, dtype=bool)


def split_return(before: list[float], whole: float) -> list[float]:
    """The returns of the episodes of a trial, from that of the trial before each but the first."""
    return [float(x) for x in np.diff([0.0, *before, whole])] if before else []


def _warn_of_limit(limit: int | None, lengths: Sequence[int]) -> None:
    """Warn of episodes that only the time limit of the evaluation ended."""
    cut = 0 if limit is None else sum(length >= limit for length in lengths)
    if cut:
        warnings.warn(
            f"{cut} of {len(lengths)} episodes were truncated after {limit:,} steps: the environment has no "
            "time limit; --env.time-limit N sets another one",
            stacklevel=3,
        )


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
    """Evaluate an agent, or random actions if it is None, on seeds that training does not use.

    deterministic  take the most likely actions; False: sample from the policy
    name           of the agent in the result
    factory        builds one environment, if `env` names a callable
    on_episode     called with the return of each finished episode
    """
    if episodes < 1:
        raise UsageError(f"{episodes} episodes: at least 1 is needed")
    num = min(episodes, MAX_ENVS)
    # What only the critic sees is not needed here, and another environment may not have it.
    hidden = agent is not None and HIDDEN in agent.actor.inputs.leaves
    envs = make_for_evaluation(replace(env, num_envs=num, hidden=hidden), factory)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as after training: batches are small, and more threads may round differently
    try:
        if agent is None:
            player: PlayerLike = RandomPlayer(envs, seed)
        else:
            check_spaces(agent, envs, env.id)
            player = agent.player(num, deterministic, seed)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 0, num)
        results = play_episodes(envs, player, episodes, seeds, on_episode)
        by_episode = results.by_episode if env.trial > 1 else []
    finally:
        torch.set_num_threads(threads)
        envs.adapter.close()
    return Evaluation(env.id, describe_task(env), name, seed, deterministic, *results[:3], by_episode)


def describe_task(env: EnvConfig) -> dict[str, Any]:
    """The options beside its id that define an environment, as plain data."""
    task = {"kwargs": dict(env.kwargs), "mask": list(env.mask), "time_limit": env.time_limit}
    # Only where there are some: scores of earlier versions are of the same tasks.
    return task | ({"trial": env.trial} if env.trial > 1 else {})


def check_spaces(agent: Agent, envs: Envs, env_id: str) -> None:
    """Raise UsageError if the spaces of the environments are not those of the agent."""
    # Hidden variables matter only if the actor gets them.
    ignored = {HIDDEN} - agent.actor.inputs.leaves.keys()
    needed, offered = (
        {name: leaf for name, leaf in spec.leaves.items() if name not in ignored}
        for spec in (agent.obs_spec, envs.obs_spec)
    )
    if needed != offered:
        raise UsageError(
            f"{env_id} gives observations {offered}, the agent takes {needed}; "
            "take an environment with the spaces of the agent"
        )
    agents, taken = agent.action_spec, envs.action_spec
    # Not: the bounds of a Gaussian, to which its actions are scaled.
    if any(getattr(agents, name) != getattr(taken, name) for name in ("kind", "sizes", "shape", "start")):
        raise UsageError(
            f"{env_id} takes actions {taken}, the agent gives {agents}; take an environment with the spaces "
            "of the agent"
        )
