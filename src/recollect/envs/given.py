"""What users give as an environment: an id, a function or class that builds one, or one environment."""

import copy
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from ..common.errors import UsageError
from .given_names import name_of

# PettingZoo is an optional package, so its types are not named: Any stands for them.
Factory: TypeAlias = Callable[[], Any]
Environment: TypeAlias = Any  # an id, a Factory, or an environment of Gymnasium or PettingZoo


def is_pettingzoo(env: Any) -> bool:
    """Whether an object is an environment of PettingZoo, with several agents."""
    package = sys.modules.get("pettingzoo")  # which made the object, if it is one
    return package is not None and isinstance(env, package.ParallelEnv | package.AECEnv)


def check_id(call: str, env: object) -> None:
    """Raise UsageError unless an environment is given by its id."""
    if not isinstance(env, str):
        raise UsageError(
            f"{call} takes ids of environments, because its runs are processes of their own, not "
            f"{env!r:.80}; register the class in a module (gymnasium.register) and give my_module:MyEnv-v0"
        )


def resolve_environment(env: Any) -> tuple[str, Factory | None]:
    """The id of an environment, and what builds it if that is not the id alone."""
    if isinstance(env, gymnasium.Env):
        return _resolve_instance(env)
    if isinstance(env, str):
        return env, None
    if is_pettingzoo(env):
        return name_of(env.unwrapped), Copies(env)
    if not callable(env):
        raise UsageError(
            "an environment is an id, a function or class that builds one, or an environment of Gymnasium or "
            f"PettingZoo, not {env!r:.80}"
        )
    return name_of(env), env


def _resolve_instance(env: gymnasium.Env[Any, Any]) -> tuple[str, Factory | None]:
    spec = env.spec
    if spec is None:
        return name_of(env), Copies(env)
    # The id alone, where nothing was changed: it has presets and other backends.
    plain = gymnasium.registry.get(spec.id)
    if plain is not None and _settings(spec) == _settings(plain):
        return spec.id, None
    factory = partial(gymnasium.make, spec, disable_env_checker=True)
    try:
        # Only an attempt can tell: a wrapper may not record its arguments, or be a class inside a function.
        factory().close()
    except Exception as error:
        return name_of(env), Copies(env, f"be built again from its specification ({error}) nor ")
    return name_of(env), factory


def _settings(spec: gymnasium.envs.registration.EnvSpec) -> tuple[Any, ...]:
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return spec.entry_point, spec.max_episode_steps, kwargs, spec.additional_wrappers


@dataclass(frozen=True)
class Copies:
    """Builds environments as copies of one, as a run needs several.

    tried  what failed before a copy, for the error
    """

    env: Any
    tried: str = ""

    def __call__(self) -> Any:
        """Another copy, with random generators of its own."""
        copied: dict[int, Any] = {}
        try:
            env = copy.deepcopy(self.env, copied)
            for part in list(copied.values()):
                _reseed(part)
            return env
        except Exception as error:  # whatever the environment contains
            name = type(self.env.unwrapped).__name__
            wrappers = "" if self.env is self.env.unwrapped else ", with its wrappers"
            raise UsageError(
                f"a run needs several environments, and {name} cannot {self.tried}be copied ({error}); give "
                f"a function that builds one{wrappers}: lambda: {name}(...)"
            ) from error


def _reseed(part: object) -> None:
    """Seed a random generator from the operating system; other objects stay.

    reset(seed=...) replaces what it seeds anyway. What it does not seed would be equal in all copies: the N
    environments of a run would be the same one, and check_seed could not tell.
    """
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = type(part.bit_generator)().state
    elif isinstance(part, np.random.RandomState | random.Random):
        part.seed()
