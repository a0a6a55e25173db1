"""How a study stands: one live table of its trials, the plan before, the results after."""

import time
from collections import Counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..common.format import duration, number
from ..comparison.display import LEGEND, LiveTable, sign
from ..run.bench import estimate_seconds
from .result import Outcome, best_of, sentence, tried
from .search_space import meant, settings, spelled
from .trials import RUNGS, WHOLE, Question, Tuning


class TuningDisplay:
    """What a user sees of a study."""

    def __init__(self, quiet: bool) -> None:
        self.live_table = LiveTable(quiet)
        self._begun: tuple[float, int] | None = None

    def show(self, tuning: Tuning) -> None:
        """As things are now."""
        self.live_table.show(lambda: self._table(tuning), lambda: self._line(tuning))

    def _line(self, tuning: Tuning) -> str:
        trials = tried(tuning.study)
        running = sum(job.state == "running" for trial in tuning.trials for job in trial.jobs)
        counts = Counter(trial.state for trial in trials)
        over = len(trials) - counts["begun"]
        best = best_of(trials)
        so_far = f", best {number(best.score)} ({best.name})" if best else ""
        return (
            f"{over} of {tuning.total} trials over, {counts['stopped early']} of them early, {running} runs "
            f"going{so_far}, left about {duration(self._left(over, tuning.total))}"
        )

    def _left(self, over: int, total: int) -> float | None:
        """Seconds to the end, if trials go on to take what they took in this call."""
        now = time.monotonic()
        since, before = self._begun = self._begun or (now, over)
        return (now - since) / (over - before) * (total - over) if over > before else None

    def _table(self, tuning: Tuning) -> Group:
        """The preset, the best, and what goes on."""
        table = columns("trial", "seeds", "judged at", "return while learning", "score", "settings")
        trials, going = tried(tuning.study), {trial.number: trial for trial in tuning.trials}
        best = best_of(trials)
        for one in trials:
            if trial := going.get(one.number):
                signs = "".join(map(sign, trial.jobs))
                cells = signs, share(trial.target), number(trial.seeds.training), "-"
            elif one is best or not one.number:
                cells = "[green]●[/]" * len(one.scores), "", "", number(one.score)
            else:
                continue
            # As much of it as there is room for: a trial is a line.
            table.add_row(one.name, *cells, Text(sentence(one.settings), no_wrap=True, overflow="ellipsis"))
        return Group(table, Text.from_markup(f"[dim]{LEGEND}[/]\n{self._line(tuning)}"))

    def plan(self, question: Question, trials: int, over: int, slots: int) -> None:
        """What would be done, and about how long it takes; the pace is the preset's, measured."""
        table = columns("option", "of the preset", "what is tried")
        now = settings(question.preset)
        for option, dimension in question.space.items():
            values = dict.fromkeys(spelled(now[name]) for name in meant(option, now))
            table.add_row(option, ", ".join(values) or "-", str(dimension))
        self.live_table.console.print(table)
        config = question.runs(())[0]
        seeds = " ".join(map(str, question.seeds))
        judged = " and ".join(share(step / WHOLE) for step in RUNGS)
        print(f"{trials} trials, {over} of them over; each of {config.steps:,} steps on seeds {seeds}")
        print(f"judged after {judged} of the steps, if 100 episodes are over; about one of three goes on")
        # Of each trial the first ninth, of one in three the next two, of one in nine the other six.
        shares = (1 + 2 / 3 + 6 / 9) / WHOLE
        seconds = estimate_seconds(config) * len(question.seeds) * max(0, trials - over) * shares / slots
        print(f"about {duration(seconds)} with {slots} runs at a time")

    def results(self, outcome: Outcome, dashboard: str) -> None:
        """What came out, and what to do next."""
        table = columns("option", "best", "preset")
        for change in outcome.changes:
            table.add_row(*change)
        for line in outcome.verdict:
            print(line)
        if table.row_count:
            self.live_table.console.print(table)
        for name, command in {**outcome.commands, "look closer": dashboard}.items():
            print(f"{name}: {command}")
        for trial in outcome.trials:
            if trial.error:
                print(f"failed: {trial.name}: {trial.error}")


def columns(*names: str) -> Table:
    """A plain table."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in names:
        table.add_column(name, no_wrap=name not in ("settings", "what is tried"))
    return table


def share(part: float) -> str:
    """1/9, 1/3, the end."""
    return "the end" if part >= 1 else f"1/{round(1 / part)}"
