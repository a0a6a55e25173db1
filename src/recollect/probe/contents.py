"""What was found, in order: for the screen, and as sections of a page."""

from pathlib import Path

from ..log import number
from ..report.intervals import Interval
from .ablate import Difference, Score
from .measure import Probed


def table(found: Probed, out: Path) -> str:
    """What the screen shows."""
    lines = [f"{found.agent} on {found.env}: {found.episodes} episodes, seed {found.seed}", ""]
    rows = [[f"the actor's memory ({found.actor or 'none'})", found.source, "95 %", "lost", "95 %"]]
    rows += [["as it is", *_score(found.whole), "", ""]]
    rows += [[one.name, *_score(one.score), *_difference(one.lost)] for one in found.ablations]
    if found.control_score and found.above_control:
        rows.append(["the control", *_score(found.control_score), *_difference(found.above_control)])
    lines += [*_columns(rows), ""]
    told = "the actor's" if found.values.shared else found.critic or "none"
    values = [[f"the critic's memory ({told})", found.values.measure]]
    values += [[name, number(value)] for name, value in found.values.found.items()]
    lines += [*_columns(values), "", found.uses, found.needs, f"{out / 'probe.json'} is written"]
    return "\n".join(lines)


def _columns(rows: list[list[str]]) -> list[str]:
    """Names left, numbers right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "   ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _score(score: Score) -> tuple[str, str]:
    return number(score.mean), _ends(score.interval)


def _difference(difference: Difference) -> tuple[str, str]:
    return number(difference.by), _ends(difference.interval)


def _ends(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"
