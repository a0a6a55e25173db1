"""Which memory for which task? The tables of docs/leaderboard.md, from the report of studies/memories.yaml.

    recollect compare studies/memories.yaml --out runs/paper --report docs/results/memories
    python -m benchmarks.leaderboard

Scores are those of the last weights, normalised: 0 is a random agent, 1 the best return of the task. Only
tasks in which every memory has run enter averages over tasks. Ranks are those of the mean over seeds
within a task, 1 for the best, averaged over tasks; seeds are resampled for their intervals.

Shapes.  M memories, K tasks, n seeds, R resamples.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recollect.common.intervals import Floats, Interval, stratified
from recollect.reporting.aggregate import pooled_iqm

from . import study_tables
from .cells import table
from .study_tables import Study

RESULTS = Path(__file__).parents[1] / "docs/results"
NAME, RESAMPLES = "memories", 10_000
# What a memory is for -> the beginnings of the names of its tasks.
KINDS = {
    "copy a sequence": ("popgym:RepeatPrevious", "popgym:Autoencode"),
    "one fact, long ago": ("popgym:RepeatFirst", "minigrid:", "tmaze"),
    "count, collect, explore": (
        *("popgym:CountRecall", "popgym:Concentration", "popgym:HigherLower", "popgym:Multiarmed"),
    ),
    "filter noise": ("popgym:NoisyPosition",),
}


class Cell(NamedTuple):
    """A memory in a task."""

    task: str
    memory: str
    scores: Floats
    """Normalised (n,)."""
    seconds: float
    """Of the median run, per million steps."""


class Standing(NamedTuple):
    """A memory over all tasks of a board."""

    memory: str
    iqm: float
    iqm_interval: Interval
    rank: float
    rank_interval: Interval
    first: float
    """Share of resamples in which no other memory has a better mean rank."""
    seconds: float
    """The mean over tasks, per million steps."""


def cells_of(study: Study) -> list[Cell]:
    """Every memory in every task of a report."""
    scales = {scale["env"]: (scale["low"], scale["high"]) for scale in study.report["scales"]}
    cells = []
    for group in study.report["groups"]:
        env, label = group["env"], group["label"]
        if not study.has("finals", env, label):
            continue
        low, high = scales[env]
        scores = (np.array(study.of("finals", env, label)["scores"]) - low) / (high - low)
        seconds = [
            1e6 * run["seconds"] / run["steps"] for run in group["runs"] if run["status"] == "finished"
        ]
        memory = group["settings"]["actor.memory.name"]
        cells.append(Cell(env, memory, scores, statistics.median(seconds)))
    return cells


def complete(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of tasks in which every memory has two seeds or more."""
    memories = {cell.memory for cell in cells}
    by_task = {task: [cell for cell in cells if cell.task == task] for task in {cell.task for cell in cells}}
    return [
        cell
        for cell in cells
        if {other.memory for other in by_task[cell.task] if len(other.scores) > 1} == memories
    ]


def standings(cells: Sequence[Cell]) -> list[Standing]:
    """The memories, the best mean rank first; of complete tasks."""
    memories = list(dict.fromkeys(cell.memory for cell in cells))
    strata = {name: [cell.scores for cell in cells if cell.memory == name] for name in memories}
    drawn = mean_ranks(cells, memories)
    ranks = drawn[0]
    low, high = np.quantile(drawn[1:], [0.025, 0.975], axis=0)
    first = (drawn[1:] <= drawn[1:].min(1, keepdims=True) + 1e-9).mean(0)
    rows = []
    for i, name in enumerate(memories):
        interval = stratified(strata[name], pooled_iqm)
        assert interval, "cells of one seed are left out"
        iqm = float(pooled_iqm([x[None] for x in strata[name]])[0])
        seconds = statistics.mean(cell.seconds for cell in cells if cell.memory == name)
        rank_interval = Interval(float(low[i]), float(high[i]))
        rows.append(Standing(name, iqm, interval, float(ranks[i]), rank_interval, float(first[i]), seconds))
    return sorted(rows, key=lambda row: row.rank)


def mean_ranks(cells: Sequence[Cell], memories: Sequence[str]) -> Floats:
    """Mean ranks over tasks (1 + R, M): first those of all seeds, then those of resampled seeds."""
    random = np.random.Generator(np.random.Philox(0))
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    scores = {(cell.task, cell.memory): cell.scores for cell in cells}
    total = np.zeros((1 + RESAMPLES, len(memories)))
    for task in tasks:
        means = []
        for memory in memories:
            x = scores[task, memory]
            places = random.integers(len(x), size=(RESAMPLES, len(x)))
            means.append(np.concatenate([[x.mean()], x[places].mean(1)]))
        total += ranked(np.stack(means, axis=1))
    return total / len(tasks)


def ranked(means: Floats) -> Floats:
    """Ranks within rows of means (R, M), 1 for the highest; equal means have their mean rank."""
    above = (means[:, None, :] > means[:, :, None]).sum(2)
    equal = (means[:, None, :] == means[:, :, None]).sum(2)
    return np.asarray(above + (equal + 1) / 2, dtype=np.float64)


# Tables ---------------------------------------------------------------------------------------


def memories_table(cells: Sequence[Cell]) -> list[str]:
    """The standings, and what they are of."""
    known = complete(cells)
    if not known:
        return ["No task is complete yet."]
    rows = [
        [
            f"`{row.memory}`",
            f"{row.rank:.1f} ({row.rank_interval.low:.1f} to {row.rank_interval.high:.1f})",
            f"{row.first:.2f}",
            f"{row.iqm:.2f} ({row.iqm_interval.low:.2f} to {row.iqm_interval.high:.2f})",
            f"{row.seconds:.0f} s",
        ]
        for row in standings(known)
    ]
    header = ["memory", "mean rank (95 %)", "P(first)", "IQM, normalised (95 %)", "time, 1 M steps"]
    tasks = len({cell.task for cell in known})
    seeds = sorted({len(cell.scores) for cell in known})
    return [*table(header, rows), "", f"{tasks} tasks, {' or '.join(map(str, seeds))} seeds each."]


def kinds_table(cells: Sequence[Cell]) -> list[str]:
    """The interquartile mean of each memory in each kind of task; of complete tasks."""
    known = complete(cells)
    by_kind = {kind: [cell for cell in known if cell.task.startswith(names)] for kind, names in KINDS.items()}
    kinds = {kind: of_kind for kind, of_kind in by_kind.items() if of_kind}
    if not kinds:
        return ["No task is complete yet."]
    memories = [row.memory for row in standings(known)]
    rows = [[f"`{name}`", *(_kind_cell(of_kind, name) for of_kind in kinds.values())] for name in memories]
    return table(["memory", *kinds], rows)


def _kind_cell(cells: Sequence[Cell], memory: str) -> str:
    strata = [cell.scores for cell in cells if cell.memory == memory]
    interval = stratified(strata, pooled_iqm)
    assert interval, "cells of one seed are left out"
    return f"{pooled_iqm([x[None] for x in strata])[0]:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    cells = cells_of(study_tables.read(RESULTS, NAME))
    print("\n".join([*memories_table(cells), "", *kinds_table(cells)]))


if __name__ == "__main__":
    main()
