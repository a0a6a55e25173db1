"""What the families of POPGym have in common: their registration, and the two wrappers of the paper."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig, Scalar, VecEnv
from ...spaces import Array


@dataclass(frozen=True, kw_only=True)
class Family:
    """One environment of POPGym in its difficulties.

    about    what the agent must do, for `recollect list envs`
    build    (config, wrappers, **arguments) -> N environments
    levels   the arguments of Easy, Medium and Hard
    options  the arguments that the user may set, with a check of each: value -> what it must be, or ""
    """

    about: str
    build: Callable[..., VecEnv]
    levels: tuple[Mapping[str, Scalar], Mapping[str, Scalar], Mapping[str, Scalar]] = ({}, {}, {})
    options: Mapping[str, Callable[[Scalar], str]] = field(default_factory=dict)


def positive(value: Scalar) -> str:
    """The check of a number of decks or steps."""
    return "" if type(value) is int and value >= 1 else "an integer above 0"


def one_of(*names: str) -> Callable[[Scalar], str]:
    """The check of a choice."""
    return lambda value: "" if value in names else " or ".join(names)


class Wrappers:
    """The entries that PreviousAction and Antialias of popgym append to an observation.

    prev_action  the last action; 0 in the first step of an episode
    antialias    1 in the first step of an episode, else 0
    """

    def __init__(
        self, names: tuple[str, ...], observation: spaces.Space[Any], action: spaces.Space[Any]
    ) -> None:
        self._action, self._flag = "prev_action" in names, "antialias" in names
        parts = list(observation) if isinstance(observation, spaces.Tuple) else [observation]
        parts += [action] if self._action else []
        parts += [spaces.Discrete(2)] if self._flag else []
        self.observation_space = spaces.Tuple(parts) if len(parts) > 1 else parts[0]

    def wrap(self, obs: Any, action: Array, first: Array) -> Any:
        """obs with the entries; action (N, ...), first (N,)."""
        parts = list(obs) if isinstance(obs, tuple) else [obs]
        parts += [action] if self._action else []
        parts += [first.astype(np.int64)] if self._flag else []
        return tuple(parts) if len(parts) > 1 else parts[0]


def length_of(config: EnvConfig, length: int) -> tuple[int, int]:
    """The time limit that the adapter states, and the steps after which an episode is truncated."""
    limit = config.time_limit or length
    return limit, min(limit, length)
