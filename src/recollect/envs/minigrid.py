"""MiniGrid: worlds of square cells, seen through a small window in front of the agent.

The window is what an agent gets, as numbers or as a picture. Which way it faces and the text of its
mission are left out: no memory task needs them, but tasks that change their mission cannot be told
apart without it. EnvPool's own windows below 7 x 7 corrupt its memory. So it always makes the large
one, and the smaller is cut out here by MiniGrid's rule of what walls hide.

Shapes.  N environments, V cells along a side of the window, P pixels along a side of a cell. Windows
are indexed by x from left to right, then by y downwards; the agent is in the middle of the last row.
"""

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ..common.errors import UsageError, nearest
from . import envpool as envpool_suite
from .base import EnvConfig, Scalar, Step, VecEnv
from .gym import GymEnv
from .spaces import SMALLEST_PICTURE, Array

PREFIX, MEMORY = "MiniGrid-", "MiniGrid-Memory"
# A cell is (object, colour, state), and these are how many there are of each in MiniGrid.
SIZES = (11, 6, 3)
UNSEEN, WALL, DOOR, OPEN = 0, 2, 4, 0
POOL_VIEW = 7
# Here nothing hides what is behind it.
SEE_THROUGH = tuple(
    PREFIX + family
    for family in ("DistShift", "Dynamic-Obstacles", "Empty", "Fetch", "GoToDoor", "GoToObject", "PutNear")
)
CHOICES: dict[str, tuple[Scalar, ...]] = {"pictures": (False, True), "view": (3, 5, 7), "actions": (3, 7)}
MISSING = "MiniGrid is not installed; pip install 'recollect[minigrid]'"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What an agent sees and can do: the keyword arguments of this suite.

    pictures   the window as a picture of bytes, not as one-hot groups
    view       V; 3 in memory tasks, else 7
    tile       P; 84 pixels shared by V cells
    actions    3: left, right, forward, as in memory tasks; 7: all
    """

    pictures: bool
    view: int
    tile: int
    actions: int

    @property
    def space(self) -> gym.Space[Any]:
        """Of one observation: (V, V, 3) choices, or a picture (V P, V P, 3)."""
        if self.pictures:
            side = self.view * self.tile
            return spaces.Box(0, 255, (side, side, 3), np.uint8)
        sizes = np.broadcast_to(SIZES, (self.view, self.view, 3))
        return spaces.MultiDiscrete(sizes, dtype=np.uint8)


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of the task of this name, which may be short: MemoryS9."""
    name = name if name.startswith(PREFIX) else f"{PREFIX}{name}-v0"
    look = _look(name, config.kwargs)
    plain = replace(config, id=name, kwargs={})
    if config.backend == "own":
        raise UsageError(f"env.backend own is for our own suites (probe:...), not for {name}")
    if config.backend == "envpool" or (config.backend == "auto" and envpool_suite.supports(plain)):
        inner = envpool_suite.make(plain, name)
        return MiniGrid(inner, look, hides=not name.startswith(SEE_THROUGH))
    if not _installed():
        raise UsageError(MISSING)
    known = _ids()
    if name not in known:
        raise UsageError(f"environment minigrid:{name} is unknown; {nearest(name, known)}")
    return MiniGrid(GymEnv(partial(_one, name, look.view, config.time_limit), plain), look)


def _look(name: str, kwargs: Mapping[str, Scalar]) -> Look:
    """Keyword arguments, checked and completed."""
    known = [*CHOICES, "tile"]
    for key, value in kwargs.items():
        if key not in known:
            raise UsageError(f"minigrid:{name} has no keyword argument {key}; known: {', '.join(known)}")
        if key == "tile" and (type(value) is not int or value < 1):
            raise UsageError(f"minigrid:{name}: tile is {value!r}, pixels of a cell, at least 1, are needed")
        choices = CHOICES.get(key, (value,))
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise UsageError(f"minigrid:{name}: {key} is {value!r}; known: {', '.join(map(str, choices))}")
    if "tile" in kwargs and not kwargs.get("pictures"):
        raise UsageError(f"minigrid:{name}: tile is for pictures; add pictures true")
    view, actions = (3, 3) if name.startswith(MEMORY) else (7, 7)
    chosen: dict[str, Any] = {"pictures": False, "view": view, "actions": actions, **kwargs}
    look = Look(**{"tile": 84 // chosen["view"], **chosen})
    side = look.view * look.tile
    if side < SMALLEST_PICTURE:
        raise UsageError(
            f"minigrid:{name}: pictures of {side} x {side} pixels are too small; at least {SMALLEST_PICTURE}"
        )
    return look


def _installed() -> bool:
    return importlib.util.find_spec("minigrid") is not None


def _one(name: str, view: int, limit: int | None) -> gym.Env[Any, Any]:
    """One environment of the package, which shows its window and nothing else."""
    from minigrid.wrappers import ImgObsWrapper

    options = {} if limit is None else {"max_steps": limit}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that an id has a successor
        env = gym.make(name, disable_env_checker=True, agent_view_size=view, **options)
    # MiniGrid cuts episodes by itself. This wrapper is where GymEnv reads the limit.
    return gym.wrappers.TimeLimit(ImgObsWrapper(env), env.unwrapped.max_steps)


class MiniGrid(VecEnv):
    """MiniGrid of either backend with the chosen look; an end with a reward is a success."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, inner: VecEnv, look: Look, hides: bool = True) -> None:
        self.num_envs, self.backend, self.time_limit = inner.num_envs, inner.backend, inner.time_limit
        self.observation_space = look.space
        assert isinstance(inner.action_space, spaces.Discrete)
        # Left, right and forward come first, and some tasks have no more.
        self.action_space = spaces.Discrete(min(look.actions, int(inner.action_space.n)))
        self._inner, self._view, self._hides = inner, look.view, hides
        self.fps = 5  # each step is a cell or a turn
        self._pictures = Pictures(look.view, look.tile) if look.pictures else None

    def reset(self, seeds: list[int]) -> Array:
        try:
            return self._show(self._inner.reset(seeds))
        except gym.error.DependencyNotInstalled as error:  # some worlds are made from pictures
            raise UsageError(f"the environment cannot be made: {error}") from error

    def step(self, action: Array) -> Step:
        step = self._inner.step(action)
        # EnvPool calls every end at the time limit a cut, but only real ends have a reward.
        terminated = step.terminated | (step.truncated & (step.reward != 0))
        ended = step.terminated | step.truncated
        success = np.where(ended, step.reward > 0, np.nan)
        return Step(self._show(step.obs), step.reward, terminated, step.truncated & ~terminated, success)

    def _show(self, obs: Any) -> Array:
        """A backend's observation -> (N, V, V, 3), or pictures (N, V P, V P, 3)."""
        window = obs["image"] if isinstance(obs, dict) else obs
        if window.shape[1] != self._view:
            window = crop(window, self._view, self._hides)
        return window if self._pictures is None else self._pictures(window)

    def picture(self) -> Array | None:
        return self._inner.picture()

    def close(self) -> None:
        self._inner.close()


# Windows --------------------------------------------------------------------------------------


def crop(window: Array, view: int, hides: bool) -> Array:
    """A window (N, 7, 7, 3) -> the smaller (N, V, V, 3) in it; what walls and doors hide reads 0.

    Sight starts at the agent and goes through the rows, away from it. What one row lets through
    depends on which of its cells are seen and which are opaque: a table, because both are V bits.
    What the smaller window shows the larger one shows too, so nothing needed is missing.
    """
    left = (POOL_VIEW - view) // 2
    part = window[:, left : left + view, POOL_VIEW - view :].copy()
    if not hides:
        return part
    table, cells = _sight(view), np.arange(view)[:, None]
    opaque = (part[..., 0] == WALL) | ((part[..., 0] == DOOR) & (part[..., 2] != OPEN))
    opaque_bits = (opaque << cells).sum(1)
    seen_bits = np.empty_like(opaque_bits)
    entering = np.full(len(part), 1 << view // 2)
    for y in reversed(range(view)):
        seen_bits[:, y], entering = table[:, entering, opaque_bits[:, y]]
    seen = (seen_bits[:, None] >> cells) & 1
    part *= seen.astype(np.uint8)[..., None]
    return part


@cache
def _sight(view: int) -> Array:
    """(2, 2^V, 2^V): what is seen in a row and in the next, by what is seen and what is opaque."""
    size = 1 << view
    pairs = [[_spread(view, seen, opaque) for opaque in range(size)] for seen in range(size)]
    return np.moveaxis(np.array(pairs), -1, 0)


def _spread(view: int, seen: int, opaque: int) -> tuple[int, int]:
    """Cells seen in this row and in the next, as bits: first to the right, then to the left."""
    ahead = 0
    for side, row in ((1, range(view - 1)), (-1, range(view - 1, 0, -1))):
        for x in row:
            if seen >> x & 1 and not opaque >> x & 1:
                seen |= 1 << (x + side)
                ahead |= 1 << x | 1 << (x + side)
    return seen, ahead


class Pictures:
    """Windows as MiniGrid draws them, put together from tiles that are drawn when first seen."""

    def __init__(self, view: int, tile: int) -> None:
        if not _installed():
            raise UsageError(f"pictures are drawn by MiniGrid; {MISSING}")
        kinds = int(np.prod(SIZES))
        self._view, self._tile, self._kinds = view, tile, kinds
        self._lines = np.arange(tile)[:, None]
        self._agent = np.zeros((view, view), np.int64)  # by y, x: its own cell has tiles of its own
        self._agent[-1, view // 2] = kinds
        # One row for a line of pixels: a picture is gathered in the order in which it lies in memory.
        self._pixels = np.zeros((2 * kinds * tile, tile * 3), np.uint8)
        self._drawn = np.zeros(2 * kinds, bool)

    def __call__(self, window: Array) -> Array:
        """(N, V, V, 3) -> (N, V P, V P, 3)."""
        code = window.swapaxes(1, 2) @ _WEIGHTS + self._agent
        if not self._drawn[code].all():
            for missing in np.unique(code[~self._drawn[code]]):
                self._draw(int(missing))
        side = self._view * self._tile
        lines = (code * self._tile)[:, :, None] + self._lines
        return self._pixels.take(lines, axis=0).reshape(-1, side, side, 3)

    def _draw(self, code: int) -> None:
        from minigrid.core.grid import Grid
        from minigrid.core.world_object import WorldObj

        agent, kind = divmod(code, self._kinds)
        cell = tuple(int(i) for i in np.unravel_index(kind, SIZES))
        lit = cell[0] != UNSEEN
        facing = 3 if agent else None  # the window is turned so that the agent looks up
        picture = Grid.render_tile(WorldObj.decode(*cell), facing, lit, self._tile)
        self._pixels[code * self._tile : (code + 1) * self._tile] = picture.reshape(self._tile, -1)
        self._drawn[code] = True


_WEIGHTS = np.array((SIZES[1] * SIZES[2], SIZES[2], 1))


# Names ----------------------------------------------------------------------------------------

_RECALL = "remember the object in the first room and go to its like at the fork"
_RANDOM = f"{_RECALL}, behind a corridor of random length"
_MEMORY_TASKS = {
    "S7": f"{_RECALL} behind it; 7 x 7 cells",
    "S9": f"{_RECALL}, behind a short corridor; 9 x 9 cells",
    "S11": f"{_RECALL}, behind a corridor; 11 x 11 cells",
    "S13": f"{_RECALL}, behind a long corridor; 13 x 13 cells",
    "S13Random": f"{_RANDOM}; 13 x 13 cells",
    "S17Random": f"{_RANDOM}; 17 x 17 cells",
}


def _ids() -> list[str]:
    """Every id of what is installed."""
    found: set[str] = set()
    if importlib.util.find_spec("envpool") is not None:
        import envpool

        found |= set(envpool.list_all_envs())
    if _installed():
        import minigrid  # noqa: F401 (registers its ids)

        found |= set(gym.registry)
    return sorted(name for name in found if name.startswith(PREFIX))


def listing() -> dict[str, str]:
    """The memory tasks, then the other worlds."""
    about = {f"{MEMORY}{name}-v0": line for name, line in _MEMORY_TASKS.items()}
    known = _ids()
    lines = {name: line for name, line in about.items() if name in known}
    return lines | {
        name: "a grid world through a 7 x 7 window, without the text of its mission"
        for name in known
        if name not in lines
    }
