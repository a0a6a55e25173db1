"""The analysis of studies/memory_length.yaml, written before its runs: hypotheses H1 to H3 of its header.

    recollect compare studies/memory_length.yaml --out runs/paper --report docs/results/memory_length
    python -m benchmarks.memory_length --measure [--jobs N]
    python -m benchmarks.memory_length

The first command after the runs probes the agent of every run that the report lists, and writes what it
measured into agents.json beside the report. The last one repeats the analysis from that file: it writes
analysis.json and lengths.svg beside it, and prints the tables.

Every task has a known horizon: the number of last steps, the present one included, without which no agent
solves it. With one step fewer an agent is no better than one without a memory; in RepeatPrevious hardly so,
because the cards that are gone from the deck say a little (0.02 to 0.12 of the scale below). The probe's
estimates are compared with it:

score      fewest last steps that keep nearly all of the score
rewarded   fewest last steps that keep nearly all of the policy at the recorded steps with a reward
policy     the same at all recorded steps
largest    the earlier input whose change surely has the largest effect on the policy
farthest   the farthest earlier input whose effect is surely above 0.01 nats
gradient   the earlier input with the largest gradient

Scores are on a scale where 0 is the best that an agent without a memory reaches, and 1 the best of all. An
agent solves its task from 0.95 on, in the study's own evaluation: on other episodes than those of the probe.
A run that failed does not solve its task. In the T-maze an episode is as long as the horizon, so no estimate
can be too large: it is counted apart. The last three estimators see 64 earlier inputs, so a horizon of 65 is
the largest that they could give: they are not judged by it. The last four are over all steps, also those
where no action is better than another: what an agent depends on there has no known length.

Shapes.  A agents.
"""

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.common.intervals import Floats, Interval, one_factor, stretched
from recollect.probing.occlusion import LONGEST
from recollect.reporting.significance import holm, mann_whitney
from recollect.run.run_folder import write_json

from .length_agents import ESTIMATORS, HALF, LENGTHS, Agent, Estimator, measure_all, read_agents
from .length_tables import calibration_table, draw, solved_table, used_table

SOLVED = 0.95
CALIBRATED = Interval(0.8, 1.25)
UNKNOWN = 0.05  # share of agents for which a calibrated estimator may say nothing
COVERED = 0.95  # share of agents whose interval must contain the horizon
FEWEST_TASKS, FEWEST_MEMORIES = 5, 3  # without which nothing is decided
FEWEST_AGENTS = 10  # of a memory that is judged alone, and of those whose intervals are judged
EQUAL = 0.99  # from this score on the agents of a task do as well as each other
ATTENTION, RECURRENT = ("gpt2", "gtrxl"), ("gru", "lstm")
ENDS_AT_HORIZON = "tmaze"
RESAMPLES = 10_000
RESULTS = Path(__file__).parents[1] / "docs/results/memory_length"
AGENTS, ANALYSIS = "agents.json", "analysis.json"


def analyse(agents: Sequence[Agent]) -> dict[str, Any]:
    """All hypotheses, as plain data."""
    solved, half = ([one for one in agents if one.score >= least] for least in (SOLVED, HALF))
    open_ended = [one for one in agents if is_primary(one)]
    chosen = {"primary": open_ended, "all tasks": solved, "half solved": half}
    equal = [one for one in agents if one.score >= EQUAL]
    return {
        "agents": len(agents),
        "solved": len(solved),
        "by_task": {task: count_solved(agents, task) for task in sorted({agent.task for agent in agents})},
        "calibration": {
            name: {label: calibrate(within_reach(some, name), name) for label, some in chosen.items()}
            for name in ESTIMATORS
        },
        "coverage": {name: covers(open_ended, name) for name in LENGTHS},
        "used": compare_memories(equal),
        "attention": compare_attention(equal),
    }


def within_reach(agents: Sequence[Agent], name: Estimator) -> list[Agent]:
    """The agents in tasks whose horizon is below the largest estimate; resets have none but the episode."""
    return [one for one in agents if name in LENGTHS or one.horizon <= LONGEST]


def count_solved(agents: Sequence[Agent], task: str) -> dict[str, str]:
    """Memory -> solved of all seeds."""
    of_task = [agent for agent in agents if agent.task == task]
    return {
        memory: f"{sum(agent.score >= SOLVED for agent in of_task if agent.memory == memory)} of "
        f"{sum(agent.memory == memory for agent in of_task)}"
        for memory in sorted({agent.memory for agent in of_task})
    }


def calibrate(agents: Sequence[Agent], name: Estimator) -> dict[str, Any] | None:
    """How an estimator follows the horizon, and how often its interval contains it; None without agents.

    An estimator that says nothing, or "more than was measured", is wrong, and its interval contains nothing.
    """
    known = [agent for agent in agents if math.isfinite(agent.estimates[name] or math.nan)]
    if not known:
        return None
    factors = np.array([agent.estimates[name] / agent.horizon for agent in known])
    slope, interval = slope_interval(known, name)
    middle, unknown = float(np.median(factors)), 1 - len(known) / len(agents)
    memories = median_factors(known, factors)
    values = [*interval, middle, *memories.values()]
    enough = len({agent.task for agent in known}) >= FEWEST_TASKS and len(memories) >= FEWEST_MEMORIES
    within = CALIBRATED.low <= min(values) and max(values) <= CALIBRATED.high
    families = {agent.task.partition(" ")[0] for agent in known}
    return {
        "agents": len(agents),
        "unknown": unknown,
        "exact": float((factors == 1).sum() / len(agents)),
        "factor": middle,
        "memories": memories,
        "slope": slope,
        "interval": interval,
        "families": {
            family: slope_interval([one for one in known if one.task.startswith(family)], name)[0]
            for family in sorted(families)
        },
        "calibrated": within and unknown <= UNKNOWN if enough else None,
        "coverage": coverage(agents, name) if name in LENGTHS else None,
    }


def median_factors(agents: Sequence[Agent], factors: Floats) -> dict[str, float]:
    """The median of factors (A,) for each memory with enough agents: an estimator may suit only most."""
    of_memory: dict[str, list[float]] = {}
    for agent, factor in zip(agents, factors, strict=True):
        of_memory.setdefault(agent.memory, []).append(factor)
    return {
        memory: float(np.median(some))
        for memory, some in sorted(of_memory.items())
        if len(some) >= FEWEST_AGENTS
    }


def covers(agents: Sequence[Agent], name: Estimator) -> bool | None:
    """Whether the intervals of an estimator contain the horizon in as many agents as they should."""
    counted = coverage(agents, name)
    return counted["contained"] / counted["of"] >= COVERED if counted["of"] >= FEWEST_AGENTS else None


def coverage(agents: Sequence[Agent], name: str) -> dict[str, int]:
    """How many intervals contain the horizon, of all agents and of those whose interval has a width."""
    pairs = [(agent.horizon, agent.intervals.get(name, (math.inf, math.inf))) for agent in agents]
    wide = [(horizon, x) for horizon, x in pairs if x[0] < x[1]]
    contained = [sum(low <= h <= high for h, (low, high) in some) for some in (pairs, wide)]
    return {"contained": contained[0], "of": len(pairs), "wide contained": contained[1], "wide": len(wide)}


def slope_interval(agents: Sequence[Agent], name: Estimator) -> tuple[float, Interval]:
    """The least-squares slope of an estimator over the horizon, both as logarithms, so that long horizons
    count no more than short ones; the interval resamples tasks, because a horizon belongs to a task, and is
    widened for few of them as the intervals of reports are."""
    tasks: dict[str, list[tuple[float, float]]] = {}
    for agent in agents:
        pair = math.log2(agent.horizon), math.log2(agent.estimates[name] or math.nan)
        tasks.setdefault(agent.task, []).append(pair)
    # Sums over each task from which the slope of any selection of tasks follows: (tasks, 5).
    sums = np.array([_sums(np.array(pairs)) for pairs in tasks.values()])
    random = np.random.Generator(np.random.Philox(0))
    counts = random.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLES)
    slopes = _slope(np.concatenate([[np.ones(len(sums))], counts]) @ sums)
    known = slopes[np.isfinite(slopes)]
    if not len(known) or len(sums) < 2:
        return math.nan, Interval(-math.inf, math.inf)
    low, high = stretched(slopes[0], *np.quantile(known, [0.025, 0.975]), one_factor(len(sums)))
    return float(slopes[0]), Interval(float(low), float(high))


def _sums(pairs: Floats) -> Floats:
    """Number, sums of x and y, of x x and of x y, of pairs (A, 2)."""
    x, y = pairs.T
    return np.array([len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum()])


def _slope(sums: Floats) -> Floats:
    """Slopes (...,) of sums (..., 5); NaN where all x are equal."""
    n, x, y, xx, xy = np.moveaxis(sums, -1, 0)
    spread = n * xx - x * x
    return np.asarray(
        np.divide(n * xy - x * y, spread, out=np.full_like(spread, np.nan), where=spread > 1e-9)
    )


def compare_memories(agents: Sequence[Agent]) -> list[dict[str, Any]]:
    """For each task, whether memories with equal scores differ in the steps that their policy depends on."""
    rows: list[dict[str, Any]] = []
    for task, lengths in lengths_of(agents).items():
        several = {memory: steps for memory, steps in lengths.items() if len(steps) > 2}
        if len(several) > 1:
            medians = {memory: float(np.median(steps)) for memory, steps in sorted(several.items())}
            rows.append({"task": task, "medians": medians, "p": rank_differences([*several.values()])})
    return adjusted(rows)


def compare_attention(agents: Sequence[Agent]) -> list[dict[str, Any]]:
    """For each task, the probability that a policy with attention depends on more steps than one with a GRU
    or an LSTM; 0.5: neither."""
    rows: list[dict[str, Any]] = []
    for task, lengths in lengths_of(agents).items():
        one, other = (
            [steps for memory in kind for steps in lengths.get(memory, [])] for kind in (ATTENTION, RECURRENT)
        )
        if min(len(one), len(other)) > 2:
            above = np.sign(np.subtract.outer(np.minimum(one, 1e9), np.minimum(other, 1e9)))
            more = float((above + 1).mean() / 2)
            rows.append({"task": task, "more": more, "p": mann_whitney(one, other)})
    return adjusted(rows)


def lengths_of(agents: Sequence[Agent]) -> dict[str, dict[str, list[float]]]:
    """Task -> memory -> the steps that the policies of its agents depend on."""
    lengths: dict[str, dict[str, list[float]]] = {}
    for agent in sorted(agents, key=lambda one: one.task):
        steps = agent.estimates["policy"]
        if steps is not None:
            lengths.setdefault(agent.task, {}).setdefault(agent.memory, []).append(steps)
    return lengths


def adjusted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with p-values adjusted over the tasks."""
    return [{**row, "adjusted": p} for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True)]


def rank_differences(groups: Sequence[Sequence[float]]) -> float:
    """The p-value of equal ranks in several groups: Kruskal and Wallis's statistic, over permutations."""
    values = np.concatenate([np.asarray(group, dtype=np.float64) for group in groups])
    below, upto = ((values[:, None] > values).sum(1), (values[:, None] >= values).sum(1))
    ranks = (below + upto + 1) / 2
    sizes = np.array([len(group) for group in groups])
    starts = np.cumsum(sizes) - sizes
    random = np.random.Generator(np.random.Philox(1))
    # The first row is the order as it is.
    orders = np.tile(ranks, (RESAMPLES, 1))
    orders[1:] = random.permuted(orders[1:], axis=1)
    statistics = (np.add.reduceat(orders, starts, axis=1) ** 2 / sizes).sum(1)
    # A tolerance, because sums in another order are rounded.
    return float((statistics >= statistics[0] - 1e-9).mean())


def is_primary(agent: Agent) -> bool:
    """Whether H1 and H2 judge by this agent: it solves a task whose episodes are longer than the horizon."""
    return agent.score >= SOLVED and not agent.task.startswith(ENDS_AT_HORIZON)


TABLES: dict[str, Callable[[Sequence[Agent], Mapping[str, Any]], list[str]]] = {
    "solved": solved_table,
    "primary": lambda _, result: calibration_table(result, "primary"),
    "all tasks": lambda _, result: calibration_table(result, "all tasks"),
    "half solved": lambda _, result: calibration_table(result, "half solved"),
    "used": used_table,
}


def lines(name: str, results: Path = RESULTS) -> list[str]:
    """A table of the analysis as it was written."""
    result: dict[str, Any] = json.loads((results / ANALYSIS).read_text())
    return TABLES[name](read_agents(results / AGENTS), result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="probe the agents that are not in agents.json")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of report.json and agents.json")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if args.measure:  # alone, so that nothing is looked at before every agent is measured
        return measure_all(args.results / "report.json", args.results / AGENTS, args.jobs)
    agents = read_agents(args.results / AGENTS)
    result = analyse(agents)
    write_json(args.results / ANALYSIS, result)
    draw([agent for agent in agents if is_primary(agent)], CALIBRATED, args.results / "lengths.svg")
    for name in TABLES:
        print("\n".join([*lines(name, args.results), ""]))


if __name__ == "__main__":
    main()
