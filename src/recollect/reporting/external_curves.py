"""Learning curves of other programs: CSV files and folders of TensorBoard events."""

import csv
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from ..common.errors import UsageError
from ..common.intervals import Floats
from .curves import SeedSeries, Series

WINDOW = 100  # episodes of a running mean, as in metrics.jsonl

# Columns of a table of mean returns: step, return, and seconds if it has them.
MEAN_COLUMNS = (
    ("step", "return", "time"),
    ("time/total_timesteps", "rollout/ep_rew_mean", "time/time_elapsed"),  # SB3's progress.csv
)
EPISODE_COLUMNS = ("l", "r", "t")  # SB3's monitor.csv: length, return and seconds of each episode
# Tags of an event folder -> whether they are of single episodes.
TAGS = {
    "return": False,  # recollect
    "rollout/ep_rew_mean": False,  # Stable-Baselines3
    "episode/reward_mean": False,  # MarcoMeter's
    "charts/episodic_return": True,  # CleanRL
}


def read_imports(texts: Sequence[str], envs: Sequence[str]) -> list[SeedSeries]:
    """Read LABEL@ENV=PATH or LABEL=PATH, one seed each; equal labels are the seeds of one curve.

    envs  environments of the report; if there is only one, @ENV is optional
    """
    # groupby joins neighbours only.
    named = sorted(_parse(text, envs) for text in texts)
    curves: list[SeedSeries] = []
    for (env, label), members in groupby(named, key=lambda parts: parts[:2]):
        series = [read_series(Path(path)) for *_, path in members]
        curves.append(SeedSeries(env, f"{label} (imported)", "imported", series))
    return curves


def read_series(path: Path) -> Series:
    """The series of one seed: step, return and, if known, time (lines,)."""
    series = _read_events(path) if path.is_dir() else _read_table(path)
    steps = series["step"]
    if not len(steps) or not np.isfinite(steps).all() or not np.all(np.diff(steps) >= 0):
        raise UsageError(f"--import {path}: the steps do not increase from line to line")
    return series


def running_mean(episodes: Floats) -> Floats:
    """Mean of the last 100 episodes at each episode (E,) -> (E,); NaN until there are 100."""
    sums = np.cumsum(episodes)
    # A copy, because both slices are of the array that is changed.
    sums[WINDOW:] -= sums[:-WINDOW].copy()
    sums[: WINDOW - 1] = np.nan
    return np.asarray(sums / WINDOW)


def _parse(text: str, envs: Sequence[str]) -> tuple[str, str, str]:
    """-> environment, label, path."""
    name, _, path = text.partition("=")
    label, _, env = name.partition("@")
    if not label or not path:
        raise UsageError(f"--import {text}: expected LABEL=PATH or LABEL@ENV=PATH")
    if not env and len(envs) != 1:
        raise UsageError(f"--import {text}: the report has several environments; name one: LABEL@ENV=PATH")
    if env and env not in envs:
        raise UsageError(f"--import {text}: no run on {env}; the environments are {', '.join(envs)}")
    return env or envs[0], label, path


def _read_table(path: Path) -> Series:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            # SB3's monitor.csv has a comment with JSON above its header.
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--import {path}: {error}") from error
    columns = set(rows[0]) if rows else set()
    if set(EPISODE_COLUMNS) <= columns:
        length, returns, seconds = (_column(rows, name) for name in EPISODE_COLUMNS)
        return {"step": np.cumsum(length), "return": running_mean(returns), "time": seconds}
    for step, mean_return, time in MEAN_COLUMNS:
        if {step, mean_return} <= columns:
            rows = [row for row in rows if row[step] and row[mean_return]]
            names = {"step": step, "return": mean_return, "time": time}
            return {key: _column(rows, name) for key, name in names.items() if name in columns}
    raise UsageError(f"--import {path}: the file needs the columns step and return, or those of SB3")


def _column(rows: Sequence[Mapping[str, str]], name: str) -> Floats:
    return np.array([_number(row[name]) for row in rows])


def _number(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        return math.nan


def _read_events(path: Path) -> Series:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in TAGS if tag in events.Tags()["scalars"]]
    if not tags:
        raise UsageError(f"--import {path}: no scalar of {', '.join(TAGS)} in this folder")
    rows = sorted((event.step, event.wall_time, event.value) for event in events.Scalars(tags[0]))
    step, time, returns = np.array(rows, dtype=np.float64).T
    if TAGS[tags[0]]:
        returns = running_mean(returns)
    return {"step": step, "return": returns, "time": time - time[0]}
