"""What the comparisons with other libraries share: runs as processes, results, lines of a table."""

import argparse
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
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


# Rows of a table -------------------------------------------------------------------------------

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
    asked: str
    ours: tuple[Run, ...]
    peers: tuple[Run, ...] = ()
    metric: Literal["return", "success"] = "return"
    target: float | None = None
    cap: float = 600.0  # seconds

    @property
    def runs(self) -> tuple[Run, ...]:
        """In the order of their turns."""
        return self.ours + self.peers


def ours(env: str, model: str, steps: int | None = None, options: dict[str, Any] | None = None) -> Run:
    """A preset, with options or a file of settings over it."""
    given = options or {}
    settings = {"env": env, "model": model, "steps": steps, "options": given}
    return Run(given.get("config", model), "ours", settings)


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


def rows(task: Task, found: dict[str, list[Result]]) -> list[str]:
    """Lines of the table, one for each of ours and each peer."""
    cost = "seconds_a_step" if task.target is None else "seconds"
    lines = []
    for our in task.ours:
        mine = found[our.label]
        beside = [(peer.label, cells(mine, found[peer.label], cost)) for peer in task.peers]
        texts = [f"{left} | {label}: {right} | {ratio}" for label, (left, right, ratio) in beside]
        alone = [f"{medians(mine, 2)} | - | -"]
        end = f"{task.asked} | {memory(mine)} |"
        lines += [f"| {task.name}, {our.label} | {text} | {end}" for text in texts or alone]
    return lines


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, if it has a .git of its own."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def options(about: str, repository: str) -> argparse.ArgumentParser:
    """The command line of a comparison; one of the peers is a checkout of a repository."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="*", help="names, or parts of names, of rows")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--table", action="store_true", help="print what was kept, run nothing")
    parser.add_argument("--peer", type=Path, help=f"a checkout of {repository}")
    parser.add_argument("--peer-commit", help="its commit, where the checkout has no .git")
    parser.add_argument("--peer-threads", type=int, help="of torch in the peers; without it, torch's choice")
    return parser


def chosen(tasks: Sequence[Task], parts: Sequence[str] | None) -> list[Task]:
    """The rows that --tasks names."""
    return [task for task in tasks if not parts or any(part in task.name for part in parts)]


def main(about: str, prefix: str, tasks: Sequence[Task], repository: str, packages: dict[str, str]) -> None:
    """Measure and print the table of a comparison.

    packages  the peers that are installed, by shim; any other is the checkout of the repository
    """
    parser = options(about, repository)
    args = parser.parse_args()
    tasks = chosen(tasks, args.tasks)
    commit = args.peer_commit or (commit_of(args.peer) if args.peer else None)
    needed = any(peer.shim not in packages for task in tasks for peer in task.peers)
    if needed and not args.table and (args.peer is None or commit is None):
        parser.error(f"--peer names a checkout of {repository}; without .git, --peer-commit says which")
    suffix = f" with {args.peer_threads} threads" if args.peer_threads else ""

    def source(peer: Run) -> str:
        package = packages.get(peer.shim)
        return (f"{package} {version(package)}" if package else f"{repository} at {commit}") + suffix

    compare(tasks, args, prefix, source)


def compare(
    tasks: Sequence[Task], args: argparse.Namespace, prefix: str, source: Callable[[Run], str]
) -> None:
    """Measure rows, keep their runs in files and print the table, or print what was kept.

    source  what a peer is, with its version
    """
    # So that a run's process is ended before this one.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    args.out.mkdir(parents=True, exist_ok=True)
    common = {"peer": str(args.peer), "threads": args.peer_threads}
    lines = ["| task | recollect | peer | time | asked | memory |", "|---|---|---|---|---|---|"]
    peers: dict[str, None] = {}  # in order, each once
    for task in tasks:
        file = kept(args.out, prefix, task.name)
        if not args.table:
            found = measure(task, args.seeds, common)
            whole = {"task": asdict(task), "peers": [source(peer) for peer in task.peers], "runs": found}
            file.write_text(json.dumps(whole, indent=1) + "\n")
        if file.exists():
            whole = json.loads(file.read_text())
            lines += rows(task, whole["runs"])
            peers |= dict.fromkeys(whole["peers"])
    print("\n".join([*lines, "", f"Peers: {', '.join(peers) or 'none'}."]))
