"""What a memory state holds, and what of it decides the policy, as a chart and tables."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..common.format import number
from ..reporting.blocks import Block, Chart, DotRow, Table, Text
from .contents import Contents
from .measure import ProbeResult
from .open_loop import Effect
from .parts import ROWS, Part
from .parts import UNITS as MOST_UNITS
from .verdict import format_estimate, format_share, name_held

UNITS = 8  # single units that are listed
HELD = ("steps before the action", "erased: KL", "turned: KL", "random: largest KL", "drawn", "decides")
EXCHANGED = (
    "steps before the action",
    "turned",
    "turned: action of the other value",
    "state with the other value",
    "state with the same value",
)
PART = ("KL (nats)", "95 %", "other action", "95 %")


def build_contents(result: ProbeResult) -> Iterator[Block]:
    contents = result.contents
    if contents is None:
        return
    yield Text(
        f"The policy at {contents.steps:,} steps of {contents.episodes} episodes, with the memory state "
        "before the step changed. Erased: the linear read-out of a quantity is set to its mean. Turned: "
        "a quantity of two values gets the read-out of the other one. Random: directions that take as much "
        "variance away, moved as far; they are drawn until one has as large an effect. A quantity decides if "
        "none has. The read-outs were fitted to other episodes."
    )
    yield from _chart(contents)
    if contents.held:
        columns = ["quantity in the state", *HELD]
        yield Table("Quantities and what decides", columns, tabulate_held(contents))
    if any(one.other or one.same for one in contents.held):
        yield Table(
            "Quantities of two values: share of steps at which the most likely action is another (95 %), "
            "or KL for Box actions",
            ["quantity in the state", *EXCHANGED],
            tabulate_exchanged(contents),
        )
    yield Text(_describe_parts(contents.parts))
    yield Table("Parts of the state at their mean", ["part", *PART], tabulate_parts(contents))


def _describe_parts(parts: Sequence[Part]) -> str:
    """What a small effect does not show, and which parts are not in the table."""
    count = sum(part.unit for part in parts)
    listed = (
        f" Of the {count} units the {UNITS} with the largest effects are listed." if count > UNITS else ""
    )
    return (
        "One part of the state at its mean over all visited states, the others as they were. Where several "
        "parts hold the same, each can stand in for another, so small effects of all parts do not show that "
        f"the state is not used.{listed} Single units are altered in states of at most {MOST_UNITS} numbers "
        f"in vectors, rows in matrices and stacks of at most {ROWS} rows."
    )


def _chart(contents: Contents) -> Iterator[Block]:
    """The stronger effect of each quantity, with the largest of random directions."""
    rows = []
    for one in contents.held:
        effect = one.strongest.divergence
        random = [one.random.largest.divergence.value] if one.random.largest else []
        rows.append(DotRow(name_held(one), np.array(random), effect.value, effect.interval))
    if len(rows) > 1:
        text = "KL divergence: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
        about = "KL divergence in nats, turned or erased (large dots), and of random directions (small)"
        yield Chart("contents", "dots", about, text, rows=rows)


def tabulate_held(contents: Contents) -> list[list[str]]:
    """A row for each quantity."""
    return [
        [
            one.name,
            str(one.back),
            _divergence(one.erased),
            _divergence(one.turned),
            _divergence(one.random.largest),
            str(one.random.drawn),
            "yes" if one.decides else "no",
        ]
        for one in contents.held
    ]


def tabulate_exchanged(contents: Contents) -> list[list[str]]:
    """A row for each quantity of two values."""
    return [
        [
            one.name,
            str(one.back),
            _choice(one.turned),
            "-" if one.adopted is None else format_estimate(one.adopted),
            *map(_choice, (one.other, one.same)),
        ]
        for one in contents.held
        if one.other or one.same
    ]


def tabulate_parts(contents: Contents) -> list[list[str]]:
    """The whole state, states of other episodes, then parts; of units those with the largest effects."""
    rows = [
        ["whole state at its mean", *_cells(contents.mean)],
        ["state of another episode after as many steps", *_cells(contents.exchanged)],
        ["state of another episode after an equal share of its steps", *_cells(contents.progressed)],
    ]
    rows += [[one.name, *_cells(one.effect)] for one in contents.parts if not one.unit]
    units = sorted((one for one in contents.parts if one.unit), key=_size, reverse=True)
    return rows + [[one.name, *_cells(one.effect)] for one in units[:UNITS]]


def _size(part: Part) -> float:
    return part.effect.divergence.value if part.effect else -1.0


def _divergence(effect: Effect | None) -> str:
    return "-" if effect is None else _cells(effect)[0]


def _choice(effect: Effect | None) -> str:
    """The share of other actions, else the divergence, with its interval."""
    if effect is None:
        return "-"
    value, interval, *changed = _cells(effect)
    return f"{value} ({interval})" if effect.changed is None else f"{changed[0]} ({changed[1]})"


def _cells(effect: Effect | None) -> tuple[str, str, str, str]:
    """A cell for each of PART."""
    if effect is None:
        return ("-",) * 4
    divergence, changed = effect.divergence, effect.changed
    value, low, high = (number(float(f"{x:.2g}")) for x in (divergence.value, *divergence.interval))
    if changed is None:
        return value, f"{low} to {high}", "-", "-"
    ends = map(format_share, changed.interval)
    return value, f"{low} to {high}", format_share(changed.value), " to ".join(ends)
