"""Whether two checkouts of the repository train the same agents, bit for bit.

    python -m benchmarks.equality OLD NEW [--updates 3] [--cases gru trpo] [--rename OLD=NEW ...]
    python -m benchmarks.equality OLD NEW --control

OLD and NEW are folders with src/. Each trains every case of benchmarks/equality_cases.py for a few
rollouts, in a process of its own; both processes run side by side. Compared are all tensors of all files
that a run leaves (weights, and the whole learner where there are checkpoints), all metrics but time and
sps, all training episodes, and the returns of evaluation episodes. The exit code is 1 if anything differs
or a case does not run.

--control changes one option of every run of NEW, by too little to notice in a return. Then every case must
differ, and the exit code is 1 if one does not. --rename gives what NEW calls otherwise: options, values of
options, metrics, tensors; a whole dotted name or one part of it. This script and its cases are those of the
folder in which the command is run, for both checkouts.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from .equality_cases import CASES, CONTROL
from .equality_runs import Job, renamed

ROOT = Path(__file__).parents[1]
CLOCK = ("time", "sps")
EQUAL, DIFFERS, FAILED = "equal", "DIFFERS", "FAILED"
NAMED = 3  # names in a list of differences
Results = dict[str, dict[str, Any]]


# Runs -----------------------------------------------------------------------------------------


class Side:
    """The process that runs all cases of one checkout."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        job.write(folder / "job.json")
        command = [sys.executable, "-m", "benchmarks.equality_runs", str(folder / "job.json")]
        source = str(Path(job.checkout).resolve() / "src")
        env = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        with (folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output)

    def wait(self, name: str) -> str:
        """Wait for a case to end; its error, or nothing."""
        path = self.folder / name / "record.json"
        while not path.exists():
            if self.process.poll() is not None and not path.exists():
                raise SystemExit((self.folder / "output.txt").read_text()[-3000:])
            time.sleep(0.02)
        error: str = json.loads(path.read_text())["error"]
        return f"{self.folder.name}: {error}" if error else ""

    def stop(self) -> None:
        """Kill the process if it is still running; SIGTERM would end one run, and the next would start."""
        self.process.kill()
        self.process.wait()


# Results --------------------------------------------------------------------------------------


def read(folder: Path, names: dict[str, str]) -> Results:
    """All values of a case that must be equal, by kind and name."""
    results: Results = {"metrics": {}, "weights": {}}
    for line, text in enumerate(read_lines(folder, "metrics.jsonl"), 1):
        # A missing metric is unknown, as null is.
        values = {k: x for k, x in json.loads(text).items() if k not in CLOCK and x is not None}
        results["metrics"] |= {f"line {line} {renamed(key, names)}": x for key, x in values.items()}
    for path in sorted(folder.rglob("*.safetensors")):
        for name, x in load_file(path).items():
            # Bytes, because NaN is unequal to itself and -0.0 is equal to 0.0.
            results["weights"][f"{path.stem} {renamed(name, names)}"] = (str(x.dtype), x.shape, x.tobytes())
    for kind, file in (("episodes", "episodes.jsonl"), ("returns", "evaluation.json")):
        results[kind] = {f"line {i}": text for i, text in enumerate(read_lines(folder, file), 1)}
    return results


def read_lines(folder: Path, name: str) -> list[str]:
    """The lines of all files of this name below a folder."""
    return [line for path in sorted(folder.rglob(name)) for line in path.read_text().splitlines()]


def differences(old: Results, new: Results) -> list[str]:
    """A text for each kind of value that differs."""
    if not old["weights"] or not old["metrics"]:
        return ["the run left no weights or no metrics"]
    return [text for kind in old if (text := difference(kind, old[kind], new[kind]))]


def difference(kind: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """How many values of one kind differ, with the first of them; empty if none does."""
    names = {
        "differ": [name for name in old if name in new and old[name] != new[name]],
        "missing": [name for name in old if name not in new],
        "added": [name for name in new if name not in old],
    }
    counts = [f"{len(x)} of {len(old)} {change} ({first(x)})" for change, x in names.items() if x]
    return f"{kind}: {', '.join(counts)}" if counts else ""


def first(names: Sequence[str]) -> str:
    """The first of many names."""
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


# The command ----------------------------------------------------------------------------------


def compare(name: str, sides: Sequence[Side], names: dict[str, str]) -> tuple[str, list[str]]:
    """Whether a case is equal, differs or failed, and where."""
    errors = [side.wait(name) for side in sides]
    if any(errors):
        return FAILED, [error for error in errors if error]
    old, new = (side.folder / name for side in sides)
    texts = differences(read(old, names), read(new, {}))
    return DIFFERS if texts else EQUAL, texts


def compare_all(args: argparse.Namespace, cases: Sequence[str]) -> Counter[str]:
    """Run both sides and print a line for each case; how many are equal, differ and failed."""
    names, counts = dict(pair.split("=", 1) for pair in args.rename), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        old, new = (Path(folder) / side for side in ("OLD", "NEW"))
        both = tuple(cases), args.updates
        sides = [
            Side(Job(str(args.old), str(old), *both, {}, {}), old),
            Side(Job(str(args.new), str(new), *both, CONTROL if args.control else {}, names), new),
        ]
        try:
            for name in cases:
                result, texts = compare(name, sides, names)
                counts[result] += 1
                print(f"{name:30}  {result:7}  {'; '.join(texts)}".rstrip(), flush=True)
        finally:
            for side in sides:
                side.stop()
    return counts


def missing(package: str) -> bool:
    """Whether a package that a case requires is not installed."""
    return bool(package) and importlib.util.find_spec(package) is None


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of the repository")
    parser.add_argument("new", type=Path, help="another")
    parser.add_argument("--updates", type=int, default=3, help="rollouts of each run")
    parser.add_argument("--cases", nargs="*", default=[], help="words of the names of cases to run")
    parser.add_argument("--rename", nargs="*", default=[], metavar="OLD=NEW", help="names that differ in NEW")
    parser.add_argument("--control", action="store_true", help="change an option in NEW: all must differ")
    return parser.parse_args()


def main() -> None:
    """Compare the chosen cases and count."""
    args, began = parse(), time.monotonic()
    chosen = [name for name in CASES if not args.cases or any(word in name for word in args.cases)]
    cases = [name for name in chosen if not missing(CASES[name].needs)]
    if not cases:
        raise SystemExit(f"no case to run: no name holds {' or '.join(args.cases)}")
    counts = compare_all(args, cases)
    for name in chosen:
        if name not in cases:
            print(f"{name:30}  skipped: {CASES[name].needs} is not installed")
    summary = ", ".join(f"{counts[result]} {result}" for result in (EQUAL, DIFFERS, FAILED))
    print(f"{len(cases)} cases in {time.monotonic() - began:.0f} s: {summary}")
    raise SystemExit(counts[DIFFERS if args.control else EQUAL] < len(cases))


if __name__ == "__main__":
    main()
