"""Config files of recurrent-ppo-truncated-bptt (M. Pleines, 2021), read as options of recollect.

    recollect train --config their_file.yaml

A file is recognised by its keys `environment` and `recurrence`. docs/recurrent_ppo.md has the table of all
keys, and the differences that remain at equal hyperparameters.
"""

from collections.abc import Mapping
from typing import Any

from ..common.errors import UsageError, nearest

PAGE = "docs/recurrent_ppo.md"
# Their key -> ours; the value is the same.
SAME = {
    "gamma": "ppo.gamma",
    "lamda": "ppo.gae_lambda",
    "updates": "rollouts",
    "epochs": "ppo.update_epochs",
    "n_workers": "env.num_envs",
    "worker_steps": "ppo.num_steps",
    "n_mini_batch": "ppo.num_minibatches",
    "value_loss_coefficient": "ppo.vf_coef",
    "max_grad_norm": "ppo.max_grad_norm",
}
# Their schedule -> our option and its decay.
SCHEDULES = {
    "learning_rate_schedule": ("ppo.learning_rate", "ppo.lr_decay"),
    "beta_schedule": ("ppo.ent_coef", "ppo.ent_decay"),
    "clip_range_schedule": ("ppo.clip", "ppo.clip_decay"),
}
SCHEDULE = ("initial", "final", "power", "max_decay_steps")
RECURRENCE = ("sequence_length", "hidden_state_size", "layer_type", "reset_hidden_state")
LEVELS = ("start-seed", "num-seeds", "seed")  # of reset_params; ours draw from unlimited levels
KEYS = ("environment", "recurrence", "hidden_layer_size", *SAME, *SCHEDULES)
# Constants of their code.
FIXED: dict[str, Any] = {
    "env.normalize_obs": False,
    "env.normalize_reward": False,
    "actor.encoder.features": None,
    "actor.hidden": [],
    "actor.activation": "relu",
    "actor.memory.keep": 0,
    "critic.shared": True,
    "critic.activation": "relu",
    "ppo.optimizer": "adamw",
    "ppo.weight_decay": 0.01,
    "ppo.adam_eps": 1e-8,
}


def is_theirs(data: Mapping[str, Any]) -> bool:
    """Whether a config file is of that repository."""
    return isinstance(data.get("environment"), Mapping) and isinstance(data.get("recurrence"), Mapping)


def translate(data: Mapping[str, Any]) -> dict[str, Any]:
    """The options of recollect, by dotted names, of one of their files."""
    _check(data, KEYS, "")
    settings = FIXED | {ours: data[theirs] for theirs, ours in SAME.items()}
    settings |= _environment(data["environment"]) | _memory(data["recurrence"])
    width = data["hidden_layer_size"]
    settings |= {"actor.head_hidden": [width, width], "critic.head_hidden": [width, width]}
    for name, (option, decay) in SCHEDULES.items():
        settings |= _schedule(data[name], name, option, decay)
    return settings | {"ppo.clip_value": settings["ppo.clip"]}


def note(data: Mapping[str, Any]) -> str:
    """One line: how the file was read, and where the remaining differences are listed."""
    settings = translate(data)
    levels = [f"{key} {x}" for key, x in _reset(data["environment"]).items() if key in LEVELS]
    ignored = f" without {', '.join(levels)} (levels are unlimited)" if levels else ""
    return (
        f"a config of recurrent-ppo-truncated-bptt, read as {settings['model']} on {settings['env.id']}"
        f"{ignored}; {PAGE} says what differs"
    )


def _check(data: Any, keys: tuple[str, ...], place: str) -> None:
    """Refuse missing and unknown keys."""
    if not isinstance(data, Mapping):
        raise UsageError(
            f"{place.rstrip('.')} is {data!r} in a config of recurrent PPO; expected are the keys {keys}"
        )
    for key in data:
        if key not in keys:
            raise UsageError(
                f"unknown key {place}{key} in a config of recurrent PPO; {nearest(key, [*keys])}"
            )
    missing = [f"{place}{key}" for key in keys if key not in data]
    if missing:
        raise UsageError(f"a config of recurrent PPO lacks {', '.join(missing)}")


def _environment(data: Mapping[str, Any]) -> dict[str, Any]:
    """Their environment: a type, for some a name, and for Memory Gym reset parameters."""
    kind, name = data.get("type"), data.get("name")
    known: dict[Any, dict[str, Any]] = {
        "PocMemoryEnv": {"env.id": "poc"},
        "CartPole": {"env.id": "CartPole-v1", "env.time_limit": 200, "env.reward_scale": 0.01},
        "CartPoleMasked": {"env.id": "CartPoleMasked", "env.reward_scale": 0.01},
        "Minigrid": {
            "env.id": f"minigrid:{name}",
            **{f"env.kwargs.{key}": x for key, x in (("pictures", True), ("view", 3), ("actions", 3))},
        },
        "MemoryGym": {"env.id": f"memory_gym:{name}", **_parameters(_reset(data))},
    }
    if kind not in known:
        raise UsageError(
            f"environment.type {kind} of recurrent PPO is unknown; {nearest(str(kind), [*known])}"
        )
    return known[kind]


def _reset(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its reset parameters, if it has any."""
    reset = environment.get("reset_params") or {}
    if not isinstance(reset, Mapping):
        raise UsageError(f"reset_params is {reset!r} in a config of recurrent PPO; give names and values")
    return reset


def _parameters(reset: Mapping[str, Any]) -> dict[str, Any]:
    """Reset parameters of Memory Gym as keyword arguments: a list as numbers with commas between them."""
    arguments = {}
    for key, value in reset.items():
        if key not in LEVELS:
            items = value if isinstance(value, list) else [value]
            arguments[f"env.kwargs.{key}"] = items[0] if len(items) == 1 else ",".join(map(str, items))
    return arguments


def _memory(data: Mapping[str, Any]) -> dict[str, Any]:
    """Their recurrence: the memory, and the length of chunks."""
    _check(data, RECURRENCE, "recurrence.")
    kind, length = data["layer_type"], data["sequence_length"]
    if kind not in ("gru", "lstm"):
        raise UsageError(f"recurrence.layer_type is {kind}; gru and lstm are known")
    return {
        "model": f"ppo_{kind}",
        "actor.memory.name": kind,
        "actor.memory.width": data["hidden_state_size"],
        "actor.reset": data["reset_hidden_state"],
        "ppo.bptt": length if isinstance(length, int) and length > 0 else "episode",
    }


def _schedule(data: Mapping[str, Any], name: str, option: str, decay: str) -> dict[str, Any]:
    """Their polynomial schedule, which counts updates, as ours, which counts rollouts."""
    _check(data, SCHEDULE, f"{name}.")
    if data["initial"] == data["final"]:
        # None switches off the decay that a preset of ours may have.
        return {option: data["initial"], f"{decay}.final": None}
    return {
        option: data["initial"],
        f"{decay}.final": data["final"],
        f"{decay}.power": data["power"],
        f"{decay}.horizon": data["max_decay_steps"],
        f"{decay}.unit": "rollouts",
    }
