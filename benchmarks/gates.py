"""Do the presets still learn as well as they did? Five seeds of ten tasks beside the scores that are stored.

    python -m benchmarks.gates [--tasks CartPole-v1 ...] [--seeds 5] [--jobs 2]

The stored scores are those of python -m benchmarks.returns, in benchmarks/results. The command fails if the
mean of a task is lower than the stored one by more than chance: an exact permutation test, one-sided,
adjusted by Holm over all tasks, at the 5 % level. Beside five stored scores that finds a loss only if all
five seeds are below all stored ones; beside ten, four of five are enough. Seeds and machine are those of the
stored runs where nothing has changed, and then all scores are equal.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recollect.common.intervals import Floats
from recollect.reporting.significance import holm

from .cells import table
from .returns import ROWS, Row, in_a_process

RESULTS = Path(__file__).parent / "results"
TASKS = (
    *("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "poc-ppo_gru", "poc-ppo_trxl", "poc-ppo_gpt_actor"),
    *("CartPoleMasked-ppo_lstm", "CartPoleNoVel-v1-ppo_lstm", "PendulumNoVel-v1-ppo_lstm"),
    "MountainCarContinuousNoVel-v0-ppo_lstm",
)
LEVEL = 0.05
LEAST_SEEDS = 5


class Gate(NamedTuple):
    """A task with the scores of both."""

    name: str
    before: Floats
    now: Floats


def loss_p(before: Floats, now: Floats) -> float:
    """p of equal means against a lower mean of `now` (n,) than of `before` (m,): the share of all ways to
    divide the scores into two such groups whose second mean is as low as this one, or lower."""
    pooled = np.concatenate([before, now])
    sums = np.array([pooled[list(places)].sum() for places in combinations(range(len(pooled)), len(now))])
    # A tolerance, because sums in another order are rounded.
    return float((sums <= now.sum() + 1e-9 * max(1.0, abs(now.sum()))).mean())


def judge(gates: Sequence[Gate]) -> tuple[list[str], bool]:
    """A table, and whether no task has a loss."""
    adjusted = holm([loss_p(gate.before, gate.now) for gate in gates])
    rows = []
    for gate, p in zip(gates, adjusted, strict=True):
        scores = (", ".join(f"{x:g}" for x in np.round(some, 2)) for some in (gate.before, gate.now))
        rows.append([gate.name, *scores, f"{p:.2g}", "LOSS" if p < LEVEL else "ok"])
    header = ["task", "stored scores", "scores now", "p of a loss, adjusted", ""]
    return table(header, rows), all(p >= LEVEL for p in adjusted)


def stored(row: Row) -> Floats:
    """The stored scores of a row."""
    results = json.loads((RESULTS / f"returns-{row.name}.json").read_text())
    return np.array([result[row.metric] for result in results], dtype=np.float64)


def measure(rows: Sequence[Row], seeds: int, jobs: int) -> list[Gate]:
    """Run the first seeds of each row, in processes of their own."""
    threads = 1 if jobs > 1 else 0
    with ThreadPoolExecutor(jobs) as pool:
        runs = {
            row.name: [pool.submit(in_a_process, row, seed, threads, "") for seed in range(1, seeds + 1)]
            for row in rows
        }
        return [
            Gate(row.name, stored(row), np.array([run.result()[row.metric] for run in runs[row.name]]))
            for row in rows
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if args.seeds < LEAST_SEEDS:
        parser.error(f"--seeds {args.seeds}: with fewer than {LEAST_SEEDS} seeds a loss is not detectable")
    lines, passed = judge(measure([row for row in ROWS if row.name in args.tasks], args.seeds, args.jobs))
    print("\n".join(lines))
    sys.exit(0 if passed else "a preset learns less than it did")


if __name__ == "__main__":
    main()
