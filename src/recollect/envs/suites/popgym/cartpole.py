"""CartPole with hidden velocities, with noisy positions, or with hidden positions.

The dynamics are those of Gymnasium's CartPole-v1. Every step has reward 1 / L, and episodes are truncated
after L steps.

    environment                  observation           L                noise
    PositionOnlyCartPole         position and angle    200, 400, 600    none
    NoisyPositionOnlyCartPole    position and angle    200              0.1, 0.2, 0.3
    VelocityOnlyCartpole         both velocities       200, 400, 600    none

Noise is the standard deviation of a normal number that is added to each entry; the sum is clipped to the
bounds of the observation. As in popgym 1.0.7, the first observation of an episode of VelocityOnlyCartpole has
the position and the angle.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig, Scalar
from ...spaces import Array
from .family import Family, positive
from .positions import PositionTask

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MASS, POLE_MASS_LENGTH = CART + POLE, POLE * HALF_LENGTH
FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360
STARTS = 64  # episodes whose numbers an environment draws at once


class CartPole(PositionTask):
    """state (N, 4): position, velocity, angle, angular velocity."""

    size = 4

    def __init__(
        self,
        config: EnvConfig,
        wrappers: tuple[str, ...],
        *,
        velocities: bool = False,
        max_episode_length: int = 200,
        noise_sigma: float = 0.0,
    ) -> None:
        self._velocities = velocities
        self._reward = 1 / max_episode_length
        high = np.array([np.inf] * 2 if velocities else [2 * FARTHEST, 2 * STEEPEST], dtype=np.float32)
        super().__init__(config, wrappers, max_episode_length, high, spaces.Discrete(2), noise_sigma)

    def draw_starts(self, random: np.random.Generator) -> Array:
        return random.uniform(-0.05, 0.05, (STARTS, 4))

    def advance(self, action: Array) -> tuple[Array, Array]:
        _, speed, angle, turn = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        force = np.where(action == 1, FORCE, -FORCE)
        # In the order of Gymnasium's operations, so that every number is the same.
        push = (force + POLE_MASS_LENGTH * np.square(turn) * sine) / MASS
        angular = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE * np.square(cosine) / MASS)
        )
        linear = push - POLE_MASS_LENGTH * angular * cosine / MASS
        rates = np.stack([speed, linear, turn, angular], axis=1)
        self.state = self.state + SECONDS * rates
        fallen = (np.abs(self.state[:, 0]) > FARTHEST) | (np.abs(self.state[:, 2]) > STEEPEST)
        return np.full(self.num_envs, self._reward), fallen

    def positions(self) -> Array:
        return self.state[:, ::2].astype(np.float32)

    def view(self) -> Any:
        if not self._velocities:
            return super().view()
        velocities = self.state[:, 1::2].astype(np.float32)
        return np.where(self.steps[:, None] == 0, self.positions(), velocities)


LENGTHS: tuple[dict[str, Scalar], dict[str, Scalar], dict[str, Scalar]] = (
    {},
    {"max_episode_length": 400},
    {"max_episode_length": 600},
)
FAMILIES = {
    "NoisyPositionOnlyCartPole": Family(
        about="balance a pole from noisy positions, with velocities hidden",
        build=CartPole,
        levels=({"noise_sigma": 0.1}, {"noise_sigma": 0.2}, {"noise_sigma": 0.3}),
    ),
    "PositionOnlyCartPole": Family(
        about="balance a pole from positions, with velocities hidden",
        build=CartPole,
        levels=LENGTHS,
        options={"max_episode_length": positive},
    ),
    "VelocityOnlyCartpole": Family(
        about="balance a pole from velocities, with positions hidden",
        build=partial(CartPole, velocities=True),
        levels=LENGTHS,
        options={"max_episode_length": positive},
    ),
}
