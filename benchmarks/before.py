"""CPU time of training at an earlier commit and now, in turns: whether a change made anything slower.

    python -m benchmarks.before COMMIT [--pairs 8]

Each measurement is a process that trains four times and takes the smallest time of the last three, with
torch's kernels. Pairs alternate which of the two comes first. On a quiet machine the ratio of minima
scatters by about 1 %.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TASKS = (("CartPole-v1", "ppo", "40000"), ("CartPoleMasked", "ppo_lstm", "25000"))
TRAIN = """
import json, sys, tempfile, time, warnings
warnings.simplefilter("ignore")
import recollect
env, model, steps, options = *sys.argv[1:3], int(sys.argv[3]), json.loads(sys.argv[4])
times = []
with tempfile.TemporaryDirectory() as out:
    for number in range(4):
        begin = time.process_time()
        place = {"out": out, "run_id": str(number), "quiet": True}
        recollect.train(env, model, steps=steps, seed=1, options=options, **place)
        times.append(time.process_time() - begin)
print(min(times[1:]))
"""


def checkout(commit: str, folder: Path) -> Path:
    """The sources of a commit."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


def has_kernels(source: Path) -> bool:
    """Whether the option exists there; before, all kernels were torch's."""
    return (source / "recollect" / "native").exists()


def seconds(source: Path, task: tuple[str, str, str]) -> float:
    """CPU time of one training."""
    options: dict[str, object] = {"threads": 1, "val_check_interval": 0}
    if has_kernels(source):
        options["kernels"] = "torch"
    env = {key: x for key, x in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRAIN, *task, json.dumps(options)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def compare(task: tuple[str, str, str], before: Path, now: Path, pairs: int) -> str:
    """A line: ratios of the times now to those before."""
    times: dict[Path, list[float]] = {before: [], now: []}
    for pair in range(pairs):
        for source in (before, now) if pair % 2 == 0 else (now, before):
            times[source].append(seconds(source, task))
    old, new = times.values()
    minima, medians = min(new) / min(old), statistics.median(new) / statistics.median(old)
    ratios = sorted(y / x for x, y in zip(old, new, strict=True))
    middle = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
    return (
        f"{task[0]} {task[1]}: before {min(old):.3f} s, now {min(new):.3f} s; ratio of minima {minima:.3f}, "
        f"of medians {medians:.3f}, median of ratios {middle}"
    )


def main() -> None:
    """Compare on every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--pairs", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = checkout(options.commit, Path(folder))
        for task in TASKS:
            print(compare(task, before, ROOT / "src", options.pairs), flush=True)


if __name__ == "__main__":
    main()
