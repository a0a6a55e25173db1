"""Presets: models by name, over the hyperparameters of each environment."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..agent.agent import BranchConfig
from ..common.errors import UsageError, nearest
from ..learn.settings import Algorithm, PPOConfig
from ..memory import MemoryConfig
from ..memory.deltanet import DeltaNetConfig
from ..memory.elman import IndRnnConfig, RnnConfig
from ..memory.ffm import FfmConfig
from ..memory.gpt2 import Gpt2Config
from ..memory.layers import LayeredConfig
from ..memory.linear_attention import LinearAttentionConfig
from ..memory.lmu import LmuConfig
from ..memory.lru import LruConfig
from ..memory.mamba import MambaConfig
from ..memory.rnn import GruConfig, LstmConfig, MinGruConfig
from ..memory.shm import ShmConfig
from ..memory.stack import StackConfig
from ..memory.trxl import GtrxlConfig, TrxlConfig
from ..memory.xlstm import MlstmConfig, SlstmConfig
from .config import RunConfig
from .tasks import FLEETING, TASKS, default

INTERLEAVED = Gpt2Config(tokens="interleaved")


def ppo(config: RunConfig) -> RunConfig:
    """No memory: actor and critic take the current observation."""
    return config


def ppo_gru(config: RunConfig) -> RunConfig:
    """A GRU each for actor and critic."""
    return recurrent(config, GruConfig)


def ppo_lstm(config: RunConfig) -> RunConfig:
    """An LSTM each for actor and critic."""
    return recurrent(config, LstmConfig, keep=forget_bias(config))


def ppo_mingru(config: RunConfig) -> RunConfig:
    """A minGRU of two layers each for actor and critic.

    The gates of a layer depend on its input and not on its hidden state, so one layer cannot distinguish
    the first step from the others; the input of the second layer is the hidden state of the first.
    """
    return recurrent(config, MinGruConfig, layers=2, keep=forget_bias(config))


def ppo_mamba(config: RunConfig) -> RunConfig:
    """A Mamba-2 each for actor and critic, at a learning rate of at most 1e-3."""
    # At 2.5e-3, an agent that had solved poc lost it again.
    ppo = replace(config.ppo, learning_rate=min(config.ppo.learning_rate, 1e-3))
    return replace(recurrent(config, MambaConfig), ppo=ppo)


def forget_bias(config: RunConfig) -> float:
    """Initial forget-gate bias: 0 where only the last few steps matter, else 1. The update gate of a GRU
    needs no exception, because its reset gate also controls how much of the state enters the candidate.
    """
    return 0.0 if config.env.id.rpartition(":")[2].partition("-")[0] in FLEETING else 1.0


def recurrent(config: RunConfig, kind: type[LayeredConfig], **settings: Any) -> RunConfig:
    """Such a memory each for actor and critic, half as wide as the layer after it, or before it."""

    def with_recurrence(branch: BranchConfig) -> BranchConfig:
        layers = branch.hidden or (getattr(branch.encoder, "features", None) or 128,)
        return with_memory(branch, kind(width=max(64, layers[-1] // 2), **settings))

    return replace(config, actor=with_recurrence(config.actor), critic=with_recurrence(config.critic))


def one_each(kind: type[LayeredConfig], name: str) -> Callable[[RunConfig], RunConfig]:
    """The preset with such a memory each for actor and critic, at the hyperparameters of the task."""

    def model(config: RunConfig) -> RunConfig:
        return recurrent(config, kind)

    model.__doc__ = f"{name} each for actor and critic."
    return model


def ppo_gpt(config: RunConfig) -> RunConfig:
    """A GPT-2 for the critic, as a residual branch; an actor without memory, twice as deep."""
    # Some tasks share the critic, which then would have no memory of its own.
    critic = replace(config.critic, memory=INTERLEAVED, residual=True, shared=False)
    return replace(short_chunks(config), actor=deeper(config.actor), critic=critic)


def ppo_gpt_frozen(config: RunConfig) -> RunConfig:
    """A frozen random GPT-2 and a trained layer after it for the critic; the same actor as ppo_gpt."""
    frozen = replace(INTERLEAVED, trained_blocks=0, trained_ends=False)
    critic = replace(with_memory(config.critic, frozen), shared=False)
    return replace(short_chunks(config), actor=deeper(config.actor), critic=critic)


def ppo_published(config: RunConfig) -> RunConfig:
    """The PPO that GPT2PPO was compared with, at its hyperparameters: one layer of 128 in each network."""
    layer = BranchConfig(hidden=(), head_hidden=(128,), activation="relu", init="torch", log_std=-0.5)
    # An epoch is 2,048 steps of one environment, which is then reset. Each 128 consecutive steps are a
    # minibatch, with five consecutive gradient steps.
    ppo = PPOConfig(
        num_steps=2048,
        num_minibatches=None,
        batch_size=128,
        update_epochs=1,
        steps_per_minibatch=5,
        shuffle=False,
        gamma=0.99,
        gae_lambda=0.95,
        target_lambda=1.0,
        clip=0.2,
        vf_coef=1.0,
        learning_rate=3e-4,
        critic_learning_rate=1e-3,
        adam_eps=1e-8,
        max_grad_norm=0.0,
    )
    env = replace(config.env, num_envs=1, time_limit=500, normalize_obs=False, normalize_reward=False)
    env = replace(env, reward_scale=1.0)
    return replace(config, env=env, actor=layer, critic=layer, ppo=ppo, barrier=1)


def ppo_gpt_published(config: RunConfig) -> RunConfig:
    """GPT2PPO as its code ran: only the heads are trained, after a random GPT-2 and two random layers."""
    config = ppo_published(config)
    actor = replace(config.actor, hidden=(64, 64), linear_output=True, trained_encoder=False)
    gpt2 = replace(
        INTERLEAVED,
        context=64,
        width=64,
        layers=2,
        heads=8,
        positions=1024,
        dropout=0.5,
        attention_dropout=0.5,
        embedding_init="torch",
        trained_blocks=0,
        trained_ends=False,
    )
    critic = replace(config.critic, memory=gpt2)
    return replace(short_chunks(config), actor=actor, critic=critic)


def short_chunks(config: RunConfig) -> RunConfig:
    """Chunks of 16 steps, where they divide the rollout; with few long chunks a minibatch has little variety.

    The key/value cache from before a chunk was stored during collection, so a chunk truncates only the
    gradient.
    """
    return replace(config, ppo=replace(config.ppo, bptt=math.gcd(config.ppo.num_steps, 16)))


def deeper(branch: BranchConfig) -> BranchConfig:
    """The encoder with each of its layers twice."""
    return replace(branch, hidden=branch.hidden * 2)


def ppo_gpt_shared(config: RunConfig) -> RunConfig:
    """One GPT-2, shared by actor and critic."""
    return shared_memory(config, INTERLEAVED)


def ppo_gpt_actor(config: RunConfig) -> RunConfig:
    """A GPT-2 each for actor and critic, at a learning rate of at most 1e-3."""
    actor, critic = (with_memory(branch, INTERLEAVED) for branch in (config.actor, config.critic))
    # At 2.5e-3, one of ten agents that had solved poc collapsed in a single update.
    rate = min(config.ppo.learning_rate, 1e-3)
    ppo = replace(config.ppo, learning_rate=rate)
    return replace(config, actor=actor, critic=replace(critic, shared=False), ppo=ppo)


def ppo_trxl(config: RunConfig) -> RunConfig:
    """One Transformer-XL, shared by actor and critic."""
    return shared_memory(config, TrxlConfig())


def ppo_gtrxl(config: RunConfig) -> RunConfig:
    """One gated Transformer-XL (GTrXL), shared by actor and critic."""
    return shared_memory(config, GtrxlConfig())


def with_memory(branch: BranchConfig, memory: MemoryConfig) -> BranchConfig:
    """A memory of the raw features, then one layer as wide as the last one of the task."""
    return replace(branch, memory=memory, hidden=(), head_hidden=branch.hidden[-1:])


def shared_memory(config: RunConfig, memory: MemoryConfig) -> RunConfig:
    """One such memory, shared by actor and critic."""
    critic = replace(with_memory(config.critic, memory), shared=True)
    return replace(config, actor=with_memory(config.actor, memory), critic=critic)


def ppo_stack(config: RunConfig) -> RunConfig:
    """The last four observations, concatenated, for actor and critic."""
    stack = StackConfig()
    return replace(
        config,
        actor=replace(config.actor, memory=stack),
        critic=replace(config.critic, memory=stack),
    )


def a2c(config: RunConfig) -> RunConfig:
    """Advantage actor-critic: one gradient step per rollout, so rollouts are short."""
    return other(config, "a2c", num_steps=8)


def reinforce(config: RunConfig) -> RunConfig:
    """REINFORCE, without a critic: long rollouts of few environments contain whole episodes."""
    normalize = config.env.normalize_reward or config.critic.value == "popart"  # there are no values
    env = replace(config.env, num_envs=4, normalize_reward=normalize)
    config = replace(config, env=env, critic=replace(config.critic, value="scalar"))
    return other(config, "reinforce", num_steps=512, learning_rate=4 * config.ppo.learning_rate)


def trpo(config: RunConfig) -> RunConfig:
    """Trust region policy optimisation: one step of the actor per rollout, as large as a KL bound allows."""
    return other(replace(config, critic=replace(config.critic, shared=False)), "trpo")


def other(config: RunConfig, algorithm: Algorithm, **settings: Any) -> RunConfig:
    """The hyperparameters of the task, with another algorithm."""
    return replace(config, algorithm=algorithm, ppo=replace(config.ppo, **settings))


MODELS: dict[str, Callable[[RunConfig], RunConfig]] = {
    "reinforce": reinforce,
    "a2c": a2c,
    "trpo": trpo,
    "ppo": ppo,
    "ppo_stack": ppo_stack,
    "ppo_gru": ppo_gru,
    "ppo_lstm": ppo_lstm,
    "ppo_mingru": ppo_mingru,
    "ppo_rnn": one_each(RnnConfig, "An Elman network"),
    "ppo_indrnn": one_each(IndRnnConfig, "An independently recurrent network (IndRNN)"),
    "ppo_lmu": one_each(LmuConfig, "A Legendre memory unit"),
    "ppo_lru": one_each(LruConfig, "A linear recurrent unit"),
    "ppo_ffm": one_each(FfmConfig, "A fast and forgetful memory"),
    "ppo_mamba": ppo_mamba,
    "ppo_linear_attention": one_each(LinearAttentionConfig, "Linear attention"),
    "ppo_deltanet": one_each(DeltaNetConfig, "A gated DeltaNet"),
    "ppo_mlstm": one_each(MlstmConfig, "An mLSTM"),
    "ppo_slstm": one_each(SlstmConfig, "An sLSTM"),
    "ppo_shm": one_each(ShmConfig, "A stable Hadamard memory"),
    "ppo_gpt": ppo_gpt,
    "ppo_gpt_frozen": ppo_gpt_frozen,
    "ppo_published": ppo_published,
    "ppo_gpt_published": ppo_gpt_published,
    "ppo_gpt_shared": ppo_gpt_shared,
    "ppo_gpt_actor": ppo_gpt_actor,
    "ppo_trxl": ppo_trxl,
    "ppo_gtrxl": ppo_gtrxl,
}


def filed_as(config: RunConfig) -> str:
    """The model, with the memories of the run where they are not those of the preset: ppo-actor_gru."""
    if config.model not in MODELS:
        return config.model

    def memories(run: RunConfig) -> dict[str, str]:
        critic = "shared" if run.critic.shared else run.critic.memory.name
        return {"actor": run.actor.memory.name, "critic": critic}

    before, after = memories(preset(config.model, config.env.id)), memories(config)
    return "-".join(
        [config.model, *(f"{side}_{after[side]}" for side in after if after[side] != before[side])]
    )


def names_of(env_id: str) -> tuple[str, ...]:
    """What the hyperparameters of an environment may be filed under, the most exact first:

    its name without version, that of POPGym's game with any level of difficulty, and its suite.
    """
    suite, _, name = env_id.rpartition(":")
    task = name.removeprefix("MiniGrid-").partition("-")[0]
    return task, f"{suite}:" + re.sub("(Easy|Medium|Hard)$", "", task), suite


def preset(model: str, env_id: str) -> RunConfig:
    """The named model on an environment, with the hyperparameters of its task if it has some."""
    if model not in MODELS:
        raise UsageError(f"model {model!r} is unknown; {nearest(model, sorted(MODELS))}")
    if env_id in MODELS:
        raise UsageError(f"{env_id} is a model, not an environment; recollect list envs lists environments")
    names = [name for name in names_of(env_id) if name in TASKS]
    config = TASKS[names[0]]() if names else default(env_id)
    config = replace(config, env=replace(config.env, id=env_id), model=model)
    return MODELS[model](config)
