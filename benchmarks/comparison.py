"""The command line of the comparisons with other libraries."""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from recollect.run.weights import processor_name

from .cells import full_table
from .common import Run, Task, kept, measure, measured


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, if it has a .git of its own."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def options(about: str, repository: str | None) -> argparse.ArgumentParser:
    """The command line of a comparison.

    repository  that one of the peers is a checkout of; None: all peers are installed
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="*", help="names, or parts of names, of rows")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--table", action="store_true", help="print what was kept, run nothing")
    checkout = f"a checkout of {repository}" if repository else argparse.SUPPRESS
    commit = "its commit, where the checkout has no .git" if repository else argparse.SUPPRESS
    parser.add_argument("--peer", type=Path, help=checkout)
    parser.add_argument("--peer-commit", help=commit)
    parser.add_argument("--peer-threads", type=int, help="of torch in the peers; without it, torch's choice")
    return parser


def chosen(tasks: Sequence[Task], parts: Sequence[str] | None) -> list[Task]:
    """The rows that --tasks names."""
    return [task for task in tasks if not parts or any(part in task.name for part in parts)]


def main(
    about: str, prefix: str, tasks: Sequence[Task], repository: str | None, packages: dict[str, str]
) -> None:
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
    if not args.table:
        common = {"peer": str(args.peer), "threads": args.peer_threads}
        for task in tasks:
            runs = measure(task, args.seeds, common)
            peers = [source(peer) for peer in task.peers]
            whole = {"task": asdict(task), "peers": peers, "processor": processor_name(), "runs": runs}
            kept(args.out, prefix, task.name).write_text(json.dumps(whole, indent=1) + "\n")
    print("\n".join(full_table(measured(tasks, prefix, args.out))))
