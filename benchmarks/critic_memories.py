"""The analysis of studies/critic_memories.yaml, written before its runs: hypotheses H1 to H3 of its header.

    recollect compare studies/critic_memories.yaml --out runs/paper --report docs/results/critic_memories
    python -m benchmarks.archive docs/results/critic_memories/report.json runs/paper/random \\
        -o docs/results/critic_memories/runs.zip
    python -m benchmarks.critic_memories

and the same for critic_memories_privileged, whose arms are secondary. The last command writes analysis.json
and gains.svg beside the report.

An arm is an actor and a critic in one task. Its score is the area under the training curve (areas.py) on a
scale where 0 is a random agent and 1 the threshold or published score of the task; MiniGrid's highest return
is 1, and that of probe:loan 3.2. A gain is a difference of interquartile means to the critic without memory,
with the same actor in the same task. A run that failed counts as a random agent: its area is 0, and it
explains no variance. Arms with fewer than two seeds are left out, and named; a hypothesis is judged when all
its arms are complete.

H1  LunarLander, where the observation is the state: the 90 % intervals of all gains lie below 0.05.
H2  probe:loan: the GRU and the GPT-2 gain, by a test of equal means, adjusted by Holm over its four gains.
H3  Spearman's rank correlation of the gain in score with the gain in explained variance over the second half
    of training, over all arms. The two gains of an arm are of different seeds: those of one half give the
    score, those of the other the explained variance, and the correlations of both ways are averaged, because
    the noise of one seed is in both. The interval resamples the tasks, whose arms share a baseline, and the
    seeds of every arm. It must hold without any one of the tasks as well.

Shapes.  n seeds of one arm, m of another, A arms, R resamples.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.common.intervals import (
    Floats,
    Interval,
    factor,
    iqm_weights,
    one_factor,
    stratified,
    stretched,
)
from recollect.common.statistics import iqm
from recollect.reporting.aggregate import difference_of_iqms
from recollect.reporting.groups import Group, group_runs
from recollect.reporting.reference_scores import reference_score
from recollect.reporting.runs import RunCollection, key_of, read_runs, task_config
from recollect.reporting.significance import compare_means, holm
from recollect.run.run_folder import write_json

from .areas import task_areas
from .cells import table

STATE, LOAN = "LunarLander-v3", "probe:loan"
TASKS = (STATE, "LunarLanderNoVel-v3", "CartPoleNoVel-v1", "PendulumNoVel-v1", "minigrid:MemoryS9", LOAN)
HIGHEST = {"minigrid:MemoryS9": 1.0, LOAN: 3.2}  # returns of tasks without a threshold
ACTORS, CRITICS = ("mlp", "gru"), ("mlp", "late_stack", "gru", "gpt2", "gpt2 frozen")
EQUIVALENT = 0.05  # the largest gain that counts as none
WIDE = 0.2  # a task with a wider interval gets ten more seeds
RESAMPLES = 10_000
RESULTS = Path(__file__).parents[1] / "docs/results"
ANALYSIS = Path("critic_memories/analysis.json")


@dataclass(frozen=True)
class Arm:
    """The seeds of an actor and a critic in one task."""

    env: str
    actor: str
    critic: str
    areas: Floats
    """Normalised areas (n,)."""
    explained: Floats
    """Explained variance over the second half of training (n,)."""


@dataclass(frozen=True)
class Gain:
    """The gain of an arm over the critic without memory."""

    env: str
    actor: str
    critic: str
    by: float
    """The difference of interquartile means."""
    interval: Interval
    highest: float
    """The upper end of the 90 % interval."""
    p: float
    """Of equal means."""
    explained: float
    """The gain in explained variance, a difference of means."""


# Runs -----------------------------------------------------------------------------------------


def read_arms(collection: RunCollection) -> list[Arm]:
    """The arms of all runs that finished or failed."""
    groups = group_runs(collection.runs)
    arms: list[Arm] = []
    for env in sorted({group.env for group in groups}):
        of_env = [group for group in groups if group.env == env]
        random = collection.random[key_of(task_config(of_env[0].settings))]["mean"]
        highest = HIGHEST.get(env, reference_score(env, "training"))
        if highest is None:
            raise SystemExit(f"{env} is not a task of the study")
        finished = [group for group in of_env if group.finished]
        areas = {id(group): one.scores for group, one in zip(finished, task_areas(finished), strict=True)}
        for group in of_env:
            normalised = (areas.get(id(group), np.empty(0)) - random) / (highest - random)
            failed = np.zeros(sum(run.status == "failed" for run in group.runs))
            values = np.append(normalised, failed), np.append(_explained(group), failed)
            arms.append(Arm(env, *names_of(group.settings), *values))
    return arms


def names_of(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The actor and the critic of a config."""
    critic = str(settings["critic.memory.name"])
    frozen = critic == "gpt2" and not settings["critic.memory.trained_ends"]
    privileged = "hidden" in settings["critic.sees"]
    name = critic + " frozen" * frozen + " with hidden variables" * privileged
    return str(settings["actor.memory.name"]), name


def _explained(group: Group) -> Floats:
    """The median over the second half of training, because a single value is unbounded below."""
    values = []
    for run in group.finished:
        late = run.metrics["step"] > run.metrics["step"][-1] / 2
        values.append(float(np.nanmedian(run.metrics["explained_variance"][late])))
    return np.array(values, dtype=np.float64)


# Hypotheses -----------------------------------------------------------------------------------


def gains(arms: Sequence[Arm]) -> list[Gain]:
    """The gain of every arm whose critic without memory has run as well."""
    by_name = {(arm.env, arm.actor, arm.critic): arm for arm in arms}
    assert len(by_name) == len(arms), "two arms of one name"
    return [
        gain(arm, by_name[arm.env, arm.actor, "mlp"])
        for arm in arms
        if arm.critic != "mlp" and (arm.env, arm.actor, "mlp") in by_name
    ]


def gain(arm: Arm, without: Arm) -> Gain:
    """Compare an arm with that of the critic without memory."""
    interval = stratified([arm.areas, without.areas], difference_of_iqms)
    assert interval is not None, "an arm has several seeds"
    return Gain(
        arm.env,
        arm.actor,
        arm.critic,
        iqm(arm.areas) - iqm(without.areas),
        interval,
        highest_of_90(arm.areas, without.areas),
        compare_means(arm.areas, without.areas),
        float(arm.explained.mean() - without.explained.mean()),
    )


def highest_of_90(x: Floats, y: Floats) -> float:
    """The upper end of the 90 % interval of a difference of interquartile means (n,) and (m,).

    A bootstrap, widened for few seeds as the 95 % intervals of reports are.
    """
    random = np.random.Generator(np.random.Philox(0))
    drawn = [scores[random.integers(len(scores), size=(RESAMPLES, len(scores)))] for scores in (x, y)]
    centre = iqm(x) - iqm(y)
    beyond = float(np.quantile(difference_of_iqms(drawn), 0.95)) - centre
    return centre + factor((x, y), level=0.9) * max(beyond, 0.0)


def correlation(arms: Sequence[Arm]) -> float:
    """Spearman's correlation of gains in score and in explained variance."""
    return float(_crossed(arms, _halves(arms))[0])


def correlate(arms: Sequence[Arm]) -> tuple[float, Interval]:
    """The correlation, and its interval over tasks, each with as many arms, and over seeds."""
    random = np.random.Generator(np.random.Philox(1))
    resampled = [[_resampled(*scores, random) for scores in half] for half in _halves(arms)]
    tasks = [arm.env for arm in arms if arm.critic != "mlp"]
    places = np.stack([np.flatnonzero(np.array(tasks) == task) for task in dict.fromkeys(tasks)])
    drawn = places[random.integers(len(places), size=(RESAMPLES, len(places)))].reshape(RESAMPLES, -1)
    low, high = np.nanquantile(_crossed(arms, resampled, drawn), [0.025, 0.975])
    return correlation(arms), Interval(float(low), float(high))


Half: TypeAlias = list[tuple[Floats, Floats]]  # areas and explained variances (R, n) of each arm


def _halves(arms: Sequence[Arm]) -> list[Half]:
    """The arms with every other seed, and with the rest."""
    return [[(arm.areas[None, i::2], arm.explained[None, i::2]) for arm in arms] for i in (0, 1)]


def _resampled(areas: Floats, explained: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
    seeds = random.integers(areas.shape[1], size=(RESAMPLES, areas.shape[1]))
    return areas[0, seeds], explained[0, seeds]


def _crossed(arms: Sequence[Arm], halves: Sequence[Half], drawn: NDArray[np.intp] | None = None) -> Floats:
    """The mean correlation (R,) of the scores of one half with the explained variances of the other.

    drawn  places of gains (R, D) in each resample; None: all
    """
    scores, explained = _gains_of_halves(arms, halves)
    if drawn is not None:
        scores, explained = (
            [np.take_along_axis(one, drawn, axis=1) for one in both] for both in (scores, explained)
        )
    return (spearman(scores[0], explained[1]) + spearman(scores[1], explained[0])) / 2


def _gains_of_halves(arms: Sequence[Arm], halves: Sequence[Half]) -> tuple[list[Floats], list[Floats]]:
    """The gains in score (R, A) of both halves, and those in explained variance."""
    scores = [
        _gains_of(arms, [np.sort(areas, axis=1) @ iqm_weights(areas.shape[1]) for areas, _ in half])
        for half in halves
    ]
    return scores, [_gains_of(arms, [values.mean(1) for _, values in half]) for half in halves]


def _gains_of(arms: Sequence[Arm], values: Sequence[Floats]) -> Floats:
    """Values (R,) of arms -> their differences to those of the critic without memory (R, A)."""
    pairs = list(zip(arms, values, strict=True))
    without = {(arm.env, arm.actor): value for arm, value in pairs if arm.critic == "mlp"}
    return np.stack(
        [
            value - without[arm.env, arm.actor]
            for arm, value in pairs
            if arm.critic != "mlp" and (arm.env, arm.actor) in without
        ],
        axis=1,
    )


def without_each_task(arms: Sequence[Arm]) -> dict[str, float]:
    """The correlation without each task."""
    tasks = sorted({arm.env for arm in arms})
    rest = {task: [arm for arm in arms if arm.env != task] for task in tasks}
    return {task: correlation(some) for task, some in rest.items() if len(gains(some)) > 2}


def checks(arms: Sequence[Arm], rho: float, interval: Interval) -> dict[str, Any]:
    """What the correlation of H3 rests on; added after the runs and a review, and judges nothing."""
    tasks = sorted({arm.env for arm in arms})

    def of(chosen: Callable[[Arm], bool]) -> float:
        return correlation([arm for arm in arms if chosen(arm)])

    pairs = {pair: of(lambda arm, pair=pair: arm.env not in pair) for pair in combinations(tasks, 2)}
    lowest = min(pairs, key=lambda pair: pairs[pair])
    of_actor = {actor: correlate([arm for arm in arms if arm.actor == actor]) for actor in ACTORS}
    return {
        "widened": [
            float(end) for end in stretched(np.array(rho), *map(np.array, interval), one_factor(len(tasks)))
        ],
        "within tasks": {task: of(lambda arm, task=task: arm.env == task) for task in tasks},
        "without two": {"tasks": lowest, "rho": pairs[lowest]},
        "one actor": of_actor,
        "critics exchanged": exchanged(arms, rho),
    }


def exchanged(arms: Sequence[Arm], rho: float) -> dict[str, float]:
    """The mean correlation if the critics of each task and actor have the explained variances of each other,
    and how often it is as high as the true one: how much of that is of tasks and actors, not of critics."""
    scores, explained = _gains_of_halves(arms, _halves(arms))
    cells = [(arm.env, arm.actor) for arm in arms if arm.critic != "mlp"]
    random = np.random.Generator(np.random.Philox(2))
    order = np.tile(np.arange(len(cells)), (RESAMPLES, 1))
    for cell in dict.fromkeys(cells):
        places = [i for i, other in enumerate(cells) if other == cell]
        order[:, places] = random.permuted(order[:, places], axis=1)
    one, two = (spearman(np.tile(scores[i], (RESAMPLES, 1)), explained[1 - i][0][order]) for i in (0, 1))
    drawn = (one + two) / 2
    return {"mean": float(drawn.mean()), "p": float((1 + (drawn >= rho).sum()) / (1 + RESAMPLES))}


def spearman(x: Floats, y: Floats) -> Floats:
    """The correlation (R,) of the ranks of x (R, A) and y (R, A); equal values have their mean rank."""
    ranks = [(z[:, :, None] > z[:, None]).sum(2) + (z[:, :, None] >= z[:, None]).sum(2) for z in (x, y)]
    a, b = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    return (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))


# The result -----------------------------------------------------------------------------------


def analyse(arms: Sequence[Arm], privileged: Sequence[Arm] = ()) -> dict[str, Any]:
    """All hypotheses, as plain data; `holds` is None while arms of a hypothesis are missing."""
    arms = [arm for arm in arms if len(arm.areas) > 1]
    all_gains = gains(arms)
    first = [one for one in all_gains if one.env == STATE]
    second = [one for one in all_gains if one.env == LOAN and one.critic in ("gru", "gpt2")]
    present = {(arm.env, arm.actor, arm.critic): len(arm.areas) for arm in arms}
    missing = [name for name in product(TASKS, ACTORS, CRITICS) if name not in present]
    complete = {env for env in TASKS if not any(name[0] == env for name in missing)}
    rho, interval = (None, None) if missing else correlate(arms)
    without = {} if missing else without_each_task(arms)
    return {
        "missing": [describe(*name) for name in missing],
        "fewer seeds": {
            describe(*name): seeds
            for name, seeds in present.items()
            if seeds < max(number for (env, *_), number in present.items() if env == name[0])
        },
        "extend": sorted({one.env for one in all_gains if is_wide(one)}),
        "gains": [vars(one) for one in all_gains],
        "privileged": [vars(one) for one in gains(privileged)],
        "h1": {
            "highest": [one.highest for one in first],
            "adjusted": holm([one.p for one in first]),  # of losses; added after the runs, and judges nothing
            "holds": all(one.highest < EQUIVALENT for one in first) if STATE in complete else None,
        },
        "h2": [
            {**vars(one), "adjusted": p, "holds": p < 0.05 and one.by > 0 if LOAN in complete else None}
            for one, p in zip(second, holm([one.p for one in second]), strict=True)
        ],
        "h3": {
            "rho": rho,
            "interval": interval,
            "without": without,
            "checks": None if rho is None or interval is None else checks(arms, rho, interval),
            "holds": None if interval is None else interval.low > 0 and min(without.values()) > 0,
        },
    }


def describe(env: str, actor: str, critic: str) -> str:
    """The name of an arm."""
    return f"{env}: {actor} with {critic}"


def is_wide(one: Gain) -> bool:
    """Whether the stopping rule asks for ten more seeds: it looks at widths alone, not at gains."""
    return one.interval.high - one.interval.low > WIDE or (
        one.env == STATE and one.highest - one.by > EQUIVALENT
    )


def lines(result: Mapping[str, Any]) -> list[str]:
    """The gains of all arms, as Markdown."""
    header = ["environment", "actor", "critic", "gain (95 %)", "up to (90 %)", "gain in explained variance"]
    rows = []
    for one in (*result["gains"], *result["privileged"]):
        low, high = one["interval"]
        cells = (
            f"{one['by']:.3f} ({low:.3f} to {high:.3f})",
            f"{one['highest']:.3f}",
            f"{one['explained']:.3f}",
        )
        rows.append([one["env"], *(f"`{one[part]}`" for part in ("actor", "critic")), *cells])
    return table(header, rows)


def read(results: Path = RESULTS) -> dict[str, Any]:
    """The analysis as it was written."""
    result: dict[str, Any] = json.loads((results / ANALYSIS).read_text())
    return result


def draw(result: Mapping[str, Any], path: Path) -> None:
    """A forest plot of the gains, a panel for each task; the shade ends where a gain counts as one."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    tasks = [task for task in TASKS if any(one["env"] == task for one in result["gains"])]
    figure, panels = plt.subplots(
        len(tasks), 1, figsize=(7, 2.2 * len(tasks) + 0.5), sharex=True, squeeze=False, layout="constrained"
    )
    for task, axes in zip(tasks, panels[:, 0], strict=True):
        some = [one for one in result["gains"] if one["env"] == task][::-1]
        places = range(len(some))
        axes.axvspan(-EQUIVALENT, EQUIVALENT, color="0.92")
        axes.axvline(0, color="0.5", lw=1)
        axes.hlines(places, *zip(*(one["interval"] for one in some), strict=True), lw=2)
        axes.plot([one["by"] for one in some], places, "o", ms=5)
        names = [f"{one['critic']} critic, {one['actor']} actor" for one in some]
        axes.set_yticks(places, names)
        axes.set_title(task, loc="left", fontsize="medium")
    panels[-1, 0].set(xlabel="gain over the critic without memory (95 % interval)")
    with plt.rc_context({"svg.hashsalt": "gains"}):  # equal results give equal files
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def analyse_runs(results: Path = RESULTS) -> dict[str, Any]:
    """The analysis of the archived runs."""
    first, second = (
        results / name / "runs.zip" for name in ("critic_memories", "critic_memories_privileged")
    )
    privileged = read_arms(read_runs([second])) if second.exists() else []
    return analyse(read_arms(read_runs([first])), privileged)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    result = analyse_runs()
    write_json(RESULTS / ANALYSIS, result)
    draw(result, (RESULTS / ANALYSIS).with_name("gains.svg"))
    print("\n".join(lines(result)))
    for name in ("h1", "h2", "h3", "missing", "fewer seeds", "extend"):
        print(name, json.dumps(result[name]))


if __name__ == "__main__":
    main()
