"""The result of a probe as text for a terminal."""

from collections.abc import Sequence

from ..common.format import wrapped
from .contents_page import EXCHANGED, HELD, tabulate_exchanged, tabulate_held
from .measure import ProbeResult
from .policy_page import HEAD, tabulate_policy
from .probe_page import list_verdict, name_critic_memory, tabulate_scores, tabulate_values
from .readout_page import READ_OUT, tabulate_readout
from .verdict import name_score


def write_text(result: ProbeResult) -> str:
    """Tables, then the verdict."""
    lines = [f"{result.agent} on {result.env}: {result.episodes} episodes, seed {result.seed}", ""]
    lines += _align(
        [f"actor: {result.actor or 'no memory'}", name_score(result.source), "95 %", "loss", "95 %"],
        tabulate_scores(result),
    )
    if result.policy is not None:
        lines += _align(["policy at the same steps", *HEAD], tabulate_policy(result.policy))
    head = [f"critic: {name_critic_memory(result)}", result.values.measure, "95 %", "loss", "95 %"]
    lines += _align(head, tabulate_values(result.values))
    if result.readout:
        head = ["read-out of the memory state", "steps ago", *READ_OUT]
        lines += _align(head, tabulate_readout(result.readout, each=0))
    if result.contents and result.contents.held:
        lines += _align(["quantity in the state", *HELD], tabulate_held(result.contents))
        if exchanged := tabulate_exchanged(result.contents):
            lines += _align(["other action with it", *EXCHANGED], exchanged)
    return "\n".join([*lines, *map(wrapped, list_verdict(result))])


def _align(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Names left, numbers right; cells beyond the head are left out."""
    cells = [list(head), *([*row][: len(head)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        name, *numbers = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("   ".join([name, *(x.strip().rjust(len(x)) for x in numbers)]).rstrip())
    return [*lines, ""]
