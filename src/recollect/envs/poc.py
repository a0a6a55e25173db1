"""The proof of concept of memory: walk a line to the end that was said to be good at the beginning.

The task of MarcoMeter/recurrent-ppo-truncated-bptt, N at a time. There are eleven places on a line.
The good end is on one side, the bad one on the other; both are shown at first, and later not. The first
move is made in sight of them, so an agent without memory reaches the good end in at most 7 of 10 episodes.

Shapes.  N environments.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from ..common.errors import UsageError, nearest
from .base import EnvConfig, EnvState, Step, VecEnv
from .spaces import Array

END = 5  # places run from -END to END, and are seen divided by it
STARTS = (-2, -1, 0, 1, 2)
PRIZE, COST = 1.6, 0.1
TIME_LIMIT = 64
CELL = 32  # pixels along a side of a place in a picture
PALE, GREEN, RED, BLUE = (226, 229, 233), (46, 160, 98), (208, 69, 69), (22, 92, 170)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Keyword arguments of the task."""

    show_steps: int = 2
    """Actions in sight of the ends, before the first that may move."""
    freeze: bool = True
    """Whether these actions move nothing and cost nothing."""


class Poc(VecEnv):
    """N lines; environment i draws from a generator made from its own seed."""

    tier: Literal["native", "barrier"] = "native"

    def __init__(self, options: Options, num_envs: int, time_limit: int) -> None:
        self.num_envs, self.backend, self.fps = num_envs, "own", 4
        self.time_limit = self._limit = time_limit
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._shown = options.show_steps
        self._frozen = options.show_steps if options.freeze else 0
        self._random: list[np.random.Generator] = []

    def reset(self, seeds: list[int]) -> Array:
        self._random = [np.random.default_rng(seed) for seed in seeds]
        self._place, self._good, self._steps = np.zeros((3, self.num_envs), dtype=np.int64)
        self._ended = np.ones(self.num_envs, dtype=bool)
        self._open()
        self._ended = np.zeros(self.num_envs, dtype=bool)
        return self._show()

    def _open(self) -> None:
        """Draw a start and the side of the good end where the last episode ended."""
        self._steps[self._ended] = 0
        for i in np.flatnonzero(self._ended):
            start, side = self._random[i].random(2)
            self._place[i] = STARTS[int(start * len(STARTS))]
            self._good[i] = 1 if side < 0.5 else -1

    def _show(self) -> Array:
        """The left end, the place and the right end: (N, 3)."""
        end = np.where(self._steps <= self._shown, self._good, 0)
        return np.stack([-end, self._place / END, end], axis=-1, dtype=np.float32)

    def step(self, action: Array) -> Step:
        live = ~self._ended
        self._open()
        moves = live & (self._steps >= self._frozen)
        self._place += np.where(moves, 2 * action - 1, 0)
        self._steps += live
        terminated = moves & (np.abs(self._place) == END)
        truncated = live & (self._steps >= self._limit) & ~terminated
        self._ended = terminated | truncated
        good = self._place == self._good * END
        prize = np.where(good, PRIZE, -PRIZE)
        reward = np.where(terminated, prize, np.where(moves, -COST, 0.0))
        return Step(self._show(), reward, terminated, truncated, np.where(self._ended, good, np.nan))

    def picture(self) -> Array:
        """The line, its ends in full colour while they are shown, and who walks it as a disc."""
        places = np.full((2 * END + 1, 3), PALE)
        fade = 0.0 if self._steps[0] <= self._shown else 0.75
        ends = np.array((RED, GREEN) if self._good[0] > 0 else (GREEN, RED))
        places[[0, -1]] = ends + fade * (255 - ends)
        picture = np.kron(places, np.ones((CELL, 1)))[None].repeat(CELL, 0).astype(np.uint8)
        picture[:, ::CELL] = 255  # a gap between places
        away = np.hypot(*np.mgrid[:CELL, :CELL] - CELL / 2)
        left = (self._place[0] + END) * CELL
        picture[:, left : left + CELL][away < CELL / 3] = BLUE
        margin = ((CELL // 2, CELL // 2), (CELL // 2, CELL // 2), (0, 0))
        return np.pad(picture, margin, constant_values=255)

    def hidden(self) -> dict[str, Array]:
        """The side of the good end, once it is no longer shown."""
        return {"side of the good end": np.where(self._steps <= self._shown, np.nan, self._good)}

    def get_state(self) -> EnvState:
        arrays = {"place": self._place, "good": self._good, "steps": self._steps, "ended": self._ended}
        random = [generator.bit_generator.state for generator in self._random]
        return EnvState({key: x.copy() for key, x in arrays.items()}, {"random": random})

    def set_state(self, state: EnvState) -> None:
        self.reset([0] * self.num_envs)
        self._place, self._good, self._steps, self._ended = (
            state.arrays[key].copy() for key in ("place", "good", "steps", "ended")
        )
        for generator, stored in zip(self._random, state.data["random"], strict=True):
            generator.bit_generator.state = stored


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments; the suite has one task, which needs no name."""
    if name:
        raise UsageError(f"environment poc:{name} is unknown; the suite has one task, poc")
    options: dict[str, Any] = dict(config.kwargs)
    known = vars(Options())
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"poc has no keyword argument {key}; {nearest(key, list(known))}")
        kind = type(known[key])
        if type(value) is not kind or value < 0:
            needed = "true or false" if kind is bool else "a count of steps"
            raise UsageError(f"poc: {key} is {value!r}, {needed} is needed")
    return Poc(Options(**options), config.num_envs, config.time_limit or TIME_LIMIT)


def listing() -> dict[str, str]:
    """The task and what it tests."""
    return {"": "which end of a line is good is shown at first; walk there (native state)"}
