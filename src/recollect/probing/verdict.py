"""Whether an agent uses its memory and whether its task needs one, one sentence each."""

import math
from collections.abc import Sequence

from ..common.format import number
from ..common.intervals import Interval
from .ablate import Ablation, Difference, Score, Source, measure_memory_length
from .memory_length import MemoryLength

NO_CONTROL = "Whether the task needs a memory was not tested: name a memoryless run with --control."

ONE_CONTROL = "One control run is a hint; recollect compare with several seeds is the test."


def judge_use(
    source: Source, whole: Score, ablations: Sequence[Ablation], actor: str | None, critic: str | None
) -> str:
    """Whether the actions depend on the memory state.

    actor, critic  names of their memories; None without memory
    """
    if actor is None:
        return (
            f"Only its critic has a memory ({critic}); its actor has none." if critic else "It has no memory."
        )
    cleared = next(one for one in ablations if one.every == 1)
    at = f"the {source} is {_score(source, cleared.score)} instead of {format_score(source, whole.mean)}"
    # Before the losses: nothing can be lost from 0, which would read as a memory that is not used.
    if source == "success" and whole.mean == 0:
        return "It has a memory. Whether it uses it cannot be determined: no episode is a success."
    if cleared.lost.direction == "equal":
        return (
            f"It has a memory and does not use it: with a reset at every step {at} "
            f"({_difference(source, cleared.lost)})."
        )
    if cleared.lost.direction == "worse":
        return f"Its memory harms it: with a reset at every step {at} ({_difference(source, cleared.lost)})."
    if cleared.lost.direction == "unclear":
        return (
            f"It has a memory. Whether it uses it cannot be determined from {len(whole.scores)} episodes: "
            f"with a reset at every step {at} ({_difference(source, cleared.lost)})."
        )
    if all(one.lost.direction in ("equal", "worse") for one in ablations if not (one.every or one.last)):
        return (
            f"It needs a memory state other than the initial one, but not its content: with a reset at every "
            f"step {at}, but with states of other steps and episodes it does as well."
        )
    reach = _describe_length(measure_memory_length(whole, ablations))
    fell = f"falls from {format_score(source, whole.mean)} to {_score(source, cleared.score)}"
    return f"It uses {reach} of memory: without it the {source} {fell}."


def judge_need(
    source: Source, whole: Score, control: Score | None, above: Difference | None, actor: str | None
) -> str:
    """Whether an agent without a memory does as well; above: the score minus that of the control."""
    if actor is None:
        return "Whether the task needs a memory cannot be determined from an agent without one."
    if control is None or above is None:
        return NO_CONTROL
    scores = (
        f"without one the control reaches {format_score(source, control.mean)} where this agent reaches "
        f"{format_score(source, whole.mean)} ({_difference(source, above)})."
    )
    if above.direction == "better":
        return f"The task seems to need a memory: {scores} {ONE_CONTROL}"
    if above.direction in ("equal", "worse"):
        return f"A memory is not needed: {scores}"
    return f"Whether the task needs a memory cannot be determined from {len(whole.scores)} episodes: {scores}"


def _describe_length(length: MemoryLength) -> str:
    """A memory length with its interval, without it if all of it is beyond the measured steps."""
    more = f"more than {length.measured}"
    low, high = (f"{x:.0f}" if math.isfinite(x) else more for x in length.interval)
    interval = "" if low == more else f" ({low} to {high})"
    if math.isfinite(length.steps):
        return f"about {length.steps:.0f} steps{interval}"
    return f"more than {'a step' if length.measured == 1 else f'{length.measured} steps'}{interval}"


def _score(source: Source, score: Score) -> str:
    return f"{format_score(source, score.mean)} ({format_interval(source, score.interval)})"


def _difference(source: Source, difference: Difference) -> str:
    return f"difference {format_score(source, difference.by)}, {format_interval(source, difference.interval)}"


def format_interval(source: Source, interval: Interval) -> str:
    """An interval as text."""
    return f"{format_score(source, interval.low)} to {format_score(source, interval.high)}"


def format_score(source: Source, x: float) -> str:
    """A success rate with two decimals, a return with three significant digits."""
    return format_share(x) if source == "success" else number(float(f"{x:.3g}"))


def format_share(x: float | None) -> str:
    """A share with two decimals and no negative zero; - if there is none."""
    return "-" if x is None or math.isnan(x) else f"{round(x, 2) or 0.0:.2f}"
