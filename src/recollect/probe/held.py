"""What a memory holds, as charts and a table."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..log import number
from ..report.blocks import Block, Chart, Line, Plot, Row, Table, Text
from .linear import Answer
from .measure import Probed
from .verdict import shares

MEMORY, OBSERVATION = "from the memory", "from the observation"
EACH = 12  # numbers seen a lag, above which only their mean is listed


def held(found: Probed) -> Iterator[Block]:
    if not found.readout:
        return
    whose = "actor's" if found.actor else "critic's"
    yield Text(
        f"What a linear map finds in the {whose} memory, in episodes that it has not learned from, beside "
        "what such a map finds in the present observation alone. What the first has more is what the memory "
        "adds. R2 is 1 where every value is found and 0 where only the mean is; chance is the mean or the "
        "commonest answer."
    )
    yield from _lags(found.readout)
    for measure in ("accuracy", "R2"):
        asked = [answer for answer in found.readout if answer.lag is None and answer.measure == measure]
        if asked:
            rows = [Row(x.name, np.array([max(x.observation, 0)]), max(x.memory, 0), None) for x in asked]
            told = ", ".join(f"{x.name} {number(x.memory)} ({number(x.observation)})" for x in asked)
            words = f"{measure} from the memory, and from the observation in brackets: {told}."
            about = f"{measure.capitalize()}, large from the memory, small from the observation"
            yield Chart(f"held-{measure}", "dots", about, words, rows=rows)
    columns = ["what", "steps ago", "measure", "memory", "observation", "chance", "rows"]
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
        told = [(x.memory, x.observation, x.chance) for x in here]
        memory, observation, chance = np.mean(told, axis=0).tolist()
        name = f"what was seen, mean of {len(here)}" if len(here) > 1 else "what was seen"
        made.append(Answer(name, lag, measure, memory, observation, chance, here[0].rows))
    return made


def read_out(answers: Sequence[Answer], each: int) -> list[list[str]]:
    """A row for each answer; of what was seen only the means where there are more than `each` a lag."""
    past, rest = ([x for x in answers if (x.lag is not None) == is_past] for is_past in (True, False))
    many = len(past) > each * len({answer.lag for answer in past})
    return [
        [x.name, "-" if x.lag is None else str(x.lag), x.measure, *_shares(x), str(x.rows)]
        for x in [*rest, *(by_lag(past) if many else past)]
    ]


def _shares(answer: Answer) -> list[str]:
    return [shares(x) for x in (answer.memory, answer.observation, answer.chance)]
