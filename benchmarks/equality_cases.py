"""The runs that benchmarks/equality.py compares: every preset, memory, algorithm and kind of environment.

A case is an environment, a preset and options by their public names, on top of SMALL. Nothing here imports
recollect. Not covered: ppo.target_return, which ends a run after 100 episodes at the earliest, and
gpt2.pretrained, which needs a file of weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Options = dict[str, Any]
MINIGRID = "minigrid:MiniGrid-MemoryS9-v0"
GYMNASIUM: Options = {"env.backend": "gymnasium"}
POOL: Options = {"env.backend": "envpool"}
PICTURES: Options = GYMNASIUM | {"env.kwargs.pictures": True, "ppo.num_minibatches": 2}
FEW: Options = {"env.num_envs": 2, "ppo.num_steps": 16}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run of a few rollouts."""

    env: str = "CartPole-v1"
    """An id, or the name of a function in benchmarks/equality_runs.py that makes the environment."""
    model: str = "ppo"
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    """Package that the case requires; the case is skipped where it is not installed."""
    run: Literal["train", "resume", "torchrun"] = "train"
    """Train in one go; stop by a signal and resume; or train on two processes from the command line."""


# Rollouts are longer than the time limit, so every rollout holds truncated episodes.
SMALL: Options = {
    "env.num_envs": 4,
    "env.time_limit": 25,
    "env.threads": 1,
    "ppo.num_steps": 32,
    "val_check_interval": 0,
    "save_interval": 0,
    "threads": 1,
}
TINY: Options = {"actor.hidden": (16,), "critic.hidden": (16,)}
CONTROL: Options = {"ppo.adam_eps": 1.1e-5}  # the default is 1e-5: no difference that a return shows

PRESETS = (
    *("reinforce", "a2c", "trpo", "ppo", "ppo_stack", "ppo_gru", "ppo_lstm", "ppo_mingru", "ppo_gpt"),
    *("ppo_gpt_frozen", "ppo_published", "ppo_gpt_published", "ppo_gpt_shared", "ppo_gpt_actor"),
    *("ppo_trxl", "ppo_gtrxl", "ppo_rnn", "ppo_indrnn", "ppo_lmu", "ppo_lru", "ppo_ffm", "ppo_mamba"),
    *("ppo_linear_attention", "ppo_deltanet", "ppo_mlstm", "ppo_slstm", "ppo_shm"),
)


def remember(actor: str, critic: str | None = None, **options: Any) -> Options:
    """Memories of actor and critic with the same options; None: the critic has the actor's."""
    critic = critic or actor
    branches = ("actor",) if critic in ("shared", "mlp") else ("actor", "critic")
    named = {"actor": actor, "critic": critic}
    return named | {f"{branch}.memory.{key}": x for branch in branches for key, x in options.items()}


GRU, LSTM = remember("gru", width=8), remember("lstm", width=8)
GPT2: Options = {"width": 16, "heads": 2, "context": 8, "positions": 12}
XL: Options = {"width": 16, "layers": 2, "heads": 2, "context": 8}

MEMORIES: dict[str, Options] = {
    "mlp": remember("mlp"),
    "stack": remember("stack", frames=3),
    "late_stack": remember("late_stack", frames=3),
    "gru": remember("gru", width=8, layers=2, keep=0.5),
    "lstm": remember("lstm", width=8, layers=2, keep=0.0),
    "mingru": remember("mingru", width=8, layers=2, keep=0.5),
    "rnn": remember("rnn", width=8, layers=2),
    "indrnn": remember("indrnn", width=8),
    "lmu": remember("lmu", width=8, order=4, theta=8),
    "lru": remember("lru", width=8, units=6),
    "ffm": remember("ffm", width=8, memory_size=4, context_size=2),
    "mamba": remember("mamba", width=8, d_state=4, headdim=8),
    "linear_attention": remember("linear_attention", width=8, heads=2),
    "deltanet": remember("deltanet", width=8, heads=2),
    "mlstm": remember("mlstm", width=8, heads=2),
    "slstm": remember("slstm", width=8, heads=2),
    "shm": remember("shm", width=8, memory_size=4, thetas=8),
    "gpt2": remember("gpt2", **GPT2),
    "gpt2, window": remember("gpt2", **GPT2, attention="window"),
    "gpt2, interleaved": remember("gpt2", **GPT2, tokens="interleaved", embedding_init="torch"),
    "gpt2, half frozen": remember("gpt2", **GPT2, trained_blocks=1, trained_ends=False),
    "gpt2, dropout": remember("mlp", "gpt2")
    | {f"critic.memory.{key}": x for key, x in {**GPT2, "dropout": 0.1, "attention_dropout": 0.2}.items()},
    "trxl": remember("trxl", **XL, gradient=4),
    "trxl, absolute": remember("trxl", **XL, positions="absolute", norm="post", gradient=0),
    "gtrxl": remember("gtrxl", **XL, gate_bias=1.0),
    "gtrxl, plain": remember("gtrxl", **XL, positions="None", norm="None"),
    "gru and stack": remember("gru", "stack"),
    "lstm and trxl": remember("lstm", "trxl"),
    "shared, gru": remember("gru", "shared", width=8),
    "shared, gpt2": remember("gpt2", "shared", **GPT2) | {"critic.head_hidden": (8,)},
    "shared, mlp": remember("mlp", "shared"),
    "residual": GRU | {"actor.residual": True, "critic.residual": True},
    "no resets": LSTM | {"actor.reset": False, "critic.reset": False},
}
CHUNKS: dict[str, Options] = {
    "chunks, stored": GRU | {"ppo.bptt": 8},
    "chunks, zero": GRU | {"ppo.bptt": 8, "ppo.chunk_state": "zero"},
    "chunks, burn-in": GRU | {"ppo.bptt": 8, "ppo.chunk_state": "burn-in", "ppo.burn_in": 4},
    "chunks, refresh": GRU | {"ppo.bptt": 8, "ppo.chunk_state": "refresh"},
    "chunks, episode": {"ppo.bptt": "episode"},
    "chunks, trxl, stored": remember("trxl", **XL) | {"ppo.bptt": 8},
    "chunks, trxl, burn-in": remember("trxl", **XL)
    | {"ppo.bptt": 8, "ppo.chunk_state": "burn-in", "ppo.burn_in": 6},
    "chunks, gpt2, refresh": remember("gpt2", **GPT2) | {"ppo.bptt": 8, "ppo.chunk_state": "refresh"},
}
UPDATES: dict[str, Options] = {
    "advantages, rollout": {"ppo.normalize_advantage": "rollout"},
    "advantages, off": {"ppo.normalize_advantage": "off"},
    "target_kl": {"ppo.target_kl": 1e-3, "ppo.update_epochs": 8},
    "clipped values": {"ppo.clip_value": 0.2, "ppo.max_grad_norm": 0},
    "decays": {
        "ppo.ent_coef": 0.02,
        "ppo.ent_decay.final": 0.001,
        "ppo.ent_decay.power": 2.0,
        "ppo.clip_decay.final": 0.1,
        "ppo.clip_decay.horizon": 200,
        "ppo.clip_decay.unit": "steps",
    },
    "adamw": {"ppo.optimizer": "adamw", "ppo.weight_decay": 0.01},
    "minibatches in order": {"ppo.batch_size": 32, "ppo.shuffle": False, "ppo.steps_per_minibatch": 2},
    "critic on its own": {"ppo.critic_learning_rate": 1e-3, "ppo.target_lambda": 1.0, "ppo.vf_coef": 1.0},
    "scaled rewards": {
        "env.normalize_obs": False,
        "env.normalize_reward": False,
        "env.reward_scale": 0.1,
        "ppo.gamma": 0.9,
        "ppo.gae_lambda": 0.8,
    },
    "validation": GRU | {"val_check_interval": 1, "val_episodes": 2},
    "checkpoints": LSTM | {"save_interval": 1, "keep": 2},
    "two barriers": GRU | {"barrier": 1},
}
NETWORKS: dict[str, Options] = {
    "relu and gelu": {"actor.activation": "relu", "critic.activation": "gelu", "actor.head_hidden": (8,)},
    "silu and elu": {"actor.activation": "silu", "critic.activation": "elu", "critic.linear_output": True},
    "torch's init": {"actor.init": "torch", "critic.init": "torch", "actor.trained_encoder": False},
    "previous inputs": GRU
    | {f"{branch}.prev_{name}": True for branch in ("actor", "critic") for name in ("action", "reward")},
}
OTHERS: dict[str, Case] = {
    "a2c, gru": Case(model="a2c", options=GRU),
    "a2c, shared": Case(model="a2c", env="Pendulum-v1", options=remember("lstm", "shared", width=8)),
    "reinforce, lstm": Case(model="reinforce", options=LSTM),
    "reinforce, raw returns": Case(model="reinforce", options={"ppo.normalize_advantage": "off"}),
    "trpo, gru": Case(model="trpo", options=GRU | {"ppo.bptt": 8, "ppo.chunk_state": "refresh"}),
    "trpo, Box": Case(model="trpo", env="Pendulum-v1", options={"ppo.target_kl": 0.02}),
}
ENVIRONMENTS: dict[str, Case] = {
    "Acrobot": Case(env="Acrobot-v1", options=GYMNASIUM),
    "Pendulum": Case(env="Pendulum-v1", options=GRU | GYMNASIUM | {"actor.log_std": -0.5}),
    "PendulumNoVel": Case(env="PendulumNoVel-v1", model="ppo_lstm"),
    "MountainCarContinuousNoVel": Case(env="MountainCarContinuousNoVel-v0", model="ppo_gru"),
    "CartPoleMasked": Case(env="CartPoleMasked", model="ppo_lstm"),
    "CartPoleNoVel": Case(env="CartPoleNoVel-v1", model="ppo_stack"),
    "a config file": Case(
        env="CartPoleMasked", model="ppo_lstm", options={"config": "configs/cartpole_masked.yaml"}
    ),
    "hidden entries": Case(options=GRU | {"env.mask": (0, 3)}),
    "LunarLander": Case(env="LunarLander-v3", options=LSTM | GYMNASIUM | {"barrier": 2, "save_interval": 2}),
    "LunarLander, Box": Case(env="LunarLander-v3", options=GYMNASIUM | {"env.kwargs.continuous": True}),
    "workers": Case(options=GRU | {"env.backend": "workers", "barrier": 2}),
    "EnvPool, CartPole": Case(options=GRU | POOL, needs="envpool"),
    "EnvPool, Pendulum": Case(env="Pendulum-v1", options=POOL | {"barrier": 2}, needs="envpool"),
    "EnvPool, LunarLander": Case(env="LunarLander-v3", options=LSTM | POOL, needs="envpool"),
    "a function, Dict": Case(env="timed_cartpole", options=GRU),
    "FrozenLake, Discrete": Case(env="FrozenLake-v1", options=GYMNASIUM),
    "Blackjack, Tuple": Case(env="Blackjack-v1", options=GYMNASIUM),
    "poc": Case(env="poc", model="ppo_gru"),
    "probe:recall": Case(env="probe:recall", model="ppo_lstm"),
    "popgym, own": Case(env="popgym:RepeatPreviousEasy", model="ppo_gru", options={"env.time_limit": "None"}),
    "popgym, Tuple": Case(
        env="popgym:AutoencodeEasy",
        model="ppo_lstm",
        options=GYMNASIUM | {"env.kwargs.prev_action": True},
        needs="popgym",
    ),
    "popgym, MultiDiscrete": Case(
        env="popgym:BattleshipEasy", model="ppo_gru", options=GYMNASIUM, needs="popgym"
    ),
    "MiniGrid": Case(
        env=MINIGRID, model="ppo_gru", options=GYMNASIUM | {"ppo.num_minibatches": 2}, needs="minigrid"
    ),
    "MiniGrid, EnvPool": Case(
        env=MINIGRID, model="ppo_lstm", options=POOL | {"ppo.num_minibatches": 2}, needs="envpool"
    ),
    "MiniGrid, pictures": Case(
        env=MINIGRID,
        model="ppo_gru",
        options=PICTURES | {"env.kwargs.tile": 12, "actor.encoder.features": 16},
        needs="minigrid",
    ),
    "MiniGrid, residual pictures": Case(
        env=MINIGRID,
        options=PICTURES
        | FEW
        | {"env.kwargs.tile": 8, "actor.encoder.name": "residual", "actor.encoder.features": "None"},
        needs="minigrid",
    ),
    "Memory Gym": Case(
        env="memory_gym:MortarMayhem-Grid-v0",
        model="ppo_lstm",
        options=FEW | {"ppo.num_minibatches": 2, "actor.encoder.features": 16},
        needs="memory_gym",
    ),
}
PROCESSES: dict[str, Case] = {
    "resumed, native": Case(run="resume", options=LSTM | {"save_interval": 2}),
    "resumed, barriers": Case(run="resume", env="LunarLander-v3", options=GRU | {"barrier": 2}),
    "two processes": Case(run="torchrun", options=GRU | {"ppo.bptt": 8, "save_interval": 1}),
}


def tiny(options: Options) -> Case:
    """A case with narrow encoders."""
    return Case(options=TINY | options)


CASES: dict[str, Case] = {
    **{f"preset {model}": Case(model=model) for model in PRESETS},
    **{
        name: tiny(options)
        for table in (MEMORIES, CHUNKS, UPDATES, NETWORKS)
        for name, options in table.items()
    },
    **OTHERS,
    **ENVIRONMENTS,
    **PROCESSES,
}
