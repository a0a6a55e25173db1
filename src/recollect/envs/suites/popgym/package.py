"""The implementations of the package popgym, for the backends gymnasium and workers (extra `popgym`)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym

from ....common.errors import UsageError, install_hint
from ...base import EnvConfig
from ...gym import GymEnv


def make(config: EnvConfig, name: str, options: dict[str, Any], wrappers: tuple[str, ...]) -> GymEnv:
    """Environments of the package."""
    env_class = _class(name)
    # A difficulty with its own constructor fixes all arguments, and some of them ignore others silently.
    if options and "__init__" in vars(env_class):
        key = next(iter(options))
        raise UsageError(f"popgym:{name} has no keyword argument {key}; it takes prev_action and antialias")
    factory = partial(_wrapped, partial(env_class, **options), wrappers, config.time_limit)
    try:
        one = factory().unwrapped
    # popgym checks arguments by assertions, NotImplementedError, or not at all.
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        raise UsageError(f"popgym:{name} cannot be built with {options}: {error}") from error
    envs = GymEnv(factory, config)
    envs.time_limit = config.time_limit or _length(one)
    return envs


def _wrapped(
    factory: Callable[[], gym.Env[Any, Any]], wrappers: tuple[str, ...], limit: int | None
) -> gym.Env[Any, Any]:
    """One environment of popgym with the chosen wrappers and time limit."""
    from popgym.wrappers import Antialias, PreviousAction

    env = factory()
    if "prev_action" in wrappers:
        env = PreviousAction(env)
    if "antialias" in wrappers:
        env = Antialias(env)
    return gym.wrappers.TimeLimit(env, limit) if limit else env


def _length(env: Any) -> int:
    """The largest number of steps of an episode, which popgym stores under three names."""
    for name in ("max_episode_length", "episode_length"):
        if hasattr(env, name):
            return int(getattr(env, name))
    return int(env.deck_size) - 1


def _class(name: str) -> Any:
    """The registered class of an id."""
    if name.startswith("Labyrinth"):
        # It seeds numpy's global generator, which all environments share, and which takes no seed of ours.
        raise UsageError(f"popgym:{name} cannot be seeded in the package popgym; use --env.backend own")
    try:
        from popgym.envs import ALL
    except ImportError as error:
        raise UsageError(f"popgym:{name} with this backend needs popgym: {install_hint('popgym')}") from error
    return {spec["id"]: env_class for env_class, spec in ALL.items()}[f"popgym-{name}-v0"]
