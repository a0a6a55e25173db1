"""What came out, as sections of a page."""

import math
import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from ..common.format import number
from ..reporting.blocks import (
    Block,
    Bullets,
    Chart,
    Code,
    DotRow,
    Line,
    ParallelAxis,
    ParallelCoordinates,
    ParallelLine,
    Plot,
    Section,
    Table,
    Text,
)
from .result import ENOUGH, Outcome, Tried, sentence
from .search_space import Choices, Dimension, Range, Value, meant, settings, spelled
from .trials import RUNGS, WHOLE

BEST, PRESET, FINISHED, STOPPED = "the best", "the preset", "finished", "stopped early"
SO_FAR, EACH = "the best so far", "a trial"


def title(found: Outcome) -> str:
    """What was tuned, and where."""
    return f"{found.question.preset.model} on {found.question.preset.env.id}"


def facts(found: Outcome) -> str:
    """How much there was, in a line."""
    question = found.question
    finished = sum(trial.state == FINISHED for trial in found.trials)
    stopped = sum(trial.state == STOPPED for trial in found.trials)
    return (
        f"{len(found.trials)} trials, {finished} finished and {stopped} stopped early, "
        f"{question.preset.steps:,} steps, seeds {' '.join(map(str, question.seeds))}"
    )


def colours(found: Outcome) -> dict[str, int]:
    """The same for the same thing in every chart."""
    fixed = {BEST: 1, PRESET: 0, FINISHED: 2, STOPPED: 3, SO_FAR: 1, EACH: 0}
    return (
        fixed | {t.name: fixed[_alike(found, t)] for t in found.trials} | dict.fromkeys(found.importance, 0)
    )


def sections(found: Outcome, words: Sequence[str]) -> list[Section]:
    """The whole page; words: those it was asked for with."""
    made = [
        Section("Verdict", [Text(said) for said in found.verdict]),
        Section("The best settings", list(_best(found))),
        Section("Scores", list(_scores(found))),
        Section("What mattered", list(_importance(found))),
        Section("Settings and scores", list(_parallel_coordinates(found))),
        Section("All trials", list(_trials(found))),
        Section("What was tuned", list(_space(found))),
        Section("How it was counted", [Bullets(NOTES)]),
        Section("Make it again", [Code(shlex.join(words))]),
    ]
    return [section for section in made if section.blocks]


NOTES = [
    "The score of a trial is the interquartile mean over its seeds of what its last weights reach: the share "
    "of successes where the task reports them, else the mean return.",
    "After a ninth and after a third of the steps a trial goes on if the interquartile mean of its seeds' "
    "returns, each a mean of 100 training episodes, is among the best third of all that came so far. The "
    "preset always goes on.",
    "recollect's docs/tuning.md says more.",
]


def _best(found: Outcome) -> Iterator[Block]:
    rows = [list(change) for change in found.changes]
    if rows:
        yield Table("What the best trial has that the preset has not", ["option", "best", "preset"], rows)
    if found.commands:
        yield Code("\n".join(f"{command}    # {name}" for name, command in found.commands.items()))


def _scores(found: Outcome) -> Iterator[Block]:
    finished = [trial for trial in found.trials if trial.score is not None]
    if not finished:
        return
    ranked = sorted(finished, key=lambda trial: (-(trial.score or 0.0), trial.number))
    shown = [*ranked[:8], *(trial for trial in ranked[8:] if not trial.number)]
    rows = [DotRow(trial.name, np.array(trial.scores), trial.score or 0.0, None) for trial in shown]
    words = "Scores: " + ", ".join(f"{trial.name} {number(trial.score)}" for trial in shown) + "."
    yield Chart("scores", "dots", "Scores of the best trials, every seed a dot", words, rows=rows)
    yield _history("history", "Score", [trial.score for trial in found.trials])
    early = [trial.rungs.get(RUNGS[0]) for trial in found.trials]
    if any(value is not None for value in early):
        yield _history("early", f"Return after 1/{WHOLE} of the steps", early)


def _history(name: str, about: str, known: Sequence[float | None]) -> Chart:
    """One number of each trial, in the order in which they began."""
    values = np.array([math.nan if value is None else value for value in known])
    best = np.fmax.accumulate(values)
    lines = [Line(SO_FAR, best), Line(EACH, values, dots=True)]
    words = f"{about}, trial by trial. The best at the end: {number(float(best[-1]))}."
    plot = Plot("trial (0 is the preset)", about, np.arange(len(values), dtype=np.float64), lines)
    return Chart(name, "lines", f"{about}, trial by trial", words, plot=plot)


def _importance(found: Outcome) -> Iterator[Block]:
    if not found.importance:
        yield Text(
            f"Too few trials to say: of at least {ENOUGH} the return must be known after a ninth of the "
            "steps, which takes 100 finished episodes."
        )
        return
    yield Text(
        "How much each option decided of being among the best quarter of all trials after a ninth of the "
        "steps, in parts of one (PED-ANOVA). There all trials can be compared. A small number says that it "
        "did not matter within what was tried, and so does a number that a few more trials would change."
    )
    rows = [DotRow(name, np.empty(0), value, None) for name, value in found.importance.items()]
    words = "Importance: " + ", ".join(f"{row.label} {row.value:.2f}" for row in rows) + "."
    yield Chart("importance", "dots", "Importance, in parts of one", words, rows=rows)


def _parallel_coordinates(found: Outcome) -> Iterator[Block]:
    """Every trial across its settings, its return after the first ninth, and its score."""
    trials = sorted(found.trials, key=lambda t: (t is found.best, not t.number, t.score is not None))
    columns: list[tuple[str, Dimension, dict[int, Value]]] = [
        (name.removeprefix("ppo."), of, {t.number: t.params[name] for t in trials if name in t.params})
        for name, of in found.question.space.items()
    ]
    early = {t.number: t.rungs[step] for t in trials for step in RUNGS[:1] if step in t.rungs}
    scores = {t.number: t.score for t in trials if t.score is not None}
    for name, known in (("return at 1/9", early), ("score", scores)):
        if known:
            columns.append((name, Range(min(known.values()), max(known.values())), {**known}))
    columns = [column for column in columns if column[2]]
    yield Text("Each line is a trial. Point at one, or focus the chart and use the arrow keys.")
    lines = [
        ParallelLine(
            _alike(found, t),
            t.name,
            [f"score {t.scored}" if t.score is not None else t.state, sentence(t.settings)],
            [_place(of, known[t.number]) if t.number in known else None for _, of, known in columns],
        )
        for t in trials
    ]
    words = f"{len(trials)} trials across {len(columns)} axes; the table below has all of it."
    chart = ParallelCoordinates([ParallelAxis(name, _ticks(of)) for name, of, _ in columns], lines)
    yield Chart("trials", "parallel", "Settings and scores of all trials", words, parallel=chart)


def _ticks(dimension: Dimension) -> list[tuple[str, float]]:
    """Words beside an axis."""
    words = (number(x) if isinstance(x, float) else spelled(x) for x in dimension.ends)
    return [(word, _place(dimension, x)) for word, x in zip(words, dimension.ends, strict=True)]


def _place(dimension: Dimension, value: Value) -> float:
    """Where a value lies between the ends of its dimension."""
    if isinstance(dimension, Choices):
        ends = dimension.values
        return ends.index(value) / (len(ends) - 1) if len(ends) > 1 else 0.5
    at = math.log if dimension.log else float
    low, high, here = at(dimension.low), at(dimension.high), at(float(value or 0))
    return (here - low) / (high - low) if high > low else 0.5


def _alike(found: Outcome, trial: Tried) -> str:
    """Which trials are drawn alike."""
    if trial is found.best:
        return BEST
    if not trial.number:
        return PRESET
    return FINISHED if trial.score is not None else STOPPED


def _trials(found: Outcome) -> Iterator[Block]:
    def how_far(trial: Tried) -> tuple[bool, float, list[tuple[int, float]]]:
        return trial.score is not None, trial.score or 0.0, sorted(trial.rungs.items(), reverse=True)

    ranked = sorted(found.trials, key=how_far, reverse=True)
    rows = [
        [
            trial.name,
            trial.state,
            number(trial.score),
            " ".join(map(number, trial.scores)) or "-",
            *(number(trial.rungs.get(step)) for step in RUNGS),
            trial.error or sentence(trial.settings) or "-",
        ]
        for trial in ranked
    ]
    judged = [f"return after 1/{WHOLE // step}" for step in RUNGS]
    columns = ["trial", "how it ended", "score", "of each seed", *judged, "what differs from the preset"]
    yield Table("The best first", columns, rows, names=2)


def _space(found: Outcome) -> Iterator[Block]:
    now = settings(found.question.preset)
    rows = [
        [name, str(of), ", ".join(dict.fromkeys(spelled(now[x]) for x in meant(name, now))) or "-"]
        for name, of in found.question.space.items()
    ]
    yield Table("The space", ["option", "what was tried", "the preset"], rows, names=3)
