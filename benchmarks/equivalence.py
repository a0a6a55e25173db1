"""Whether native kernels learn as well as torch's, by the rule of studies/kernels.yaml.

    recollect compare studies/kernels.yaml --report docs/results/kernels
    recollect compare studies/kernels_memory.yaml --report docs/results/kernels_memory
    recollect compare studies/kernels_gpt2.yaml --report docs/results/kernels_gpt2
    recollect compare studies/kernels_short.yaml --report docs/results/kernels_short
    recollect compare studies/kernels_trxl.yaml --report docs/results/kernels_trxl
    recollect compare studies/kernels_late_stack.yaml --report docs/results/kernels_late_stack
    recollect compare studies/kernels_blocks.yaml --report docs/results/kernels_blocks
    recollect compare studies/kernels_blocks_more.yaml --report docs/results/kernels_blocks_more
    recollect compare studies/kernels_mamba.yaml --report docs/results/kernels_mamba
    recollect compare studies/kernels_lmu.yaml --report docs/results/kernels_lmu
    recollect compare studies/kernels_lmu_more.yaml --report docs/results/kernels_lmu_more
    python -m benchmarks.equivalence

Prints native minus torch, in normalised scores, of each task and over all tasks of the files that belong
together, and exits with 1 if one of these groups does not fulfil the rule.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recollect.common.intervals import Floats, Interval, student

from . import study_tables
from .cells import table
from .study_tables import Study

RESULTS = Path(__file__).parents[1] / "docs/results"
STUDIES = (
    ("kernels", "kernels_memory"),
    ("kernels_gpt2", "kernels_short"),
    ("kernels_trxl",),
    ("kernels_late_stack",),
    ("kernels_blocks",),
    ("kernels_blocks_more",),
    ("kernels_mamba",),
    ("kernels_lmu",),
    ("kernels_lmu_more",),
)
MARGIN = 0.05  # of the mean over all tasks, by its 90 % interval
TASK_MARGIN = 0.1  # by which no task may be worse, by its 95 % interval


class Difference(NamedTuple):
    """Native minus torch: an estimated difference of means.

    variance  of the estimate
    freedom   degrees of freedom of the variance
    """

    mean: float
    variance: float
    freedom: float

    def interval(self, level: float) -> Interval:
        """Student's interval of the true difference."""
        if not self.variance:
            return Interval(self.mean, self.mean)
        half = student(self.freedom, level) * math.sqrt(self.variance)
        return Interval(self.mean - half, self.mean + half)


class Task(NamedTuple):
    """One environment and model: scores of its seeds (n,), normalised."""

    env: str
    model: str
    torch: Floats
    native: Floats

    @property
    def difference(self) -> Difference:
        """Welch's estimate of the difference of means."""
        groups = self.native, self.torch
        parts = [x.var(ddof=1) / len(x) for x in groups]
        variance = float(sum(parts))
        weight = sum(part**2 / (len(x) - 1) for part, x in zip(parts, groups, strict=True))
        mean = self.native.mean() - self.torch.mean()
        return Difference(float(mean), variance, variance**2 / weight if variance else math.inf)


def average(differences: Sequence[Difference]) -> Difference:
    """The mean of differences of independent tasks, each with the same weight."""
    n = len(differences)
    parts = [d.variance / n**2 for d in differences]
    weight = sum(part**2 / d.freedom for part, d in zip(parts, differences, strict=True))
    variance = sum(parts)
    mean = sum(d.mean for d in differences) / n
    return Difference(mean, variance, variance**2 / weight if variance else math.inf)


def tasks(study: Study) -> list[Task]:
    """Pairs of models of a report that differ only in their kernels."""
    pairs: list[Task] = []
    for scale in study.report["scales"]:
        env, scores = scale["env"], {}
        for group in (
            x for x in study.report["groups"] if x["env"] == env and study.has("finals", env, x["label"])
        ):
            raw = np.array(study.of("finals", env, group["label"])["scores"])
            normalised = (raw - scale["low"]) / (scale["high"] - scale["low"])
            scores[group["settings"]["model"], group["settings"]["kernels"]] = normalised
        models = dict.fromkeys(model for model, _ in scores)
        pairs += [Task(env, model, scores[model, "torch"], scores[model, "native"]) for model in models]
    return pairs


def equivalent(differences: Sequence[Difference]) -> bool:
    """The rule of studies/kernels.yaml."""
    low, high = average(differences).interval(0.9)
    return low > -MARGIN and high < MARGIN and all(d.interval(0.95).high >= -TASK_MARGIN for d in differences)


def lines(pairs: Sequence[Task]) -> list[str]:
    """The table, and the verdict."""
    differences = [task.difference for task in pairs]
    rows = [
        [task.env, task.model, f"{task.torch.mean():.3f}", f"{task.native.mean():.3f}", *_cells(difference)]
        for task, difference in zip(pairs, differences, strict=True)
    ]
    mean = average(differences)
    rows.append(["all, each with the same weight", "", "", "", *_cells(mean)])
    low, high = mean.interval(0.9)
    verdict = "equivalent" if equivalent(differences) else "not shown to be equivalent"
    header = ["environment", "model", "torch", "native", "native - torch (95 %)"]
    return [
        *table(header, rows),
        "",
        f"90 % interval over all: {low:.3f} to {high:.3f}; margin {MARGIN}: {verdict}.",
    ]


def _cells(difference: Difference) -> list[str]:
    low, high = difference.interval(0.95)
    return [f"{difference.mean:.3f} ({low:.3f} to {high:.3f})"]


def read(results: Path = RESULTS) -> list[list[Task]]:
    """The tasks of each group of studies."""
    return [[task for name in names for task in tasks(study_tables.read(results, name))] for names in STUDIES]


def main() -> None:
    """Print the tables; exit with 1 unless the kernels are equivalent in all."""
    studies = read()
    print("\n\n".join("\n".join(lines(pairs)) for pairs in studies))
    sys.exit(not all(equivalent([task.difference for task in pairs]) for pairs in studies))


if __name__ == "__main__":
    main()
