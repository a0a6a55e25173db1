"""Read-outs of a memory state as charts and a table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..common.format import number
from ..reporting.blocks import Block, Chart, DotRow, Line, Plot, Table, Text
from .linear import PERMUTATIONS, ReadOut
from .measure import ProbeResult
from .open_loop import Estimate
from .readout import UNTRAINED
from .verdict import format_estimate, format_share

MEMORY, OBSERVATION = "from the memory", "from the observation"
READ_OUT = (
    *("measure", "memory", "untrained", "gain (95 %)", "observation", "chance"),
    "memory minus chance (95 %)",
)
EACH = 12  # entries per lag; of more only the mean is listed


def build_readout(result: ProbeResult) -> Iterator[Block]:
    if not result.readout:
        return
    whose = "actor's" if result.actor else "critic's"
    yield Text(
        f"Linear read-outs of the {whose} memory state, scored on episodes they were not fitted to. "
        f"Untrained: the same read-out of {UNTRAINED} memories of the same shape with initial weights, given "
        "the same steps. A random memory retains much of its input, so only the gain over it (95 % interval "
        "over episodes and untrained memories) was learned. Chance: the same read-out for the values of "
        f"another episode at the same steps, the mean over {PERMUTATIONS} permutations of the episodes; the "
        "interval of the difference to it is over episodes and permutations. R2 is 1 for perfect predictions "
        "and 0 for the mean."
    )
    yield from _lags(result.readout)
    for measure in ("accuracy", "R2"):
        present = [answer for answer in result.readout if answer.lag is None and answer.measure == measure]
        if present:
            # R2 has no lower bound: one far below 0 would squeeze all other dots together. The table has its
            # value.
            rows = [DotRow(x.name, np.array([max(x.untrained, 0)]), max(x.memory, 0), None) for x in present]
            means = ", ".join(f"{x.name} {number(x.memory)} ({number(x.untrained)})" for x in present)
            text = f"{measure} from the memory, and from untrained memories in brackets: {means}."
            about = f"{measure.capitalize()}: large dots from the memory, small from untrained memories"
            yield Chart(f"held-{measure}", "dots", about, text, rows=rows)
    columns = ["quantity", "steps ago", *READ_OUT, "steps"]
    yield Table("Read-outs in episodes that were not fitted", columns, tabulate_readout(result.readout, EACH))


def _lags(answers: Sequence[ReadOut]) -> Iterator[Block]:
    """Charts of the read-outs of earlier observations by lag."""
    past = [answer for answer in answers if answer.lag is not None]
    for measure in ("accuracy", "R2"):
        means = average_by_lag([answer for answer in past if answer.measure == measure])
        if len(means) < 2:
            continue
        grid = np.array([mean.lag for mean in means], dtype=np.float64)
        lines = [
            Line(MEMORY, np.array([mean.memory for mean in means])),
            Line(OBSERVATION, np.array([mean.observation for mean in means])),
        ]
        values = ", ".join(f"{number(m.memory)} ({number(m.observation)}) {m.lag} steps ago" for m in means)
        text = (
            f"Mean {measure} of earlier observations, from the memory, and from the present one in brackets: "
            f"{values}."
        )
        plot = Plot("steps ago", measure, grid, lines, log=True)
        yield Chart(f"lags-{measure}", "lines", f"Earlier observations: mean {measure}", text, plot=plot)


def average_by_lag(answers: Sequence[ReadOut]) -> list[ReadOut]:
    """The means over all entries of a lag, for each measure."""
    means: list[ReadOut] = []
    for lag, measure in dict.fromkeys((answer.lag, answer.measure) for answer in answers):
        here = [answer for answer in answers if (answer.lag, answer.measure) == (lag, measure)]
        columns = [(x.memory, x.untrained, x.gain, x.observation, x.chance, x.selectivity) for x in here]
        memory, untrained, gain, observation, chance, selectivity = np.mean(columns, axis=0).tolist()
        name = f"observation, mean of {len(here)} entries" if len(here) > 1 else "observation"
        mean = replace(
            here[0],
            name=name,
            memory=memory,
            untrained=untrained,
            gain=gain,
            observation=observation,
            chance=chance,
            selectivity=selectivity,
        )
        unknown = replace(mean, gain_interval=None, beyond_interval=None, selectivity_interval=None)
        means.append(mean if len(here) == 1 else unknown)
    return means


def tabulate_readout(answers: Sequence[ReadOut], each: int) -> list[list[str]]:
    """A row for each read-out; of earlier observations only means if a lag has more than `each` entries."""
    past, rest = ([x for x in answers if (x.lag is not None) == is_past] for is_past in (True, False))
    many = len(past) > each * len({answer.lag for answer in past})
    return [
        [x.name, "-" if x.lag is None else str(x.lag), *_cells(x), str(x.rows)]
        for x in [*rest, *(average_by_lag(past) if many else past)]
    ]


def _cells(answer: ReadOut) -> list[str]:
    """A cell for each of READ_OUT."""
    gain, selectivity = (
        format_share(by) if interval is None else format_estimate(Estimate(by, interval))
        for by, interval in (
            (answer.gain, answer.gain_interval),
            (answer.selectivity, answer.selectivity_interval),
        )
    )
    memory, untrained, observation, chance = map(
        format_share, (answer.memory, answer.untrained, answer.observation, answer.chance)
    )
    return [answer.measure, memory, untrained, gain, observation, chance, selectivity]
