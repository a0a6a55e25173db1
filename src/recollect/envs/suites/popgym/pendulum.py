"""Pendulum with a hidden velocity, and with a noisy angle.

The dynamics are those of Gymnasium's Pendulum-v1. The observation is the cosine and the sine of the angle.
The reward of Pendulum, which lies between -16.27 and 0, is scaled to [-1 / L, 1 / L]. Episodes are truncated
after L steps.

    environment                  L                noise
    PositionOnlyPendulum         200, 150, 100    none
    NoisyPositionOnlyPendulum    200              0.1, 0.2, 0.3

Noise is the standard deviation of a normal number that is added to each entry; the sum is clipped to [-1, 1].
"""

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .family import Family, positive
from .positions import PositionTask

GRAVITY, FASTEST, STRONGEST, SECONDS = 10.0, 8.0, 2.0, 0.05
WORST = -16.2736044  # the lowest reward of Pendulum, as popgym rounds it
STARTS = 16  # episodes whose numbers an environment draws at once


class Pendulum(PositionTask):
    """state (N, 2): angle and angular velocity."""

    size = 2

    def __init__(
        self,
        config: EnvConfig,
        wrappers: tuple[str, ...],
        *,
        max_episode_length: int = 200,
        noise_sigma: float = 0.0,
    ) -> None:
        self._length = max_episode_length
        high = np.ones(2, dtype=np.float32)
        actions = spaces.Box(-STRONGEST, STRONGEST, (1,), np.float32)
        super().__init__(config, wrappers, max_episode_length, high, actions, noise_sigma)

    def draw_starts(self, random: np.random.Generator) -> Array:
        high = np.array([np.pi, 1.0])
        return random.uniform(-high, high, (STARTS, 2))

    def advance(self, action: Array) -> tuple[Array, Array]:
        angle, turn = self.state.T
        torque = np.clip(action[:, 0], -STRONGEST, STRONGEST)
        upright = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = upright**2 + 0.1 * turn**2 + 0.001 * torque**2
        turn = turn + (3 * GRAVITY / 2 * np.sin(angle) + 3.0 * torque) * SECONDS
        turn = np.clip(turn, -FASTEST, FASTEST)
        self.state = np.stack([angle + turn * SECONDS, turn], axis=1)
        half = -WORST / 2
        return (half - cost) / half / self._length, np.zeros(self.num_envs, dtype=bool)

    def positions(self) -> Array:
        angle = self.state[:, 0]
        return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


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
