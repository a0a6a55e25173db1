"""Battleship: sink ships on a hidden board by remembering earlier shots.

Four ships of 2, 3, 3 and 4 tiles lie on a board of S x S tiles, without overlap, at every place and in every
direction with equal probability. An action is a row and a column. The observation is 1 after a hit and 0
after a miss; a second shot at a tile is a miss. With K = 12 tiles of ships, a hit has reward 1 / K and a miss
-1 / (S^2 - K). The episode terminates when all ships are sunk and is truncated after S^2 steps. S is 8, 10
and 12 in Easy, Medium and Hard.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .family import Family
from .task import Task

SHIPS = (2, 3, 3, 4)
BLOCK = 32  # boards that an environment draws at once


class Battleship(Task):
    """ships (N, S^2) and shot (N, S^2): which tiles have a ship and were shot at; hits, hit (N,)."""

    arrays = ("ships", "shot", "hits", "hit")

    def __init__(self, config: EnvConfig, wrappers: tuple[str, ...], *, board_size: int) -> None:
        self._size = board_size
        tiles, self._goal = board_size**2, sum(SHIPS)
        self._success, self._failure = 1 / self._goal, -1 / (tiles - self._goal)
        self._places = {length: places(board_size, length) for length in SHIPS}
        actions = spaces.MultiDiscrete([board_size, board_size])
        super().__init__(config, wrappers, tiles, spaces.Discrete(2), actions)

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        return {"board": self._boards}

    def _boards(self, random: np.random.Generator) -> Array:
        """(B, S^2): ships are placed one after the other, and again where they would overlap."""
        boards = np.zeros((BLOCK, self._size**2), dtype=bool)
        for length in SHIPS:
            waiting = np.arange(BLOCK)
            while len(waiting):
                places = self._places[length]
                tiles = places[random.integers(len(places), size=len(waiting))]
                free = ~boards[waiting[:, None], tiles].any(axis=1)
                boards[waiting[free, None], tiles[free]] = True
                waiting = waiting[~free]
        return boards

    def allocate(self) -> None:
        self.ships, self.shot = np.zeros((2, self.num_envs, self._size**2), dtype=bool)
        self.hits, self.hit = np.zeros((2, self.num_envs), dtype=np.int64)

    def start(self, envs: Array) -> None:
        self.ships[envs] = self.stream["board"].take(envs)
        self.shot[envs], self.hits[envs], self.hit[envs] = False, 0, 0

    def move(self, action: Array) -> tuple[Array, Array]:
        n, tile = self._everyone, action[:, 0] * self._size + action[:, 1]
        hit = self.ships[n, tile] & ~self.shot[n, tile]
        self.shot[n, tile] = True
        self.hit = hit.astype(np.int64)
        self.hits += hit
        return np.where(hit, self._success, self._failure), self.hits == self._goal

    def view(self) -> Any:
        return self.hit.copy()


def places(size: int, length: int) -> Array:
    """The tiles of every place of a ship on a board, (2 S (S - length + 1), length)."""
    starts = np.arange(size)[:, None] * size + np.arange(size - length + 1)
    rows = starts.reshape(-1, 1) + np.arange(length)
    columns = rows % size * size + rows // size
    return np.concatenate([rows, columns])


FAMILIES = {
    "Battleship": Family(
        about="sink ships by remembering earlier shots",
        build=Battleship,
        levels=({"board_size": 8}, {"board_size": 10}, {"board_size": 12}),
    )
}
