"""Reads and checks run folders. Imports no torch.

Folders that cannot be read are listed with the reason; they never stop a report.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml

from ..common.digests import Digests, check_digest, digest, unseal
from ..common.errors import UsageError
from ..common.intervals import Floats
from ..common.metrics import METRICS
from ..common.yaml_text import load_yaml
from .archive import BadArchive, open_archive
from .popgym_iterations import TrainingIterations, is_popgym, read_iterations

FlatConfig: TypeAlias = Mapping[str, Any]  # a config by dotted names

# Prefixes of the settings that define a task: scores of different tasks are not compared.
TASK_SETTINGS = ("env.id", "env.kwargs", "env.mask", "env.time_limit", "env.trial")
# Settings that do not distinguish models: they change nothing but chance, speed or files.
IGNORED_SETTINGS = ("seed", "env.threads", "save_interval", "keep")
PROBE_FILE = "probe/probe.json"  # in the folder of a run


@dataclass(frozen=True)
class Run:
    """The content of one run folder."""

    folder: Path
    config: Mapping[str, Any]
    """config.yaml, nested as in the file."""
    summary: Mapping[str, Any]
    """summary.json."""
    metrics: Mapping[str, Floats]
    """Every key of METRICS -> (lines,); NaN for null and missing values."""
    evaluation: Mapping[str, Any] | None = None
    """evaluation.json, if the final weights have been evaluated."""
    iterations: TrainingIterations | None = None
    """Training returns by the iterations of the POPGym paper, for its tasks; None for others."""

    @property
    def env(self) -> str:
        """The environment id."""
        return str(self.config["env"]["id"])

    @property
    def model(self) -> str:
        """The preset of the run."""
        return str(self.config["model"])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.config["seed"])

    @property
    def status(self) -> str:
        """finished, running (also if the process died), or the name of the signal that stopped it."""
        return str(self.summary["status"])

    @property
    def finished(self) -> bool:
        """Whether training is complete."""
        return self.status == "finished"


@dataclass(frozen=True)
class LeftOut:
    """A folder that is not in the report, and why."""

    folder: Path
    reason: str


@dataclass(frozen=True)
class RunCollection:
    """The runs in a set of folders."""

    runs: list[Run]
    left_out: list[LeftOut]
    random: Mapping[str, Mapping[str, Any]]
    """key_of(task_config) -> evaluation of a random agent on this task."""


class BadRun(Exception):
    """The reason why a folder cannot be read."""


# Reading --------------------------------------------------------------------------------------


def read_runs(paths: Iterable[Path]) -> RunCollection:
    """Read every run in or below some folders or archives."""
    runs: list[Run] = []
    left_out: list[LeftOut] = []
    random: dict[str, Mapping[str, Any]] = {}
    seen: set[Path] = set()
    for path in paths:
        try:
            with open_archive(path) as root:
                folders = [folder for folder in _find_folders(root) if folder.resolve() not in seen]
                seen.update(folder.resolve() for folder in folders)
                if not folders and not any(_find_folders(root)):
                    left_out.append(LeftOut(path, "contains no run" if path.exists() else "does not exist"))
                for folder in folders:
                    # Not the name in the temporary folder that an archive is unpacked to.
                    name = folder if root == path else folder.relative_to(root)
                    _read_folder(folder, name, runs, left_out, random)
        except BadArchive as bad:
            left_out.append(LeftOut(path, str(bad)))
    unique, duplicates = _without_duplicates(runs)
    return RunCollection(unique, [*left_out, *duplicates], random)


def _read_folder(
    folder: Path, name: Path, runs: list[Run], left_out: list[LeftOut], random: dict[str, Mapping[str, Any]]
) -> None:
    """Add the content of a folder to one of the three collections."""
    try:
        # Any of the three: a run that lacks one is left out with its reason, not taken for a random
        # evaluation.
        if any((folder / file).exists() for file in ("metrics.jsonl", "config.yaml", "summary.json")):
            runs.append(replace(read_run(folder), folder=name))
        else:
            random.update(_read_random(folder))
    except BadRun as bad:
        left_out.append(LeftOut(name, str(bad)))


def read_run(folder: Path) -> Run:
    """Read one run folder; BadRun if it is not complete and valid."""
    # The summary first: a run that ends meanwhile has its other files complete when it is finished.
    summary, files = _read_object(folder / "summary.json")
    if not isinstance(summary.get("status"), str):
        raise BadRun("summary.json has no status")
    config = _read_config(folder / "config.yaml", files)
    metrics = _read_metrics(folder / "metrics.jsonl", files, summary["status"])
    env = str(config["env"]["id"])
    evaluation = _read_evaluation(folder / "evaluation.json", env, summary.get("config_hash"))
    iterations = None
    # For other tasks the file, which may be large, is not read.
    if is_popgym(env):
        iterations = read_iterations(folder, int(metrics["step"][-1]), files)
    return Run(folder, config, summary, metrics, evaluation, iterations)


def _read_evaluation(path: Path, env: str, config_hash: Any) -> dict[str, Any] | None:
    """The evaluation of a run; None if there is none."""
    if not path.exists():
        return None
    evaluation, _ = _read_object(path)
    if not is_number(evaluation.get("mean")):
        raise BadRun(f"{path.name} has no mean")
    if (place := evaluation.get("env", env)) != env or evaluation.get("agent") == "random":
        raise BadRun(f"{path.name} is of {evaluation.get('agent')} on {place}, not of this run on {env}")
    # Evaluations of earlier versions, and of `recollect eval --json`, do not name their run.
    if evaluation.get("config_hash", config_hash) != config_hash:
        raise BadRun(f"{path.name} is of another run: remove it, and evaluate this one")
    return evaluation


def _find_folders(path: Path) -> Iterator[Path]:
    """Folders of runs and of random evaluations in or below a path; folders below a run are not searched."""
    for folder, below, files in os.walk(path):
        below.sort()  # in place, because os.walk continues with this list
        if "metrics.jsonl" in files or {"config.yaml", "summary.json"} <= set(files):
            below.clear()
            yield Path(folder)
        elif "evaluation.json" in files:
            yield Path(folder)


def _read_random(folder: Path) -> dict[str, Mapping[str, Any]]:
    """An evaluation.json outside of a run folder: that of a random agent, by task."""
    evaluation, _ = _read_object(folder / "evaluation.json")
    if evaluation.get("agent") != "random" or not is_number(evaluation.get("mean")):
        raise BadRun("evaluation.json is outside of a run folder and not of a random agent")
    task = evaluation.get("task")
    task = task if isinstance(task, dict) else {}
    # Evaluations of older versions have no task; these are the values that config.yaml has by default.
    env = {"mask": [], "time_limit": None, **task, "id": evaluation.get("env")}
    return {key_of(task_config(flatten({"env": env}))): evaluation}


def _read_text(path: Path, files: Digests) -> str:
    """The text of a file; BadRun if it does not have its digest in `files`."""
    try:
        content = path.read_bytes()
        check_digest(path.name, digest(content), files)
        return content.decode()
    except FileNotFoundError:
        raise BadRun(f"has no {path.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRun(f"{path.name} cannot be read: {error}") from error
    except UsageError as error:
        raise BadRun(str(error)) from error


def read_probe(folder: Path) -> Mapping[str, Any] | None:
    """The result of `recollect probe` in a run folder; None if there is none, or an incomplete one."""
    try:
        result = json.loads((folder / PROBE_FILE).read_text())
        return result if {"uses", "episodes", "seed"} <= set(result) else None
    except (OSError, ValueError, TypeError):
        return None


def _read_object(path: Path) -> tuple[dict[str, Any], Digests]:
    """The entries of a JSON object, and the digests that it has of other files."""
    try:
        data = json.loads(_read_text(path, {}))
    except (ValueError, RecursionError) as error:
        raise BadRun(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadRun(f"{path.name} is not a JSON object")
    try:
        return unseal(path.name, data)
    except UsageError as error:
        raise BadRun(str(error)) from error


def _read_config(path: Path, files: Digests) -> dict[str, Any]:
    try:
        config = load_yaml(_read_text(path, files))
        key_of(config)  # fails for keys that JSON cannot have
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise BadRun(f"{path.name} is not valid YAML: {str(error).splitlines()[0]}") from error
    env = config.get("env") if isinstance(config, dict) else None
    names = [env.get("id"), config.get("model")] if isinstance(env, dict) else [None]
    if not all(isinstance(name, str) for name in names) or "seed" not in config:
        raise BadRun(f"{path.name} is not the config of a run: environment, model or seed is missing")
    if not isinstance(config["seed"], int):
        raise BadRun(f"{path.name}: seed {config['seed']!r} is not an integer")
    return dict(config)


def _read_metrics(path: Path, files: Digests, status: str) -> dict[str, Floats]:
    """Every column of metrics.jsonl; the last line of an unfinished run may be incomplete.

    A run that failed before its first line counts as one that failed: it has a line without a step.
    """
    lines = _read_text(path, files).split("\n")
    partial = lines.pop()  # text after the last line end
    if partial and status == "finished":
        raise BadRun(f"{path.name} ends in the middle of line {len(lines) + 1}")
    rows = [_read_line(path, number, line) for number, line in enumerate(lines, 1)]
    if not rows and status == "failed":
        rows = [{"step": 0}]
    if not rows:
        raise BadRun(f"{path.name} has no complete line")
    metrics = {
        key: np.array([row[key] if is_number(row.get(key)) else math.nan for row in rows], dtype=np.float64)
        for key in METRICS
    }
    if not np.all(np.diff(metrics["step"]) > 0):  # False for NaN too
        raise BadRun(f"{path.name}: steps do not increase")
    return metrics


def _read_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRun(f"{path.name}, line {number}: not valid JSON: {error}") from error
    if not isinstance(row, dict) or not is_number(row.get("step")):
        raise BadRun(f"{path.name}, line {number}: no step")
    return row


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and abs(value) < 1e300  # False for NaN


def _without_duplicates(runs: Sequence[Run]) -> tuple[list[Run], list[LeftOut]]:
    """Keep one run of each config and seed: an interval must not count the same run twice."""
    unique: dict[tuple[str, int], Run] = {}
    duplicates: list[LeftOut] = []
    # Finished runs come first, then runs with an evaluation: of duplicates the first is kept.
    for run in sorted(runs, key=lambda run: (not run.finished, run.evaluation is None)):
        key = key_of(training_config(run)), run.seed
        if key in unique:
            duplicates.append(LeftOut(run.folder, f"has the same config and seed as {unique[key].folder}"))
        else:
            unique[key] = run
    order = {run.folder: index for index, run in enumerate(runs)}
    return sorted(unique.values(), key=lambda run: order[run.folder]), duplicates


# Configs --------------------------------------------------------------------------------------


def training_config(run: Run) -> FlatConfig:
    """The config by dotted names, without the seed and settings that do not affect training."""
    return {key: value for key, value in flatten(run.config).items() if key not in IGNORED_SETTINGS}


def task_config(config: FlatConfig) -> FlatConfig:
    """The part of a config that defines the task."""
    task = {key: value for key, value in config.items() if key.startswith(TASK_SETTINGS)}
    if config.get("env.self_play"):
        task["env.self_play"] = True  # whatever the number of past selves
    # Runs of earlier versions have no env.trial, and are of the same tasks as those with 1.
    return {key: value for key, value in task.items() if (key, value) != ("env.trial", 1)}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config by dotted names."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            result |= flatten(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def key_of(value: Any) -> str:
    """A config or one value of it as a dictionary key."""
    # default=str for dates, which YAML has and JSON lacks.
    return json.dumps(value, sort_keys=True, default=str)
