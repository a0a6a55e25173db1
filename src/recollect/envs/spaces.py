"""Spaces: observations as named leaves, actions as arrays (N, K) of N environments and K components.

A leaf is one array of an observation. A Box is one leaf; a Dict or Tuple has one per entry, under a dotted
name. Outside of `envs`, observations are dicts of leaves, and Gymnasium's spaces are not used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ..common.errors import UsageError

Array: TypeAlias = NDArray[Any]
Obs: TypeAlias = dict[str, Array]
ACTION_MASK = "action_mask"  # name of the leaf with the allowed choices of each action component
NEW_EPISODE = "new_episode"  # name of the leaf that is 1 where an episode of a trial begins
HIDDEN = "hidden"  # name of the leaf with the variables of the environment that no observation shows
SMALLEST_PICTURE = 16  # pixels per side; smaller uint8 boxes are vectors


class Extended(spaces.Dict):  # type: ignore[misc] # its base is Any to mypy
    """The space of an observation `obs` with leaves beside it, whose names have no prefix (extended.py)."""


class ExtendedObs(dict[str, Any]):
    """An observation in an Extended space."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation.

    kind    "vector": real numbers; "discrete": indices, one-hot encoded by the network;
            "binary": zeros and ones; "picture": an image, stored as uint8;
            "mask": the allowed choices of all action components, bool, and no input of a network
    shape   of one observation
    sizes   number of values of each discrete component; of a mask: of each action component
    start   smallest value of each discrete component
    """

    kind: Literal["vector", "discrete", "binary", "picture", "mask"]
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Number of input features of a network."""
        return sum(self.sizes) if self.kind == "discrete" else int(np.prod(self.shape))

    @property
    def channels_last(self) -> bool:
        """For images of 3 or 4 dimensions: whether channels are the last axis, i.e. its shorter candidate."""
        return self.shape[-1] <= self.shape[-3]

    @property
    def picture_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image; stacked images are concatenated along the channels."""
        if len(self.shape) == 2:
            return 1, *self.shape
        *frames, a, b, c = self.shape
        channels, height, width = (c, a, b) if self.channels_last else (a, b, c)
        return channels * int(np.prod(frames)), height, width


@dataclass(frozen=True)
class ObsSpec:
    """The leaves of an observation space.

    mask  entries of the vector that are set to 0; only for a space with a single vector leaf
    """

    leaves: dict[str, Leaf]
    mask: tuple[int, ...] = ()

    def split(self, obs: Any, partial: bool = False) -> Obs:
        """A batched observation, nested as in its space -> named leaves (N, *shape).

        Leaves may be views of the buffers of the environments, which the next step overwrites.

        partial  leave out missing leaves, as those that only a critic sees
        """
        arrays, out = flatten(obs), dict[str, Array]()
        for name, leaf in self.leaves.items():
            if name == ACTION_MASK:
                # In a user's Dict observation it is one of the entries, or one for each component.
                starts = f"{name}.", f"obs.{name}."
                parts = [np.atleast_1d(x) for key, x in arrays.items() if f"{key}.".startswith(starts)]
                joined = [x.reshape(len(x), -1) for x in parts]
                out |= {name: np.concatenate(joined, 1)} if joined else {}
                continue
            if partial and name not in arrays:
                continue
            array = np.asarray(arrays[name])
            if leaf.kind == "discrete":
                array = array.reshape(-1, len(leaf.sizes)).astype(np.int64, copy=False) - np.array(leaf.start)
            elif leaf.kind == "vector":
                array = array.astype(np.float32, copy=False)
            out[name] = array
        if self.mask:
            # A copy, because the array may be the environments' own, which are to keep their velocities.
            name = next(iter(self.leaves))
            out[name] = out[name].copy()
            out[name][:, self.mask] = 0.0
        return out

    def is_single(self, obs: Any) -> bool:
        """Whether an observation has no batch axis."""
        arrays = flatten(obs)
        known = [(arrays[name], leaf) for name, leaf in self.leaves.items() if name in arrays]
        if not known:
            raise UsageError(f"the observation has {', '.join(arrays)}; needed are {', '.join(self.leaves)}")
        return np.ndim(known[0][0]) == len(known[0][1].shape)

    def inputs(self, sees: tuple[str, ...] = ()) -> dict[str, Leaf]:
        """The leaves that a network gets: the observation, or those under some names of `sees`.

        A name is that of a leaf, or of a Dict that contains it, without `obs.`. All get `new_episode`.
        """
        names = [name for name, leaf in self.leaves.items() if leaf.kind != "mask"]
        chosen = {NEW_EPISODE} & set(names)
        for key in sees or ("obs",):
            starts = f"{key}.", f"obs.{key}."
            matches = {name for name in names if f"{name}.".startswith(starts)}
            if not matches:
                known = ", ".join(dict.fromkeys(["obs", *(name.removeprefix("obs.") for name in names)]))
                raise UsageError(f"sees names {key!r}, which the observation does not have; it has {known}")
            chosen |= matches
        return {name: self.leaves[name] for name in names if name in chosen}


@dataclass(frozen=True)
class ActionSpec:
    """An action space as the policy sees it.

    kind       "categorical": one choice per component; "gaussian": a real vector
    sizes      number of choices of each component; for a Gaussian 1 for each component
    shape      of one action of the environment
    start      smallest value of each component (categorical)
    low, high  bounds of each component (Gaussian); may be infinite
    dtype      of the environment's actions (Gaussian)
    """

    kind: Literal["categorical", "gaussian"]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    dtype: str = "float32"

    @property
    def width(self) -> int:
        """K: components of an action."""
        return len(self.sizes)

    def to_env(self, action: Array) -> Array:
        """Policy actions (N, K) -> actions of the environment (N, *shape).

        Box actions are sampled in units of [-1, 1], which are clipped and scaled to the bounds. A
        component with an infinite bound is passed on as it is, clipped at its other bound.
        """
        if self.kind == "categorical":
            out = action + np.array(self.start, dtype=action.dtype) if any(self.start) else action
        else:
            # In float64, because high - low may overflow float32.
            low, high = (bound.astype(np.float64) for bound in self._bounds)
            with np.errstate(invalid="ignore"):
                scaled = low + (np.clip(action, -1, 1) + 1) * 0.5 * (high - low)
            # Rounding may exceed a bound by one bit, which environments may reject.
            out = np.clip(np.where(self._bounded, scaled, action).astype(self.dtype), *self._bounds)
        return out.reshape(len(action), *self.shape)

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        return np.array(self.low, dtype=self.dtype), np.array(self.high, dtype=self.dtype)

    @cached_property
    def _bounded(self) -> Array:
        return np.isfinite(self.low) & np.isfinite(self.high)

    def from_env(self, action: Array) -> Array:
        """Actions of the environment (N, *shape) -> policy actions (N, K): the inverse of to_env."""
        flat = np.asarray(action).reshape(len(action), self.width)
        if self.kind == "categorical":
            return flat.astype(np.int64) - np.array(self.start or 0)
        low, high = (bound.astype(np.float64) for bound in self._bounds)
        span = np.where(high > low, high - low, np.inf)  # for the only value of a component any number stands
        with np.errstate(invalid="ignore"):
            units = (flat - low) / span * 2 - 1
        return np.where(self._bounded, units, flat).astype(np.float32)

    def to_prev_action(self, action: Array) -> Array:
        """Policy actions (N, K) -> the previous-action input of the next step: clipped like in to_env."""
        if self.kind == "categorical":
            return action
        clipped = np.where(self._bounded, np.clip(action, -1, 1), np.clip(action, *self._bounds))
        return clipped.astype(action.dtype, copy=False)


def read_spaces(
    observation: gym.Space[Any], action: gym.Space[Any], mask: tuple[int, ...] = ()
) -> tuple[ObsSpec, ActionSpec]:
    """The specs of both spaces of an environment; UsageError if a space or the mask is not supported."""
    # The order of leaves is the order of input features: another order would break saved agents.
    leaves = _read_leaves(observation["obs"] if isinstance(observation, Extended) else observation)
    if mask:
        vectors = [leaf for leaf in leaves.values() if leaf.kind == "vector" and len(leaf.shape) == 1]
        if len(leaves) != 1 or not vectors:
            raise UsageError(
                f"env.mask {list(mask)} needs an observation space that is one vector, not {observation}"
            )
        size = vectors[0].shape[0]
        if not all(0 <= i < size for i in mask):
            raise UsageError(
                f"env.mask {list(mask)} does not fit an observation of {size} entries; "
                f"use indices from 0 to {size - 1}"
            )
    action_spec = _read_action(action)
    if isinstance(observation, Extended) and ACTION_MASK in observation.spaces:
        if action_spec.kind != "categorical":
            raise UsageError(
                f"an action mask needs discrete actions, not {action}; use --env.action-mask False"
            )
        leaves[ACTION_MASK] = Leaf("mask", (sum(action_spec.sizes),), action_spec.sizes)
    if isinstance(observation, Extended) and HIDDEN in observation.spaces:
        leaves[HIDDEN] = Leaf("vector", observation[HIDDEN].shape)
    if isinstance(observation, Extended) and NEW_EPISODE in observation.spaces:
        leaves[NEW_EPISODE] = Leaf("binary", (1,))
    return ObsSpec(leaves, mask), action_spec


def _read_leaves(space: gym.Space[Any]) -> dict[str, Leaf]:
    """The leaves of an observation space that are not empty, by name; UsageError if two have the same."""
    leaves: dict[str, Leaf] = {}
    for name, leaf in _leaves_of(space, "obs"):
        if leaves.setdefault(name, leaf) is not leaf:
            key = name.removeprefix("obs.")
            raise UsageError(f"two entries of the observation are named {key}: rename the key with a dot")
    leaves = {name: leaf for name, leaf in leaves.items() if 0 not in leaf.shape}
    if not leaves:
        raise UsageError(f"observation space {space} is empty: it has no number that an agent could see")
    return leaves


def _leaves_of(space: gym.Space[Any], name: str) -> Iterator[tuple[str, Leaf]]:
    match space:
        case spaces.Dict():
            for key, part in space.spaces.items():
                yield from _leaves_of(part, f"{name}.{key}")
        case spaces.Tuple():
            for i, part in enumerate(space.spaces):
                yield from _leaves_of(part, f"{name}.{i}")
        case spaces.Discrete():
            yield name, Leaf("discrete", (), (int(space.n),), (int(space.start),))
        case spaces.MultiDiscrete():
            sizes, start = (tuple(map(int, x.ravel())) for x in (space.nvec, space.start))
            yield name, Leaf("discrete", space.nvec.shape, sizes, start)
        case spaces.MultiBinary():
            yield name, Leaf("binary", tuple(space.shape))
        case spaces.Box():
            yield name, Leaf("picture" if _is_picture(space) else "vector", tuple(space.shape))
        case _:
            raise UsageError(
                f"observation space {space} is not supported ({name}); supported are Box, Discrete, "
                "MultiDiscrete, MultiBinary, and Dict and Tuple of these"
            )


def _is_picture(space: spaces.Box) -> bool:
    """Whether a Box is an image: uint8, 2 to 4 dimensions, and SMALLEST_PICTURE pixels or more per side."""
    has_bytes = space.dtype == np.uint8 and 2 <= len(space.shape) <= 4
    return has_bytes and min(Leaf("picture", space.shape).picture_shape[1:]) >= SMALLEST_PICTURE


def _read_action(space: gym.Space[Any]) -> ActionSpec:
    match space:
        case spaces.Box() | spaces.MultiDiscrete() if 0 in space.shape:
            raise UsageError(f"action space {space} is empty: there is nothing to choose")
        case spaces.Discrete():
            return ActionSpec("categorical", (int(space.n),), (), (int(space.start),))
        case spaces.MultiDiscrete():
            sizes, start = (tuple(map(int, x.ravel())) for x in (space.nvec, space.start))
            return ActionSpec("categorical", sizes, space.nvec.shape, start)
        case spaces.MultiBinary():
            width = int(np.prod(space.shape))
            return ActionSpec("categorical", (2,) * width, tuple(space.shape), (0,) * width)
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = (tuple(float(x) for x in b.ravel()) for b in (space.low, space.high))
            sizes = (1,) * len(low)
            return ActionSpec("gaussian", sizes, tuple(space.shape), (), low, high, str(space.dtype))
    raise UsageError(
        f"action space {space} is not supported; supported are Discrete, MultiDiscrete, MultiBinary and "
        "Box of floats"
    )


def flatten(obs: Any, name: str = "obs") -> Obs:
    """Nested dicts and tuples of arrays, as named arrays."""
    if not isinstance(obs, dict | tuple):
        return {name: obs}
    out: Obs = {}
    for key, part in obs.items() if isinstance(obs, dict) else enumerate(obs):
        out |= flatten(part, str(key) if isinstance(obs, ExtendedObs) else f"{name}.{key}")
    return out
