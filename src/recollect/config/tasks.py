"""Hyperparameters of tasks; they work with every memory."""

from collections.abc import Callable
from dataclasses import replace

from ..agent.agent import BranchConfig
from ..encoder.nature import NatureConfig
from ..envs import EnvConfig
from ..learn.settings import Decay, PPOConfig
from .config import RunConfig

TO_ZERO = Decay(final=0.0)
# Only the last few steps matter, for velocities. Recurrent nets then start with gates half open.
FLEETING = ("CartPoleMasked", "CartPoleNoVel")
POPGYM_CARDS = [
    f"popgym:{game}" for game in ("RepeatFirst", "RepeatPrevious", "Autoencode", "CountRecall", "HigherLower")
]
TOY_TEXTS = ("CliffWalking", "CliffWalkingSlippery", "FrozenLake", "FrozenLake8x8", "Taxi")


def default(env_id: str) -> RunConfig:
    """Any other environment: normalise observations and rewards, anneal the learning rate to 0."""
    return RunConfig(
        env=EnvConfig(id=env_id, num_envs=16, normalize_obs=True, normalize_reward=True),
        ppo=PPOConfig(num_steps=128, learning_rate=1e-3, lr_decay=TO_ZERO),
    )


def cartpole() -> RunConfig:
    """Small rollouts: most trials of a search with large ones learned late.

    Gymnasium's own vectorised CartPole is faster than EnvPool's, and its state can be saved.
    """
    return RunConfig(
        env=EnvConfig(
            id="CartPole-v1",
            num_envs=32,
            backend="gymnasium",
            normalize_obs=True,
            normalize_reward=True,
        ),
        ppo=PPOConfig(num_steps=32, num_minibatches=2, learning_rate=4e-3, lr_decay=TO_ZERO),
        steps=200_000,
    )


def acrobot() -> RunConfig:
    """Small rollouts, so that the policy is updated soon after the first successes, and small minibatches."""
    return RunConfig(
        env=EnvConfig(id="Acrobot-v1", num_envs=64, normalize_obs=True, normalize_reward=True),
        ppo=PPOConfig(
            num_steps=32, update_epochs=3, num_minibatches=16, learning_rate=2.5e-3, lr_decay=TO_ZERO
        ),
    )


def lunar_lander() -> RunConfig:
    """A long horizon (gamma 0.999, lambda 0.98) matters most; and small rollouts."""
    wide = BranchConfig(hidden=(128, 128))
    return RunConfig(
        env=EnvConfig(id="LunarLander-v3", num_envs=32, normalize_obs=True, normalize_reward=True),
        actor=wide,
        critic=wide,
        ppo=PPOConfig(
            num_steps=64,
            update_epochs=8,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
            gamma=0.999,
            gae_lambda=0.98,
            ent_coef=0.01,
        ),
    )


def lunar_lander_continuous() -> RunConfig:
    """LunarLander with larger rollouts, and many small minibatches at a low rate: else some seeds hover."""
    discrete = lunar_lander()
    return replace(
        discrete,
        env=replace(discrete.env, id="LunarLanderContinuous-v3"),
        ppo=replace(discrete.ppo, num_steps=256, update_epochs=4, num_minibatches=64, learning_rate=3e-4),
    )


def bipedal_walker() -> RunConfig:
    """Many passes in minibatches of 256, and low initial action noise, so that the walker stays up."""
    return RunConfig(
        env=EnvConfig(id="BipedalWalker-v3", num_envs=32, normalize_obs=True, normalize_reward=True),
        actor=BranchConfig(log_std=-0.5),
        ppo=PPOConfig(
            num_steps=128, update_epochs=10, num_minibatches=16, learning_rate=5e-4, lr_decay=TO_ZERO
        ),
        steps=3_000_000,
    )


def poc() -> RunConfig:
    """A small budget and small rollouts: the task is simple."""
    return RunConfig(
        env=EnvConfig(id="poc", num_envs=16, normalize_reward=True),
        ppo=PPOConfig(num_steps=64, learning_rate=2.5e-3, lr_decay=TO_ZERO),
        steps=100_000,
    )


def tmaze() -> RunConfig:
    """As poc, with a larger budget."""
    return replace(poc(), env=replace(poc().env, id="tmaze"), steps=200_000)


def cartpole_no_velocity() -> RunConfig:
    """As with velocities, with longer rollouts for back-propagation through time."""
    ppo = PPOConfig(num_steps=64, learning_rate=2.5e-3, lr_decay=TO_ZERO)
    return replace(cartpole(), ppo=ppo, steps=100_000)


def lunar_lander_no_velocity() -> RunConfig:
    """As with velocities, with a larger budget."""
    return replace(lunar_lander(), steps=5_000_000)


def pendulum() -> RunConfig:
    """PopArt instead of normalised rewards, because returns are far from 0; and small rollouts."""
    return RunConfig(
        env=EnvConfig(id="Pendulum-v1", num_envs=32, normalize_obs=True),
        critic=BranchConfig(value="popart"),
        ppo=PPOConfig(num_steps=64, update_epochs=6, learning_rate=2e-3, lr_decay=TO_ZERO, gamma=0.98),
        steps=500_000,
    )


def pendulum_no_velocity() -> RunConfig:
    """A short horizon, and longer pieces of fewer environments."""
    seen = pendulum()
    return replace(
        seen,
        env=replace(seen.env, id="PendulumNoVel-v1", num_envs=16),
        ppo=replace(seen.ppo, num_steps=128, gamma=0.95),
    )


def mujoco() -> RunConfig:
    """Small rollouts with many passes in minibatches of 64, and low initial action noise."""
    return RunConfig(
        env=EnvConfig(id="HalfCheetah-v5", num_envs=16, normalize_obs=True, normalize_reward=True),
        actor=BranchConfig(log_std=-1.0),
        ppo=PPOConfig(
            num_steps=128, update_epochs=10, num_minibatches=32, learning_rate=3e-4, lr_decay=TO_ZERO
        ),
    )


def mountain_car() -> RunConfig:
    """High initial action noise: the first success comes by chance and needs large actions."""
    loud = BranchConfig(log_std=1.0)
    return RunConfig(
        env=EnvConfig(id="MountainCarContinuous-v0", num_envs=32, normalize_obs=True, normalize_reward=True),
        actor=loud,
        ppo=PPOConfig(
            num_steps=128,
            update_epochs=8,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
            gamma=0.999,
            gae_lambda=0.98,
        ),
        steps=300_000,
    )


def toy_text() -> RunConfig:
    """A table: no layers between the observation, one of a few states, and its action and value.

    The entropy bonus is large at first, so that no state has a fixed action before the reward is found.
    """
    table = BranchConfig(hidden=())
    return RunConfig(
        env=EnvConfig(id="Taxi-v4", num_envs=16, normalize_reward=True),
        actor=table,
        critic=table,
        ppo=PPOConfig(num_steps=128, learning_rate=1e-2, lr_decay=TO_ZERO, ent_coef=0.1, ent_decay=TO_ZERO),
        steps=500_000,
    )


def minigrid() -> RunConfig:
    """One memory, shared by actor and critic, with a large weight of the value loss, which trains it first.

    The entropy bonus is large at first, so that the agent explores.
    """
    wide = BranchConfig(hidden=(256,), activation="relu")
    return RunConfig(
        env=EnvConfig(id="minigrid:MiniGrid-MemoryS9-v0", num_envs=32),
        actor=wide,
        critic=replace(wide, shared=True),
        ppo=PPOConfig(
            num_steps=128,
            num_minibatches=8,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
            vf_coef=1.0,
            ent_coef=0.03,
            ent_decay=Decay(final=0.002),
            adam_eps=1e-8,
        ),
        steps=2_000_000,
    )


def minigrid_generalising() -> RunConfig:
    """MemoryS17Random, whose corridors have all lengths: an agent of it solves the smaller tasks as well."""
    return replace(minigrid(), env=replace(minigrid().env, id="minigrid:MemoryS17Random"), steps=3_000_000)


def memory_gym() -> RunConfig:
    """One memory, shared by actor and critic, and rollouts shorter than an episode."""
    wide = BranchConfig(hidden=(256,), encoder=NatureConfig(features=64), activation="relu")
    return RunConfig(
        env=EnvConfig(id="memory_gym:MortarMayhem-Grid-v0", num_envs=32, normalize_reward=True),
        actor=wide,
        critic=replace(wide, shared=True),
        ppo=PPOConfig(
            num_steps=64,
            learning_rate=1e-3,
            lr_decay=TO_ZERO,
            ent_coef=0.005,
            ent_decay=Decay(final=0.001),
            adam_eps=1e-8,
        ),
        steps=2_000_000,
    )


def popgym() -> RunConfig:
    """Rollouts longer than an episode of the easy card games."""
    return RunConfig(
        env=EnvConfig(id="popgym:RepeatPreviousEasy", num_envs=32, normalize_obs=True, normalize_reward=True),
        ppo=PPOConfig(num_steps=64, learning_rate=2e-3, lr_decay=TO_ZERO),
        steps=2_000_000,
    )


def popgym_cards() -> RunConfig:
    """As popgym, with a discount of 0: no action changes what comes later (studies/discounts.yaml)."""
    return replace(popgym(), ppo=replace(popgym().ppo, gamma=0.0))


def atari() -> RunConfig:
    """The usual hyperparameters for Atari: small steps, a small clip, and one encoder for both branches."""
    branch = BranchConfig(encoder=NatureConfig(features=512), hidden=(), activation="relu")
    return RunConfig(
        env=EnvConfig(id="atari:Pong", num_envs=8, normalize_reward=True),
        actor=branch,
        critic=replace(branch, shared=True),
        ppo=PPOConfig(
            num_steps=128,
            learning_rate=2.5e-4,
            lr_decay=TO_ZERO,
            clip=0.1,
            vf_coef=0.5,
            ent_coef=0.01,
        ),
        steps=10_000_000,
    )


def car_racing() -> RunConfig:
    """A quarter of the pixels, and one encoder for both branches: else nearly all time goes to convolutions.

    With less initial action noise (log_std -1) the one run that tried it never began to drive.
    """
    branch = BranchConfig(
        encoder=NatureConfig(features=256, shrink=2), hidden=(), activation="relu", log_std=-0.5
    )
    return RunConfig(
        env=EnvConfig(id="CarRacing-v3", num_envs=16, normalize_reward=True),
        actor=branch,
        critic=replace(branch, log_std=0.0, shared=True),
        ppo=PPOConfig(num_steps=128, num_minibatches=8, learning_rate=5e-4, lr_decay=TO_ZERO, vf_coef=0.5),
        steps=500_000,
    )


def meta() -> RunConfig:
    """Rollouts longer than a trial, no discount, as each episode counts alike, and an entropy bonus."""
    return RunConfig(
        env=EnvConfig(id="meta:Bandit", num_envs=64),
        ppo=PPOConfig(
            num_steps=100,
            gamma=1.0,
            num_minibatches=4,
            learning_rate=2e-3,
            lr_decay=TO_ZERO,
            ent_coef=0.01,
            ent_decay=Decay(final=0.0),
        ),
        steps=1_000_000,
    )


TASKS: dict[str, Callable[[], RunConfig]] = {
    "CartPole": cartpole,
    "Acrobot": acrobot,
    "LunarLander": lunar_lander,
    "LunarLanderContinuous": lunar_lander_continuous,
    "BipedalWalker": bipedal_walker,
    "CarRacing": car_racing,
    "HalfCheetah": mujoco,
    "Hopper": mujoco,
    "Walker2d": mujoco,
    "Ant": mujoco,
    "poc": poc,
    "tmaze": tmaze,
    "minigrid": minigrid,
    "MemoryS17Random": minigrid_generalising,
    "popgym": popgym,
    **dict.fromkeys(POPGYM_CARDS, popgym_cards),
    "memory_gym": memory_gym,
    "atari": atari,
    "meta": meta,
    "Pendulum": pendulum,
    "PendulumNoVel": pendulum_no_velocity,
    "MountainCarContinuous": mountain_car,
    "MountainCarContinuousNoVel": mountain_car,
    "CartPoleMasked": cartpole_no_velocity,
    "CartPoleNoVel": cartpole_no_velocity,
    "LunarLanderNoVel": lunar_lander_no_velocity,
    **dict.fromkeys(TOY_TEXTS, toy_text),
}
