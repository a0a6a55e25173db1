"""The result of a probe as sections of a page: the verdict first, then the measurements."""

import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from ..common.format import number
from ..common.intervals import Interval
from ..reporting.blocks import Block, Bullets, Chart, Code, DotRow, Line, Plot, Section, Table, Text
from .ablate import Ablation, Difference, Score, Source
from .contents_page import build_contents
from .controls import Controls
from .critic import CriticProbe
from .measure import ProbeResult
from .policy_page import OCCLUDED, build_dependence, build_policy, build_replays
from .readout_page import MEMORY, OBSERVATION, build_readout
from .verdict import WHOLE, format_interval, format_score, format_share, label, name_held, name_score

CONTROL, CONTROLS = "control without memory", "controls without memory"
RESETS, LAST = "reset every k steps", "limited to the last k steps"


def write_title(result: ProbeResult) -> str:
    """The agent and its environment."""
    return f"{result.agent} on {result.env}"


def write_facts(result: ProbeResult) -> str:
    """The settings of the probe in a line."""
    played = f"{result.episodes} episodes of about {result.whole.length:.0f} steps, seed {result.seed}"
    return f"{played}; actor: {result.actor or 'no memory'}, critic: {name_critic_memory(result)}"


def name_critic_memory(result: ProbeResult) -> str:
    """The memory that values depend on."""
    return "the actor's memory" if result.values.shared else result.critic or "no memory"


def assign_colours(result: ProbeResult) -> dict[str, int]:
    """The number of the colour of each label, the same in every chart."""
    fixed = {WHOLE: 0, MEMORY: 0, RESETS: 1, OBSERVATION: 1, OCCLUDED: 1, LAST: 2, CONTROL: 3, CONTROLS: 3}
    policy = result.policy.changes if result.policy else []
    names = [one.name for one in result.ablations] + [one.name for one in policy]
    others = [label(name) for name in (*names, *result.values.by_alteration)]
    others += [name_held(one) for one in result.contents.held] if result.contents else []
    return dict.fromkeys([*others, *(answer.name for answer in result.readout)], 1) | fixed


def build_sections(result: ProbeResult) -> list[Section]:
    """The whole page."""
    sections = [
        Section("Verdict", [Text(text) for text in list_verdict(result)]),
        Section("Loss of the actor", list(_actor(result))),
        Section("Policy at recorded steps", list(build_policy(result))),
        Section("One earlier input changed", list(build_dependence(result))),
        Section("First inputs of another episode", list(build_replays(result))),
        Section("Loss of the critic", list(_critic(result))),
        Section("Read-outs of the memory state", list(build_readout(result))),
        Section("What the memory state holds, and what decides", list(build_contents(result))),
        Section("Method", [Bullets(list(_notes(result)))]),
        Section("Command", [Code(write_command(result))]),
    ]
    return [section for section in sections if section.blocks]


def list_verdict(result: ProbeResult) -> list[str]:
    """The sentences of the verdict: use and length, for what, whether the task needs it."""
    texts = result.uses, result.reaches, result.depends, result.follows, result.decides, result.needs
    return [text for text in texts if text]


def write_command(result: ProbeResult) -> str:
    """The command line that repeats the probe."""
    words = [
        "recollect",
        "probe",
        result.agent,
        "--episodes",
        str(result.episodes),
        "--seed",
        str(result.seed),
    ]
    controls = [one.run for one in result.controls.runs] if result.controls else []
    return shlex.join([*words, *(["--control", *controls] if controls else [])])


# The actor ------------------------------------------------------------------------------------


def _actor(result: ProbeResult) -> Iterator[Block]:
    name = name_score(result.source)
    if not result.ablations:
        yield Text("The actor has no memory, so there is nothing to alter.")
    else:
        yield Text(
            f"The {name} over the same episodes, with the actor's memory reset, "
            "replaced or perturbed. A loss shows that the actor uses its memory."
        )
    yield from _resets(result)
    rows = [DotRow(WHOLE, np.empty(0), result.whole.mean, result.whole.interval)]
    rows += [
        DotRow(label(one.name), np.empty(0), one.score.mean, one.score.interval) for one in _kinds(result)
    ]
    if result.controls:
        rows.append(_control_row(result.controls))
    text = f"{name}: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
    about = f"{name.capitalize()}, mean and 95 % interval"
    if len(rows) > 1:
        yield Chart("ablations", "dots", about, text, rows=rows)
    yield Table(
        f"{name.capitalize()}, with its loss, over {result.episodes} episodes",
        ["the actor's memory", name, "95 %", "loss", "95 %", "steps"],
        tabulate_scores(result),
    )


def _control_row(controls: Controls) -> DotRow:
    """The mean of the controls with the runs as dots; the interval of a single run is over episodes."""
    if len(controls.runs) == 1:
        return DotRow(CONTROL, np.empty(0), controls.mean, controls.runs[0].score.interval)
    means = np.array([one.score.mean for one in controls.runs])
    return DotRow(CONTROLS, means, controls.mean, None)


def _kinds(result: ProbeResult) -> list[Ablation]:
    """Ablations that the chart of lines does not show, and the reset at every step."""
    return [one for one in result.ablations if one.last is None and one.every in (None, 1)]


def _resets(result: ProbeResult) -> Iterator[Block]:
    """The score by the number of steps that the memory is limited to."""
    resets = {one.every: one.score for one in result.ablations if one.every is not None}
    if len(resets) < 2:
        return
    name = name_score(result.source)
    last = {1: resets[1]} | {one.last: one.score for one in result.ablations if one.last is not None}
    steps = sorted({*resets, *last})
    whole = dict.fromkeys(steps, result.whole)
    shown = {RESETS: resets, LAST: last, WHOLE: whole} if len(last) > 1 else {RESETS: resets, WHOLE: whole}
    grid = np.array(steps, dtype=np.float64)
    lines = [_line(label, scores, steps) for label, scores in shown.items()]
    means = ", ".join(f"{number(score.mean)} at {k}" for k, score in resets.items())
    text = f"{name}, reset every k steps: {means}. Unchanged: {number(result.whole.mean)}."
    plot = Plot("steps", name, grid, lines, log=True)
    yield Chart(
        "clearings",
        "lines",
        f"{name.capitalize()} with the memory limited to k steps",
        text,
        plot=plot,
    )


def _line(label: str, scores: dict[int, Score], grid: Sequence[int]) -> Line:
    """Means and intervals on the grid; NaN where there is none."""
    unknown = (np.nan, np.nan, np.nan)
    columns = [(scores[k].mean, *scores[k].interval) if k in scores else unknown for k in grid]
    middle, low, high = np.array(columns, dtype=np.float64).T
    return Line(label, middle, low, high)


def tabulate_scores(result: ProbeResult) -> list[list[str]]:
    """A row for each alteration of the actor's memory."""
    by = result.source
    rows = [[WHOLE, *_cells(by, result.whole, None)]]
    rows += [[label(one.name), *_cells(by, one.score, one.lost)] for one in result.ablations]
    if result.controls is None:
        return rows
    runs = result.controls.runs
    if len(runs) == 1:
        return [*rows, [CONTROL, *_cells(by, runs[0].score, runs[0].above)]]
    for i, one in enumerate(runs, 1):
        rows.append([f"control {i} without memory", *_cells(by, one.score, one.above)])
    mean = format_score(by, result.controls.mean)
    length = _format_length(float(np.mean([one.score.length for one in runs])))
    loss = _loss_cells(by, result.controls.above)
    return [*rows, [f"mean of {len(runs)} controls", mean, "-", *loss, length]]


def _cells(source: Source, score: Score, lost: Difference | None) -> list[str]:
    """A score and the loss, each with its interval."""
    cells = [format_score(source, score.mean), format_interval(source, score.interval)]
    cells += _loss_cells(source, lost) if lost else ["-", "-"]
    return [*cells, _format_length(score.length)]


def _loss_cells(source: Source, lost: Difference) -> list[str]:
    """A loss with its interval."""
    return [format_score(source, lost.by), format_interval(source, lost.interval)]


def _format_length(steps: float) -> str:
    return number(float(f"{steps:.3g}"))


# The critic ------------------------------------------------------------------


def _critic(result: ProbeResult) -> Iterator[Block]:
    values = result.values
    if values.shared:
        yield Text(
            "The critic is a head on the actor's features: both share one memory, which is altered here."
        )
    if all(value is None for value in values.by_alteration.values()):
        yield Text(
            "The returns to go are not known: all are equal, or the agent was saved without the scale of its "
            "rewards, which bootstrapping needs, and every step is close to a truncation."
        )
        return
    yield Text(
        f"The {values.measure} of the discounted returns to go and the critic's values, over {values.rows} "
        "steps that the actor took with its memory unchanged: 1 is perfect, 0 is no better than a constant."
    )
    rows = [
        DotRow(label(name), np.empty(0), x, values.intervals[name])
        for name, x in values.by_alteration.items()
        if x is not None
    ]
    text = f"{values.measure}: " + ", ".join(f"{row.label} {format_share(row.value)}" for row in rows) + "."
    if len(rows) > 1:
        about = f"{values.measure.capitalize()}, and 95 % interval over episodes"
        yield Chart("critic", "dots", about, text, rows=rows)
    yield Table(
        f"{values.measure.capitalize()}, with its loss, over {values.rows} steps",
        ["the critic's memory", values.measure, "95 %", "loss", "95 %"],
        tabulate_values(values),
    )


def tabulate_values(values: CriticProbe) -> list[list[str]]:
    """A row for each alteration of the critic's memory."""
    rows = []
    for name, x in values.by_alteration.items():
        loss = values.losses[name]
        lost = [format_share(loss.value), _format_ends(loss.interval)] if loss else ["-", "-"]
        rows.append([label(name), format_share(x), _format_ends(values.intervals[name]), *lost])
    return rows


def _format_ends(interval: Interval | None) -> str:
    return " to ".join(map(format_share, interval)) if interval else "-"


def _notes(result: ProbeResult) -> Iterator[str]:
    yield (
        "Every row of the first table plays the episodes of recollect eval, from the same seeds and with the "
        "most likely actions. Intervals are over episodes; losses are differences of paired episodes."
    )
    if result.ablations:
        yield (
            "A reset is the reset of the memory at the start of an episode. State of another episode: each "
            "step gets the state that another episode of the unchanged agent had after as many steps. "
            "Deviations are those of each float over all visited states."
        )
    if result.length is not None:
        yield (
            "The steps of memory are the fewest last steps whose loss is at most a twentieth of the loss "
            "with a reset at every step; those of the policy the same with the divergence as the loss. "
            "Their 95 % intervals resample episodes."
        )
    for one in result.ablations:
        if one.unmatched:
            yield (
                f"{max(100 * one.unmatched, 0.1):.1f} % of the steps with the state of another episode are "
                "later than any other unchanged episode lasts: they get its last state."
            )
    if result.source == "success":
        yield "The interval of a loss is that of paired shares; the usual one has width 0 if no pair differs."
    if result.controls and len(result.controls.runs) > 1:
        yield "The interval of the loss to the mean of several controls resamples runs and episodes."
    yield "More: docs/probe.md of recollect."
