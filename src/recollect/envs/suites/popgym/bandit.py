"""MultiarmedBandit: find the arm with the highest reward, anew in every episode.

Each of A arms pays with a probability that is drawn uniformly from [0, 1) when an episode starts. The
observation is 1 if the chosen arm paid and 0 if not, and the reward is 1 / L or -1 / L. Episodes are
truncated after L steps. A is 10, 20 and 30, and L is 200, 400 and 600 in Easy, Medium and Hard.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .family import Family
from .task import Task

EPISODES, STEPS = 16, 256  # episodes and steps whose numbers an environment draws at once


class MultiarmedBandit(Task):
    """arms (N, A): probability of each arm to pay; paid (N,)."""

    arrays = ("arms", "paid")

    def __init__(
        self, config: EnvConfig, wrappers: tuple[str, ...], *, num_bandits: int, episode_length: int
    ) -> None:
        self._count, self._scale = num_bandits, 1 / episode_length
        super().__init__(config, wrappers, episode_length, spaces.Discrete(2), spaces.Discrete(num_bandits))

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        return {
            "arms": lambda random: random.random((EPISODES, self._count), dtype=np.float32),
            "luck": lambda random: random.random(STEPS),
        }

    def allocate(self) -> None:
        self.arms = np.zeros((self.num_envs, self._count), dtype=np.float32)
        self.paid = np.zeros(self.num_envs, dtype=np.int64)

    def start(self, envs: Array) -> None:
        self.arms[envs], self.paid[envs] = self.stream["arms"].take(envs), 0

    def move(self, action: Array) -> tuple[Array, Array]:
        paid = self.stream["luck"].take(self._everyone) < self.arms[self._everyone, action]
        self.paid = paid.astype(np.int64)
        return np.where(paid, self._scale, -self._scale), np.zeros(self.num_envs, dtype=bool)

    def view(self) -> Any:
        return self.paid.copy()


FAMILIES = {
    "MultiarmedBandit": Family(
        about="find the arm with the highest reward",
        build=MultiarmedBandit,
        levels=(
            {"num_bandits": 10, "episode_length": 200},
            {"num_bandits": 20, "episode_length": 400},
            {"num_bandits": 30, "episode_length": 600},
        ),
    )
}
