"""Environments by id: choice of suite and backend, and time limits for evaluation."""

import importlib
import pkgutil
from dataclasses import replace
from types import ModuleType

from ..common.errors import UsageError
from . import suites as packages
from .base import EnvConfig, Envs, VecEnv
from .extended import ExtendedEnv
from .given import Copies, Factory

# Steps of an episode that is played and has no limit; the longest of Atari have 27,000.
EVALUATION_LIMIT = 50_000


def make(config: EnvConfig, factory: Factory | None = None) -> Envs:
    """Build the environments of a config.

    factory  builds one environment, for configs whose id is the name of a callable
    """
    if factory is not None:
        return _extended(_by_factory(config, factory), config)
    suite, name = suite_of(config.id)
    if suite is None:
        return _extended(_by_backend(config), config)
    if hasattr(suite, "resolve_alias"):
        return make(suite.resolve_alias(config, name))
    return _extended(suite.make(config, name), config)


def _by_factory(config: EnvConfig, factory: Factory) -> VecEnv:
    """Environments of a callable: of Gymnasium, or of PettingZoo, which only what it builds can tell."""
    from . import gym as gym_suite
    from .suites import pettingzoo

    if config.kwargs and isinstance(factory, Copies):
        raise UsageError(
            f"env.kwargs {', '.join(config.kwargs)}: an environment that was built takes no arguments; give "
            "its class or a function"
        )
    if config.self_play:
        return pettingzoo.make_given(config, factory)
    try:
        return gym_suite.make(config, factory=factory)
    except gym_suite.SeveralAgentsError:
        return pettingzoo.make_given(config, factory)


def _extended(adapter: VecEnv, config: EnvConfig) -> Envs:
    """The environments, with the leaves beside the observation that the config asks for."""
    alone = not (adapter.agents or adapter.seats)
    if config.step_timeout is not None and adapter.backend != "workers":
        adapter.close()
        raise UsageError(
            f"env.step_timeout {config.step_timeout:g} needs --env.backend workers: steps of {config.id} in "
            "this process cannot be interrupted"
        )
    if config.agent_id and alone:
        adapter.close()
        raise UsageError(f"env.agent_id needs several agents (PettingZoo), and {config.id} has one")
    if config.self_play and alone:
        adapter.close()
        raise UsageError(
            f"env.self_play needs a game of several agents (PettingZoo), and {config.id} has one"
        )
    if config.action_mask or config.hidden or config.trial > 1:
        try:
            adapter = ExtendedEnv(adapter, config)
        except UsageError:
            adapter.close()
            raise
    return Envs(adapter, config.mask)


def make_for_evaluation(
    config: EnvConfig,
    factory: Factory | None = None,
    time_limit: int | None = None,
) -> Envs:
    """Build environments in which every episode ends: `time_limit` applies where they have none.

    Without it, an agent that stands still would never finish an evaluation. None: EVALUATION_LIMIT.
    """
    envs = make(config, factory)
    if envs.adapter.time_limit is None:
        envs.adapter.close()
        limit = time_limit or EVALUATION_LIMIT
        envs = make(replace(config, time_limit=limit), factory)
        envs.imposed_limit = limit * config.trial  # of a trial, whose episodes it cuts
    return envs


def reports_mask(config: EnvConfig, factory: Factory | None = None) -> bool:
    """Whether an environment of a config itself reports action masks, with or without env.action_mask.

    Builds and resets one, because the mask may be in its info.
    """
    envs = make(replace(config, num_envs=1), factory)
    try:
        if envs.action_spec.kind != "categorical":
            return False
        envs.adapter.reset([0] * envs.num_envs)
        return envs.adapter.reports_mask()
    finally:
        envs.adapter.close()


def _by_backend(config: EnvConfig) -> VecEnv:
    """Environments of EnvPool or Gymnasium, according to config.backend."""
    from . import gym as gym_suite
    from .suites import envpool as envpool_suite

    if config.backend in ("auto", "envpool") and envpool_suite.supports(config):
        return envpool_suite.make(config, config.id)
    if config.backend == "envpool":
        raise UsageError(envpool_suite.unavailable_reason(config))
    if config.backend == "own":
        raise UsageError(
            f"env.backend own is for environments that recollect implements (probe:...), not for {config.id};"
            " use auto"
        )
    return gym_suite.make(config)


def suite_of(env_id: str) -> tuple[ModuleType | None, str]:
    """The suite that an id belongs to, or None, and the name of the environment in the suite.

    An id is suite:name, the name of a suite, or a name in the BARE of a suite, which needs no prefix.
    """
    prefix, _, name = env_id.partition(":")
    if prefix in suites():
        return _module(prefix), name
    matches = (suite for suite in map(_module, suites()) if env_id in getattr(suite, "BARE", ()))
    return next(matches, None), env_id


def suites() -> list[str]:
    """The names of all suites; as a prefix of an id they take precedence over modules."""
    return [module.name for module in pkgutil.iter_modules(packages.__path__)]


def is_third_party(env_id: str) -> bool:
    """Whether the environment of an id is that of a module, which making it imports."""
    module, colon, name = env_id.partition(":")
    if module in suites():
        return bool(name) and getattr(_module(module), "IMPORTS_MODULES", False)
    return bool(colon)


def listing() -> dict[str, dict[str, str]]:
    """Suite -> id -> one-line description, for `recollect list envs`."""
    from . import gym

    return {"gym": gym.listing(), **{name: _module(name).listing() for name in suites()}}


def _module(name: str) -> ModuleType:
    # Imported by name, so that a new suite is one new file. Suites import optional packages when they build.
    return importlib.import_module(f"{packages.__name__}.{name}")
