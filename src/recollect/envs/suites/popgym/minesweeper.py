"""MineSweeper: uncover a field by remembering the numbers.

M mines lie on S x S tiles. An action is a row and a column. The observation is the number of mines on the
tile and its eight neighbours. L = S^2 - M tiles have no mine.

    action                          reward
    a tile that was not uncovered   1 / L
    a tile that was uncovered       -0.5 / (L - 2)
    a mine                          -0.5 - 1 / L, and the episode terminates

The episode also terminates when all tiles without a mine are uncovered, and is truncated after L steps.
S is 4, 6 and 8, and M is 2, 6 and 10 in Easy, Medium and Hard.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .family import Family
from .task import Task

BLOCK = 64  # fields that an environment draws at once


class MineSweeper(Task):
    """mines, uncovered (N, S^2); around (N, S^2) the number of mines near each tile; number, left (N,)."""

    arrays = ("mines", "uncovered", "around", "number", "left")

    def __init__(self, config: EnvConfig, wrappers: tuple[str, ...], *, size: int, num_mines: int) -> None:
        self._size = size
        self._safe = size * size - num_mines
        self._ordered = np.tile(np.arange(size * size) < num_mines, (BLOCK, 1))
        self._success, self._again = 1 / self._safe, -0.5 / (self._safe - 2)
        observation = spaces.Discrete(min(num_mines + 1, 10))
        super().__init__(config, wrappers, self._safe, observation, spaces.MultiDiscrete([size, size]))

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        return {"field": lambda random: random.permuted(self._ordered, axis=1)}

    def allocate(self) -> None:
        self.mines, self.uncovered = np.zeros((2, self.num_envs, self._size**2), dtype=bool)
        self.around = np.zeros((self.num_envs, self._size**2), dtype=np.int64)
        self.number, self.left = np.zeros((2, self.num_envs), dtype=np.int64)

    def start(self, envs: Array) -> None:
        self.mines[envs] = mines = self.stream["field"].take(envs)
        self.around[envs] = neighbours(mines.reshape(-1, self._size, self._size)).reshape(mines.shape)
        self.uncovered[envs], self.number[envs], self.left[envs] = False, 0, self._safe

    def move(self, action: Array) -> tuple[Array, Array]:
        n, tile = self._everyone, action[:, 0] * self._size + action[:, 1]
        mine, again = self.mines[n, tile], self.uncovered[n, tile]
        self.uncovered[n, tile] = ~mine
        self.left -= ~(mine | again)
        self.number = self.around[n, tile]
        reward = np.where(mine, -0.5 - self._success, np.where(again, self._again, self._success))
        return reward, mine | (self.left == 0)

    def view(self) -> Any:
        return self.number.copy()


def neighbours(mines: Array) -> Array:
    """The number of mines on each tile and the eight around it, (M, S, S)."""
    padded = np.pad(mines.astype(np.int64), ((0, 0), (1, 1), (1, 1)))
    rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]


FAMILIES = {
    "MineSweeper": Family(
        about="uncover a field by remembering the numbers",
        build=MineSweeper,
        levels=({"size": 4, "num_mines": 2}, {"size": 6, "num_mines": 6}, {"size": 8, "num_mines": 10}),
    )
}
