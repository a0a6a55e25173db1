"""The losses of runs over training: means over seeds for each tenth of it.

    python -m benchmarks.losses runs/paper/ppo_published runs/paper/ppo_gpt_published

Runs that differ only in the seed are one row. A column is a tenth of training, from the first to the
last: the geometric mean of the value loss over its iterations and over seeds, the mean absolute policy
loss, or the mean explained variance. A policy loss that diverges grows; otherwise it stays near 0, because
advantages are normalised.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from recollect.reporting.groups import Group, group_runs
from recollect.reporting.runs import read_runs

TENTHS = 10
MEASURES: dict[str, Callable[[np.ndarray], float]] = {
    "value_loss": lambda x: float(np.exp(np.log(np.maximum(x, 1e-12)).mean())),
    "policy_loss": lambda x: float(np.abs(x).mean()),
    "explained_variance": lambda x: float(x.mean()),
}


def table_row(group: Group, metric: str) -> str:
    """A row of the table."""
    tenths = [np.array_split(run.metrics[metric], TENTHS) for run in group.finished]
    together = [np.concatenate([parts[i] for parts in tenths]) for i in range(TENTHS)]
    cells = [f"{MEASURES[metric](part[np.isfinite(part)]):.3g}" for part in together]
    return f"| {group.env} | {group.label} | {metric} | {len(group.finished)} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders above them")
    parser.add_argument("--metrics", nargs="*", default=list(MEASURES), choices=MEASURES)
    args = parser.parse_args()
    columns = " | ".join(str(i + 1) for i in range(TENTHS))
    print(f"| task | model | metric | seeds | {columns} |\n|{'---|' * (TENTHS + 4)}")
    for metric in args.metrics:
        for group in group_runs(read_runs(args.runs).runs):
            if group.finished:
                print(table_row(group, metric))


if __name__ == "__main__":
    main()
