"""From a point of the search space to settings that form a valid run."""

from collections.abc import Callable
from typing import TypeAlias

from ..config.config import RunConfig
from .option_names import (
    BRANCHES,
    MEMORY_NAME,
    PART_NAMES,
    Settings,
    Value,
    full_names,
    option_values,
    to_flags,
)
from .search_space import Dimension, SearchSpace, has_memory

# The preset with flags over it.
ConfigBuilder: TypeAlias = Callable[[tuple[str, ...]], RunConfig]
# Sizes that depend on each other.
SIZES = (
    *("ppo.num_steps", "ppo.bptt", "ppo.num_minibatches", "ppo.batch_size", "env.num_envs"),
    *(f"{branch}.memory.{size}" for branch in BRANCHES for size in ("width", "heads")),
)


def propose(
    choose: Callable[[str, Dimension], Value], space: SearchSpace, build_config: ConfigBuilder
) -> Settings:
    """Choose a value for every option that the config has, and adapt the sizes to one another.

    Names of memories and encoders are chosen first: they decide which of the other options exist.
    """
    chosen: Settings = {}
    config = build_config(())
    for name in sorted(space, key=lambda name: not name.endswith(PART_NAMES)):
        options = full_names(name, option_values(config))
        if options:
            # One draw for both branches, so that Optuna sees one dimension.
            chosen |= dict.fromkeys(options, choose(name, space[name]))
        if name == MEMORY_NAME and config.critic.shared:
            chosen["critic.shared"] = True  # else naming the critic's memory would make it a branch again
        if name.endswith(PART_NAMES):
            config = build_config(to_flags(chosen))
    recurrent = has_memory(config.actor.memory, config.critic.memory)
    # Optuna keeps the values that it drew; only the runs get the sizes that fit.
    return chosen | fit_sizes(option_values(config) | chosen, recurrent)


def fit_sizes(settings: Settings, recurrent: bool) -> Settings:
    """Changes to sizes that do not fit together, each to the nearest smaller size that does.

    settings   of the whole config
    recurrent  whether a branch has a memory, so that chunks default to a whole rollout, not to single steps
    """
    changes: Settings = {}
    # Both mean whole rollouts as far as sizes are concerned.
    if settings["ppo.bptt"] in (0, "episode"):
        settings = {**settings, "ppo.bptt": settings["ppo.num_steps"]}
    for size in SIZES:
        value = settings.get(size)
        is_left_out = value is None and size not in ("env.num_envs", "ppo.num_steps")
        if not is_left_out and not (isinstance(value, int) and value > 0):
            return changes  # the config reports what is wrong with it
    for branch in BRANCHES:
        width, heads = (settings.get(f"{branch}.memory.{size}", 0) for size in ("width", "heads"))
        if heads and width % heads:
            changes[f"{branch}.memory.heads"] = largest_divisor(width, heads)
    num_steps, bptt = settings["ppo.num_steps"], settings["ppo.bptt"]
    if bptt and num_steps % bptt:
        changes["ppo.bptt"] = bptt = largest_divisor(num_steps, bptt)
    chunk_length = bptt or (num_steps if recurrent else 1)
    rollout = settings["env.num_envs"] * num_steps
    if (settings["ppo.num_minibatches"] or 0) > rollout // chunk_length:
        changes["ppo.num_minibatches"] = rollout // chunk_length
    batch = settings["ppo.batch_size"]
    if batch and not chunk_length <= batch <= rollout:
        changes["ppo.batch_size"] = min(max(batch, chunk_length), rollout)
    return changes


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of a number that is at most `limit`."""
    return next(x for x in range(min(number, limit), 0, -1) if number % x == 0)
