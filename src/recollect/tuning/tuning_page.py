"""The page of a study: its sections, for `reporting.page`."""

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
from .option_names import Value, format_value, full_names, option_values
from .result import BEGUN, ENOUGH_TRIALS, TrialResult, TuningResult, settings_line
from .search_space import Choices, Dimension, Range
from .trials import RUNGS, WHOLE

BEST, PRESET, FINISHED, STOPPED = "the best", "the preset", "finished", "stopped early"
FAILED = "failed"
BEST_SO_FAR, EACH_TRIAL = "the best so far", "a trial"
NOTES = [
    "The score of a trial is the interquartile mean over its seeds of the evaluation of the last weights: "
    "the success rate where the task reports it, else the mean return.",
    "A trial is judged after a ninth and after a third of the steps, by the interquartile mean of its seeds' "
    "returns, each a mean of 100 training episodes. It continues if it is among the best third of all trials "
    "that have come this far. The preset always continues.",
    "docs/tuning.md explains the method.",
]


def title(result: TuningResult) -> str:
    """The model and the environment."""
    return f"{result.spec.preset.model} on {result.spec.preset.env.id}"


def facts(result: TuningResult) -> str:
    """The size of the study, in a line."""
    spec = result.spec
    finished = sum(trial.state == FINISHED for trial in result.trials)
    stopped = sum(trial.state == STOPPED for trial in result.trials)
    return (
        f"{len(result.trials)} trials, {finished} finished and {stopped} stopped early, "
        f"{spec.preset.steps:,} steps, seeds {' '.join(map(str, spec.seeds))}"
    )


def colours(result: TuningResult) -> dict[str, int]:
    """Colour numbers by label, the same in every chart."""
    states = {PRESET: 0, BEST: 1, FINISHED: 2, STOPPED: 3, FAILED: 4, BEGUN: 5}
    fixed = {**states, BEST_SO_FAR: 1, EACH_TRIAL: 0}
    trials = {trial.name: fixed[_category(result, trial)] for trial in result.trials}
    return fixed | trials | dict.fromkeys(result.importance, 0)


def sections(result: TuningResult, words: Sequence[str]) -> list[Section]:
    """The whole page; words: the command that made it."""
    all_sections = [
        Section("Verdict", [Text(line) for line in result.verdict]),
        Section("Best settings", list(_best(result))),
        Section("Scores", list(_scores(result))),
        Section("Importance of options", list(_importance(result))),
        Section("Settings and scores", list(_parallel_coordinates(result))),
        Section("All trials", list(_trials(result))),
        Section("Search space", list(_space(result))),
        Section("Method", [Bullets(NOTES)]),
        Section("Reproduce", [Code(shlex.join(words))]),
    ]
    return [section for section in all_sections if section.blocks]


def _best(result: TuningResult) -> Iterator[Block]:
    rows = [list(change) for change in result.changes]
    if rows:
        yield Table("Settings of the best trial, where they differ", ["option", "best", "preset"], rows)
    if result.commands:
        yield Code("\n".join(f"{command}    # {purpose}" for purpose, command in result.commands.items()))


def _scores(result: TuningResult) -> Iterator[Block]:
    finished = [trial for trial in result.trials if trial.score is not None]
    if not finished:
        return
    ranked = sorted(finished, key=lambda trial: (-(trial.score or 0.0), trial.number))
    shown = [*ranked[:8], *(trial for trial in ranked[8:] if not trial.number)]
    rows = [DotRow(trial.name, np.array(trial.scores), trial.score or 0.0, None) for trial in shown]
    words = "Scores: " + ", ".join(f"{trial.name} {number(trial.score)}" for trial in shown) + "."
    yield Chart("scores", "dots", "Scores of the best trials; one dot per seed", words, rows=rows)
    yield _history("history", "Score", [trial.score for trial in result.trials])
    early = [trial.rungs.get(RUNGS[0]) for trial in result.trials]
    if any(value is not None for value in early):
        yield _history("early", f"Return after 1/{WHOLE} of the steps", early)


def _history(name: str, quantity: str, of_trials: Sequence[float | None]) -> Chart:
    """One number of each trial, in the order in which trials started."""
    values = np.array([math.nan if value is None else value for value in of_trials])
    # fmax, unlike maximum, ignores the NaN of trials without a score.
    best = np.fmax.accumulate(values)
    lines = [Line(BEST_SO_FAR, best), Line(EACH_TRIAL, values, dots=True)]
    words = f"{quantity} of each trial. The best of all: {number(float(best[-1]))}."
    plot = Plot("trial (0 is the preset)", quantity, np.arange(len(values), dtype=np.float64), lines)
    return Chart(name, "lines", f"{quantity} of each trial", words, plot=plot)


def _importance(result: TuningResult) -> Iterator[Block]:
    if not result.importance:
        yield Text(
            f"There are too few trials for an estimate: it needs at least {ENOUGH_TRIALS} whose return is "
            "known after a ninth of the steps, which takes 100 finished episodes."
        )
        return
    yield Text(
        "The share of each option in whether a trial is among the best quarter of all trials after a ninth "
        "of the steps (PED-ANOVA), because all trials can be compared at that point. A small share means "
        "that the option had little effect within the search space, or that there were too few trials."
    )
    rows = [DotRow(name, np.empty(0), share, None) for name, share in result.importance.items()]
    words = "Importance: " + ", ".join(f"{row.label} {row.value:.2f}" for row in rows) + "."
    yield Chart("importance", "dots", "Importance; the shares add up to 1", words, rows=rows)


def _parallel_coordinates(result: TuningResult) -> Iterator[Block]:
    """Each trial as a line across its settings, its return after a ninth of the steps, and its score."""
    trials = sorted(result.trials, key=lambda t: (t is result.best, not t.number, t.score is not None))
    columns: list[tuple[str, Dimension, dict[int, Value]]] = [
        (name.removeprefix("ppo."), dimension, {t.number: t.params[name] for t in trials if name in t.params})
        for name, dimension in result.spec.space.items()
    ]
    early = {t.number: t.rungs[step] for t in trials for step in RUNGS[:1] if step in t.rungs}
    scores = {t.number: t.score for t in trials if t.score is not None}
    for name, values in (("return at 1/9", early), ("score", scores)):
        if values:
            columns.append((name, Range(min(values.values()), max(values.values())), {**values}))
    columns = [column for column in columns if column[2]]
    yield Text("Each line is a trial. Hover over one, or focus the chart and use the arrow keys.")
    lines = [
        ParallelLine(
            _category(result, t),
            t.name,
            [f"score {t.scores_text}" if t.score is not None else t.state, settings_line(t.settings)],
            [
                _position(dimension, values[t.number]) if t.number in values else None
                for _, dimension, values in columns
            ],
        )
        for t in trials
    ]
    words = f"{len(trials)} trials across {len(columns)} axes; the next table lists all values."
    chart = ParallelCoordinates(
        [ParallelAxis(name, _ticks(dimension)) for name, dimension, _ in columns], lines
    )
    yield Chart("trials", "parallel", "Settings and scores of all trials", words, parallel=chart)


def _ticks(dimension: Dimension) -> list[tuple[str, float]]:
    """Labels beside an axis, each with its position."""
    return [
        (number(value) if isinstance(value, float) else format_value(value), _position(dimension, value))
        for value in dimension.ends
    ]


def _position(dimension: Dimension, value: Value) -> float:
    """The position of a value on its axis, from 0 to 1."""
    if isinstance(dimension, Choices):
        choices = dimension.values
        return choices.index(value) / (len(choices) - 1) if len(choices) > 1 else 0.5
    scale = math.log if dimension.log else float
    low, high, here = scale(dimension.low), scale(dimension.high), scale(float(value or 0))
    return (here - low) / (high - low) if high > low else 0.5


def _category(result: TuningResult, trial: TrialResult) -> str:
    """The label that decides the colour of a trial."""
    if trial is result.best:
        return BEST
    if not trial.number:
        return PRESET
    return FINISHED if trial.score is not None else trial.state


def _trials(result: TuningResult) -> Iterator[Block]:
    def rank(trial: TrialResult) -> tuple[bool, float, list[tuple[int, float]]]:
        return trial.score is not None, trial.score or 0.0, sorted(trial.rungs.items(), reverse=True)

    rows = [
        [
            trial.name,
            trial.state,
            number(trial.score),
            " ".join(map(number, trial.scores)) or "-",
            *(number(trial.rungs.get(step)) for step in RUNGS),
            trial.error or settings_line(trial.settings) or "-",
        ]
        for trial in sorted(result.trials, key=rank, reverse=True)
    ]
    judged = [f"return after 1/{WHOLE // step}" for step in RUNGS]
    columns = [
        "trial",
        "state",
        "score",
        "score of each seed",
        *judged,
        "changed settings",
    ]
    yield Table("All trials, the best first", columns, rows, names=2)


def _space(result: TuningResult) -> Iterator[Block]:
    preset = option_values(result.spec.preset)
    rows = []
    for name, dimension in result.spec.space.items():
        values = dict.fromkeys(format_value(preset[option]) for option in full_names(name, preset))
        rows.append([name, str(dimension), ", ".join(values) or "-"])
    yield Table("Search space", ["option", "values", "preset"], rows, names=3)
