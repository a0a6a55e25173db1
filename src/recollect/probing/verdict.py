"""Whether an agent uses its memory and whether its task needs one, in a sentence each."""

import math
from collections.abc import Sequence

from ..common.format import number
from ..common.intervals import Interval
from .ablate import Ablation, Difference, Score, Source, recall

NO_CONTROL = "Whether the task needs a memory was not tested: name a memoryless run with --control."

ONE_CONTROL = "One control run is a hint; recollect compare with several seeds is the test."


def uses(
    source: Source, whole: Score, ablations: Sequence[Ablation], actor: str | None, critic: str | None
) -> str:
    """Whether what it does depends on what it remembers.

    actor, critic  the names of their memories, where they have one
    """
    if actor is None:
        alone = "Its actor has no memory, so it acts on what it sees alone; only its critic has one"
        return f"{alone} ({critic})." if critic else "It has no memory."
    cleared = next(one for one in ablations if one.every == 1)
    at = f"the {source} is {_score(source, cleared.score)} where it was {short(source, whole.mean)}"
    if source == "success" and whole.mean == 0:
        return "It has a memory; whether it uses it cannot be told, because it never succeeds."
    if cleared.lost.told == "equal":
        return (
            f"It has a memory and does not use it: cleared at every step {at} "
            f"({_difference(source, cleared.lost)})."
        )
    if cleared.lost.told == "worse":
        return f"Its memory harms it: cleared at every step {at} ({_difference(source, cleared.lost)})."
    if cleared.lost.told == "unclear":
        return (
            f"It has a memory; whether it uses it cannot be told from {len(whole.scores)} episodes: "
            f"cleared at every step {at} ({_difference(source, cleared.lost)})."
        )
    if all(one.lost.told in ("equal", "worse") for one in ablations if not (one.every or one.last)):
        return (
            f"It needs its memory not to be empty, and not what it holds: cleared at every step {at}, but "
            "other contents do as well."
        )
    steps, found = recall(ablations)
    reach = f"about {steps} steps" if found else f"more than {_steps(steps)}"
    fell = f"falls from {short(source, whole.mean)} to {_score(source, cleared.score)}"
    return f"It uses {reach} of memory: without it the {source} {fell}."


def needs(
    source: Source, whole: Score, control: Score | None, above: Difference | None, actor: str | None
) -> str:
    """Whether an agent without a memory does as well; above: by how much the control is behind."""
    if actor is None:
        return "Whether the task needs a memory cannot be told by an agent that has none."
    if control is None or above is None:
        return NO_CONTROL
    told = (
        f"without one the control reaches {short(source, control.mean)} where this agent reaches "
        f"{short(source, whole.mean)} ({_difference(source, above)})."
    )
    if above.told == "better":
        return f"The task seems to need a memory: {told} {ONE_CONTROL}"
    if above.told in ("equal", "worse"):
        return f"A memory is not needed: {told}"
    return f"Whether the task needs a memory cannot be told from {len(whole.scores)} episodes: {told}"


def _steps(count: int) -> str:
    return "a step" if count == 1 else f"{count} steps"


def _score(source: Source, score: Score) -> str:
    return f"{short(source, score.mean)} ({ends(source, score.interval)})"


def _difference(source: Source, difference: Difference) -> str:
    return f"difference {short(source, difference.by)}, {ends(source, difference.interval)}"


def ends(source: Source, interval: Interval) -> str:
    """An interval in a line."""
    return f"{short(source, interval.low)} to {short(source, interval.high)}"


def short(source: Source, x: float) -> str:
    """A share by its hundredths, a return by three digits."""
    return shares(x) if source == "success" else number(float(f"{x:.3g}"))


def shares(x: float | None) -> str:
    """By hundredths, without a zero below zero."""
    return "-" if x is None or math.isnan(x) else f"{round(x, 2) or 0.0:.2f}"
