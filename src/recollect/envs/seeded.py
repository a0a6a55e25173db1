"""A vectorised task of recollect with a random generator for each environment, whose whole state is saved.

Shapes.  N environments.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from .base import EnvState, VecEnv
from .spaces import Array


class SeededTask(VecEnv):
    """N copies of a task. Environment i has its own random generator, so it depends on no other environment.

    arrays  key in a checkpoint -> the attribute (N, ...) that holds this part of the state
    """

    tier: Literal["native", "barrier"] = "native"
    arrays: ClassVar[Mapping[str, str]]

    def __init__(self, num_envs: int, time_limit: int) -> None:
        self.num_envs, self.backend = num_envs, "own"
        self.time_limit = self._limit = time_limit
        self._random: list[np.random.Generator] = []
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=bool)

    @abstractmethod
    def _allocate(self) -> None:
        """Create the arrays of the task; `_steps` and `_ended` are there."""

    @abstractmethod
    def _start_episodes(self) -> None:
        """Start an episode in the environments whose last one ended."""

    @abstractmethod
    def _observe(self) -> Any:
        """The observation, by the arrays alone; a new array each time."""

    def reset(self, seeds: list[int]) -> Any:
        self._random = [np.random.default_rng(seed) for seed in seeds]
        self._steps = np.zeros(self.num_envs, dtype=np.int64)
        self._allocate()
        self._ended = np.ones(self.num_envs, dtype=bool)  # so that an episode starts in all of them
        self._start_episodes()
        self._ended = np.zeros(self.num_envs, dtype=bool)
        return self._observe()

    def get_state(self) -> EnvState:
        arrays: dict[str, Array] = {key: getattr(self, name).copy() for key, name in self._state.items()}
        return EnvState(arrays, {"random": [generator.bit_generator.state for generator in self._random]})

    def set_state(self, state: EnvState) -> None:
        # Creates the generators, whose states are then replaced.
        self.reset([0] * self.num_envs)
        for key, name in self._state.items():
            setattr(self, name, state.arrays[key].copy())
        for generator, stored in zip(self._random, state.data["random"], strict=True):
            generator.bit_generator.state = stored

    @property
    def _state(self) -> dict[str, str]:
        return {**self.arrays, "steps": "_steps", "ended": "_ended"}
