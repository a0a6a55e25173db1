"""A proof of concept for memory: walk along a line to the goal, which is shown only at the beginning.

The task of MarcoMeter/recurrent-ppo-truncated-bptt, vectorised. The line has eleven positions. The goal is
at one end and a penalty at the other; both are visible in the first steps and then hidden. The first move
is made while they are visible, so an agent without memory reaches the goal in at most 7 of 10 episodes.

Shapes.  N environments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ...common.errors import UsageError, nearest
from ..base import EnvConfig, Step, VecEnv
from ..seeded import SeededTask
from ..spaces import Array

END = 5  # positions run from -END to END; observations divide them by END
STARTS = (-2, -1, 0, 1, 2)
GOAL_REWARD, STEP_COST = 1.6, 0.1
TIME_LIMIT = 64
CELL = 32  # pixels per position in an image
GREY, GREEN, RED, BLUE = (226, 229, 233), (46, 160, 98), (208, 69, 69), (22, 92, 170)


@dataclass(frozen=True, kw_only=True)
class PocOptions:
    """Keyword arguments of the task."""

    show_steps: int = 2
    """Steps after which the ends are hidden; at least 0."""
    freeze: bool = True
    """Whether actions have no effect and no cost in the first `show_steps` steps."""


class Poc(SeededTask):
    """N lines."""

    # Checkpoints use these keys, so they stay as they are.
    arrays: ClassVar[Mapping[str, str]] = {"place": "_position", "good": "_goal_side"}

    def __init__(self, options: PocOptions, num_envs: int, time_limit: int) -> None:
        super().__init__(num_envs, time_limit)
        self.fps = 4
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._shown = options.show_steps
        self._frozen = options.show_steps if options.freeze else 0

    def _allocate(self) -> None:
        self._position, self._goal_side = np.zeros((2, self.num_envs), dtype=np.int64)

    def _start_episodes(self) -> None:
        """Where the last episode ended, draw a start and the side of the goal."""
        self._steps[self._ended] = 0
        for i in np.flatnonzero(self._ended):
            start, side = self._random[i].random(2)
            self._position[i] = STARTS[int(start * len(STARTS))]
            self._goal_side[i] = 1 if side < 0.5 else -1

    def _observe(self) -> Array:
        """The left end, the position and the right end: (N, 3)."""
        end = np.where(self._steps <= self._shown, self._goal_side, 0)
        return np.stack([-end, self._position / END, end], axis=-1, dtype=np.float32)

    def step(self, action: Array) -> Step:
        live = ~self._ended  # in the others this step ignores the action and starts an episode
        self._start_episodes()
        moves = live & (self._steps >= self._frozen)
        self._position += np.where(moves, 2 * action - 1, 0)
        self._steps += live
        terminated = moves & (np.abs(self._position) == END)
        truncated = live & (self._steps >= self._limit) & ~terminated
        self._ended = terminated | truncated
        at_goal = self._position == self._goal_side * END
        end_reward = np.where(at_goal, GOAL_REWARD, -GOAL_REWARD)
        reward = np.where(terminated, end_reward, np.where(moves, -STEP_COST, 0.0))
        success = np.where(self._ended, at_goal, np.nan)
        return Step(self._observe(), reward, terminated, truncated, success)

    def names(self) -> dict[str, list[str]]:
        return {"actions": ["left", "right"], "observations": ["left end", "position", "right end"]}

    def render(self) -> Array:
        """The line with its ends, faded once they are hidden, and the agent as a disc."""
        cells = np.full((2 * END + 1, 3), GREY)
        fade = 0.0 if self._steps[0] <= self._shown else 0.75
        ends = np.array((RED, GREEN) if self._goal_side[0] > 0 else (GREEN, RED))
        cells[[0, -1]] = ends + fade * (255 - ends)
        image = np.kron(cells, np.ones((CELL, 1)))[None].repeat(CELL, 0).astype(np.uint8)
        image[:, ::CELL] = 255  # a gap between cells
        radius = np.hypot(*np.mgrid[:CELL, :CELL] - CELL / 2)
        left = (self._position[0] + END) * CELL
        image[:, left : left + CELL][radius < CELL / 3] = BLUE
        margin = ((CELL // 2, CELL // 2), (CELL // 2, CELL // 2), (0, 0))
        return np.pad(image, margin, constant_values=255)

    def hidden(self) -> dict[str, Array]:
        """The side of the goal, once it is hidden."""
        return {"side of the good end": np.where(self._steps <= self._shown, np.nan, self._goal_side)}


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of the only task of this suite, whose name is empty."""
    if name:
        raise UsageError(f"environment poc:{name} is unknown; the suite has one task, poc")
    options: dict[str, Any] = dict(config.kwargs)
    known = vars(PocOptions())
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"poc has no keyword argument {key}; {nearest(key, list(known))}")
        expected = type(known[key])
        # Not isinstance, because True is an int.
        if type(value) is not expected or value < 0:
            values = "true or false" if expected is bool else "a number of steps, 0 or more"
            raise UsageError(f"poc: {key} is {value!r}; it must be {values}")
    return Poc(PocOptions(**options), config.num_envs, config.time_limit or TIME_LIMIT)


def listing() -> dict[str, str]:
    """Id -> one-line description."""
    return {"": "walk to the end of a line that was shown as the goal at the beginning (native state)"}
