"""Shared by the comparisons with other libraries: tasks, runs in processes of their own, and results."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

Result = dict[str, Any]


def result(
    seconds: float,
    steps: int,
    mean: float | None,
    reached: bool | None,
    metric: str = "return",
    took: float | None = None,
    backend: str = "Gymnasium",
) -> Result:
    """The result of one run, with the peak memory of this process.

    seconds  time to the target; the cap if it was not reached
    took     time of all steps; None: the same as seconds
    backend  the backend of the environments
    """
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "steps": steps,
        "sps": steps / (took or seconds),
        metric: mean,
        "reached": reached,
        "memory_mb": memory,
        "seconds_a_step": seconds / steps,
        "backend": backend,
    }


def in_a_process(module: str, *arguments: str, limit: float | None = None) -> Result:
    """Run a module in a new process; the last line it prints is the result.

    The process leads a process group, and the group is killed at the end, so that no child outlives it.
    """
    command = [sys.executable, "-m", module, *arguments]
    # Files, not pipes: surviving children would keep a pipe open after the process ends.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        try:
            process.wait(limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for stream in (out, errors):
            stream.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{errors.read()[-3000:]}")
        lines = out.read().splitlines()
    outcome: Result = json.loads(lines[-1])
    return outcome


def describe(task: str, label: str, seed: int, run: Result, metric: str = "return") -> str:
    """A result as a line to print while other runs continue."""
    return (
        f"  {task}  {label} seed {seed}: {run['seconds']:.2f} s  {run['steps']:,} steps  "
        f"{run['sps']:,.0f} steps/s  {metric} {run[metric]}  {run['memory_mb']:.0f} MB"
    )


def kept(out: Path, prefix: str, task: str) -> Path:
    """The file with the runs of a row."""
    name = task.replace(" ", "_").replace(">=", "ge").replace(",", "").replace("/", "_per_")
    return out / f"{prefix}-{name}.json"


# Rows of a table -------------------------------------------------------------------------------

GYMNASIUM = {"env.backend": "gymnasium"}
MARGIN = 120.0  # seconds a run may exceed its cap: start-up before it, and the last update


@dataclass(frozen=True)
class Run:
    """One side of a row: a shim and its settings."""

    label: str
    shim: str  # a module of benchmarks.shims
    settings: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One row, or one per pair of our runs and peers: time to a target under a cap, or steps per second."""

    name: str
    ours: tuple[Run, ...]
    peers: tuple[Run, ...] = ()
    metric: Literal["return", "success"] = "return"
    target: float | None = None
    cap: float = 600.0  # seconds: limit of the time to the target, or of a run without a target

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs in the order in which they take turns."""
        return self.ours + self.peers


def ours(env: str, model: str, steps: int | None = None, options: dict[str, Any] | None = None) -> Run:
    """A preset, with options or a config file over it."""
    given = options or {}
    settings = {"env": env, "model": model, "steps": steps, "options": given}
    return Run(given.get("config", model), "ours", settings)


def both_backends(env: str, model: str, steps: int | None = None, **options: Any) -> tuple[Run, Run]:
    """A preset with its default backend, EnvPool, and with that of the peers, Gymnasium."""
    first, second = (ours(env, model, steps, {**options, **more}) for more in ({}, GYMNASIUM))
    return first, replace(second, label=f"{model}, Gymnasium")


def measure(task: Task, seeds: int, common: dict[str, Any]) -> dict[str, list[Result]]:
    """Our runs and those of the peers in turns, each in a new process; by label."""
    results: dict[str, list[Result]] = {run.label: [] for run in task.runs}
    goal = {"metric": task.metric, "target": task.target, "cap": task.cap, **common}
    for seed in range(1, seeds + 1):
        for run in task.runs:
            settings = json.dumps({**run.settings, **goal, "seed": seed})
            outcome = in_a_process(f"benchmarks.shims.{run.shim}", settings, limit=task.cap + MARGIN)
            results[run.label].append(outcome)
            print(describe(task.name, run.label, seed, outcome, task.metric), flush=True)
    return results


def measured(tasks: Sequence[Task], prefix: str, out: Path) -> list[tuple[Task, dict[str, list[Result]]]]:
    """The tasks that have a result file, with their runs by label."""
    files = [(task, kept(out, prefix, task.name)) for task in tasks]
    return [(task, json.loads(file.read_text())["runs"]) for task, file in files if file.exists()]
