"""Which memory for which task? The tables of docs/leaderboard.md, from the report of studies/memories.yaml.

    recollect compare studies/memories_tuning.yaml --out runs/paper --report docs/results/memories_tuning
    python -m benchmarks.leaderboard --tuning     the learning rate of each memory
    recollect compare studies/memories.yaml --out runs/paper --report docs/results/memories
    python -m benchmarks.leaderboard [--plot docs/images/leaderboard.svg]

Scores are those of the last weights, normalised: 0 is a random agent, 1 the best return of the task. Of each
task count the seeds that every memory has, and a run that failed counts as a random agent. Only tasks in
which all memories have two seeds or more enter averages over tasks. Ranks are those of the mean over seeds
within a task, 1 for the best, averaged over tasks; seeds are resampled for their intervals. Each memory is
compared with the GRU by the probability that a run of it has the higher score, averaged over tasks, with a
rank test within tasks, adjusted by Holm over all memories.

Shapes.  M memories, K tasks, n seeds, R resamples.
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from recollect.common.intervals import Floats, Interval, combined_factor, stratified
from recollect.reporting.aggregate import improvement, pooled_iqm
from recollect.reporting.scores import rounded
from recollect.reporting.significance import holm, rank_test

from . import study_tables
from .cells import table
from .study_tables import Study, View

ROOT = Path(__file__).parents[1]
NAME, BASE, RESAMPLES = "memories", "gru", 10_000
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
    scores: dict[int, float]
    """Normalised, by seed."""
    seconds: float
    """Of the median run, per million steps."""


class Column(NamedTuple):
    """A memory in a task of a complete board."""

    task: str
    memory: str
    scores: Floats
    """Of the seeds that every memory has (n,)."""
    seconds: float


class Standing(NamedTuple):
    """A memory over all tasks of a board."""

    memory: str
    iqm: float
    iqm_interval: Interval
    rank: float
    rank_interval: Interval
    first: float
    """Share of resamples in which no other memory has a better mean rank."""
    wins: float
    """The probability that its score is above that of the base."""
    wins_interval: Interval
    p: float
    """Of equal scores, adjusted over all memories; NaN for the base."""
    seconds: float
    """The mean over tasks, per million steps."""


def read(root: Path) -> list[Cell]:
    """Every memory in every task of the committed report.

    Its scores alone count, so the report's own intervals are not computed again.
    """
    folder = root / "docs" / "results" / NAME
    return cells_of(Study(json.loads((folder / "report.json").read_text()), View(), folder))


def cells_of(study: Study) -> list[Cell]:
    """Every memory in every task of a report."""
    scales = {scale["env"]: (scale["low"], scale["high"]) for scale in study.report["scales"]}
    cells = []
    for group in study.report["groups"]:
        env, label = group["env"], group["label"]
        scores = {run["seed"]: 0.0 for run in group["runs"] if run["status"] == "failed"}
        if study.has("finals", env, label):
            low, high = scales[env]
            final = study.of("finals", env, label)
            normalised = [(rounded(score) - low) / (high - low) for score in final["scores"]]
            scores |= dict(zip(final["seeds"], normalised, strict=True))
        seconds = [
            1e6 * run["seconds"] / run["steps"] for run in group["runs"] if run["status"] == "finished"
        ]
        memory = group["settings"]["actor.memory.name"]
        cells.append(Cell(env, memory, scores, statistics.median(seconds) if seconds else float("nan")))
    return cells


def complete(cells: Sequence[Cell]) -> list[Column]:
    """The tasks in which every memory has two seeds or more, with the seeds that all have."""
    memories = {cell.memory for cell in cells}
    columns = []
    for task in dict.fromkeys(cell.task for cell in cells):
        of_task = [cell for cell in cells if cell.task == task]
        seeds = sorted(set.intersection(*(set(cell.scores) for cell in of_task)))
        if {cell.memory for cell in of_task} == memories and len(seeds) > 1:
            columns += [
                Column(task, cell.memory, np.array([cell.scores[seed] for seed in seeds]), cell.seconds)
                for cell in of_task
            ]
    return columns


def standings(columns: Sequence[Column]) -> list[Standing]:
    """The memories, the best mean rank first."""
    memories = list(dict.fromkeys(column.memory for column in columns))
    strata = {name: [column.scores for column in columns if column.memory == name] for name in memories}
    ranks, drawn = mean_ranks(columns, memories)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    first = (drawn <= drawn.min(1, keepdims=True) + 1e-9).mean(0)
    pairs = {name: list(zip(strata[name], strata[BASE], strict=True)) for name in memories}
    others = [name for name in memories if name != BASE]
    adjusted = dict(zip(others, holm([rank_test(pairs[name]) for name in others]), strict=True))
    rows = []
    for i, name in enumerate(memories):
        interval = stratified(strata[name], pooled_iqm)
        assert interval, "columns have two seeds or more"
        wins, wins_interval = improvement(pairs[name])
        rows.append(
            Standing(
                name,
                float(pooled_iqm([x[None] for x in strata[name]])[0]),
                interval,
                float(ranks[i]),
                Interval(float(low[i]), float(high[i])),
                float(first[i]),
                wins,
                wins_interval,
                adjusted.get(name, float("nan")),
                statistics.mean(column.seconds for column in columns if column.memory == name),
            )
        )
    return sorted(rows, key=lambda row: row.rank)


def mean_ranks(
    columns: Sequence[Column], memories: Sequence[str], resamples: int = RESAMPLES
) -> tuple[Floats, Floats]:
    """Mean ranks over tasks (M,), and those of resampled seeds (R, M).

    Resamples of few seeds differ too little from the estimate, so their distances from it are multiplied by
    the factor of recollect.common.intervals.
    """
    random = np.random.Generator(np.random.Philox(0))
    tasks = list(dict.fromkeys(column.task for column in columns))
    scores = {(column.task, column.memory): column.scores for column in columns}
    total = np.zeros((1 + resamples, len(memories)))
    variances, sizes = np.zeros((len(memories), len(tasks))), np.zeros(len(tasks), int)
    for k, task in enumerate(tasks):
        means = []
        for memory in memories:
            x = scores[task, memory]
            places = random.integers(len(x), size=(resamples, len(x)))
            means.append(np.concatenate([[x.mean()], x[places].mean(1)]))
        ranks = ranked(np.stack(means, axis=1))
        variances[:, k], sizes[k] = ranks[1:].var(0), len(x)
        total += ranks
    mean, drawn = total[0] / len(tasks), total[1:] / len(tasks)
    factors = np.array([combined_factor(of_memory, sizes) for of_memory in variances])
    return mean, np.clip(mean + factors * (drawn - mean), 1, len(memories))


def ranked(means: Floats) -> Floats:
    """Ranks within rows of means (R, M), 1 for the highest; equal means have their mean rank."""
    means = means.round(9)  # those of equal scores in another order differ in the last digits
    above = (means[:, None, :] > means[:, :, None]).sum(2)
    equal = (means[:, None, :] == means[:, :, None]).sum(2)
    return np.asarray(above + (equal + 1) / 2, dtype=np.float64)


def best_rates(study: Study) -> dict[str, float]:
    """The learning rate of each memory with the highest mean over tasks of its normalised scores."""
    rates = {group["label"]: group["settings"]["ppo.learning_rate"] for group in study.report["groups"]}
    memories = {group["label"]: group["settings"]["actor.memory.name"] for group in study.report["groups"]}
    scales = {scale["env"]: (scale["low"], scale["high"]) for scale in study.report["scales"]}
    scores: dict[str, list[float]] = {}
    for final in study.report["finals"]:
        if final["label"] in rates:
            low, high = scales[final["env"]]
            scores.setdefault(final["label"], []).append((final["mean"] - low) / (high - low))
    best = {memory: (-math.inf, math.nan) for memory in memories.values()}
    for label, some in scores.items():
        best[memories[label]] = max(best[memories[label]], (statistics.mean(some), rates[label]))
    return {memory: rate for memory, (_, rate) in best.items()}


# Tables ---------------------------------------------------------------------------------------


def memories_table(cells: Sequence[Cell]) -> list[str]:
    """The standings, and what they are of."""
    columns = complete(cells)
    if not columns:
        return ["No task is complete yet."]
    rows = [
        [
            f"`{row.memory}`",
            f"{row.rank:.1f} ({row.rank_interval.low:.1f} to {row.rank_interval.high:.1f})",
            f"{row.first:.2f}",
            f"{row.iqm:.2f} ({row.iqm_interval.low:.2f} to {row.iqm_interval.high:.2f})",
            _wins_cell(row),
            "" if row.memory == BASE else f"{row.p:.2g}",
            f"{row.seconds:.0f} s",
            f"{60 * row.iqm / row.seconds:.2f}",
        ]
        for row in standings(columns)
    ]
    header = [
        *("memory", "mean rank (95 %)", "P(first)", "IQM, normalised (95 %)", f"P(above `{BASE}`) (95 %)"),
        *("adjusted p", "time, 1 M steps", "IQM per minute"),
    ]
    tasks = len({column.task for column in columns})
    of_study = len(yaml.safe_load((ROOT / "studies" / f"{NAME}.yaml").read_text())["environments"])
    seeds = sorted({len(column.scores) for column in columns})
    return [
        *table(header, rows),
        "",
        f"{tasks} of {of_study} tasks are complete, {' or '.join(map(str, seeds))} seeds each.",
    ]


def _wins_cell(row: Standing) -> str:
    if row.memory == BASE:
        return ""
    return f"{row.wins:.2f} ({row.wins_interval.low:.2f} to {row.wins_interval.high:.2f})"


def kinds_table(cells: Sequence[Cell]) -> list[str]:
    """The interquartile mean of each memory in each kind of task; of complete tasks."""
    columns = complete(cells)
    by_kind = {kind: [one for one in columns if one.task.startswith(names)] for kind, names in KINDS.items()}
    kinds = {kind: of_kind for kind, of_kind in by_kind.items() if of_kind}
    if not kinds:
        return ["No task is complete yet."]
    memories = [row.memory for row in standings(columns)]
    rows = [[f"`{name}`", *(_kind_cell(of_kind, name) for of_kind in kinds.values())] for name in memories]
    return table(["memory", *kinds], rows)


def tasks_table(cells: Sequence[Cell]) -> list[str]:
    """The mean normalised score of each memory in each task, with its seeds; of all tasks with a run."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    of = {(cell.task, cell.memory): list(cell.scores.values()) for cell in cells}
    rows = [
        [f"`{name}`", *(_mean_cell(of.get((task, name), [])) for task in tasks)]
        for name in dict.fromkeys(cell.memory for cell in cells)
    ]
    return table(["memory", *(_short(task) for task in tasks)], rows)


def _mean_cell(scores: Sequence[float]) -> str:
    return f"{round(statistics.mean(scores), 2) + 0.0:.2f} ({len(scores)})" if scores else ""


def _short(task: str) -> str:
    return task.partition(":")[2].replace("env.kwargs.", "") or task


def _kind_cell(columns: Sequence[Column], memory: str) -> str:
    strata = [column.scores for column in columns if column.memory == memory]
    interval = stratified(strata, pooled_iqm)
    assert interval, "columns have two seeds or more"
    return f"{pooled_iqm([x[None] for x in strata])[0]:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def draw(board: Sequence[Standing], path: Path) -> None:
    """Mean ranks and interquartile means with their intervals, the best memory at the top."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    board = board[::-1]
    figure, both = plt.subplots(1, 2, figsize=(8, 0.3 * len(board) + 1.2), sharey=True, layout="constrained")
    places = range(len(board))
    for axes, label, points, intervals in (
        (both[0], "mean rank over tasks", [row.rank for row in board], [row.rank_interval for row in board]),
        (both[1], "IQM, normalised", [row.iqm for row in board], [row.iqm_interval for row in board]),
    ):
        axes.hlines(places, [x.low for x in intervals], [x.high for x in intervals], lw=2)
        axes.plot(points, places, "o", ms=5)
        axes.set(xlabel=label)
        axes.grid(alpha=0.3)
    both[0].set_yticks(places, [row.memory for row in board])
    with plt.rc_context({"svg.hashsalt": NAME}):  # equal results give equal files
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Print the tables, and draw the board."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tuning", action="store_true", help="print the learning rate of each memory")
    parser.add_argument("--plot", type=Path, help="draw the board into this file")
    args = parser.parse_args()
    if args.tuning:
        rates = best_rates(study_tables.read(ROOT / "docs" / "results", f"{NAME}_tuning"))
        print("\n".join(f"{memory}: {rate:g}" for memory, rate in rates.items()))
        return
    cells = read(ROOT)
    print("\n".join([*memories_table(cells), "", *kinds_table(cells), "", *tasks_table(cells)]))
    if args.plot:
        draw(standings(complete(cells)), args.plot)


if __name__ == "__main__":
    main()
