"""What was found, as lines of a terminal."""

from collections.abc import Sequence

from .measure import Probed
from .probe_page import critic_memory, scored
from .readout_page import READ_OUT, read_out
from .verdict import shares


def screen(found: Probed) -> str:
    """Tables, then the verdict."""
    lines = [f"{found.agent} on {found.env}: {found.episodes} episodes, seed {found.seed}", ""]
    lines += _table(
        [f"actor: {found.actor or 'no memory'}", found.source, "95 %", "lost", "95 %"], scored(found)
    )
    values = [[name, shares(x)] for name, x in found.values.found.items()]
    lines += _table([f"critic: {critic_memory(found)}", found.values.measure], values)
    if found.readout:
        head = ["read out of the memory", "steps ago", *READ_OUT]
        lines += _table(head, read_out(found.readout, each=0))
    return "\n".join([*lines, found.uses, found.needs])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Names left, numbers right; cells beyond the head are left out."""
    cells = [list(head), *([*row][: len(head)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    made = []
    for row in cells:
        name, *numbers = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        made.append("   ".join([name, *(x.strip().rjust(len(x)) for x in numbers)]).rstrip())
    return [*made, ""]
