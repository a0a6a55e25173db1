"""Pendulum with a hidden velocity, and with a noisy angle.

The dynamics are those of Gymnasium's Pendulum-v1. The observation is the cosine and the sine of the angle.
The reward of Pendulum, which lies between -16.27 and 0, is scaled to [-1 / L, 1 / L]. Episodes are truncated
after L steps.

    environment                  L                noise
    PositionOnlyPendulum         200, 150, 100    none
    NoisyPositionOnlyPendulum    200              0.1, 0.2, 0.3

Noise is the standard deviation of a normal number that is added to each entry; the sum is clipped to [-1, 1].
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ..base import EnvConfig
from ..spaces import Array
from .cartpole import noise_draws
from .family import Family, positive
from .task import Task

GRAVITY, FASTEST, STRONGEST, SECONDS = 10.0, 8.0, 2.0, 0.05
WORST = -16.2736044  # the lowest reward of Pendulum, as popgym rounds it
STARTS, STEPS = 16, 256  # episodes and steps whose numbers an environment draws at once


class Pendulum(Task):
    """state (N, 2): angle and angular velocity; noise (N, 2), added to the observation."""

    arrays = ("state", "noise")

    def __init__(
        self,
        config: EnvConfig,
        wrappers: tuple[str, ...],
        *,
        max_episode_length: int = 200,
        noise_sigma: float = 0.0,
    ) -> None:
        self._sigma, self._length = noise_sigma, max_episode_length
        observation = spaces.Box(-1.0, 1.0, (2,), np.float32)
        actions = spaces.Box(-STRONGEST, STRONGEST, (1,), np.float32)
        super().__init__(config, wrappers, max_episode_length, observation, actions)

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        high = np.array([np.pi, 1.0])
        starts = {"start": lambda random: random.uniform(-high, high, (STARTS, 2))}
        return starts | (noise_draws(self._sigma, STEPS) if self._sigma else {})

    def allocate(self) -> None:
        self.state = np.zeros((self.num_envs, 2))
        self.noise = np.zeros((self.num_envs, 2), dtype=np.float32)

    def start(self, envs: Array) -> None:
        self.state[envs] = self.stream["start"].take(envs)
        if self._sigma:
            self.noise[envs] = self.stream["noise"].take(envs)

    def move(self, action: Array) -> tuple[Array, Array]:
        angle, turn = self.state.T
        torque = np.clip(action[:, 0], -STRONGEST, STRONGEST)
        upright = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = upright**2 + 0.1 * turn**2 + 0.001 * torque**2
        turn = turn + (3 * GRAVITY / 2 * np.sin(angle) + 3.0 * torque) * SECONDS
        turn = np.clip(turn, -FASTEST, FASTEST)
        self.state = np.stack([angle + turn * SECONDS, turn], axis=1)
        if self._sigma:
            self.noise = self.stream["noise"].take(self._everyone)
        half = -WORST / 2
        return (half - cost) / half / self._length, np.zeros(self.num_envs, dtype=bool)

    def view(self) -> Any:
        angle = self.state[:, 0]
        obs = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
        return np.clip(obs + self.noise, np.float32(-1), np.float32(1)) if self._sigma else obs


FAMILIES = {
    "NoisyPositionOnlyPendulum": Family(
        about="swing up a pendulum from a noisy angle, with the velocity hidden",
        build=Pendulum,
        levels=({"noise_sigma": 0.1}, {"noise_sigma": 0.2}, {"noise_sigma": 0.3}),
    ),
    "PositionOnlyPendulum": Family(
        about="swing up a pendulum from its angle, with the velocity hidden",
        build=Pendulum,
        levels=({}, {"max_episode_length": 150}, {"max_episode_length": 100}),
        options={"max_episode_length": positive},
    ),
}
