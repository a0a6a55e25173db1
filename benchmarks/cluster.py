"""The overhead of Ray: one study as processes of this machine and as Ray tasks, in turns.

    python -m benchmarks.cluster [--seeds 10] [--steps 20000] [--repeats 3] [--on ray]

For each turn it prints the time of the whole command, and the cold start: the time until the first run has
a folder. Then it prints the medians, and the ratio of the times within each turn.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Duration:
    """Seconds of one command."""

    whole: float
    start: float
    """Until the first run has started."""


def run_study(args: argparse.Namespace, where: list[str]) -> Duration:
    """Execute the study in a new folder."""
    command = [sys.executable, "-m", "recollect", "compare", "-e", "CartPole-v1", "-m", "ppo", "ppo_gru"]
    command += ["--seeds", str(args.seeds), "--steps", str(args.steps), "--episodes", "3", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        process = subprocess.Popen([*command, *where], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            while not any(Path(folder).rglob("config.yaml")) and process.poll() is None:
                time.sleep(0.02)
            start = time.perf_counter() - began
            if process.wait():
                raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        finally:
            process.terminate()
            process.wait()
        return Duration(time.perf_counter() - began, start)


def main() -> None:
    """Execute both in turns, and print their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="of each of two models")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--on", default="ray", help="ray, or ray:HOST:PORT")
    args = parser.parse_args()
    # sys.exit unwinds `run_study`, which ends the study before this process.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    turns = []
    print("| local | cold start | Ray | cold start | ratio |\n|---|---|---|---|---|")
    for _ in range(args.repeats):
        here, there = run_study(args, []), run_study(args, ["--on", args.on])
        turns.append((here, there))
        times = f"{here.whole:.1f} s | {here.start:.1f} s | {there.whole:.1f} s | {there.start:.1f} s"
        print(f"| {times} | {there.whole / here.whole:.3f} |", flush=True)
    starts = (statistics.median(duration.start for duration in side) for side in zip(*turns, strict=True))
    ratios = [there.whole / here.whole for here, there in turns]
    print(
        f"\nRatio {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f}); "
        f"cold start {' and '.join(f'{start:.1f} s' for start in starts)}"
    )


if __name__ == "__main__":
    main()
