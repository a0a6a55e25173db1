"""LabyrinthEscape and LabyrinthExplore: mazes that are seen through a window of 3 x 3 tiles.

A maze has (D + 1) x (D + 1) tiles. It is made by hunt-and-kill: a random walk over the tiles of odd row and
column carves passages until it has no new neighbour, and goes on from a tile that is drawn at random. The
start lies in the outer wall, and the exit in the wall opposite to it. Actions are left, right, up and down; a
move against a wall has no effect. D is 10, 14 and 18 in Easy, Medium and Hard.

    LabyrinthEscape    reward -1 / L in each step, and 1 more at the exit, where the episode terminates
    LabyrinthExplore   reward 1 / F on each of the F free tiles that is new, else -1 / L; the episode
                       terminates when all tiles were visited

Episodes are truncated after L - 1 steps, L = 1024. An observation has the nine tiles around the agent (0
free, 1 wall, 2 start, 3 exit) and the last action, or 4 at the start. As in popgym 1.0.7, the window does not
leave the maze: at the upper and the left edge it is moved by one tile, and its last row or column is wall.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .family import Family
from .task import Task

FREE, WALL, START, EXIT = 0, 1, 2, 3
KINDS, NO_ACTION = 5, 4
LENGTH = 1024
MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])
BLOCK = 8  # mazes that an environment makes at once


class Labyrinth(Task):
    """maze, visited (N, S, S); place (N, 2) row and column; last (N,) action; left (N,) free tiles to visit;
    bonus (N,) the reward of a new one."""

    arrays = ("maze", "visited", "place", "last", "left", "bonus")

    def __init__(self, config: EnvConfig, wrappers: tuple[str, ...], *, explore: bool, size: int) -> None:
        self._explore, self._size = explore, size + 1
        observation = spaces.MultiDiscrete(np.array([KINDS] * 9 + [NO_ACTION + 1], dtype=np.int32))
        super().__init__(config, wrappers, LENGTH - 1, observation, spaces.Discrete(len(MOVES)))

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        return {"maze": self._mazes}

    def _mazes(self, random: np.random.Generator) -> Array:
        mazes = np.stack([carve(random, self._size) for _ in range(BLOCK)])
        if self._explore:
            mazes[mazes == EXIT] = WALL
        return mazes

    def allocate(self) -> None:
        self.maze = np.zeros((self.num_envs, self._size, self._size), dtype=np.int8)
        self.visited = np.zeros(self.maze.shape, dtype=bool)
        self.place = np.zeros((self.num_envs, 2), dtype=np.int64)
        self.last, self.left = np.zeros((2, self.num_envs), dtype=np.int64)
        self.bonus = np.zeros(self.num_envs)

    def start(self, envs: Array) -> None:
        self.maze[envs] = mazes = self.stream["maze"].take(envs)
        env, row, column = (mazes == START).nonzero()
        self.place[envs[env]] = np.stack([row, column], axis=1)
        self.visited[envs] = mazes == START
        self.last[envs] = NO_ACTION
        self.left[envs] = free = (mazes == FREE).sum((1, 2))
        self.bonus[envs] = 1 / free

    def move(self, action: Array) -> tuple[Array, Array]:
        n = self._everyone
        row, column = (self.place + MOVES[action]).clip(0, self._size - 1).T
        blocked = self.maze[n, row, column] == WALL
        self.place = np.where(blocked[:, None], self.place, np.stack([row, column], axis=1))
        self.last = action.astype(np.int64)
        row, column = self.place.T
        if not self._explore:
            out = self.maze[n, row, column] == EXIT
            return out - 1 / LENGTH, out
        new = ~self.visited[n, row, column]
        self.visited[n, row, column] = True
        self.left -= new
        return np.where(new, self.bonus, -1 / LENGTH), self.left == 0

    def view(self) -> Any:
        row, column = self.place.T
        window = np.arange(3)
        rows = (np.maximum(row - 1, 0)[:, None] + window)[:, :, None]
        columns = (np.maximum(column - 1, 0)[:, None] + window)[:, None, :]
        inside = (rows <= row[:, None, None] + 1) & (columns <= column[:, None, None] + 1)
        inside &= (rows < self._size) & (columns < self._size)
        last = self._size - 1
        tiles = self.maze[self._everyone[:, None, None], rows.clip(0, last), columns.clip(0, last)]
        tiles = np.where(inside, tiles, WALL).reshape(self.num_envs, 9)
        return np.concatenate([tiles, self.last[:, None]], axis=1, dtype=np.int32, casting="unsafe")


@cache
def _passages(side: int) -> list[list[tuple[int, int, int]]]:
    """For each cell its neighbours: number of the cell, and row and column of the wall between."""
    passages: list[list[tuple[int, int, int]]] = []
    for cell in range(side * side):
        row, column = divmod(cell, side)
        near = [(row + down, column + right, down, right) for right, down in MOVES.tolist()]
        passages.append(
            [
                (y * side + x, 2 * row + 1 + down, 2 * column + 1 + right)
                for y, x, down, right in near
                if 0 <= y < side and 0 <= x < side
            ]
        )
    return passages


def _numbers(random: np.random.Generator) -> Iterator[float]:
    """Uniform numbers; one call for many is faster."""
    while True:
        yield from random.random(64).tolist()


def carve(random: np.random.Generator, size: int) -> Array:
    """A maze (S, S) with its start and exit."""
    maze = np.full((size, size), WALL, dtype=np.int8)
    side, luck = size // 2, _numbers(random)  # side: cells per row; cells are the tiles of odd row and column
    passages, new = _passages(side), [True] * side**2
    cell = int(next(luck) * side**2)
    new[cell] = False
    # As mazelib, which tries as many times as there are tiles: a cell may be left out, but hardly ever.
    for _ in range(size * size + 1):
        while not new[cell] and (choices := [passage for passage in passages[cell] if new[passage[0]]]):
            cell, row, column = choices[int(next(luck) * len(choices))]
            new[cell], maze[row, column] = False, FREE
        if not any(new):
            break
        cell = int(next(luck) * side**2)
    maze[1::2, 1::2] = np.where(np.reshape(new, (side, side)), WALL, FREE)
    edge, start, end = int(next(luck) * 4), *(1 + 2 * int(next(luck) * side) for _ in range(2))
    view = np.rot90(maze, edge)  # so that the start lies in its first row
    view[0, start], view[-1, end] = START, EXIT
    return maze


FAMILIES = {
    "LabyrinthEscape": Family(
        about="find the exit of a maze from local observations",
        build=partial(Labyrinth, explore=False),
        levels=({"size": 10}, {"size": 14}, {"size": 18}),
    ),
    "LabyrinthExplore": Family(
        about="visit all cells of a maze from local observations",
        build=partial(Labyrinth, explore=True),
        levels=({"size": 10}, {"size": 14}, {"size": 18}),
    ),
}
