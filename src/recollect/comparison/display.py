"""The terminal display of a comparison: the plan, one live table of all runs, and the results."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..common.format import duration, number, wrapped
from ..common.intervals import Interval, are_equal, describe_equal, mean_weights
from ..common.notebook import Output, terminal_page
from ..config.data import to_dict
from ..envs import EnvConfig
from ..reporting.cells import range_cell
from ..reporting.groups import group_runs
from ..reporting.runs import Run
from ..reporting.scores import SCORE_RANGES, weighted_mean_interval
from ..run.bench import estimate_seconds
from .jobs import Job, evaluation_row

FILE_WIDTH = 160  # columns of a table that is written to a file
LINE_SECONDS = 15.0  # between two progress lines where there is no terminal
BLOCKS = "▁▂▃▄▅▆▇█"
MARKS = {"new": "·", "begun": "◌", "done": "[green]●[/]", "failed": "[red]✗[/]"}
LEGEND = "each seed: [green]●[/] done  ▁ to █ progress  ◌ interrupted  · not started  [red]✗[/] failed"
USES = r"uses about (\d+) steps"
RESUME_HINT = "unfinished runs remain; repeat the command to resume them"


@dataclass(frozen=True)
class RunGroup:
    """The runs of one model on one environment, which differ in the seed alone."""

    env: str
    label: str
    jobs: list[Job]

    @property
    def evaluations(self) -> list[Mapping[str, Any]]:
        """Those so far."""
        return [job.evaluation for job in self.jobs if job.evaluation]

    @property
    def training_return(self) -> float | None:
        """The mean of the newest training returns."""
        returns = [job.metrics["return"] for job in self.jobs if job.metrics.get("return") is not None]
        return statistics.mean(returns) if returns else None

    @property
    def seconds(self) -> float | None:
        """The time of a whole run, extrapolated from those that have started; None: none has."""
        times = [job.metrics["time"] / job.progress for job in self.jobs if job.metrics and job.progress]
        return statistics.mean(times) if times else None

    @property
    def verdict(self) -> str:
        """The verdicts of the probes up to a colon, each with its number of runs; steps as a range."""
        verdicts = (job.verdict.partition(":")[0].removeprefix("It ").rstrip(".") for job in self.jobs)
        # Intervals and steps differ between seeds, so with them hardly two verdicts would be equal.
        plain = [re.sub(r" \(\w+ to [^)]*\)", "", verdict) for verdict in verdicts if verdict]
        steps = sorted(int(number) for text in plain for number in re.findall(USES, text))
        reach = range_cell(str(steps[0]), str(steps[-1])) if steps else ""
        counts = Counter(re.sub(USES, f"uses about {reach} steps", verdict) for verdict in plain)
        return ", ".join(f"{verdict} ({count})" for verdict, count in counts.most_common())

    @property
    def remaining(self) -> float:
        """Number of runs still to execute, fractions included."""
        return sum(1 - job.progress for job in self.jobs if job.state != "failed")


def choose_score(evaluations: Iterable[Mapping[str, Any]]) -> Literal["success", "mean"]:
    """The key of the score that compares evaluations on one task: the success rate if all have it, else the
    mean return."""
    reported = [one["success"] is not None for one in evaluations]
    return "success" if reported and all(reported) else "mean"


def group_jobs(jobs: Sequence[Job]) -> list[RunGroup]:
    """Jobs that differ in the seed alone in one group, labelled by what distinguishes it from others."""
    by_folder = {job.folder: job for job in jobs}
    # The labels of a report, so that a table and a report name models alike.
    runs = [Run(job.folder, to_dict(job.config), {}, {}) for job in jobs]
    return [RunGroup(g.env, g.label, [by_folder[run.folder] for run in g.runs]) for g in group_runs(runs)]


class LiveTable:
    """One live table on a terminal or in a notebook, a line from time to time elsewhere, nothing if quiet."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.console = quiet, Console()
        if not self.console.is_terminal:  # rich would wrap at 80 columns
            self.console = Console(width=FILE_WIDTH)
        self._live: Live | None = None
        self._output: Output | None = None
        self._page = "", ""
        self._next_line = 0.0

    def __enter__(self) -> "LiveTable":
        if self.quiet:
            return self
        if self.console.is_jupyter:
            self._output = Output(lambda: self._page)
        elif self.console.is_terminal:
            # Refreshed by `show` alone, which the loop over runs calls anyway.
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        if self._output:
            self._output.close()

    def show(self, table: Callable[[], RenderableType], line: Callable[[], str]) -> None:
        """Show the present table, or print the line if the last one is long ago."""
        if self._live:
            self._live.update(table(), refresh=True)
        elif self._output:
            self._page = terminal_page(table(), FILE_WIDTH), line()
            self._output.redraw()
        elif not self.quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            print(line(), flush=True)


class ComparisonDisplay:
    """Everything that a comparison prints."""

    def __init__(self, jobs: Sequence[Job], slots: int, quiet: bool) -> None:
        self.jobs, self.slots, self.live_table = jobs, slots, LiveTable(quiet)
        self.groups = group_jobs(jobs)

    @property
    def tasks(self) -> dict[str, EnvConfig]:
        """The environments, by names that distinguish two tasks of the same one."""
        return {group.env: group.jobs[0].config.env for group in self.groups}

    def scores(self, group: RunGroup) -> list[float]:
        """The scores of a group so far, of the same kind as those of all others on its task."""
        key = self._score_key(group.env)
        return [float(evaluation[key]) for evaluation in group.evaluations]

    def _interval(self, group: RunGroup) -> Interval | None:
        """The 95 % interval of the mean score, as in reports; None with fewer than two scores."""
        scores = self.scores(group)
        ends = SCORE_RANGES["success" if self._score_key(group.env) == "success" else "return"]
        return weighted_mean_interval(np.array(scores), mean_weights(len(scores)), ends) if scores else None

    def _score_key(self, env: str) -> Literal["success", "mean"]:
        return choose_score(one for group in self.groups if group.env == env for one in group.evaluations)

    def show(self) -> None:
        """Show the present state of all runs."""
        self.live_table.show(self._table, self._line)

    def _line(self) -> str:
        states = [job.state for job in self.jobs]
        return (
            f"{states.count('done')} of {len(states)} runs done, {states.count('running')} running, "
            f"{states.count('failed')} failed, {duration(self.seconds_left())} left"
        )

    def seconds_left(self) -> float | None:
        """Until all runs are done; groups without a run so far are assumed to take the mean of the others."""
        times = {id(group): group.seconds for group in self.groups}
        known = [seconds for seconds in times.values() if seconds is not None]
        if not known:
            return None
        other = statistics.mean(known)
        return sum(group.remaining * (times[id(group)] or other) for group in self.groups) / self.slots

    def plan(self) -> None:
        """Print the runs to execute and an estimate of their time; models that never ran are timed."""
        table = _columns("runs", "to do", "steps", "time per run", "total time")
        total = 0.0
        for group, per_run in zip(self.groups, self._run_seconds(), strict=True):
            config = group.jobs[0].config
            total += per_run * group.remaining
            budget = f"{config.steps:,}" if config.steps else f"{config.rollouts:,} rollouts"
            to_do = str(sum(job.state != "done" for job in group.jobs))
            times = duration(per_run), duration(per_run * group.remaining)
            table.add_row(group.env, group.label, str(len(group.jobs)), to_do, budget, *times)
        self.live_table.console.print(table)
        print(f"about {duration(total / self.slots)} with {self.slots} runs at a time")

    def _run_seconds(self) -> list[float]:
        """The time of a run of each group. Timing a model takes a second or more; a terminal shows which."""
        console, count = self.live_table.console, len(self.groups)
        times = []
        with console.status("") if console.is_terminal else nullcontext() as status:
            for i, group in enumerate(self.groups, 1):
                if status is not None:
                    status.update(Text(f"timing {group.env}, {group.label} ({i} of {count})"))
                times.append(group.seconds or estimate_seconds(group.jobs[0].config))
        return times

    def rows(self, baselines: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """A row of plain data for each run, and for each random agent."""
        rows = [job.row() | {"environment": g.env, "model": g.label} for g in self.groups for job in g.jobs]
        rows += [
            {"environment": env, "model": "random", **evaluation_row(evaluation)}
            for env, evaluation in baselines.items()
        ]
        return rows

    def results(self, baselines: Mapping[str, Mapping[str, Any]]) -> None:
        """Print the scores of finished runs beside those of random actions, and the errors of failed ones."""
        probed = any(job.verdict for job in self.jobs)
        table = _columns("done", "score", "95 % interval", "score of each seed", *["memory"] * probed)
        previous_env = ""
        for group in self.groups:
            if group.env != previous_env:
                random_score = number(baselines[group.env][self._score_key(group.env)])
                table.add_row(group.env, "random actions", "", random_score, "", "", style="dim")
            previous_env = group.env
            scores = self.scores(group)
            interval = self._interval(group)
            table.add_row(
                group.env,
                group.label,
                f"{len(scores)}/{len(group.jobs)}",
                number(statistics.mean(scores)) if scores else "-",
                f"{number(interval.low)} to {number(interval.high)}" if interval else "-",
                " ".join(map(number, scores)),
                *[group.verdict] * probed,
            )
        self.live_table.console.print(table)
        for group in self.groups:
            if are_equal(np.array(scores := self.scores(group))):
                print(wrapped(f"{group.env}, {group.label}: {describe_equal(len(scores))}"))
        for job in self.jobs:
            if job.state == "failed":
                print(f"failed: {job.folder}: {job.error}")
        if any(job.state in ("new", "begun") for job in self.jobs):
            print(RESUME_HINT)

    def _table(self) -> Group:
        table = _columns("seeds", "training return", "score", "left")
        for group in self.groups:
            seconds = group.seconds
            left = "-" if seconds is None else duration(seconds * group.remaining / self.slots)
            scores = self.scores(group)
            mean = number(statistics.mean(scores)) if scores else "-"
            marks = "".join(map(progress_mark, group.jobs))
            table.add_row(group.env, group.label, marks, number(group.training_return), mean, left)
        left = f"{duration(self.seconds_left())} left for all, {self.slots} runs at a time"
        return Group(table, Text.from_markup(f"[dim]{LEGEND}[/]\n{left}"))


def _columns(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("environment", "model", *names):
        table.add_column(name, no_wrap=name not in ("score of each seed", "memory"))
    return table


def progress_mark(job: Job) -> str:
    """The state of a run as one character."""
    if job.state == "running":
        return BLOCKS[int(job.progress * (len(BLOCKS) - 1))]
    return MARKS[job.state]
