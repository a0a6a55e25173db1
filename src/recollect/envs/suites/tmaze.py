"""A T-maze: a sign at the start says which way to turn at the end of a corridor.

The task of Bakker (2002), vectorised. The corridor has `length` cells before the junction. The sign is in
the observation of the first cell alone, and the corridor looks the same everywhere, so the turn at the
junction needs a memory of at least `length` steps before it.

Shapes.  N environments.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ...common.errors import UsageError, nearest
from ..base import EnvConfig, Step, VecEnv
from ..seeded import SeededTask
from ..spaces import Array

LENGTH = 10
FORWARD, BACK, UP, DOWN = range(4)
WASTED = 0.1  # cost of a step that goes neither forward in the corridor nor up or down at its end


class TMaze(SeededTask):
    """N mazes."""

    arrays: ClassVar[Mapping[str, str]] = {"position": "_position", "sign": "_sign"}

    def __init__(self, length: int, num_envs: int, time_limit: int) -> None:
        super().__init__(num_envs, time_limit)
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(4)
        self._length = length

    def _allocate(self) -> None:
        self._position, self._sign = np.zeros((2, self.num_envs), dtype=np.int64)

    def _start_episodes(self) -> None:
        """Where the last episode ended, go to the first cell and draw a sign."""
        self._position[self._ended] = self._steps[self._ended] = 0
        for i in np.flatnonzero(self._ended):
            self._sign[i] = 1 if self._random[i].random() < 0.5 else -1

    def _observe(self) -> Array:
        """The sign in the first cell, else 0; whether this is the junction: (N, 2)."""
        sign = np.where(self._position == 0, self._sign, 0)
        return np.stack([sign, self._position == self._length], axis=-1, dtype=np.float32)

    def step(self, action: Array) -> Step:
        live = ~self._ended  # in the others this step ignores the action and starts an episode
        self._start_episodes()
        at_junction = live & (self._position == self._length)
        turns = at_junction & (action >= UP)
        forward, back = (live & (action == way) for way in (FORWARD, BACK))
        self._position += (forward & ~at_junction).astype(np.int64) - (back & (self._position > 0))
        self._steps += live
        truncated = live & (self._steps >= self._limit) & ~turns
        self._ended = turns | truncated
        right = turns & (np.where(action == UP, 1, -1) == self._sign)
        cost = np.where(live & ~(forward & ~at_junction), -WASTED, 0.0)
        reward = np.where(turns, np.where(right, 1.0, -1.0), cost)
        success = np.where(self._ended, right, np.nan)
        return Step(self._observe(), reward, turns, truncated, success)

    def names(self) -> dict[str, list[str]]:
        return {"actions": ["forward", "back", "up", "down"], "observations": ["sign", "junction"]}

    def hidden(self) -> dict[str, Array]:
        """The sign, where it is not shown."""
        return {"sign": np.where(self._position == 0, np.nan, self._sign)}


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of the only task of this suite, whose name is empty."""
    if name:
        raise UsageError(f"environment tmaze:{name} is unknown; the suite has one task, tmaze")
    options: dict[str, Any] = {"length": LENGTH} | dict(config.kwargs)
    for key in options:
        if key != "length":
            raise UsageError(f"tmaze has no keyword argument {key}; {nearest(key, ['length'])}")
    length = options["length"]
    # Not isinstance, because True is an int.
    if type(length) is not int or length < 1:
        raise UsageError(f"tmaze: length is {length!r}; it must be a number of cells, 1 or more")
    return TMaze(length, config.num_envs, config.time_limit or 2 * length + 4)


def listing() -> dict[str, str]:
    """Id -> one-line description."""
    return {"": "turn at the end of a corridor as a sign at its start said (native state)"}
