"""Evaluation: play whole episodes with a trained agent, each environment a fixed number of them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..agent.agent import Agent
from ..common import notebook, rng
from ..common.errors import UsageError
from ..common.intervals import mean_interval
from ..common.option_values import Setting, value_of
from ..common.statistics import iqm
from ..common.threads import one_thread
from ..envs import Array, EnvConfig, Envs, make_for_evaluation, reports_mask
from ..envs.given import Factory
from ..envs.random_actions import draw_allowed
from ..envs.spaces import ACTION_MASK, HIDDEN, ExtendedObs
from ..envs.spaces_text import describe
from .playing import PlayerLike, play_episodes

# Environments of an evaluation at most. A constant, because returns depend on how episodes are distributed.
MAX_ENVS = 50


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
            spec = self._action_spec
            return spec.to_env(draw_allowed(spec, obs[ACTION_MASK], self._rng))
        return np.stack([np.asarray(space.sample()) for space in self._spaces])


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Returns, lengths and successes of evaluation episodes, one per episode.

    task        what else, beside the id, defines the environment
    successes   NaN where the environment reports none; their mean is known if all are
    by_episode  with trials, each of which counts as one episode above: the returns of the episodes of each
    by_agent    with several agents, over whose returns each return above is the mean: those of each agent, by
                its name; NaN where it took no part
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
    by_agent: dict[str, list[float]] = field(default_factory=dict)

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
        """Mean, standard deviation, interquartile mean, and the 95 % interval of the mean: none for one
        episode, or if all returns are equal."""
        low, high = mean_interval(np.array(self.returns)) or (None, None)
        # A share of some would leave out those that report nothing, as where a time limit ends them.
        all_report = bool(np.isfinite(self.successes).all())
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "std": float(np.std(self.returns)),
            "iqm": iqm(self.returns),
            "low": low,
            "high": high,
            "length": float(np.mean(self.lengths)),
            "success": float(np.mean(self.successes)) if all_report else None,
        }

    def as_json(self) -> dict[str, Any]:
        """All episodes and the summary, for --json."""
        # JSON has no NaN.
        successes = _without_nan(self.successes)
        by_agent = {name: _without_nan(returns) for name, returns in self.by_agent.items()}
        return {**asdict(self), "successes": successes, "by_agent": by_agent, **self.summary()}


def _without_nan(values: list[float]) -> list[float | None]:
    return [x if np.isfinite(x) else None for x in values]


@one_thread()
def evaluate(
    agent: Agent | None,
    env: EnvConfig,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    name: str = "agent",
    factory: Factory | None = None,
    on_episode: Callable[[float], None] | None = None,
) -> Evaluation:
    """Evaluate an agent, or random actions if it is None, on seeds that training does not use.

    deterministic  take the most likely actions; False: sample from the policy
    name           of the agent in the result
    factory        builds one environment, if `env` names a callable
    on_episode     called with the return of each finished episode
    """
    for option, number in (("episodes", episodes), ("seed", seed)):
        value_of(Setting(option, number, option), int)
    if episodes < 1:
        raise UsageError(f"{episodes} episodes: at least 1 is needed")
    if seed < 0:
        raise UsageError(f"seed is {seed}, at least 0 is needed")
    num = min(episodes, MAX_ENVS)
    envs = make_for_evaluation(replace(as_actor_sees(env, agent), num_envs=num), factory)
    try:
        if agent is None:
            player: PlayerLike = RandomPlayer(envs, seed)
        else:
            check_spaces(agent, envs, env.id)
            player = agent.player(envs.num_envs, deterministic, seed)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 0, envs.num_envs)
        results = play_episodes(envs, player, episodes, seeds, on_episode)
        by_episode = results.by_episode if env.trial > 1 else []
        returns_of = map(list, zip(*results.by_agent, strict=True))
        by_agent = dict(zip(envs.agents, returns_of, strict=True))
    finally:
        envs.adapter.close()
    task = describe_task(env)
    deterministic = deterministic and agent is not None
    return Evaluation(env.id, task, name, seed, deterministic, *results[:3], by_episode, by_agent)


def as_actor_sees(env: EnvConfig, agent: Agent | None) -> EnvConfig:
    """The environments in which an agent only acts: hidden variables that only its critic sees are left out.

    They are not needed there, and another environment than that of training may not have them.
    """
    return replace(env, hidden=agent is not None and HIDDEN in agent.actor.inputs.leaves)


def with_reported_mask(env: EnvConfig, factory: Factory | None = None) -> EnvConfig:
    """The config with the action mask of every environment that reports one, also without env.action_mask.

    For random actions that are not compared with an agent: a forbidden action may be an error. A baseline has
    the config of the agents beside it.
    """
    return replace(env, action_mask=env.action_mask or reports_mask(env, factory))


def describe_task(env: EnvConfig) -> dict[str, Any]:
    """The options beside its id that define an environment, as plain data."""
    task = {"kwargs": dict(env.kwargs), "mask": list(env.mask), "time_limit": env.time_limit}
    # Only where there are some: scores of earlier versions are of the same tasks.
    task |= {"trial": env.trial} if env.trial > 1 else {}
    task |= {"self_play": True} if env.self_play else {}  # whatever the number of past selves
    return task | ({"action_mask": True} if env.action_mask else {})


def check_spaces(agent: Agent, envs: Envs, env_id: str) -> None:
    """Raise UsageError if the spaces of the environments are not those of the agent."""
    # Hidden variables matter only if the actor gets them.
    ignored = {HIDDEN} - agent.actor.inputs.leaves.keys()
    needed, offered = (
        replace(spec, leaves={name: leaf for name, leaf in spec.leaves.items() if name not in ignored})
        for spec in (agent.obs_spec, envs.obs_spec)
    )
    if needed.leaves != offered.leaves:
        raise UsageError(
            f"{env_id} gives observations ({describe(offered)}), the agent takes ({describe(needed)}); "
            "take an environment with the spaces of the agent"
        )
    agents, taken = agent.action_spec, envs.action_spec
    # Not: the bounds of a Gaussian, to which its actions are scaled.
    if any(getattr(agents, name) != getattr(taken, name) for name in ("kind", "sizes", "shape", "start")):
        raise UsageError(
            f"{env_id} takes actions ({describe(taken)}), the agent gives ({describe(agents)}); take an "
            "environment with the spaces of the agent"
        )
