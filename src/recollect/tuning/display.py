"""The terminal display of a study: the plan, one live table of its trials, and the result."""

import time
from collections import Counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..common.format import duration, number
from ..comparison.display import LEGEND, LiveTable, progress_mark
from ..run.bench import estimate_seconds
from .option_names import format_value, full_names, option_values
from .result import TuningResult, best_trial, settings_line, trial_results
from .successive_halving import SuccessiveHalving
from .trials import RUNGS, WHOLE, TuningSpec


class TuningDisplay:
    """Everything that a study prints."""

    def __init__(self, quiet: bool) -> None:
        self.live_table = LiveTable(quiet)
        self._start: tuple[float, int] | None = None
        """The time of the first look, and the trials that had ended then."""

    def show(self, search: SuccessiveHalving) -> None:
        """Show the present state of all trials."""
        self.live_table.show(lambda: self._table(search), lambda: self._line(search))

    def _line(self, search: SuccessiveHalving) -> str:
        trials = trial_results(search.study)
        running = sum(job.state == "running" for trial in search.trials for job in trial.jobs)
        counts = Counter(trial.state for trial in trials)
        ended = len(trials) - counts["begun"]
        best = best_trial(trials)
        best_text = f", best {number(best.score)} ({best.name})" if best else ""
        left = duration(self._seconds_left(ended, search.total))
        return (
            f"{ended} of {search.total} trials ended, {counts['stopped early']} of them early, {running} "
            f"runs executing{best_text}, about {left} left"
        )

    def _seconds_left(self, ended: int, total: int) -> float | None:
        """Until all trials have ended, if they take as long as those of this call so far."""
        now = time.monotonic()
        start, before = self._start = self._start or (now, ended)
        return (now - start) / (ended - before) * (total - ended) if ended > before else None

    def _table(self, search: SuccessiveHalving) -> Group:
        """The preset, the best trial, and the trials in progress."""
        table = columns("trial", "seeds", "judged at", "training return", "score", "settings")
        trials, in_progress = trial_results(search.study), {trial.number: trial for trial in search.trials}
        best = best_trial(trials)
        for result in trials:
            if trial := in_progress.get(result.number):
                marks = "".join(map(progress_mark, trial.jobs))
                cells = marks, fraction(trial.target), number(trial.run_group.training_return), "-"
            elif result is best or not result.number:
                cells = "[green]●[/]" * len(result.scores), "", "", number(result.score)
            else:
                continue
            # Cut to one line for each trial.
            settings = Text(settings_line(result.settings), no_wrap=True, overflow="ellipsis")
            table.add_row(result.name, *cells, settings)
        return Group(table, Text.from_markup(f"[dim]{LEGEND}[/]\n{self._line(search)}"))

    def plan(self, spec: TuningSpec, trials: int, ended: int, slots: int) -> None:
        """Print the search space and an estimate of the time, measured with the preset."""
        table = columns("option", "preset", "search space")
        preset = option_values(spec.preset)
        for option, dimension in spec.space.items():
            values = dict.fromkeys(format_value(preset[name]) for name in full_names(option, preset))
            table.add_row(option, ", ".join(values) or "-", str(dimension))
        self.live_table.console.print(table)
        config = spec.runs(())[0]
        seeds = " ".join(map(str, spec.seeds))
        judged = " and ".join(fraction(step / WHOLE) for step in RUNGS)
        print(f"{trials} trials, {ended} of them ended; each of {config.steps:,} steps on seeds {seeds}")
        print(f"judged after {judged} of the steps and 100 episodes; about one in three continues")
        # The first ninth of every trial, the next two of one in three, the other six of one in nine.
        # Shares of steps, so this assumes that a step of each trial takes as long as one of the preset.
        shares = (1 + 2 / 3 + 6 / 9) / WHOLE
        seconds = estimate_seconds(config) * len(spec.seeds) * max(0, trials - ended) * shares / slots
        print(f"about {duration(seconds)} with {slots} runs at a time")

    def results(self, result: TuningResult, dashboard: str) -> None:
        """Print the best settings, and commands to run next."""
        table = columns("option", "best", "preset")
        for change in result.changes:
            table.add_row(*change)
        for line in result.verdict:
            print(line)
        if table.row_count:
            self.live_table.console.print(table)
        for purpose, command in {**result.commands, "inspect all trials": dashboard}.items():
            print(f"{purpose}: {command}")
        for trial in result.trials:
            if trial.error:
                print(f"failed: {trial.name}: {trial.error}")


def columns(*names: str) -> Table:
    """An empty table without lines."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in names:
        table.add_column(name, no_wrap=name not in ("settings", "search space"))
    return table


def fraction(share: float) -> str:
    """A share of the steps as text: 1/9, 1/3, the end."""
    return "the end" if share >= 1 else f"1/{round(1 / share)}"
