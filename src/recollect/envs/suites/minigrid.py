"""MiniGrid: grid worlds, observed through a small window in front of the agent.

The observation is the window, as one-hot groups or as an image. The agent's direction and the mission text
are left out. No memory task needs them, but tasks whose mission changes cannot be solved without it.
EnvPool's windows below 7 x 7 corrupt its heap. So EnvPool always renders 7 x 7, and `crop` cuts the smaller
window out of it by MiniGrid's visibility rule.

Shapes.  N environments, V cells per side of the window, P pixels per side of a cell. Windows are indexed
by x from left to right, then by y downwards; the agent is in the middle of the last row.
"""

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ...common.errors import UsageError, install_hint, nearest
from ..base import EnvConfig, Scalar, Step, VecEnv
from ..gym import GymEnv
from ..minigrid_state import EXCLUDED, effective_actions, hidden_variables
from ..spaces import SMALLEST_PICTURE, Array
from ..wrapper import EnvWrapper
from . import envpool as envpool_suite

PREFIX, MEMORY = "MiniGrid-", "MiniGrid-Memory"
# A cell is (object, colour, state); MiniGrid has this many values of each.
SIZES = (11, 6, 3)
UNSEEN, WALL, DOOR, OPEN = 0, 2, 4, 0
POOL_VIEW = 7
# Environments created with see_through_walls: nothing in the window is occluded.
SEE_THROUGH = tuple(
    PREFIX + family
    for family in ("DistShift", "Dynamic-Obstacles", "Empty", "Fetch", "GoToDoor", "GoToObject", "PutNear")
)
CHOICES: dict[str, tuple[Scalar, ...]] = {"pictures": (False, True), "view": (3, 5, 7), "actions": (3, 7)}
MISSING = f"MiniGrid is not installed; {install_hint('minigrid')}"


@dataclass(frozen=True, kw_only=True)
class MiniGridOptions:
    """Keyword arguments of this suite.

    pictures   the window as an image, instead of as one-hot groups; default False
    view       V: 3, 5 or 7; default 3 in memory tasks, else 7
    tile       P, at least 1; default 84 // V
    actions    3: left, right, forward, the default in memory tasks; 7: all, the default elsewhere
    """

    pictures: bool
    view: int
    tile: int
    actions: int

    @property
    def space(self) -> gym.Space[Any]:
        """The space of one observation: (V, V, 3) discrete, or an image (V P, V P, 3)."""
        if self.pictures:
            side = self.view * self.tile
            return spaces.Box(0, 255, (side, side, 3), np.uint8)
        sizes = np.broadcast_to(SIZES, (self.view, self.view, 3))
        return spaces.MultiDiscrete(sizes, dtype=np.uint8)


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of a task, by its id or by a short name: MemoryS9."""
    name = name if name.startswith(PREFIX) else f"{PREFIX}{name}-v0"
    options = _parse_options(name, config.kwargs)
    plain = replace(config, id=name, kwargs={})
    if config.backend == "own":
        raise UsageError(
            f"env.backend own is for environments that recollect implements (probe:...), not for {name};"
            " use auto"
        )
    if config.backend == "envpool" or (config.backend == "auto" and envpool_suite.supports(plain)):
        inner = envpool_suite.make(plain, name)
        return MiniGrid(inner, options, name, occlude=not name.startswith(SEE_THROUGH))
    if not _installed():
        raise UsageError(MISSING)
    known = _ids()
    if name not in known:
        raise UsageError(f"environment minigrid:{name} is unknown; {nearest(name, known)}")
    return MiniGrid(GymEnv(partial(_build, name, options.view, config.time_limit), plain), options, name)


def _parse_options(name: str, kwargs: Mapping[str, Scalar]) -> MiniGridOptions:
    """Check the keyword arguments and fill in defaults."""
    known = [*CHOICES, "tile"]
    for key, value in kwargs.items():
        if key not in known:
            raise UsageError(f"minigrid:{name} has no keyword argument {key}; known: {', '.join(known)}")
        if key == "tile" and (type(value) is not int or value < 1):
            raise UsageError(f"minigrid:{name}: tile is {value!r}; it must be a number of pixels, 1 or more")
        choices = CHOICES.get(key, (value,))
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            allowed = ", ".join(map(str, choices))
            raise UsageError(f"minigrid:{name}: {key} is {value!r}; it must be one of {allowed}")
    if "tile" in kwargs and not kwargs.get("pictures"):
        raise UsageError(f"minigrid:{name}: tile has no effect without pictures; add pictures true")
    view, actions = (3, 3) if name.startswith(MEMORY) else (7, 7)
    chosen: dict[str, Any] = {"pictures": False, "view": view, "actions": actions, **kwargs}
    options = MiniGridOptions(**{"tile": 84 // chosen["view"], **chosen})
    side = options.view * options.tile
    if side < SMALLEST_PICTURE:
        raise UsageError(
            f"minigrid:{name}: images of {side} x {side} pixels are too small, at least {SMALLEST_PICTURE} "
            "per side are needed; take a larger tile"
        )
    return options


def _installed() -> bool:
    return importlib.util.find_spec("minigrid") is not None


def _build(name: str, view: int, limit: int | None) -> gym.Env[Any, Any]:
    """One environment of the package minigrid, whose observation is the window alone."""
    from minigrid.wrappers import ImgObsWrapper

    options = {} if limit is None else {"max_steps": limit}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about ids with newer versions
        env = gym.make(name, disable_env_checker=True, agent_view_size=view, **options)
    # MiniGrid truncates by itself. The wrapper is for GymEnv, which reads the limit from it.
    return gym.wrappers.TimeLimit(ImgObsWrapper(env), env.unwrapped.max_steps)


class MiniGrid(EnvWrapper):
    """MiniGrid of either backend. An episode that ends with a positive reward is a success.

    occlude  whether `crop` must apply the visibility rule to windows that are larger than the options ask
    """

    def __init__(self, inner: VecEnv, options: MiniGridOptions, name: str, occlude: bool = True) -> None:
        super().__init__(inner)
        self.observation_space = options.space
        assert isinstance(inner.action_space, spaces.Discrete)
        # The actions left, right and forward come first, and some tasks have no others.
        self.action_space = spaces.Discrete(min(options.actions, int(inner.action_space.n)))
        self.fps = 5  # a step is a whole cell or a quarter turn
        self._name = name
        self._view = options.view
        self._occlude = occlude
        self._renderer = TileRenderer(options.view, options.tile) if options.pictures else None

    def reset(self, seeds: list[int]) -> Array:
        try:
            return self._observe(self.inner.reset(seeds))
        except gym.error.DependencyNotInstalled as error:  # some worlds are built from image files
            raise UsageError(f"the environment cannot be built: {error}") from error

    def names(self) -> dict[str, list[str]]:
        assert isinstance(self.action_space, spaces.Discrete)
        return {kind: names[: self.action_space.n] for kind, names in self.inner.names().items()}

    def step(self, action: Array) -> Step:
        step = self.inner.step(action)
        # EnvPool reports every end at the time limit as a truncation; only terminations have a reward.
        terminated = step.terminated | (step.truncated & (step.reward != 0))
        ended = step.terminated | step.truncated
        success = np.where(ended, step.reward > 0, np.nan)
        obs, truncated = self._observe(step.obs), step.truncated & ~terminated
        return step._replace(obs=obs, terminated=terminated, truncated=truncated, success=success)

    def _observe(self, obs: Any) -> Array:
        """The observation of a backend -> windows (N, V, V, 3), or images (N, V P, V P, 3)."""
        window = obs["image"] if isinstance(obs, dict) else obs
        if window.shape[1] != self._view:
            window = crop(window, self._view, self._occlude)
        self._window = window
        return window if self._renderer is None else self._renderer(window)

    def action_mask(self) -> Array | None:
        """The actions that have an effect; None in tasks in which others end the episode."""
        if self._name.startswith(EXCLUDED):
            return None
        return effective_actions(self._window, int(self.action_space.n))

    def hidden(self) -> dict[str, Array]:
        """Of environments in this process; EnvPool does not show its state."""
        envs = self.inner.local_envs if isinstance(self.inner, GymEnv) else ()
        return hidden_variables(envs) if envs else {}


# Windows --------------------------------------------------------------------------------------


def crop(window: Array, view: int, occlude: bool) -> Array:
    """A window (N, 7, 7, 3) -> the smaller one (N, V, V, 3) inside it, with occluded cells set to 0.

    Visibility starts at the agent and spreads row by row, away from it. The cells that a row makes visible
    in the next one depend on which of its cells are visible and which are opaque. Both are V bits, so the
    rule is a table. A plain crop is wrong in about 5 % of steps: the larger window also shows cells that
    are seen around a wall from outside of the smaller one.
    """
    left = (POOL_VIEW - view) // 2
    # A copy, because it is changed below and `window` is EnvPool's buffer.
    part = window[:, left : left + view, POOL_VIEW - view :].copy()
    if not occlude:
        return part
    table, columns = _visibility_table(view), np.arange(view)[:, None]
    opaque = (part[..., 0] == WALL) | ((part[..., 0] == DOOR) & (part[..., 2] != OPEN))
    opaque_bits = (opaque << columns).sum(1)
    visible_bits = np.empty_like(opaque_bits)
    # The agent stands in the middle of the last row.
    entering = np.full(len(part), 1 << view // 2)
    for y in reversed(range(view)):
        visible_bits[:, y], entering = table[:, entering, opaque_bits[:, y]]
    visible = (visible_bits[:, None] >> columns) & 1
    part *= visible.astype(np.uint8)[..., None]
    return part


@cache
def _visibility_table(view: int) -> Array:
    """(2, 2^V, 2^V): the visible cells of a row and of the next, by entering visibility and opacity."""
    size = 1 << view
    pairs = [[_spread(view, visible, opaque) for opaque in range(size)] for visible in range(size)]
    return np.moveaxis(np.array(pairs), -1, 0)


def _spread(view: int, visible: int, opaque: int) -> tuple[int, int]:
    """The visible cells of this row and of the next, as bits.

    The order is MiniGrid's, first to the right and then to the left, and the result depends on it.
    """
    ahead = 0
    for side, row in ((1, range(view - 1)), (-1, range(view - 1, 0, -1))):
        for x in row:
            if visible >> x & 1 and not opaque >> x & 1:
                visible |= 1 << (x + side)
                ahead |= 1 << x | 1 << (x + side)
    return visible, ahead


class TileRenderer:
    """Windows as images like MiniGrid's, assembled from tiles. MiniGrid renders each tile once."""

    def __init__(self, view: int, tile: int) -> None:
        if not _installed():
            raise UsageError(f"env.kwargs.pictures needs MiniGrid to render them; {MISSING}")
        self._view, self._tile, self._kinds = view, tile, int(np.prod(SIZES))
        self._lines = np.arange(tile)[:, None]
        # By y, x: the cell of the agent has tiles of its own, which also show the agent.
        self._agent = np.zeros((view, view), np.int64)
        self._agent[-1, view // 2] = self._kinds
        # One row per line of pixels of a tile, so `take` writes an image in memory order.
        self._pixels = np.zeros((2 * self._kinds * tile, tile * 3), np.uint8)
        self._drawn = np.zeros(2 * self._kinds, bool)

    def __call__(self, window: Array) -> Array:
        """(N, V, V, 3) -> (N, V P, V P, 3)."""
        # Windows are indexed by x, then y; images by y, then x.
        code = window.swapaxes(1, 2) @ _WEIGHTS + self._agent
        if not self._drawn[code].all():
            for missing in np.unique(code[~self._drawn[code]]):
                self._draw(int(missing))
        side = self._view * self._tile
        # `take` gives (N, V, P, V, 3 P), in memory the image already, so reshape copies nothing.
        lines = (code * self._tile)[:, :, None] + self._lines
        return self._pixels.take(lines, axis=0).reshape(-1, side, side, 3)

    def _draw(self, code: int) -> None:
        """Render the tile of a code into the cache."""
        from minigrid.core.grid import Grid
        from minigrid.core.world_object import WorldObj

        agent, kind = divmod(code, self._kinds)
        cell = tuple(int(i) for i in np.unravel_index(kind, SIZES))
        lit = cell[0] != UNSEEN
        facing = 3 if agent else None  # windows are rotated, so that the agent always faces up
        pixels = Grid.render_tile(WorldObj.decode(*cell), facing, lit, self._tile)
        self._pixels[code * self._tile : (code + 1) * self._tile] = pixels.reshape(self._tile, -1)
        self._drawn[code] = True


_WEIGHTS = np.array((SIZES[1] * SIZES[2], SIZES[2], 1))


# Names ----------------------------------------------------------------------------------------

_RECALL = "remember the object in the first room and turn to the matching one at the fork"
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
    """The ids of all installed packages."""
    ids: set[str] = set()
    if importlib.util.find_spec("envpool") is not None:
        import envpool

        ids |= set(envpool.list_all_envs())
    if _installed():
        import minigrid  # noqa: F401 (registers its ids)

        ids |= set(gym.registry)
    return sorted(name for name in ids if name.startswith(PREFIX))


def listing() -> dict[str, str]:
    """Id -> one-line description: the memory tasks, then all others."""
    about = {f"{MEMORY}{name}-v0": line for name, line in _MEMORY_TASKS.items()}
    known, other = _ids(), "grid world with a 7 x 7 window; the mission text is not observed"
    ids = [*(name for name in about if name in known), *known]
    return {name: about.get(name, other) for name in ids}
