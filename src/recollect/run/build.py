"""Build what a run starts from: environments, agent, learner, and the resolved config."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium

from ..agent.agent import Agent, build_agent
from ..agent.graphs import check_graphs, has_graphs
from ..agent.speed import faster
from ..common.devices import automatic, choose, find_device, reported_memory, training_on
from ..common.distributed import ALONE, CORES, Ranks
from ..common.errors import OutOfMemoryError, UsageError
from ..common.malloc import keep_freed_memory
from ..common.tree import leaves
from ..config.config import RunConfig, resolve
from ..envs import EnvConfig, Envs, make
from ..learn.adaptive import check_target
from ..learn.learner import Learner, begin
from ..learn.minibatches import blocks_of
from ..learn.novelty import Distillation, Novelty
from ..learn.settings import WHOLE_ROLLOUTS
from .initial import begin_weights

Factory = Callable[[], gymnasium.Env[Any, Any]]


def resolved_config(config: RunConfig) -> RunConfig:
    """The config with all open fields decided, as a run of it would write it to config.yaml.

    Builds the environments, because backend, tier and time limit decide some fields.
    """
    envs = make(config.env)
    try:
        config = _resolved(config, envs, new=True)
        agent = _build_agent(config, envs) if config.device == "auto" and automatic() else None
        return _with_device(config, agent)
    finally:
        envs.adapter.close()


def _resolved(config: RunConfig, envs: Envs, new: bool) -> RunConfig:
    """The config with all open fields decided but the device, which depends on the size of the agent."""
    adapter = envs.adapter
    return resolve(config, adapter.backend, adapter.tier == "native", adapter.time_limit, new)


def _with_device(config: RunConfig, agent: Agent | None) -> RunConfig:
    config = replace(config, device=choose(config.device, agent))
    if config.cuda_graphs:
        check_graphs(config.device)
    return config


def _build_agent(config: RunConfig, envs: Envs) -> Agent:
    # From the seed of the run alone, so all processes start with the same weights.
    spaces = envs.obs_spec, envs.action_spec
    return build_agent(spaces, config.actor, config.critic, config.env.normalize_obs, config.seed)


def _check_states(agent: Agent) -> None:
    """Raise UsageError for a memory whose states cannot be stored where chunks begin."""
    for name, branch in (("actor", agent.actor), ("critic", agent.critic.trunk)):
        state = branch.initial_state(2)
        if not isinstance(state, tuple) or any(x.shape[:1] != (2,) for x in leaves(state).values()):
            raise UsageError(
                f"the memory {type(branch.memory).__name__} of the {name} has an initial_state that is no "
                "nested tuple of tensors with the batch axis first; recollect.testing.check_memory says more"
            )


def build(
    config: RunConfig,
    factory: Factory | None = None,
    ranks: Ranks = ALONE,
    new: bool = True,
    device: str | None = None,
) -> tuple[Envs, Agent, RunConfig]:
    """Build the environments of this process, an agent, and the resolved config of the whole run.

    new     whether the run starts now: it loads the weights that the config names
    device  where the agent is, if not on the device of the config
    """
    keep_freed_memory()
    envs = make(_share_of_envs(config, ranks), factory)
    try:
        config = _resolved(config, envs, new)
        agent = _build_agent(config, envs)
        _check_states(agent)
        config = _with_device(config, agent)
        if new:
            begin_weights(agent, config)
        # After all weights are drawn and loaded, on the CPU: the same ones for every device.
        place = find_device(choose(device or config.device, agent), ranks)
        with reported_memory(place):
            agent.to(place)
        length, num_envs = config.ppo.chunk_length(any(agent.initial_state(1))), envs.num_envs * ranks.size
        whole = config.algorithm in WHOLE_ROLLOUTS
        size = config.ppo.chunks_per_minibatch(num_envs, length, whole)
        _check_shares(num_envs, size, ranks)
        check_target(config.ppo, agent.policy)
    except (UsageError, OutOfMemoryError):
        envs.adapter.close()  # worker processes would print their own errors after this one
        raise
    return envs, agent, config


def _share_of_envs(config: RunConfig, ranks: Ranks) -> EnvConfig:
    """The environments of this process: an equal share, on its share of the cores."""
    if ranks.size == 1:
        return config.env
    if config.algorithm != "ppo":
        raise UsageError(
            f"algorithm {config.algorithm} runs in one process, here are {ranks.size}; use ppo, or start it "
            "without torchrun"
        )
    _check_shares(config.env.num_envs, config.env.num_envs, ranks)
    # CORES counts those of the machine, which the processes on it share.
    threads = max(1, (config.env.threads or CORES) // ranks.local_size)
    return replace(config.env, num_envs=config.env.num_envs // ranks.size, threads=threads)


def _check_shares(num_envs: int, size: int, ranks: Ranks) -> None:
    if blocks_of(num_envs, size, ranks) % ranks.size:
        raise UsageError(
            f"{ranks.size} processes cannot share {num_envs} environments and minibatches of {size} chunks "
            "equally: take 2, 4 or 8 processes, and env.num_envs and chunks per minibatch that are "
            "multiples of that number"
        )


@contextlib.contextmanager
def training_mode(agent: Agent, config: RunConfig) -> Iterator[None]:
    """The precision and the kernels of training; afterwards the agent is computed like any other."""
    # A resumed run may have moved to a device without graphs.
    graphs = config.cuda_graphs and has_graphs(agent.device)
    with training_on(agent.device), faster(agent, config.amp == "bf16", config.compile, graphs):
        yield


def build_learner(config: RunConfig, envs: Envs, agent: Agent, ranks: Ranks = ALONE) -> Learner:
    """The learner of a new run."""
    env = config.env
    with reported_memory(agent.device):
        scale = env.normalize_reward, env.reward_scale
        learner = begin(envs, agent, config.plan, *scale, ranks, env.self_play)
        if config.ppo.rnd_coef:
            distillation = Distillation((envs.obs_spec, envs.action_spec), config.actor, config.seed)
            num_envs = envs.num_envs * ranks.size
            learner.novelty = Novelty(distillation.to(agent.device), config.ppo, num_envs)
    return learner
