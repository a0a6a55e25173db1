"""The base of CartPole and Pendulum: two observed positions, hidden velocities, and noise."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .task import Task

STEPS = 256  # steps whose noise an environment draws at once


class PositionTask(Task):
    """state (N, S): positions and velocities; noise (N, 2), added to the two observed positions.

    Noise is normal with the standard deviation sigma; the sum is clipped to the bounds of the observation.
    """

    arrays = ("state", "noise")
    size: ClassVar[int]
    """Entries of the state, S."""

    def __init__(
        self,
        config: EnvConfig,
        wrappers: tuple[str, ...],
        length: int,
        high: Array,
        action_space: spaces.Space[Any],
        sigma: float,
    ) -> None:
        """high  upper bounds of the observation (2,) float32; the lower ones are their negatives."""
        self._high, self._sigma = high, sigma
        super().__init__(config, wrappers, length, spaces.Box(-high, high, dtype=np.float32), action_space)

    @abstractmethod
    def draw_starts(self, random: np.random.Generator) -> Array:
        """States at the starts of episodes (B, S)."""

    @abstractmethod
    def advance(self, action: Array) -> tuple[Array, Array]:
        """Move the state by one step, without noise: reward (N,) and terminated (N,)."""

    @abstractmethod
    def positions(self) -> Array:
        """The two positions (N, 2) float32, without noise."""

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        draws: dict[str, Callable[[np.random.Generator], Array]] = {"start": self.draw_starts}
        if self._sigma:
            draws["noise"] = self._draw_noise
        return draws

    def _draw_noise(self, random: np.random.Generator) -> Array:
        return random.normal(0, self._sigma, (STEPS, 2)).astype(np.float32)

    def allocate(self) -> None:
        self.state = np.zeros((self.num_envs, self.size))
        self.noise = np.zeros((self.num_envs, 2), dtype=np.float32)

    def start(self, envs: Array) -> None:
        self.state[envs] = self.stream["start"].take(envs)
        if self._sigma:
            self.noise[envs] = self.stream["noise"].take(envs)

    def move(self, action: Array) -> tuple[Array, Array]:
        reward, terminated = self.advance(action)
        if self._sigma:
            self.noise = self.stream["noise"].take(self._everyone)
        return reward, terminated

    def view(self) -> Any:
        positions = self.positions()
        return np.clip(positions + self.noise, -self._high, self._high) if self._sigma else positions
