"""What is measured of each agent of studies/memory_length.yaml: the estimates of benchmarks.memory_length."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

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
from recollect.probing.occlusion import LONGEST, Dependence, measure_dependence
from recollect.probing.open_loop import measure_open_loop, number_episodes
from recollect.probing.verdict import LEAST
from recollect.run import api
from recollect.run.recording import record_deterministic
from recollect.run.run_folder import write_json

Estimator = Literal["score", "rewarded", "policy", "largest", "farthest", "gradient"]
LENGTHS: tuple[Estimator, ...] = ("score", "rewarded", "policy")  # those with an interval
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
EPISODES, SEED = 50, 1_000_003
# Without a memory: half of all signs are guessed, and in RepeatPrevious a quarter of all suits (-0.5), or
# slightly more, because the deck has one card fewer of the present suit.
GUESSED = {"success": 0.5, "return": -0.5}
HALF = 0.5  # of the best score: agents below it are counted, and no estimate of them is analysed
GRADIENTS = range(1, LONGEST + 1)  # numbers of steps; the probe's own table has fewer


@dataclass(frozen=True)
class Agent:
    """What was measured of one agent."""

    task: str
    memory: str
    seed: int
    horizon: int
    """Steps without which no agent solves the task."""
    score: float
    """In the evaluation of the study. 0: without a memory; 1: the best."""
    estimates: dict[str, float | None]
    """By estimator; infinite: more than was measured; None: the estimator says nothing."""
    intervals: dict[str, tuple[float, float]]
    """95 %, of the estimators that have one."""


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


def task_name(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """The task with its keyword arguments."""
    return " ".join([env_id, *(f"{key} {value}" for key, value in kwargs.items())])


def measure(folder: Path) -> Agent:
    """The agent of a run; without estimates if its score is below half of the best."""
    torch.set_num_threads(1)
    trained = api.load(str(folder))
    agent, env = trained.agent, trained.config.env
    unprobed = Agent(
        task=task_name(env.id, env.kwargs),
        memory=trained.config.actor.memory.name,
        seed=trained.config.seed,
        horizon=horizon_of(env.id, env.kwargs),
        score=evaluated_score(folder),
        estimates=dict.fromkeys(ESTIMATORS),
        intervals={},
    )
    if unprobed.score < HALF:
        return unprobed
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
    at_rewards = np.where(record.reward != 0, episode, -1)
    rewarded, policy = (
        measure_open_loop(agent, record, resets, recorded, counted).length
        for counted in (at_rewards, episode)
    )
    dependence = measure_dependence(agent, record, episode, SEED, GRADIENTS)
    score = measure_memory_length(unchanged, losses, longest)
    lengths = {"score": score, "rewarded": rewarded, "policy": policy}
    known: dict[str, MemoryLength] = {key: length for key, length in lengths.items() if length}
    return replace(
        unprobed,
        estimates=unprobed.estimates | {key: x.steps for key, x in known.items()} | single_inputs(dependence),
        intervals={key: (x.interval.low, x.interval.high) for key, x in known.items()},
    )


def evaluated_score(folder: Path) -> float:
    """The score of a run in the evaluation of the study."""
    evaluation = json.loads((folder / "evaluation.json").read_text())
    by = "return" if evaluation["success"] is None else "success"
    mean = evaluation["mean"] if by == "return" else evaluation["success"]
    return float((mean - GUESSED[by]) / (1 - GUESSED[by]))


def single_inputs(dependence: Sequence[Dependence]) -> dict[str, float]:
    """The estimates from changes of one earlier input, which is counted from the present one as 1."""
    estimates = {}
    above = [one for one in dependence if one.occlusion.interval.low > LEAST]
    if above:
        estimates["largest"] = 1.0 + max(above, key=lambda one: one.occlusion.interval.low).back
        estimates["farthest"] = 1.0 + max(one.back for one in above)
    gradients = {one.back: one.gradient.value for one in dependence if one.gradient}
    if gradients and max(gradients.values()) > 0:
        estimates["gradient"] = 1.0 + max(gradients, key=lambda back: gradients[back])
    return estimates


def measure_all(report: Path, agents_file: Path, jobs: int) -> None:
    """Measure the agents of all finished runs of a report that are not in the file."""
    groups = json.loads(report.read_text())["groups"]
    runs = [run["folder"] for group in groups for run in group["runs"] if run["status"] == "finished"]
    known: dict[str, Any] = json.loads(agents_file.read_text()) if agents_file.exists() else {}
    known |= {
        run["folder"]: asdict(failed_agent(group["settings"], run["seed"]))
        for group in groups
        for run in group["runs"]
        if run["status"] == "failed"
    }
    write_json(agents_file, known)
    todo, failures = [folder for folder in runs if folder not in known], []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        measured = [(folder, pool.submit(measure, Path(folder))) for folder in todo]
        for folder, future in measured:
            # One that cannot be measured must not keep the others from it.
            if error := future.exception():
                failures.append(f"{folder}: {error}")
                continue
            agent = future.result()
            known[folder] = asdict(agent)
            write_json(agents_file, known)
            print(f"{len(known)} agents  {agent.task}  {agent.memory}  seed {agent.seed}", flush=True)
    if failures:
        raise SystemExit("\n".join(["not measured:", *failures]))


def failed_agent(settings: Mapping[str, Any], seed: int) -> Agent:
    """The agent of a run that failed, from the settings of its group."""
    prefix = "env.kwargs."
    kwargs = {key.removeprefix(prefix): x for key, x in settings.items() if key.startswith(prefix)}
    return Agent(
        task=task_name(settings["env.id"], kwargs),
        memory=settings["actor.memory.name"],
        seed=seed,
        horizon=horizon_of(settings["env.id"], kwargs),
        score=0.0,
        estimates=dict.fromkeys(ESTIMATORS),
        intervals={},
    )


def read_agents(agents_file: Path) -> list[Agent]:
    """The agents that were measured."""
    known = json.loads(agents_file.read_text())
    return [
        Agent(**{**data, "intervals": {key: tuple(x) for key, x in data["intervals"].items()}})
        for data in known.values()
    ]
