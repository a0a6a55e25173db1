"""Tasks for trials, in which an agent must find out what a task is and then use it (meta-learning).

Both keep their task between the episodes of a trial, by the protocol of trial.py. Their best behaviour is
known: it explores for as long as that pays, and exploits what it has found.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from ...common.errors import UsageError, nearest
from .. import gym as gym_suite
from ..base import EnvConfig, VecEnv
from ..spaces import Array
from ..trial import KEEPS_TASK, NEW_TASK

CELL = 32  # pixels per cell in an image
GREY, GREEN, BLUE = (226, 229, 233), (46, 160, 98), (22, 92, 170)


class Task(gymnasium.Env[Any, Any], ABC):  # type: ignore[misc] # its base is Any to mypy
    """An environment that draws a task where a trial begins."""

    time_limit: int
    metadata: ClassVar[dict[str, Any]] = {KEEPS_TASK: True, "render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, size: int) -> None:
        name = type(self).__name__
        if type(size) is not int or size < 2:
            raise UsageError(f"meta:{name}: its size is {size!r}; it must be a whole number of at least 2")
        self.size = size
        self._drawn = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode, of a new task unless options["new_task"] is false."""
        super().reset(seed=seed)
        if not self._drawn or (options or {}).get(NEW_TASK, True):
            self.draw_task()
            self._drawn = True
        return self.begin(), {}

    @abstractmethod
    def draw_task(self) -> None:
        """Draw a task with `self.np_random`."""

    @abstractmethod
    def begin(self) -> Array:
        """The first observation of an episode."""


class Bandit(Task):
    """A bandit with Bernoulli arms; an episode is one pull, and its reward is 0 or 1.

    The task is the chances of the arms, each uniform in [0, 1]. There is nothing to see: an agent knows an
    arm by its previous actions and rewards alone.
    """

    def __init__(self, arms: int = 5) -> None:
        super().__init__(arms)
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(arms)
        self.time_limit = 1
        self.action_names = [f"arm {i}" for i in range(arms)]
        self.observation_names = ["nothing"]

    def draw_task(self) -> None:
        self.chances = self.np_random.random(self.size)

    def begin(self) -> Array:
        self._pulled: int | None = None
        return np.zeros(1, np.float32)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Pull an arm."""
        self._pulled = int(action)
        reward = float(self.np_random.random() < self.chances[action])
        return np.zeros(1, np.float32), reward, True, False, {}

    def render(self) -> Array:
        """The chances of the arms as bars."""
        height = 4 * CELL
        image = np.full((height, self.size * CELL, 3), 255, dtype=np.uint8)
        for arm, chance in enumerate(self.chances):
            bar = image[
                height - 1 - round(float(chance) * (height - 2)) :, arm * CELL + 4 : arm * CELL + CELL
            ]
            bar[:] = BLUE if arm == self._pulled else GREY
        return image


class Grid(Task):
    """A square of cells with a hidden goal, which stays for a trial; the agent starts in the middle.

    The agent sees its own place only. An episode ends at the goal, or after as many steps as there are cells;
    the reward is 1 at the goal and -0.01 in each other step.
    """

    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, side: int = 5) -> None:
        super().__init__(side)
        self.observation_space = spaces.MultiDiscrete([side, side])
        self.action_space = spaces.Discrete(len(self.MOVES))
        self.time_limit = side**2
        self.action_names = ["up", "down", "left", "right"]

    def draw_task(self) -> None:
        middle = self.size // 2
        place = int(self.np_random.integers(self.size**2 - 1))
        place += place >= middle * self.size + middle  # all cells but the one in the middle
        self.goal = divmod(place, self.size)

    def begin(self) -> Array:
        self._place = (self.size // 2, self.size // 2)
        return np.array(self._place)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move; a move against the border has no effect."""
        row, column = (np.array(self._place) + self.MOVES[action]).clip(0, self.size - 1)
        self._place = int(row), int(column)
        at_goal = self._place == self.goal
        return np.array(self._place), 1.0 if at_goal else -0.01, at_goal, False, {"success": at_goal}

    def render(self) -> Array:
        """The cells, the goal and the agent."""
        cells = np.full((self.size, self.size, 3), GREY, dtype=np.uint8)
        cells[self.goal], cells[self._place] = GREEN, BLUE
        image = cells.repeat(CELL, 0).repeat(CELL, 1)
        image[::CELL] = image[:, ::CELL] = 255  # gaps between cells
        return image


_TASKS: dict[str, Callable[..., Task]] = {"Bandit": Bandit, "Grid": Grid}


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of a task; config.kwargs are its keyword arguments."""
    if name not in _TASKS:
        raise UsageError(f"environment meta:{name} is unknown; {nearest(name, sorted(_TASKS))}")
    if config.backend in ("envpool", "own"):
        raise UsageError(f"env.backend {config.backend} does not have meta:{name}; use gymnasium or workers")
    factory = partial(_build, _TASKS[name], config.time_limit)
    return gym_suite.make(replace(config, time_limit=None), factory=factory)


def _build(task: Callable[..., Task], limit: int | None, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    env = task(**kwargs)
    return gymnasium.wrappers.TimeLimit(env, limit or env.time_limit)


def listing() -> dict[str, str]:
    """Id -> one-line description."""
    return {
        "Bandit": "pull the arms of a bandit; its chances stay for a trial (--env.trial 10)",
        "Grid": "find a hidden goal, which stays for a trial (--env.trial 4)",
    }
