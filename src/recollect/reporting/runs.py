"""Run folders as values: found, read and checked. Needs no torch.

What cannot be read is named with the reason and left out; a report never stops at a bad folder.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from ..common.metrics import METRICS
from .archive import BadArchive, opened

Floats = NDArray[np.float64]

Settings = Mapping[str, Any]  # a config by dotted names

# What makes an environment another task: scores on different ones are not compared.
TASK = ("env.id", "env.kwargs", "env.mask", "env.time_limit")
# What changes nothing about what is learned but the chance in it.
APART = ("seed", "env.threads", "save_interval", "keep")
PROBE_FILE = "probe/probe.json"  # in the folder of a run


@dataclass(frozen=True)
class Run:
    """One run folder that could be read."""

    folder: Path
    config: Mapping[str, Any]
    """config.yaml, nested as it stands there."""
    summary: Mapping[str, Any]
    """summary.json."""
    metrics: Mapping[str, Floats]
    """Every key of METRICS -> (lines,); NaN where nothing was known."""
    evaluation: Mapping[str, Any] | None = None
    """evaluation.json, where the last weights have been evaluated."""

    @property
    def env(self) -> str:
        """The environment's id."""
        return str(self.config["env"]["id"])

    @property
    def model(self) -> str:
        """The preset it began as."""
        return str(self.config["model"])

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.config["seed"])

    @property
    def status(self) -> str:
        """finished, running (or died), or the signal that stopped it."""
        return str(self.summary["status"])

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.status == "finished"


@dataclass(frozen=True)
class LeftOut:
    """Something that was asked for and is not in the report."""

    folder: Path
    reason: str


@dataclass(frozen=True)
class Found:
    """What lies in the folders that were named."""

    runs: list[Run]
    left_out: list[LeftOut]
    random: Mapping[str, Mapping[str, Any]]
    """Task, as key_of names it -> evaluation of an agent that acts at random, where there is one."""


class BadRun(Exception):
    """Why a folder cannot be read."""


# Find and read --------------------------------------------------------------------------------


def read_runs(paths: Iterable[Path]) -> Found:
    """Every run in or below some folders or archives, and everything that had to be left out."""
    runs: list[Run] = []
    left_out: list[LeftOut] = []
    random: dict[str, Mapping[str, Any]] = {}
    seen: set[Path] = set()
    for path in paths:
        try:
            with opened(path) as root:
                folders = [folder for folder in _folders(root) if folder.resolve() not in seen]
                seen.update(folder.resolve() for folder in folders)
                if not folders and not any(_folders(root)):
                    left_out.append(LeftOut(path, "holds no run" if path.exists() else "does not exist"))
                for folder in folders:
                    # Within an archive, folders have the names that they have there.
                    name = folder if root == path else folder.relative_to(root)
                    _read_folder(folder, name, runs, left_out, random)
        except BadArchive as bad:
            left_out.append(LeftOut(path, str(bad)))
    kept, twins = _without_twins(runs)
    return Found(kept, [*left_out, *twins], random)


def _read_folder(
    folder: Path, name: Path, runs: list[Run], left_out: list[LeftOut], random: dict[str, Mapping[str, Any]]
) -> None:
    """Add what a folder holds to one of these."""
    try:
        if _holds_run(folder):
            runs.append(replace(read_run(folder), folder=name))
        else:
            random.update(_read_random(folder))
    except BadRun as bad:
        left_out.append(LeftOut(name, str(bad)))


def read_run(folder: Path) -> Run:
    """One run folder; BadRun says what is wrong with it."""
    config = _read_config(folder / "config.yaml")
    summary = _read_object(folder / "summary.json")
    if not isinstance(summary.get("status"), str):
        raise BadRun("summary.json names no status")
    metrics = _read_metrics(folder / "metrics.jsonl", torn_is_fine=summary["status"] != "finished")
    evaluation = None
    if (folder / "evaluation.json").exists():
        evaluation = _read_object(folder / "evaluation.json")
        if not is_number(evaluation.get("mean")):
            raise BadRun("evaluation.json names no mean")
    return Run(folder, config, summary, metrics, evaluation)


def _folders(path: Path) -> Iterator[Path]:
    """The run folders and random scores in or below a path; nothing below a run is looked at."""
    for place, below, files in os.walk(path):
        below.sort()
        if "metrics.jsonl" in files or {"config.yaml", "summary.json"} <= set(files):
            below.clear()
            yield Path(place)
        elif "evaluation.json" in files:
            yield Path(place)


def _holds_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("metrics.jsonl", "config.yaml", "summary.json"))


def _read_random(folder: Path) -> dict[str, Mapping[str, Any]]:
    """An evaluation.json that belongs to no run."""
    found = _read_object(folder / "evaluation.json")
    if found.get("agent") != "random" or not is_number(found.get("mean")):
        raise BadRun("evaluation.json belongs to no run, and is not of a random agent")
    told = found.get("task")
    env = {"mask": [], "time_limit": None, **(told if isinstance(told, dict) else {}), "id": found.get("env")}
    return {key_of(task(flat({"env": env}))): found}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadRun(f"has no {path.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRun(f"{path.name} cannot be read: {error}") from error


def read_probe(folder: Path) -> Mapping[str, Any] | None:
    """What `recollect probe` found of a run's memory; None where it was not asked, or not to the end."""
    try:
        found = json.loads((folder / PROBE_FILE).read_text())
        return found if {"uses", "episodes", "seed"} <= set(found) else None
    except (OSError, ValueError, TypeError):
        return None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadRun(f"{path.name} is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadRun(f"{path.name} holds no object")
    return data


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(_read_text(path))
        key_of(config)  # YAML may hold itself
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise BadRun(f"{path.name} is no YAML: {str(error).splitlines()[0]}") from error
    env = config.get("env") if isinstance(config, dict) else None
    if not isinstance(env, dict) or "id" not in env or not {"model", "seed"} <= config.keys():
        raise BadRun(f"{path.name} is not the config of a run: it names no environment, model or seed")
    if not isinstance(config["seed"], int):
        raise BadRun(f"{path.name} has the seed {config['seed']!r}")
    return dict(config)


def _read_metrics(path: Path, torn_is_fine: bool) -> dict[str, Floats]:
    """Every column of metrics.jsonl; a run that goes on may be in the middle of its last line."""
    lines = _read_text(path).split("\n")
    torn = lines.pop()  # what stands after the last end of a line
    if torn and not torn_is_fine:
        raise BadRun(f"{path.name} ends in the middle of line {len(lines) + 1}")
    rows = [_read_line(path, number, line) for number, line in enumerate(lines, 1)]
    if not rows:
        raise BadRun(f"{path.name} holds no line yet")
    metrics = {key: np.array([_number(row.get(key)) for row in rows]) for key in METRICS}
    if not np.all(np.diff(metrics["step"]) > 0):  # False for NaN too
        raise BadRun(f"{path.name} has steps that do not rise")
    return metrics


def _read_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadRun(f"{path.name}, line {number}, is no JSON: {error}") from error
    if not isinstance(row, dict) or not is_number(row.get("step")):
        raise BadRun(f"{path.name}, line {number}, names no step")
    return row


def _number(value: Any) -> float:
    return float(value) if is_number(value) else math.nan


def is_number(value: Any) -> bool:
    """Whether it can be drawn."""
    return isinstance(value, int | float) and abs(value) < 1e300  # NaN is not


def _without_twins(runs: Sequence[Run]) -> tuple[list[Run], list[LeftOut]]:
    """The same config and seed twice is one run told twice: an interval must not count it as two."""
    kept: dict[tuple[str, int], Run] = {}
    twins: list[LeftOut] = []
    for run in sorted(runs, key=lambda run: (not run.finished, run.evaluation is None)):
        key = key_of(settings(run)), run.seed
        if key in kept:
            twins.append(LeftOut(run.folder, f"has the config and the seed of {kept[key].folder}"))
        else:
            kept[key] = run
    places = {run.folder: place for place, run in enumerate(runs)}
    return sorted(kept.values(), key=lambda run: places[run.folder]), twins


# Settings -------------------------------------------------------------------------------------


def settings(run: Run) -> Settings:
    """The config by dotted names, without what does not belong to it."""
    return {key: value for key, value in flat(run.config).items() if key not in APART}


def task(own: Settings) -> Settings:
    """What of a config says what is played."""
    return {key: value for key, value in own.items() if key.startswith(TASK)}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def key_of(value: Any) -> str:
    """Settings, or one of them, as something that can be looked up."""
    return json.dumps(value, sort_keys=True, default=str)
