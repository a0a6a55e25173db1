"""Cells and rows of the tables that compare speeds.

A run that did not reach its target has no time: it counts as later than every run that did.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from .common import Result, Run, Task


def seconds(runs: Sequence[Result]) -> float:
    """The median time to the target; infinite if the median run did not reach it."""
    return statistics.median(math.inf if run["reached"] is False else run["seconds"] for run in runs)


def result_cell(task: Task, runs: Sequence[Result], full: bool = True) -> str:
    """Median time to the target with the fastest and the slowest run, or steps per second without a target.

    full  include the steps
    """
    pace = f"{statistics.median(run['sps'] for run in runs):,.0f} steps/s"
    if task.target is None:
        return pace
    median = seconds(runs)
    late = [run for run in runs if run["reached"] is False]
    if median == math.inf:
        digits = 2 if task.metric == "success" else 0
        ends = [run[task.metric] for run in late if run[task.metric] is not None] or [math.nan]
        low, high = (f"{end:.{digits}f}" for end in (min(ends), max(ends)))
        share = "" if len(late) == len(runs) else f" by {len(late)} of {len(runs)}"
        return f"not reached in {_end(task, late)}{share} ({low} to {high})"
    times = [_duration(run["seconds"]) for run in sorted(runs, key=lambda run: float(run["seconds"]))]
    span = f" ({times[0]} to {times[-1]})" if not late and len(runs) > 1 else ""
    note = f" ({len(late)} of {len(runs)} not reached in {_end(task, late)})" if late else ""
    steps = statistics.median(run["steps"] for run in runs)
    return f"{_duration(median)} s{span}{f', {steps:,.0f} steps, {pace}' if full else ''}{note}"


def _duration(seconds: float) -> str:
    return f"{seconds:.{2 if seconds < 10 else 1}f}"


def _end(task: Task, late: Sequence[Result]) -> str:
    """What ended the runs that did not reach the target: their number of steps, or the time limit."""
    if all(run["steps"] / run["sps"] < task.cap - 1 for run in late):
        return f"{max(run['steps'] for run in late):,} steps"
    return f"{task.cap:g} s"


def speed_cell(task: Task, ours: Sequence[Result], peer: Sequence[Result]) -> str:
    """Ratio of the median times; a lower bound if the peer did not reach the target."""
    if task.target is None:
        return ratio(*(statistics.median(run["seconds_a_step"] for run in runs) for runs in (ours, peer)))
    mine, theirs = seconds(ours), seconds(peer)
    if mine == math.inf:
        return "-"
    if theirs == math.inf:
        # Runs that ended at their budget may have ended before the time limit.
        least = min(task.cap, *(run["steps"] / run["sps"] for run in peer if run["reached"] is False)) / mine
        return f"at least {math.floor(least) if least >= 10 else math.floor(10 * least) / 10:g}x faster"
    return ratio(mine, theirs)


def ratio(mine: float, theirs: float) -> str:
    """Ratio of two costs, in words."""
    times = max(theirs, mine) / min(theirs, mine)
    return f"{times:.{0 if times >= 100 else 1}f}x {'faster' if theirs >= mine else 'slower'}"


def memory_cell(runs: Sequence[Result]) -> str:
    """Peak memory over the runs."""
    return f"{max(run['memory_mb'] for run in runs):.0f} MB"


def lines(task: Task, runs: dict[str, list[Result]], full: bool = True) -> list[list[str]]:
    """A task as rows: one for each pair of our runs and peers that were measured.

    full  include labels, backends of peers and memory
    """
    return [
        _line(task, our, peer, runs, full)
        for our in task.ours
        if our.label in runs
        for peer in [peer for peer in task.peers if peer.label in runs] or [None]
    ]


def _line(task: Task, our: Run, peer: Run | None, runs: dict[str, list[Result]], full: bool) -> list[str]:
    mine, theirs = runs[our.label], runs[peer.label] if peer else []
    beside = [result_cell(task, theirs, full), speed_cell(task, mine, theirs)] if theirs else ["-", "-"]
    cell = result_cell(task, mine, full)
    if not full:
        return [task.name, mine[0]["backend"], cell, *beside]
    peer_cell = _with_backend(peer.label, theirs) if peer else "-"
    return [task.name, _with_backend(our.label, mine), cell, peer_cell, *beside, memory_cell(mine)]


def _with_backend(label: str, runs: Sequence[Result]) -> str:
    return f"{label.removesuffix(', Gymnasium')} ({runs[0]['backend']})"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> list[str]:
    """Lines of a Markdown table.

    right  columns aligned to the right
    """
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    return [f"| {' | '.join(map(str, row))} |" for row in (header, rule, *rows)]


FULL = ["task", "recollect (backend)", "result", "peer (backend)", "result", "speed", "memory"]


def full_table(measured: Sequence[tuple[Task, dict[str, list[Result]]]]) -> list[str]:
    """All rows of all tasks, with labels, backends and memory."""
    return table(FULL, [line for task, runs in measured for line in lines(task, runs)])


def short_table(measured: Sequence[tuple[Task, dict[str, list[Result]]]], peer: str) -> list[str]:
    """The same for a peer that every task has, without labels, backends of peers and memory."""
    header = ["task", "backend", "recollect", peer, "speed"]
    return table(header, [line for task, runs in measured for line in lines(task, runs, full=False)])
