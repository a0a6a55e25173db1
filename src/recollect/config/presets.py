"""Presets: models by name, over the hyperparameters of each environment."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..agent.agent import BranchConfig
from ..common.errors import UsageError, nearest
from ..learn.settings import Algorithm, PPOConfig
from ..memory import MemoryConfig
from ..memory.gpt2 import Gpt2Config
from ..memory.rnn import GruConfig, LstmConfig, MinGruConfig, RecurrentConfig
from ..memory.stack import StackConfig
from ..memory.trxl import GtrxlConfig, TrxlConfig
from .config import RunConfig
from .tasks import FLEETING, TASKS, default

INTERLEAVED = Gpt2Config(tokens="interleaved")


def ppo(config: RunConfig) -> RunConfig:
    """No memory: actor and critic see the present observation."""
    return config


def ppo_gru(config: RunConfig) -> RunConfig:
    """A GRU for the actor and another for the critic."""
    return recurrent(config, GruConfig)


def ppo_lstm(config: RunConfig) -> RunConfig:
    """An LSTM for the actor and another for the critic."""
    return recurrent(config, LstmConfig, keep=keep(config))


def ppo_mingru(config: RunConfig) -> RunConfig:
    """A linear recurrence of two layers for the actor and another for the critic.

    The gates of a layer see its input and not what it remembers, so one layer cannot tell the first
    row from the others; the second reads what the first remembers.
    """
    return recurrent(config, MinGruConfig, layers=2, keep=keep(config))


def keep(config: RunConfig) -> float:
    """What gates that keep hear at first; a GRU's, which also chooses what it hears, may keep anywhere."""
    return 0.0 if config.env.id.rpartition(":")[2].partition("-")[0] in FLEETING else 1.0


def recurrent(config: RunConfig, kind: type[RecurrentConfig], **settings: Any) -> RunConfig:
    """A recurrence for the actor and another for the critic, half as wide as the layers after them."""

    def remembering(branch: BranchConfig) -> BranchConfig:
        return looking_back(branch, kind(width=max(64, branch.hidden[-1] // 2), **settings))

    return replace(config, actor=remembering(config.actor), critic=remembering(config.critic))


def ppo_gpt(config: RunConfig) -> RunConfig:
    """A GPT-2 for the critic, added to its layers; an actor without memory, twice as deep."""
    critic = replace(config.critic, memory=INTERLEAVED, residual=True, shared=False)
    return replace(in_short_chunks(config), actor=deeper(config.actor), critic=critic)


def ppo_gpt_frozen(config: RunConfig) -> RunConfig:
    """The critic is a GPT-2 that stays as it began, and a layer that learns to read it; the same actor."""
    frozen = replace(INTERLEAVED, trained_blocks=0, trained_ends=False)
    critic = replace(looking_back(config.critic, frozen), shared=False)
    return replace(in_short_chunks(config), actor=deeper(config.actor), critic=critic)


def ppo_published(config: RunConfig) -> RunConfig:
    """The plain PPO that GPT2PPO was compared with, at its settings: one layer of 128 in each network."""
    layer = BranchConfig(hidden=(), head_hidden=(128,), activation="relu", init="torch", log_std=-0.5)
    # An epoch is 2,048 steps of one environment, which is reset after it. Each 128 steps in a row are
    # learned from five times in a row.
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
    """GPT2PPO as its code ran: only the layers after a random GPT-2, and after two random layers, learn."""
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
    return replace(in_short_chunks(config), actor=actor, critic=critic)


def in_short_chunks(config: RunConfig) -> RunConfig:
    """Chunks of 16 rows, where they fit: minibatches of few long ones are of few moments.

    What the critic looks up from before its chunk was kept while acting, so nothing is cut off but
    the gradient.
    """
    return replace(config, ppo=replace(config.ppo, bptt=math.gcd(config.ppo.num_steps, 16)))


def deeper(branch: BranchConfig) -> BranchConfig:
    """Twice the layers."""
    return replace(branch, hidden=branch.hidden * 2)


def ppo_gpt_shared(config: RunConfig) -> RunConfig:
    """One GPT-2 for actor and critic."""
    return in_common(config, INTERLEAVED)


def ppo_gpt_actor(config: RunConfig) -> RunConfig:
    """A GPT-2 for the actor and another for the critic, at a rate that leaves what was learned."""
    actor, critic = (looking_back(branch, INTERLEAVED) for branch in (config.actor, config.critic))
    # At 2.5e-3 one of ten agents that had learned poc lost it all in a single update.
    rate = min(config.ppo.learning_rate, 1e-3)
    ppo = replace(config.ppo, learning_rate=rate)
    return replace(config, actor=actor, critic=replace(critic, shared=False), ppo=ppo)


def ppo_trxl(config: RunConfig) -> RunConfig:
    """One Transformer-XL for actor and critic."""
    return in_common(config, TrxlConfig())


def ppo_gtrxl(config: RunConfig) -> RunConfig:
    """One Transformer-XL with gates for actor and critic."""
    return in_common(config, GtrxlConfig())


def looking_back(branch: BranchConfig, memory: MemoryConfig) -> BranchConfig:
    """A memory that reads what is seen, with one layer, as wide as the task's, after it."""
    return replace(branch, memory=memory, hidden=(), head_hidden=branch.hidden[-1:])


def in_common(config: RunConfig, memory: MemoryConfig) -> RunConfig:
    """One such memory for both heads."""
    critic = replace(looking_back(config.critic, memory), shared=True)
    return replace(config, actor=looking_back(config.actor, memory), critic=critic)


def ppo_stack(config: RunConfig) -> RunConfig:
    """The last four observations side by side, for actor and critic."""
    stack = StackConfig()
    return replace(
        config,
        actor=replace(config.actor, memory=stack),
        critic=replace(config.critic, memory=stack),
    )


def a2c(config: RunConfig) -> RunConfig:
    """Advantage actor-critic: one gradient step a rollout, so rollouts are short."""
    return other(config, "a2c", num_steps=8)


def reinforce(config: RunConfig) -> RunConfig:
    """REINFORCE, which knows nothing of values: rollouts of few environments hold whole episodes."""
    config = replace(config, env=replace(config.env, num_envs=4))
    return other(config, "reinforce", num_steps=512, learning_rate=4 * config.ppo.learning_rate)


def trpo(config: RunConfig) -> RunConfig:
    """Trust region policy optimisation: one large step a rollout, within a distance, of the actor alone."""
    return other(replace(config, critic=replace(config.critic, shared=False)), "trpo")


def other(config: RunConfig, algorithm: Algorithm, **settings: Any) -> RunConfig:
    """The task's settings for another algorithm."""
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
    "ppo_gpt": ppo_gpt,
    "ppo_gpt_frozen": ppo_gpt_frozen,
    "ppo_published": ppo_published,
    "ppo_gpt_published": ppo_gpt_published,
    "ppo_gpt_shared": ppo_gpt_shared,
    "ppo_gpt_actor": ppo_gpt_actor,
    "ppo_trxl": ppo_trxl,
    "ppo_gtrxl": ppo_gtrxl,
}


def preset(model: str, env_id: str) -> RunConfig:
    """The named model on an environment, with the environment's settings where they are known."""
    if model not in MODELS:
        raise UsageError(f"model {model!r} is unknown; {nearest(model, sorted(MODELS))}")
    suite, _, name = env_id.rpartition(":")
    found = [key for key in (name.partition("-")[0], suite) if key in TASKS]
    config = TASKS[found[0]]() if found else default(env_id)
    config = replace(config, env=replace(config.env, id=env_id), model=model)
    return MODELS[model](config)
