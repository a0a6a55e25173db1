"""recollect beside other recurrent PPO, in turns on the same machine.

    python -m benchmarks.recurrent --peer CHECKOUT [--tasks poc ...] [--seeds 3] [--out benchmarks/results]

The peers are sb3-contrib's RecurrentPPO at its RL Zoo settings, and the implementation of
github.com/MarcoMeter/recurrent-ppo-truncated-bptt at its own configs, from a checkout that --peer
names. Every run is a process of its own; ours and the peers' take turns, and what counts is the
ratio of medians. Time runs from the first environment step, with logging on, until the mean of the
last 100 training episodes reaches the target; a target that is not reached counts as the cap. Where
there is no target, what counts is the time of a step.
"""

from typing import Any

from .common import Run, Task, both_backends, ours
from .comparison import main

MARCOMETER = "MarcoMeter/recurrent-ppo-truncated-bptt"


def marcometer(config: str, steps: int | None = None, padding: str = "episode") -> Run:
    """One of its configs as it is; steps replace the target."""
    label = "MarcoMeter" if padding == "episode" else "MarcoMeter with short padding"
    return Run(label, "marcometer", {"config": config, "steps": steps, "padding": padding})


def both_paddings(config: str, steps: int | None = None) -> tuple[Run, Run]:
    """As it is, and with less work for the same gradients."""
    return marcometer(config, steps), marcometer(config, steps, "sequence")


def recurrent_ppo(hyperparameters: dict[str, Any], **settings: Any) -> Run:
    """MlpLstmPolicy, an LSTM of 64 for the actor and another for the critic."""
    lstm = {"lstm_hidden_size": 64, "enable_critic_lstm": True, **hyperparameters.get("policy_kwargs", {})}
    how = {"algorithm": "sb3_contrib:RecurrentPPO", "policy": "MlpLstmPolicy", "normalize": False}
    chosen = {"hyperparameters": {**hyperparameters, "policy_kwargs": lstm}}
    return Run("RecurrentPPO", "sb3", {**how, "budget": None, "steps": None, **settings, **chosen})


ZOO_NO_VELOCITY = dict(
    n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
    learning_rate="linear 1e-3", clip_range="linear 0.2",
    policy_kwargs=dict(ortho_init=False, activation_fn="ReLU", net_arch=dict(pi=[64], vf=[64])),
)  # fmt: skip

# At most 64 environments and 4,096 rows a rollout, so that what is fast here is fast in use.
# Back-propagation through 16 rows: the peers have 8 and 128.
PACE = {"ppo.update_epochs": 4, "env.num_envs": 64, "ppo.num_steps": 64, "ppo.bptt": 16, "threads": 2}

TASKS = (
    Task(
        "CartPoleMasked >= 190",
        (
            ours("CartPoleMasked", "ppo_lstm", options={"config": "configs/cartpole_masked.yaml"}),
            ours("CartPoleMasked", "ppo_lstm"),
        ),
        (marcometer("configs/cartpole.yaml"),),
        target=190,
        cap=200,
    ),
    Task(
        "poc, success >= 0.99",
        (
            ours("poc", "ppo_gru", options={"config": "configs/poc.yaml"}),
            ours("poc", "ppo_gru", steps=61_440),
        ),
        both_paddings("configs/poc_memory_env.yaml"),
        metric="success",
        target=0.99,
        cap=200,
    ),
    Task(
        "CartPoleNoVel-v1 >= 475",
        (ours("CartPoleNoVel-v1", "ppo_lstm"),),
        (
            recurrent_ppo(
                ZOO_NO_VELOCITY,
                env="CartPole-v1", mask=[1, 0, 1, 0], num_envs=8, normalize=True, budget=100_000,
            ),
        ),
        target=475,
        cap=200,
    ),
    Task(
        "LSTM 64, 4 epochs, steps/s",
        (ours("CartPole-v1", "ppo_lstm", 500_000, PACE),),
        (
            recurrent_ppo(
                dict(n_steps=128, batch_size=256, n_epochs=4), env="CartPole-v1", num_envs=16, steps=20_480
            ),
            *both_paddings("configs/cartpole.yaml", steps=20_480),
        ),
    ),
    Task(
        "GRU and minGRU 64, 4 epochs, steps/s",
        tuple(
            ours("CartPole-v1", model, 500_000, PACE)
            for model in ("ppo_gru", "ppo_mingru")
        ),
    ),
    Task(
        "MiniGrid-MemoryS9 from pictures, 3 rollouts, steps/s",
        both_backends(
            "minigrid:MiniGrid-MemoryS9-v0", "ppo_lstm",
            **{
                "rollouts": 3, "env.kwargs.pictures": True, "env.num_envs": 16,
                "ppo.num_steps": 256, "ppo.update_epochs": 4, "ppo.num_minibatches": 8,
            },
        ),
        (marcometer("configs/minigrid.yaml", steps=3 * 16 * 256, padding="sequence"),),
    ),
)  # fmt: skip


if __name__ == "__main__":
    main(__doc__ or "", "recurrent", TASKS, MARCOMETER, {"sb3": "sb3-contrib"})
