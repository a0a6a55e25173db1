"""What a memory holds, as charts and a table."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..common.format import number
from ..reporting.blocks import Block, Chart, DotRow, Line, Plot, Table, Text
from .linear import Answer
from .measure import Probed
from .readout import UNTRAINED
from .verdict import shares

MEMORY, OBSERVATION = "from the memory", "from the observation"
READ_OUT = ("measure", "memory", "untrained", "gain (95 %)", "observation", "chance")
EACH = 12  # numbers seen a lag, above which only their mean is listed


def held(found: Probed) -> Iterator[Block]:
    if not found.readout:
        return
    whose = "actor's" if found.actor else "critic's"
    yield Text(
        f"Linear read-outs of the {whose} memory state, scored on episodes they were not fitted to. "
        f"Untrained: the same read-out of {UNTRAINED} memories of the same shape with initial weights, given "
        "the same steps. A random memory retains much of its input, so only the gain over it (95 % interval "
        "over episodes) was learned. Chance: the same read-out for the values of another episode at the same "
        "steps. R2 is 1 where every value is found and 0 where only the mean is."
    )
    yield from _lags(found.readout)
    for measure in ("accuracy", "R2"):
        asked = [answer for answer in found.readout if answer.lag is None and answer.measure == measure]
        if asked:
            rows = [DotRow(x.name, np.array([max(x.untrained, 0)]), max(x.memory, 0), None) for x in asked]
            told = ", ".join(f"{x.name} {number(x.memory)} ({number(x.untrained)})" for x in asked)
            words = f"{measure} from the memory, and from untrained memories in brackets: {told}."
            about = f"{measure.capitalize()}: large dots from the memory, small from untrained memories"
            yield Chart(f"held-{measure}", "dots", about, words, rows=rows)
    columns = ["quantity", "steps ago", *READ_OUT, "rows"]
    yield Table("What is known of it in new episodes", columns, read_out(found.readout, EACH))


def _lags(answers: Sequence[Answer]) -> Iterator[Block]:
    """How far back what was seen is known."""
    past = [answer for answer in answers if answer.lag is not None]
    for measure in ("accuracy", "R2"):
        means = by_lag([answer for answer in past if answer.measure == measure])
        if len(means) < 2:
            continue
        grid = np.array([mean.lag for mean in means], dtype=np.float64)
        lines = [
            Line(MEMORY, np.array([mean.memory for mean in means])),
            Line(OBSERVATION, np.array([mean.observation for mean in means])),
        ]
        told = ", ".join(f"{number(m.memory)} ({number(m.observation)}) {m.lag} steps ago" for m in means)
        words = (
            f"Mean {measure} of what was seen, from the memory, and from the observation in brackets: {told}."
        )
        plot = Plot("steps ago", measure, grid, lines, log=True)
        yield Chart(f"lags-{measure}", "lines", f"What was seen before: mean {measure}", words, plot=plot)


def by_lag(answers: Sequence[Answer]) -> list[Answer]:
    """The means over all that was seen so many steps ago, for each measure."""
    made: list[Answer] = []
    for lag, measure in dict.fromkeys((answer.lag, answer.measure) for answer in answers):
        here = [answer for answer in answers if (answer.lag, answer.measure) == (lag, measure)]
        columns = [(x.memory, x.untrained, x.gain, x.observation, x.chance) for x in here]
        memory, untrained, gain, observation, chance = np.mean(columns, axis=0).tolist()
        interval = here[0].gain_interval if len(here) == 1 else None
        name = f"observation, mean of {len(here)} entries" if len(here) > 1 else "observation"
        mean = Answer(
            name, lag, measure, memory, untrained, gain, interval, observation, chance, here[0].rows
        )
        made.append(mean)
    return made


def read_out(answers: Sequence[Answer], each: int) -> list[list[str]]:
    """A row for each answer; of what was seen only the means where there are more than `each` a lag."""
    past, rest = ([x for x in answers if (x.lag is not None) == is_past] for is_past in (True, False))
    many = len(past) > each * len({answer.lag for answer in past})
    return [
        [x.name, "-" if x.lag is None else str(x.lag), *_cells(x), str(x.rows)]
        for x in [*rest, *(by_lag(past) if many else past)]
    ]


def _cells(answer: Answer) -> list[str]:
    """A cell for each of READ_OUT."""
    gain = shares(answer.gain)
    if answer.gain_interval is not None:
        low, high = answer.gain_interval
        gain += f" ({shares(low)} to {shares(high)})"
    values = [shares(x) for x in (answer.observation, answer.chance)]
    return [answer.measure, shares(answer.memory), shares(answer.untrained), gain, *values]
