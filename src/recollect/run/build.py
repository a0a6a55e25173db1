"""What a run begins with: environments, an agent, and a config in which nothing is left open."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium

from ..agent.agent import Agent, build_agent
from ..common.distributed import ALONE, CORES, Ranks
from ..common.errors import UsageError
from ..common.malloc import keep_freed_memory
from ..config.config import RunConfig, resolve
from ..envs import EnvConfig, Envs, make
from ..learn.learner import Learner, begin
from ..learn.minibatches import blocks_of
from ..memory import Memory

Factory = Callable[[], gymnasium.Env[Any, Any]]


def resolved_config(config: RunConfig) -> RunConfig:
    """What a run of this config would write down: its environments decide what was left open."""
    envs = make(config.env)
    try:
        return _resolved(config, envs, new=True)
    finally:
        envs.adapter.close()


def _resolved(config: RunConfig, envs: Envs, new: bool) -> RunConfig:
    adapter = envs.adapter
    return resolve(config, adapter.backend, adapter.tier == "native", adapter.time_limit, new)


def build(
    config: RunConfig, factory: Factory | None = None, ranks: Ranks = ALONE, new: bool = True
) -> tuple[Envs, Agent, RunConfig]:
    """This process's environments, an agent, and the config of all.

    new  whether the run has not begun: memories begin from what their configs name
    """
    keep_freed_memory()
    length = config.ppo.chunk_length(False)
    config.ppo.chunks_per_minibatch(config.env.num_envs, length)  # sizes first: it costs nothing
    envs = make(_own(config, ranks), factory)
    try:
        config = _resolved(config, envs, new)
        spaces = envs.obs_spec, envs.action_spec
        agent = build_agent(spaces, config.actor, config.critic, config.env.normalize_obs, config.seed)
        if new:
            begin_memories(agent)
        length = config.ppo.chunk_length(any(agent.initial_state(1)))
        size = config.ppo.chunks_per_minibatch(config.env.num_envs, length)
        _check_shares(config.env.num_envs, size, ranks)
    except UsageError:
        envs.adapter.close()  # worker processes would complain after the one line
        raise
    return envs, agent, config


def _own(config: RunConfig, ranks: Ranks) -> EnvConfig:
    """The environments of this process: an equal share, on its share of the cores."""
    if ranks.size == 1:
        return config.env
    if config.algorithm != "ppo":
        raise UsageError(f"algorithm {config.algorithm} learns in one process; on several, ppo does")
    _check_shares(config.env.num_envs, config.env.num_envs, ranks)
    threads = max(1, (config.env.threads or CORES) // ranks.local_size)
    return replace(config.env, num_envs=config.env.num_envs // ranks.size, threads=threads)


def _check_shares(num_envs: int, size: int, ranks: Ranks) -> None:
    if blocks_of(num_envs, size, ranks) % ranks.size:
        raise UsageError(
            f"{ranks.size} processes cannot share {num_envs} environments and minibatches of {size} chunks "
            "equally: take 2, 4 or 8 processes, and env.num_envs and chunks of a minibatch that are "
            "multiples of them"
        )


def begin_memories(agent: Agent) -> None:
    """Of a run that has learned nothing yet."""
    for part in agent.modules():
        if isinstance(part, Memory):
            part.begin()


def build_learner(config: RunConfig, envs: Envs, agent: Agent, ranks: Ranks = ALONE) -> Learner:
    """A learner that has not learned yet."""
    env = config.env
    return begin(envs, agent, config.plan, env.normalize_reward, env.reward_scale, ranks)
