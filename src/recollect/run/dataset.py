"""Recorded episodes as one .npz file, and as a rollout that an agent learns from.

An .npz has R rows, episode after episode. An episode of n steps has n + 1 rows; the last one has its final
observation, and no action. Arrays:

    obs, or obs.KEY for the entries of a Dict   observations; entries that env.mask hides are 0; categories
                                                count from 0, a column for each component
    action_mask, hidden, new_episode            (R, ...) if the agent was trained with them
    action        (R, ...) as the environment takes it
    reward        (R,) of the action
    terminated    (R,) whether the action ended the episode
    truncated     (R,) whether a limit ended the episode after it; one of both at its last action alone
    first         (R,) whether the row begins an episode
    about         text, JSON: the environment, the agent, the spaces

Shapes.  R rows, N environments, T steps of each, L steps a chunk, K components of an action.
"""

import json
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import UsageError
from ..common.output_paths import whole_file
from ..envs import ActionSpec, Array, Obs, ObsSpec
from ..envs.ranges import Ranges
from ..envs.spaces_json import spaces_from_json, spaces_to_json
from ..envs.spaces_text import describe
from ..learn.rollout import OBS, Row

FORMAT = "recollect episodes 1"
FLAGS = ("terminated", "truncated", "first")
COLUMNS = ("action", "reward", *FLAGS)
MOST_BYTES = 64 * 2**30  # of all arrays; a small file may unpack to a thousand times its size
# What zipfile, numpy and json raise for files that are damaged, or none at all.
UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, RuntimeError, MemoryError),
    *(EOFError, zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
Spaces = tuple[ObsSpec, ActionSpec]


@dataclass(frozen=True)
class Dataset:
    """Recorded episodes, as in a file; actions are those of the policy (R, K).

    name   of the file, for errors
    about  what else the file says: environment, agent, seed
    """

    name: str
    spaces: Spaces
    obs: Obs
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    first: Array
    about: dict[str, Any]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The first row of each episode, and the row after its last one."""
        starts = np.flatnonzero(self.first).tolist()
        return list(zip(starts, [*starts[1:], len(self.first)], strict=True))

    @property
    def returns(self) -> Array:
        """The return of each episode."""
        return np.add.reduceat(self.reward, np.flatnonzero(self.first))


def write(path: Path, data: Dataset) -> None:
    """Write a file, compressed."""
    about = {"format": FORMAT, "spaces": spaces_to_json(*data.spaces), **data.about}
    arrays: dict[str, Any] = {name: getattr(data, name) for name in COLUMNS}
    arrays |= {"about": np.array(json.dumps(about)), "action": data.spaces[1].to_env(data.action), **data.obs}
    # Open, because numpy would add a suffix to a name without one.
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def read(path: Path) -> Dataset:
    """Read a file; arrays only, nothing of it is executed."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"its arrays have {size / 2**30:,.0f} GiB, at most {MOST_BYTES / 2**30:.0f}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays["about"]))
        if about.pop("format") != FORMAT:
            raise ValueError("another format")
        spaces = spaces_from_json(about.pop("spaces"))
        obs = {name: arrays[name] for name in spaces[0].leaves}
        columns = {name: arrays[name] for name in COLUMNS}
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; recollect record RUN -o {path} writes episodes") from None
    except UNREADABLE as error:
        raise UsageError(
            f"{path} is not a file of recollect record: {type(error).__name__}: {error}"
        ) from error
    _check_shapes(path, obs | columns, spaces)
    rows = {len(x) for x in (*obs.values(), *columns.values())}
    if len(rows) != 1 or not rows.pop() or not columns["first"][0]:
        raise UsageError(f"{path}: its arrays must have the same rows, and the first one begins an episode")
    for name in FLAGS:
        if not np.isin(columns[name], (0, 1)).all():
            raise UsageError(f"{path}: {name} has other values than 0 and 1")
        columns[name] = columns[name].astype(bool)
    _check_episodes(path, columns)
    _check_indices(path, obs, columns["action"], spaces)
    columns["action"] = spaces[1].from_env(columns["action"])
    check_values(path, obs | columns, spaces[1])
    return Dataset(str(path), spaces, obs, **columns, about=about)


def _check_shapes(path: Path, arrays: dict[str, Array], spaces: Spaces) -> None:
    """Raise UsageError if an array does not hold numbers of the shape that the spaces say."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(COLUMNS, ())
    for name, leaf in spaces[0].leaves.items():
        shapes[name] = (len(leaf.sizes),) if leaf.kind == "discrete" else leaf.shape
    flat = (spaces[1].width,)  # as the policy has actions; from_env takes them as well
    shapes["action"] = flat if arrays["action"].shape[1:] == flat else spaces[1].shape
    for name, shape in shapes.items():
        x = arrays[name]
        if x.ndim == 0 or x.shape[1:] != shape or x.dtype.kind not in "biuf":
            needed = f"({', '.join(map(str, ('rows', *shape)))})"
            raise UsageError(f"{path}: {name} has shape {x.shape} of {x.dtype}; needed are numbers {needed}")


def _check_episodes(path: Path, columns: dict[str, Array]) -> None:
    """Raise UsageError unless each episode has an action, and ends with its last one: what follows an end in
    the middle would count as steps of the same episode."""
    first, ends = columns["first"], columns["terminated"] | columns["truncated"]
    empty = np.flatnonzero(first & np.roll(first, -1))  # the row before each first one has no action
    if len(empty):
        raise UsageError(f"{path}: the episode that begins in row {empty[0]} has no action")
    wrong = np.flatnonzero(ends != np.roll(first, -2))
    if len(wrong):
        raise UsageError(
            f"{path}: each episode is terminated or truncated at its last action, and at no other: row "
            f"{wrong[0]} is wrong; one that was cut off is truncated"
        )


def _check_indices(path: Path, obs: Obs, action: Array, spaces: Spaces) -> None:
    """Raise UsageError for a category that is no whole number or is outside of its space: another one, or one
    of the next component, would stand for it."""
    discrete = {name: obs[name] for name, leaf in spaces[0].leaves.items() if leaf.kind == "discrete"}
    actions = {"action": action} if spaces[1].kind == "categorical" else {}
    for name, x in (discrete | actions).items():
        fractions = np.argwhere(x != np.trunc(x))  # also what is not a number
        if len(fractions):
            value, row = x[tuple(fractions[0])], fractions[0][0]
            raise UsageError(f"{path}: {name} has {value} in row {row}; whole numbers are needed")
    obs |= {name: x.astype(np.int64) for name, x in discrete.items()}
    outside = Ranges(spaces[0]).find_outside(obs)
    if outside is not None:
        raise UsageError(f"{path}: {outside.name} in row {outside.env} is outside: {outside.rule}")


def check_values(path: Path | str, arrays: dict[str, Array], action_spec: ActionSpec) -> None:
    """Raise UsageError if a number is not finite, or an action is none of those that can be chosen."""
    for name, x in arrays.items():
        if not np.isfinite(x).all():
            raise UsageError(f"{path}: {name} has numbers that are not finite, first in row {_first(x)}")
    if action_spec.kind == "categorical":
        outside = (arrays["action"] < 0) | (arrays["action"] >= np.array(action_spec.sizes))
        if outside.any():
            row = int(np.flatnonzero(outside.any(1))[0])
            raise UsageError(f"{path}: the action in row {row} is not in the action space of the recording")


def _first(x: Array) -> int:
    """The first row with a number that is not finite."""
    return int(np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1))[0])


def join(datasets: Sequence[Dataset]) -> Dataset:
    """Several recordings of the same spaces as one."""
    one = datasets[0]
    for other in datasets[1:]:
        check_spaces(other, one.spaces, one.name)
    if len(datasets) == 1:
        return one
    obs = {name: np.concatenate([data.obs[name] for data in datasets]) for name in one.obs}
    columns = {name: np.concatenate([getattr(data, name) for data in datasets]) for name in COLUMNS}
    return Dataset(" ".join(data.name for data in datasets), one.spaces, obs, **columns, about=one.about)


def check_spaces(data: Dataset, spaces: Spaces, name: str, hint: str = "") -> None:
    """Raise UsageError if a recording is of other spaces than those of an environment or a file.

    hint  the end of the error
    """
    for kind, theirs, ours in zip(("observations", "actions"), data.spaces, spaces, strict=True):
        if theirs != ours:
            where = f" (of {data.about['env']})" if "env" in data.about else ""
            raise UsageError(
                f"{data.name}{where} has {kind} ({describe(theirs)}), and {name} has ({describe(ours)}){hint}"
            )


# As a rollout ---------------------------------------------------------------------------------


def columns_of(data: Dataset, num_envs: int, length: int) -> Array:
    """Which row each environment has at each time (T, N), -1 behind its last one; T is a multiple of L.

    Whole episodes, so that each environment begins with one; the longest first, each to the environment with
    the fewest rows so far.
    """
    parts: list[list[int]] = [[] for _ in range(num_envs)]
    for start, stop in sorted(data.bounds, key=lambda bounds: bounds[0] - bounds[1]):
        min(parts, key=len).extend(range(start, stop))
    steps = -(-max(map(len, parts)) // length) * length
    columns = np.full((steps, num_envs), -1)
    for n, part in enumerate(parts):
        columns[: len(part), n] = part
    return columns


def rows_of(data: Dataset, columns: Array) -> dict[str, Array]:
    """The steps of a rollout by the names of its fields (Rollout.fill), with a row T that is not valid."""
    columns = np.concatenate([columns, np.full_like(columns[:1], -1)])
    missing = columns < 0
    last = np.zeros(len(data.first), dtype=bool)  # rows of final observations
    last[[stop - 1 for _, stop in data.bounds]] = True
    first = data.first[columns] | missing
    rows: dict[str, Array] = {OBS + name: x[columns] for name, x in data.obs.items()}
    rows |= {name: getattr(data, name)[columns] for name in ("action", "reward", "terminated", "truncated")}
    for name in ("reward", "terminated", "truncated"):
        rows[name][missing | last[columns]] = 0
        rows[name] = rows[name][:-1]
    # Rows lie one after the other, so the row before is that of the step before.
    before = np.maximum(columns - 1, 0)
    taken = data.spaces[1].to_prev_action(data.action)
    rows["prev_action"] = taken[before] * ~first[..., None]
    rows["prev_reward"] = data.reward[before] * ~first
    return rows | {"first": first, "valid": ~(missing | last[columns])}


def first_row_of(rows: dict[str, Array]) -> Row:
    """Row 0 of the steps of a rollout."""
    obs = {name.removeprefix(OBS): x[0] for name, x in rows.items() if name.startswith(OBS)}
    return Row(obs, *(rows[name][0] for name in ("first", "valid", "prev_action", "prev_reward")))
