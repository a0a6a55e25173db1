"""What the comparisons with other libraries share: tasks, runs as processes, and their results."""

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
    """What one run reports, with the most memory this process has had.

    seconds  what counts: the cap, where the target was not reached
    took     what the steps really took; None: the same
    backend  what stepped the environments
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

    Whatever the process started ends with it: it leads a group, and the group is killed.
    """
    command = [sys.executable, "-m", module, *arguments]
    # Files, not pipes: what the process leaves behind would hold a pipe open after its death.
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
        found: Result = json.loads(out.read().splitlines()[-1])
    return found


def describe(task: str, who: str, seed: int, found: Result, metric: str = "return") -> str:
    """A result as a line that is printed while others still run."""
    return (
        f"  {task}  {who} seed {seed}: {found['seconds']:.2f} s  {found['steps']:,} steps  "
        f"{found['sps']:,.0f} steps/s  {metric} {found[metric]}  {found['memory_mb']:.0f} MB"
    )


def kept(out: Path, prefix: str, task: str) -> Path:
    """The file that holds the runs of a row."""
    name = task.replace(" ", "_").replace(">=", "ge").replace(",", "").replace("/", "_per_")
    return out / f"{prefix}-{name}.json"


# Rows of a table -------------------------------------------------------------------------------

GYMNASIUM = {"env.backend": "gymnasium"}
MARGIN = 120.0  # seconds a run may take beyond its cap: what loads before it, and its last update


@dataclass(frozen=True)
class Run:
    """One side of a row: the shim that runs it, and with what."""

    label: str
    shim: str  # a module of benchmarks.shims
    settings: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One row, or one for each of ours and each peer: a target under a cap, or the pace."""

    name: str
    ours: tuple[Run, ...]
    peers: tuple[Run, ...] = ()
    metric: Literal["return", "success"] = "return"
    target: float | None = None
    cap: float = 600.0  # seconds until the target, or an end for a run without one

    @property
    def runs(self) -> tuple[Run, ...]:
        """In the order of their turns."""
        return self.ours + self.peers


def ours(env: str, model: str, steps: int | None = None, options: dict[str, Any] | None = None) -> Run:
    """A preset, with options or a file of settings over it."""
    given = options or {}
    settings = {"env": env, "model": model, "steps": steps, "options": given}
    return Run(given.get("config", model), "ours", settings)


def both_backends(env: str, model: str, steps: int | None = None, **options: Any) -> tuple[Run, Run]:
    """A preset with the backend that it takes, EnvPool, and with the one that the peers have."""
    first, second = (ours(env, model, steps, {**options, **more}) for more in ({}, GYMNASIUM))
    return first, replace(second, label=f"{model}, Gymnasium")


def measure(task: Task, seeds: int, common: dict[str, Any]) -> dict[str, list[Result]]:
    """Ours and the peers' in turns, each in a new process; by label."""
    found: dict[str, list[Result]] = {run.label: [] for run in task.runs}
    goal = {"metric": task.metric, "target": task.target, "cap": task.cap, **common}
    for seed in range(1, seeds + 1):
        for run in task.runs:
            settings = json.dumps({**run.settings, **goal, "seed": seed})
            one = in_a_process(f"benchmarks.shims.{run.shim}", settings, limit=task.cap + MARGIN)
            found[run.label].append(one)
            print(describe(task.name, run.label, seed, one, task.metric), flush=True)
    return found


def measured(tasks: Sequence[Task], prefix: str, out: Path) -> list[tuple[Task, dict[str, list[Result]]]]:
    """The tasks that have been measured, with their runs by label."""
    files = [(task, kept(out, prefix, task.name)) for task in tasks]
    return [(task, json.loads(file.read_text())["runs"]) for task, file in files if file.exists()]
