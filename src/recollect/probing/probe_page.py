"""What was found, as sections of a page: the verdict first, then what it rests on."""

import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from ..common.format import number
from ..reporting.blocks import Block, Bullets, Chart, Code, DotRow, Line, Plot, Section, Table, Text
from .ablate import Ablation, Difference, Score, Source
from .measure import Probed
from .readout_page import MEMORY, OBSERVATION, held
from .verdict import ends, shares, short

WHOLE, CONTROL = "as it is", "the control"
CLEARED, LAST = "cleared every so many steps", "only so many last steps"


def title(found: Probed) -> str:
    """Which agent, and where."""
    return f"{found.agent} on {found.env}"


def facts(found: Probed) -> str:
    """How it was asked, in a line."""
    played = f"{found.episodes} episodes of about {found.whole.length:.0f} steps, seed {found.seed}"
    return f"{played}; actor: {found.actor or 'no memory'}, critic: {critic_memory(found)}"


def critic_memory(found: Probed) -> str:
    """What the critic remembers with."""
    return "the actor's memory" if found.values.shared else found.critic or "no memory"


def colours(found: Probed) -> dict[str, int]:
    """The same for the same thing in every chart."""
    fixed = {WHOLE: 0, MEMORY: 0, CLEARED: 1, OBSERVATION: 1, LAST: 2, CONTROL: 3}
    others = [one.name for one in found.ablations] + list(found.values.found)
    return dict.fromkeys([*others, *(answer.name for answer in found.readout)], 1) | fixed


def sections(found: Probed) -> list[Section]:
    """The whole page."""
    made = [
        Section("Verdict", [Text(found.uses), Text(found.needs)]),
        Section("What the actor loses", list(_actor(found))),
        Section("What the critic loses", list(_critic(found))),
        Section("What the memory holds", list(held(found))),
        Section("How it was measured", [Bullets(list(_notes(found)))]),
        Section("Make it again", [Code(command(found))]),
    ]
    return [section for section in made if section.blocks]


def command(found: Probed) -> str:
    """What was asked for."""
    words = ["recollect", "probe", found.agent, "--episodes", str(found.episodes), "--seed", str(found.seed)]
    return shlex.join([*words, *(["--control", found.control] if found.control else [])])


# The actor ------------------------------------------------------------------------------------


def _actor(found: Probed) -> Iterator[Block]:
    if not found.ablations:
        yield Text("The actor has no memory, so nothing can be taken away from it.")
    else:
        yield Text(
            f"The {found.source} over the same episodes, with the actor's memory cleared, replaced or "
            "blurred. What is lost by that was used; where nothing is lost, nothing was."
        )
    yield from _clearings(found)
    rows = [DotRow(WHOLE, np.empty(0), found.whole.mean, found.whole.interval)]
    rows += [DotRow(one.name, np.empty(0), one.score.mean, one.score.interval) for one in _kinds(found)]
    if found.control_score:
        rows.append(DotRow(CONTROL, np.empty(0), found.control_score.mean, found.control_score.interval))
    words = f"{found.source}: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
    about = f"{found.source.capitalize()}, mean and 95 % interval"
    if len(rows) > 1:
        yield Chart("ablations", "dots", about, words, rows=rows)
    yield Table(
        f"{found.source.capitalize()}, and what is lost of it, over {found.episodes} episodes",
        ["the actor's memory", found.source, "95 %", "lost", "95 %", "steps"],
        scored(found),
    )


def _kinds(found: Probed) -> list[Ablation]:
    """What the chart of lines does not show, and clearing at every step."""
    return [one for one in found.ablations if one.last is None and one.every in (None, 1)]


def _clearings(found: Probed) -> Iterator[Block]:
    """The score over how much is left to know."""
    cleared = {one.every: one.score for one in found.ablations if one.every is not None}
    if len(cleared) < 2:
        return
    last = {1: cleared[1]} | {one.last: one.score for one in found.ablations if one.last is not None}
    whole = dict.fromkeys(cleared, found.whole)
    shown = (
        {CLEARED: cleared, LAST: last, WHOLE: whole} if len(last) > 1 else {CLEARED: cleared, WHOLE: whole}
    )
    grid = np.array(list(cleared), dtype=np.float64)
    lines = [_line(label, scores, list(cleared)) for label, scores in shown.items()]
    told = ", ".join(f"{number(score.mean)} at {steps}" for steps, score in cleared.items())
    words = f"{found.source}, cleared every so many steps: {told}. Whole: {number(found.whole.mean)}."
    plot = Plot("steps", found.source, grid, lines, log=True)
    yield Chart(
        "clearings", "lines", f"{found.source.capitalize()} with so many steps of memory", words, plot=plot
    )


def _line(label: str, scores: dict[int, Score], grid: Sequence[int]) -> Line:
    """A score and its interval where it is known."""
    unknown = (np.nan, np.nan, np.nan)
    told = [(scores[k].mean, *scores[k].interval) if k in scores else unknown for k in grid]
    middle, low, high = np.array(told, dtype=np.float64).T
    return Line(label, middle, low, high)


def scored(found: Probed) -> list[list[str]]:
    """A row for all that was done to the actor's memory."""
    by = found.source
    rows = [[WHOLE, *_cells(by, found.whole, None)]]
    rows += [[one.name, *_cells(by, one.score, one.lost)] for one in found.ablations]
    if found.control_score:
        rows.append([CONTROL, *_cells(by, found.control_score, found.above_control)])
    return rows


def _cells(source: Source, score: Score, lost: Difference | None) -> list[str]:
    """A score and what is lost by it, each with its interval."""
    cells = [short(source, score.mean), ends(source, score.interval)]
    cells += [short(source, lost.by), ends(source, lost.interval)] if lost else ["-", "-"]
    return [*cells, number(float(f"{score.length:.3g}"))]


# The critic and what is held ------------------------------------------------------------------


def _critic(found: Probed) -> Iterator[Block]:
    values = found.values
    if values.shared:
        yield Text(
            "The critic is a head on the actor's features: both share one memory, and it was harmed here."
        )
    if all(value is None for value in values.found.values()):
        yield Text(
            "Its returns to go are not known: all are alike, or every row lies so near to a cut that what is "
            "beyond it counts, in rewards whose scale only the folder of the run knows."
        )
        return
    yield Text(
        f"The {values.measure} of the discounted returns to go by the critic's values, over {values.rows} "
        "rows that the actor played with its memory whole: 1 is perfect, 0 is no better than a constant."
    )
    rows = [DotRow(name, np.empty(0), x, None) for name, x in values.found.items() if x is not None]
    words = f"{values.measure}: " + ", ".join(f"{row.label} {shares(row.value)}" for row in rows) + "."
    if len(rows) > 1:
        yield Chart("critic", "dots", values.measure.capitalize(), words, rows=rows)
    cells = [[name, shares(x)] for name, x in values.found.items()]
    yield Table(
        f"{values.measure.capitalize()} over {values.rows} rows",
        ["the critic's memory", values.measure],
        cells,
    )


def _notes(found: Probed) -> Iterator[str]:
    yield (
        "Every row of the first table plays the episodes that recollect eval plays, from the same seeds and "
        "with the likeliest actions. Intervals are over episodes; losses are compared episode by episode."
    )
    if found.ablations:
        yield (
            "Cleared is what the memory itself does where an episode begins. Of another episode: each row is "
            "read with the state that the episode beside it has in that moment. Deviations are those of each "
            "number over all states that were visited."
        )
    if found.source == "success":
        yield "The interval of a loss is that of two shares: pairs that never differ would know no doubt."
    yield "recollect's docs/probe.md says more."
