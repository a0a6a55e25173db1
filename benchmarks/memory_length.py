"""The analysis of studies/memory_length.yaml, written before its runs: hypotheses H1 to H3 of its header.

    recollect compare studies/memory_length.yaml --out runs/paper
    python -m benchmarks.memory_length runs/paper [--json FILE] [--jobs N]

Every task has a known horizon: the number of last steps, the present one included, without which no agent
is better than one without a memory. For the agents that are better, the probe's estimates are compared with
it:

score      fewest last steps that keep nearly all of the score
policy     fewest last steps that keep nearly all of the policy at the recorded steps
largest    the earlier input whose change has the largest effect on the policy
farthest   the farthest earlier input whose effect is above 0.01 nats
gradient   the earlier input with the largest gradient, of those whose gradient is measured

Scores are on a scale where 0 is the best that an agent without a memory reaches, and 1 the best of all. An
agent is better from 0.1 on, and solves its task from 0.95 on. Each run is probed once; what was measured is
kept in its folder.

Shapes.  A agents.
"""

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from recollect.common.intervals import Floats, Interval
from recollect.envs import make_for_evaluation
from recollect.probing.ablate import (
    average,
    choose_source,
    list_alterations,
    measure_loss,
    measure_memory_length,
    play_altered,
)
from recollect.probing.interventions import measure_spread, record_sequences
from recollect.probing.memory_length import MemoryLength
from recollect.probing.occlusion import Dependence, measure_dependence
from recollect.probing.open_loop import measure_open_loop, number_episodes
from recollect.probing.verdict import LEAST
from recollect.reporting.significance import holm
from recollect.run import api
from recollect.run.recording import record_deterministic
from recollect.run.run_folder import write_json

Estimator = Literal["score", "policy", "largest", "farthest", "gradient"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
EPISODES, SEED = 50, 1_000_003
BETTER, SOLVED = 0.1, 0.95
# Without a memory: half of all signs are guessed, and in RepeatPrevious a quarter of all suits.
GUESSED = {"success": 0.5, "return": -0.5}
CALIBRATED = Interval(0.8, 1.25)
RESAMPLES = 10_000
MEASURED = "memory_length.json"


@dataclass(frozen=True)
class Agent:
    """What was measured of one agent."""

    task: str
    memory: str
    seed: int
    horizon: int
    """Steps without which no agent is better than one without a memory."""
    score: float
    """0: without a memory; 1: the best."""
    estimates: dict[str, float | None]
    """By estimator; infinite: more than was measured; None: the estimator says nothing."""
    intervals: dict[str, tuple[float, float]]
    """95 %, of `score` and `policy`."""


# Measurements ---------------------------------------------------------------------------------


def horizon_of(env_id: str, kwargs: Mapping[str, Any]) -> int:
    """The horizon of a task."""
    match env_id:
        case "probe:recall":
            return int(kwargs["delay"]) + 1
        case "popgym:RepeatPreviousEasy":
            return int(kwargs["k"])
        case "tmaze":
            return int(kwargs["length"]) + 1
    raise SystemExit(f"{env_id} is not a task of the study")


def measure(folder: Path) -> Agent:
    """The agent of a run."""
    torch.set_num_threads(1)
    trained = api.load(str(folder))
    agent, env = trained.agent, trained.config.env
    envs = make_for_evaluation(env)
    try:
        whole, record = record_deterministic(agent, envs, EPISODES, SEED)
        recorded = record_sequences(agent.actor, record)
        longest = int(whole.lengths.max())
        resets = list_alterations(measure_spread(agent.actor, record), recorded, longest, SEED)[:1]
        plays = play_altered(agent, envs, EPISODES, SEED, whole, resets)
    finally:
        envs.adapter.close()
    by = choose_source(whole, *(play.scores for play in plays))
    unchanged = average(whole, by)
    losses = [measure_loss(play, unchanged, by) for play in plays]
    episode = number_episodes(record, EPISODES)
    policy = measure_open_loop(agent, record, resets, recorded, episode)
    dependence = measure_dependence(agent, record, episode, SEED)
    lengths = {"score": measure_memory_length(unchanged, losses, longest), "policy": policy.length}
    known: dict[str, MemoryLength] = {key: length for key, length in lengths.items() if length}
    return Agent(
        task=" ".join([env.id, *(f"{key} {value}" for key, value in env.kwargs.items())]),
        memory=trained.config.actor.memory.name,
        seed=trained.config.seed,
        horizon=horizon_of(env.id, env.kwargs),
        score=(unchanged.mean - GUESSED[by]) / (1 - GUESSED[by]),
        estimates={**dict.fromkeys(ESTIMATORS), **{key: x.steps for key, x in known.items()}}
        | single_inputs(dependence),
        intervals={key: (x.interval.low, x.interval.high) for key, x in known.items()},
    )


def single_inputs(dependence: Sequence[Dependence]) -> dict[str, float]:
    """The estimates from changes of one earlier input, which is counted from the present one as 1."""
    estimates = {}
    above = [one for one in dependence if one.occlusion.interval.low > LEAST]
    if above:
        estimates["largest"] = 1.0 + max(above, key=lambda one: one.occlusion.value).back
        estimates["farthest"] = 1.0 + max(one.back for one in above)
    gradients = {one.back: one.gradient.value for one in dependence if one.gradient}
    if gradients and max(gradients.values()) > 0:
        estimates["gradient"] = 1.0 + max(gradients, key=lambda back: gradients[back])
    return estimates


def measured(folder: Path) -> Agent:
    """The agent of a run, from its folder if it was measured before."""
    file = folder / MEASURED
    if not file.exists():
        write_json(file, {"agent": asdict(measure(folder))})
    data = json.loads(file.read_text())["agent"]
    return Agent(**{**data, "intervals": {key: tuple(x) for key, x in data["intervals"].items()}})


def finished_runs(roots: Iterable[Path]) -> list[Path]:
    """Folders of the finished runs of the study."""
    summaries = sorted(path for root in roots for path in root.rglob("summary.json"))
    return [path.parent for path in summaries if json.loads(path.read_text())["status"] == "finished"]


# Hypotheses -----------------------------------------------------------------------------------


def analyse(agents: Sequence[Agent]) -> dict[str, Any]:
    """All hypotheses, as plain data."""
    better, solved = ([one for one in agents if one.score >= least] for least in (BETTER, SOLVED))
    return {
        "agents": len(agents),
        "better": len(better),
        "solved": len(solved),
        "by_task": {task: count_solved(agents, task) for task in sorted({agent.task for agent in agents})},
        "calibration": {name: calibrate(better, name) for name in ESTIMATORS},
        "used": compare_memories(solved),
    }


def count_solved(agents: Sequence[Agent], task: str) -> dict[str, str]:
    """Memory -> solved of all seeds."""
    of_task = [agent for agent in agents if agent.task == task]
    return {
        memory: f"{sum(agent.score >= SOLVED for agent in of_task if agent.memory == memory)} of "
        f"{sum(agent.memory == memory for agent in of_task)}"
        for memory in sorted({agent.memory for agent in of_task})
    }


def calibrate(agents: Sequence[Agent], name: Estimator) -> dict[str, Any]:
    """The slope of an estimator over the horizon, and the coverage of its interval."""
    known = [agent for agent in agents if math.isfinite(agent.estimates[name] or math.nan)]
    slope, interval = slope_interval(known, name)
    within = [
        agent.intervals[name][0] <= agent.horizon <= agent.intervals[name][1]
        for agent in agents
        if name in agent.intervals
    ]
    return {
        "agents": len(known),
        "unknown": len(agents) - len(known),
        "exact": float(np.mean([agent.estimates[name] == agent.horizon for agent in known])),
        "slope": slope,
        "interval": interval,
        "calibrated": CALIBRATED.low <= interval.low and interval.high <= CALIBRATED.high,
        "coverage": float(np.mean(within)) if within else None,
    }


def slope_interval(agents: Sequence[Agent], name: Estimator) -> tuple[float, Interval]:
    """The least-squares slope of an estimator over the horizon; the interval resamples whole cells of a task
    and a memory, because their seeds are alike."""
    cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for agent in agents:
        pair = float(agent.horizon), float(agent.estimates[name] or math.nan)
        cells.setdefault((agent.task, agent.memory), []).append(pair)
    # Sums over each cell from which the slope of any selection of cells follows: (cells, 5).
    sums = np.array([_sums(np.array(pairs)) for pairs in cells.values()])
    random = np.random.Generator(np.random.Philox(0))
    counts = random.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLES)
    low, high = np.nanquantile(_slope(counts @ sums), [0.025, 0.975])
    return float(_slope(sums.sum(0))), Interval(float(low), float(high))


def _sums(pairs: Floats) -> Floats:
    """Number, sums of x and y, of x x and of x y, of pairs (A, 2)."""
    x, y = pairs.T
    return np.array([len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum()])


def _slope(sums: Floats) -> Floats:
    """Slopes (...,) of sums (..., 5); NaN where all x are equal."""
    n, x, y, xx, xy = np.moveaxis(sums, -1, 0)
    spread = n * xx - x * x
    return np.asarray(np.divide(n * xy - x * y, spread, out=np.full_like(spread, np.nan), where=spread > 0))


def compare_memories(solved: Sequence[Agent]) -> list[dict[str, Any]]:
    """For each task, whether memories that solve it differ in the steps that their policy depends on."""
    rows: list[dict[str, Any]] = []
    for task in sorted({agent.task for agent in solved}):
        lengths: dict[str, list[float]] = {}
        for agent in solved:
            steps = agent.estimates["policy"]
            if agent.task == task and steps is not None:
                lengths.setdefault(agent.memory, []).append(steps)
        several = {memory: steps for memory, steps in lengths.items() if len(steps) > 2}
        if len(several) > 1:
            medians = {memory: float(np.median(steps)) for memory, steps in sorted(several.items())}
            rows.append({"task": task, "medians": medians, "p": rank_differences([*several.values()])})
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["adjusted"] = p
    return rows


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="folders of the runs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        agents = list(pool.map(measured, finished_runs(args.runs)))
    result = analyse(agents)
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
