"""How a comparison stands: one live table of all its runs, the plan before, the results after."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..common.format import duration, number
from ..common.intervals import mean_weights
from ..config.config import to_dict
from ..envs import EnvConfig
from ..reporting.groups import group_runs
from ..reporting.runs import Run
from ..reporting.scores import weighted_mean_interval
from ..run.bench import estimate_seconds
from .jobs import Job

WIDE = 160  # columns of a table that goes to a file
LINES = 15.0  # seconds between two lines where there is no terminal
BLOCKS = "▁▂▃▄▅▆▇█"
MARKS = {"new": "·", "begun": "◌", "done": "[green]●[/]", "failed": "[red]✗[/]"}
LEGEND = "a sign is a seed: [green]●[/] done  ▁ to █ how far  ◌ begun  · to do  [red]✗[/] failed"


@dataclass(frozen=True)
class Seeds:
    """The runs of one model on one environment."""

    env: str
    label: str
    jobs: list[Job]

    @property
    def scores(self) -> list[float]:
        """Of the evaluations so far."""
        return [score(job.evaluation) for job in self.jobs if job.evaluation]

    @property
    def training(self) -> float | None:
        """The mean of the newest training returns."""
        known = [job.metrics["return"] for job in self.jobs if job.metrics.get("return") is not None]
        return statistics.mean(known) if known else None

    @property
    def seconds(self) -> float | None:
        """What one of its runs takes, by those that have run; None: nobody knows."""
        known = [job.metrics["time"] / job.progress for job in self.jobs if job.metrics and job.progress]
        return statistics.mean(known) if known else None

    @property
    def verdict(self) -> str:
        """What probes say of its runs, each thing with the number of runs, in the words before a colon."""
        said = (job.verdict.partition(":")[0].removeprefix("It ").rstrip(".") for job in self.jobs)
        counts = Counter(words for words in said if words)
        return ", ".join(f"{words} ({count})" for words, count in counts.most_common())

    @property
    def to_do(self) -> float:
        """Runs that are still to be run, in parts of one."""
        return sum(1 - job.progress for job in self.jobs if job.state != "failed")


def score(evaluation: Mapping[str, Any]) -> float:
    """The share of successes where the task reports it, else the mean return."""
    found = evaluation["mean"] if evaluation["success"] is None else evaluation["success"]
    return float(found)


def grouped(jobs: Sequence[Job]) -> list[Seeds]:
    """Runs that differ in the seed alone, together, under names that tell groups apart."""
    by_folder = {job.folder: job for job in jobs}
    runs = [Run(job.folder, to_dict(job.config), {}, {}) for job in jobs]
    return [Seeds(g.env, g.label, [by_folder[run.folder] for run in g.runs]) for g in group_runs(runs)]


class LiveTable:
    """One live table on a terminal, a line from time to time elsewhere, nothing on request."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.console = quiet, Console()
        if not self.console.is_terminal:  # nobody's window is too narrow
            self.console = Console(width=WIDE)
        self._live: Live | None = None
        self._next = 0.0

    def __enter__(self) -> "LiveTable":
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, table: Callable[[], RenderableType], line: Callable[[], str]) -> None:
        """As things are now."""
        if self._live:
            self._live.update(table(), refresh=True)
        elif not self.quiet and time.monotonic() >= self._next:
            self._next = time.monotonic() + LINES
            print(line(), flush=True)


class ComparisonDisplay:
    """What a user sees of a comparison."""

    def __init__(self, jobs: Sequence[Job], slots: int, quiet: bool) -> None:
        self.jobs, self.slots, self.live_table = jobs, slots, LiveTable(quiet)
        self.groups = grouped(jobs)

    @property
    def tasks(self) -> dict[str, EnvConfig]:
        """What is played, by the names that tell tasks apart."""
        return {group.env: group.jobs[0].config.env for group in self.groups}

    def show(self) -> None:
        """As things are now."""
        self.live_table.show(self._table, self._line)

    def _line(self) -> str:
        states = [job.state for job in self.jobs]
        return (
            f"{states.count('done')} of {len(states)} runs done, {states.count('running')} running, "
            f"{states.count('failed')} failed, left {duration(self.left())}"
        )

    def left(self) -> float | None:
        """Seconds to the end, if every group goes on at its pace; unknown ones as the mean of the others."""
        known = {id(group): group.seconds for group in self.groups}
        paces = [seconds for seconds in known.values() if seconds is not None]
        if not paces:
            return None
        other = statistics.mean(paces)
        return sum(group.to_do * (known[id(group)] or other) for group in self.groups) / self.slots

    def plan(self) -> None:
        """What would be done, and how long it takes; the pace of what never ran is measured."""
        table = _columns("runs", "to do", "steps", "a run takes", "all of it")
        total = 0.0
        for group in self.groups:
            config = group.jobs[0].config
            a_run = group.seconds or estimate_seconds(config)
            total += a_run * group.to_do
            budget = f"{config.steps:,}" if config.steps else f"{config.rollouts:,} rollouts"
            left = sum(job.state != "done" for job in group.jobs)
            times = duration(a_run), duration(a_run * group.to_do)
            table.add_row(group.env, group.label, str(len(group.jobs)), str(left), budget, *times)
        self.live_table.console.print(table)
        print(f"about {duration(total / self.slots)} with {self.slots} runs at a time")

    def results(self, random: Mapping[str, Mapping[str, Any]]) -> None:
        """The scores of what is done, beside those of acting at random, and what went wrong."""
        asked = any(job.verdict for job in self.jobs)
        table = _columns("done", "score", "95 % interval", "of each seed", *(["memory"] if asked else []))
        before = ""
        for group in self.groups:
            if group.env != before:
                chance = number(score(random[group.env]))
                table.add_row(group.env, "at random", "", chance, "", "", style="dim")
            before = group.env
            scores = group.scores
            around = weighted_mean_interval(np.array(scores), mean_weights(len(scores))) if scores else None
            mean = number(statistics.mean(scores)) if scores else "-"
            ends = f"{number(around.low)} to {number(around.high)}" if around else "-"
            each = " ".join(map(number, scores))
            told = [group.verdict] if asked else []
            table.add_row(group.env, group.label, f"{len(scores)}/{len(group.jobs)}", mean, ends, each, *told)
        self.live_table.console.print(table)
        for job in self.jobs:
            if job.state == "failed":
                print(f"failed: {job.folder}: {job.error}")
        if any(job.state == "begun" or job.state == "new" for job in self.jobs):
            print("not all is done; the same command goes on")

    def _table(self) -> Group:
        table = _columns("seeds", "return while learning", "score", "left")
        for group in self.groups:
            seconds = group.seconds
            left = "-" if seconds is None else duration(seconds * group.to_do / self.slots)
            score = number(statistics.mean(group.scores)) if group.scores else "-"
            signs = "".join(map(sign, group.jobs))
            table.add_row(group.env, group.label, signs, number(group.training), score, left)
        left = f"left in all {duration(self.left())}, {self.slots} at a time"
        return Group(table, Text.from_markup(f"[dim]{LEGEND}[/]\n{left}"))


def _columns(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("environment", "model", *names):
        table.add_column(name, no_wrap=name not in ("of each seed", "memory"))
    return table


def sign(job: Job) -> str:
    """How far a run is, as one character."""
    if job.state == "running":
        return BLOCKS[int(job.progress * (len(BLOCKS) - 1))]
    return MARKS[job.state]
