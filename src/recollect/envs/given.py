"""What users give as an environment: an id, a function or class that builds one, or one environment."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import gymnasium

from ..common.errors import UsageError

Factory: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]
Environment: TypeAlias = str | Factory | gymnasium.Env[Any, Any]


def resolve_environment(env: Environment) -> tuple[str, Factory | None]:
    """The id of an environment, and what builds it if that is not the id alone."""
    if isinstance(env, gymnasium.Env):
        return _resolve_instance(env)
    if isinstance(env, str):
        return env, None
    if not callable(env):
        raise UsageError(
            "an environment is an id, a function or class that builds one, or a Gymnasium environment, not "
            f"{env!r:.80}"
        )
    return _name(env), env


def _resolve_instance(env: gymnasium.Env[Any, Any]) -> tuple[str, Factory | None]:
    spec = env.spec
    if spec is None:
        return _name(env.unwrapped), Copies(env)
    # The id alone, where nothing was changed: it has presets and other backends.
    plain = gymnasium.registry.get(spec.id)
    if plain is not None and _settings(spec) == _settings(plain):
        return spec.id, None
    return _name(env.unwrapped), partial(gymnasium.make, spec, disable_env_checker=True)


def _settings(spec: gymnasium.envs.registration.EnvSpec) -> tuple[Any, ...]:
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return spec.entry_point, spec.max_episode_steps, kwargs, spec.additional_wrappers


def _name(env: object) -> str:
    return f"callable-{getattr(env, '__name__', type(env).__name__).strip('<>')}"


@dataclass(frozen=True)
class Copies:
    """Builds environments as copies of one, as a run needs several."""

    env: gymnasium.Env[Any, Any]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Another copy."""
        try:
            return copy.deepcopy(self.env)
        except Exception as error:  # whatever the environment contains
            name = type(self.env.unwrapped).__name__
            raise UsageError(
                f"a run needs several environments, and {name} cannot be copied ({error}); give a function "
                f"that builds one: lambda: {name}(...)"
            ) from error
