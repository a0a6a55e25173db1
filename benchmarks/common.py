"""What the comparisons with other libraries share: runs as processes, results, lines of a table."""

import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Result = dict[str, Any]


def result(
    seconds: float,
    steps: int,
    mean: float | None,
    reached: bool | None,
    metric: str = "return",
    took: float | None = None,
) -> Result:
    """What one run reports, with the most memory this process has had.

    seconds  what counts: the cap, where the target was not reached
    took     what the steps really took; None: the same
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


def cells(ours: list[Result], peer: list[Result], cost: str) -> tuple[str, str, str]:
    """Medians of ours, medians of the peer's, and what part of the peer's cost is ours."""
    ratio = statistics.median(r[cost] for r in peer) / statistics.median(r[cost] for r in ours)
    return medians(ours, 2), medians(peer, 1), f"1/{ratio:.1f}"


def medians(runs: list[Result], digits: int) -> str:
    """Seconds, steps and steps per second, each the median of its own."""
    seconds, steps, pace = (statistics.median(r[key] for r in runs) for key in ("seconds", "steps", "sps"))
    return f"{seconds:.{digits}f} s, {steps:,.0f} steps, {pace:,.0f} steps/s"


def memory(runs: list[Result]) -> str:
    """The most that any of the runs took."""
    return f"{max(r['memory_mb'] for r in runs):.0f} MB"


def kept(out: Path, prefix: str, task: str) -> Path:
    """The file that holds the runs of a row."""
    name = task.replace(" ", "_").replace(">=", "ge").replace(",", "").replace("/", "_per_")
    return out / f"{prefix}-{name}.json"
