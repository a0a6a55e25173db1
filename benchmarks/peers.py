"""recollect beside Stable-Baselines3 at its RL Zoo settings, in turns on the same machine.

    python -m benchmarks.peers [--tasks CartPole-v1 ...] [--seeds 3] [--out benchmarks/results]

Every run is a process of its own. Time runs from the first environment step, with logging on, until the
mean return of the last 100 training episodes reaches the target; a run that does not reach it under the
cap has no time. Where there is no target, what counts is the time of a step. Speeds are ratios of medians.

Stable-Baselines3 steps Gymnasium's environments one after another. Where a preset of recollect takes
EnvPool, it runs a second time with Gymnasium's environments.
"""

from typing import Any

from .common import Run, Task, both_backends, ours
from .comparison import main

PEER = "Stable-Baselines3"
# BipedalWalker's preset of that time: few gradient steps, so that the row is about the speed of training.
WIDE = {"env.num_envs": 64, "ppo.num_minibatches": 4, "ppo.learning_rate": 1e-3, "ppo.gamma": 0.99}


def linear(initial: float) -> str:
    """A schedule that falls to zero over the peer's budget, by name so that it survives JSON."""
    return f"linear {initial}"


def sb3(env: str, hyperparameters: dict[str, Any], **settings: Any) -> Run:
    """Its PPO; the budget is what its schedules run over."""
    fixed = {"algorithm": "stable_baselines3:PPO", "policy": "MlpPolicy", "env": env, "steps": None}
    usual = {"num_envs": 8, "normalize": False, "budget": 1_000_000}
    return Run(PEER, "sb3", {**fixed, **usual, "hyperparameters": hyperparameters, **settings})


TASKS = (
    Task(
        "CartPole-v1 >= 475",
        (ours("CartPole-v1", "ppo"),),
        (
            sb3(
                "CartPole-v1",
                dict(
                    n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20,
                    learning_rate=linear(1e-3), clip_range=linear(0.2),
                ),
                budget=100_000,
            ),
        ),
        target=475,
        cap=60,
    ),
    Task(
        "Acrobot-v1 >= -90",
        both_backends("Acrobot-v1", "ppo"),
        (
            sb3(
                "Acrobot-v1",
                dict(n_steps=256, gae_lambda=0.94, gamma=0.99, n_epochs=4),
                normalize=True, num_envs=16,
            ),
        ),
        target=-90,
        cap=60,
    ),
    Task(
        "LunarLander-v3 >= 200",
        both_backends("LunarLander-v3", "ppo"),
        (
            sb3(
                "LunarLander-v3",
                dict(n_steps=1024, batch_size=64, gae_lambda=0.98, gamma=0.999, n_epochs=4, ent_coef=0.01),
                num_envs=16,
            ),
        ),
        target=200,
        cap=240,
    ),
    Task(
        "BipedalWalker-v3, 100 k steps",
        both_backends("BipedalWalker-v3", "ppo", 100_000, threads=2, **WIDE),
        (
            sb3(
                "BipedalWalker-v3",
                dict(
                    n_steps=2048, batch_size=64, gae_lambda=0.95, gamma=0.999, n_epochs=10,
                    learning_rate=3e-4, clip_range=0.18,
                ),
                normalize=True, num_envs=32, steps=100_000,
            ),
        ),
    ),
    Task(
        "CartPole-v1, steps/s",
        (
            # Rollouts as large as the peer's.
            ours(
                "CartPole-v1", "ppo", 1_200_000,
                {"env.num_envs": 64, "ppo.num_steps": 64, "ppo.num_minibatches": 4},
            ),
        ),
        (sb3("CartPole-v1", dict(n_steps=512, batch_size=1024, n_epochs=4), steps=200_000),),
    ),
)  # fmt: skip


if __name__ == "__main__":
    main(__doc__ or "", "peers", TASKS, None, {"sb3": "stable-baselines3"})
