"""Learning curves that other programs left: tables (CSV) and TensorBoard's event folders."""

import csv
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from ..common.errors import UsageError
from ..common.intervals import Floats
from .curves import Series, Track

WINDOW = 100  # episodes of a mean, as in our own metrics

# What is read of a table: step, return, and seconds where it has them.
MEANS = (
    ("step", "return", "time"),
    ("time/total_timesteps", "rollout/ep_rew_mean", "time/time_elapsed"),  # SB3's progress.csv
)
EPISODES = ("l", "r", "t")  # SB3's monitor.csv: length, return and seconds of every episode
# What is read of an event folder, and whether it is of single episodes.
TAGS = {
    "return": False,  # ours
    "rollout/ep_rew_mean": False,  # Stable-Baselines3
    "episode/reward_mean": False,  # MarcoMeter's
    "charts/episodic_return": True,  # CleanRL
}


def read_imports(texts: Sequence[str], envs: Sequence[str]) -> list[Track]:
    """LABEL@ENV=PATH or LABEL=PATH, each one seed; equal labels are the seeds of one track.

    envs  of the report; if it is only one, it need not be named
    """
    named = sorted((*_parse(text, envs),) for text in texts)
    tracks: list[Track] = []
    for (env, label), members in groupby(named, key=lambda parts: parts[:2]):
        series = [read_series(Path(path)) for *_, path in members]
        tracks.append(Track(env, f"{label} (imported)", "imported", series))
    return tracks


def read_series(path: Path) -> Series:
    """One seed: step, return and, where it is known, time (lines,)."""
    series = _read_events(path) if path.is_dir() else _read_table(path)
    steps = series["step"]
    if not len(steps) or not np.isfinite(steps).all() or not np.all(np.diff(steps) >= 0):
        raise UsageError(f"--import {path}: its steps do not rise from line to line")
    return series


def running_mean(episodes: Floats) -> Floats:
    """Of the last 100 episodes at each (E,) -> (E,); NaN until there are 100."""
    sums = np.cumsum(episodes)
    sums[WINDOW:] -= sums[:-WINDOW].copy()
    sums[: WINDOW - 1] = np.nan
    return np.asarray(sums / WINDOW)


def _parse(text: str, envs: Sequence[str]) -> tuple[str, str, str]:
    """-> environment, label, path."""
    name, _, path = text.partition("=")
    label, _, env = name.partition("@")
    if not label or not path:
        raise UsageError(f"--import {text}: it is LABEL=PATH or LABEL@ENV=PATH")
    if not env and len(envs) != 1:
        raise UsageError(f"--import {text}: which environment? LABEL@ENV=PATH")
    if env and env not in envs:
        raise UsageError(f"--import {text}: no run is on {env}; there are {', '.join(envs)}")
    return env or envs[0], label, path


def _read_table(path: Path) -> Series:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--import {path}: {error}") from error
    columns = set(rows[0]) if rows else set()
    if set(EPISODES) <= columns:
        length, paid, seconds = (_column(rows, name) for name in EPISODES)
        return {"step": np.cumsum(length), "return": running_mean(paid), "time": seconds}
    for step, paid_name, time in MEANS:
        if {step, paid_name} <= columns:
            rows = [row for row in rows if row[step] and row[paid_name]]
            names = {"step": step, "return": paid_name, "time": time}
            return {key: _column(rows, name) for key, name in names.items() if name in columns}
    raise UsageError(f"--import {path}: it needs the columns step and return, or those of SB3")


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
        raise UsageError(f"--import {path}: no events of {', '.join(TAGS)} are in it")
    rows = sorted((event.step, event.wall_time, event.value) for event in events.Scalars(tags[0]))
    step, wall, paid = np.array(rows, dtype=np.float64).T
    return {"step": step, "return": running_mean(paid) if TAGS[tags[0]] else paid, "time": wall - wall[0]}
