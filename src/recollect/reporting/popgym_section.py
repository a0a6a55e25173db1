"""The section on POPGym: the evaluation of its paper beside that of the final weights."""

from collections.abc import Iterator

import numpy as np

from ..common.format import number
from .blocks import Block, Chart, DotRow, Links, Table, Text, slugs
from .cells import interval_cell
from .popgym_iterations import ITERATION
from .popgym_published import CORRECTED, MEMORIES, SOURCES, STEPS, TRIALS, PublishedScore
from .popgym_scores import PopgymScores, PopgymTask
from .score_sections import SCORE_NAMES
from .summary import Summary

COLUMNS = ("model", "seeds", "MMER", "95 % interval", "SD", "MMER of each seed", "steps")


def popgym_blocks(summary: Summary) -> Iterator[Block]:
    """For each POPGym task, a chart and a table of MMER with the published values."""
    if not summary.popgym:
        return
    yield Text(
        "The paper of POPGym takes the mean return of the training episodes that ended within one iteration "
        f"of {ITERATION:,} steps, and its maximum over training: MMER, the maximum mean episodic reward. "
        "Iterations are counted from the first step of a run; an incomplete last one is left out. MMER "
        "includes exploration, and it selects the best iteration by the same episodes that it averages. The "
        "final weights are evaluated on new episodes, which is a stricter test. SD: standard deviation over "
        "seeds."
    )
    if any(task.models and task.published for task in summary.popgym):
        yield Text(
            f"Mean over {TRIALS} trials of {STEPS // 10**6} million steps with RLlib's PPO, from Table 3 of "
            "the paper. The values are from a transcription, and have not been checked against the paper. "
            f"Best: no other of its {MEMORIES} memories is better. A run with fewer steps is no replication.",
            lead="Published values",
        )
        yield Links([("Sources of the published values:", list(SOURCES))])
    names = slugs([task.env for task in summary.popgym])
    for task in summary.popgym:
        yield from _task_blocks(task, names[task.env])


def popgym_line(task: PopgymTask) -> str:
    """The MMER of a task in one line, for the terminal."""
    scores = [f"{row.label} {number(row.value)}" for row in _rows(task)]
    words = [f"MMER {', '.join(scores)}"] if task.models else []
    return f"{task.env}: {'; '.join([*words, *(f'no MMER for {line}' for line in task.without)])}"


def _task_blocks(task: PopgymTask, name: str) -> Iterator[Block]:
    rows = _rows(task)
    title = f"{task.env}: MMER"
    if task.models:
        words = f"{title}: {', '.join(f'{row.label} {number(row.value)}' for row in rows)}."
        yield Chart(f"mmer-{name}", "dots", f"{title}, one dot per seed", words, rows=rows)
        yield _table(task)
    if task.task.startswith(CORRECTED):
        yield Text(
            f"{task.env}: popgym 1.0.7 corrected this task, so published values are not comparable and are "
            "left out."
        )
    for line in task.without:
        yield Text(f"{line}.", lead=f"{task.env}, no MMER")


def _rows(task: PopgymTask) -> list[DotRow]:
    rows = [DotRow(item.label, item.mmer, item.mean, item.interval) for item in task.models]
    # Hollow: reference values, which are not of runs of this report.
    return rows + [DotRow(item.label, np.empty(0), item.mean, None, hollow=True) for item in task.published]


def _table(task: PopgymTask) -> Table:
    # The same for all models of an environment.
    source = next((item.source for item in task.models if item.source is not None), "return")
    columns = [*COLUMNS, "last 100 episodes" if source == "training" else "final weights", "95 % interval"]
    rows = [_row(item) for item in task.models] + [_published_row(item) for item in task.published]
    return Table(f"{task.env}: MMER beside the {SCORE_NAMES[source]}", columns, rows)


def _row(item: PopgymScores) -> list[str]:
    return [
        item.label,
        " ".join(map(str, item.seeds)),
        number(item.mean),
        interval_cell(item.interval),
        number(item.std),
        " ".join(map(number, item.mmer.tolist())),
        f"{item.steps:,.0f}",
        number(item.final_mean),
        interval_cell(item.final_interval),
    ]


def _published_row(item: PublishedScore) -> list[str]:
    spread = "-" if item.std is None else f"{item.std:.3f}"
    return [item.label, f"{TRIALS} trials", f"{item.mean:.3f}", "-", spread, "-", f"{STEPS:,}", "-", "-"]
