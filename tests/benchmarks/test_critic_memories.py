"""The analysis of the study of critic memories: its hypotheses on scores whose answer is known."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from benchmarks.critic_memories import (
    ACTORS,
    CRITICS,
    Arm,
    analyse,
    highest_of_90,
    lines,
    read_arms,
    spearman,
)

from benchmarks import critic_memories
from recollect.common.metrics import METRICS
from recollect.comparison.study import read_study
from recollect.config.data import to_dict
from recollect.reporting.groups import group_runs
from recollect.reporting.runs import Run, RunCollection, flatten, key_of, task_config

STUDY = Path(__file__).parents[2] / "studies" / "critic_memories.yaml"


def arms(gains, explained, spread=0.01, envs=critic_memories.TASKS):
    """Ten seeds of every arm, with a gain and a gain in explained variance for each critic."""
    random = np.random.default_rng(0)
    return [
        Arm(
            env,
            actor,
            critic,
            0.5 + gains.get((env, critic), 0.0) + spread * random.standard_normal(10),
            0.3 + explained.get((env, critic), 0.0) + spread * random.standard_normal(10),
        )
        for env in envs
        for actor in ACTORS
        for critic in CRITICS
    ]


GAINS = {(critic_memories.LOAN, "gru"): 0.2, (critic_memories.LOAN, "gpt2"): 0.1}
TASKS = critic_memories.TASKS


def test_hypotheses_hold_where_they_are_true():
    gains = GAINS | {("CartPoleNoVel-v1", "gru"): 0.15, ("CartPoleNoVel-v1", "gpt2 frozen"): -0.2}
    gains |= {(critic_memories.STATE, "gru"): 0.02, (critic_memories.STATE, "gpt2"): -0.02}
    gains |= {(env, critic): by for env in TASKS[1:5] for critic, by in (("gru", 0.15), ("late_stack", 0.05))}
    result = analyse(arms(gains, gains, envs=TASKS, spread=0.005))
    assert result["h1"]["holds"] and len(result["h1"]["highest"]) == 8
    assert len(result["h2"]) == 4 and all(one["holds"] and one["adjusted"] < 0.01 for one in result["h2"])
    assert result["h3"]["holds"] and result["h3"]["rho"] > 0.4 and set(result["h3"]["without"]) == set(TASKS)
    assert result["missing"] == result["extend"] == [] and result["fewer seeds"] == {}
    assert len(lines(result)) == 2 + 48


def test_and_do_not_hold_where_they_are_false():
    gains = {(critic_memories.STATE, "gru"): 0.1, (critic_memories.LOAN, "gpt2"): -0.1}
    opposite = {name: -by for name, by in gains.items()}
    result = analyse(arms(gains, opposite))
    assert result["h1"]["holds"] is False and sum(one < 0.05 for one in result["h1"]["highest"]) == 6
    assert [one["holds"] for one in result["h2"]] == [False] * 4
    assert result["h3"]["holds"] is False and result["h3"]["rho"] < 0


def test_one_task_alone_makes_no_association():
    """In the others, gains in explained variance come with losses."""
    gains = {(critic_memories.LOAN, critic): 0.2 for critic in CRITICS[1:]}
    others = {(env, "gru"): 0.05 for env in TASKS if env != critic_memories.LOAN}
    h3 = analyse(arms(gains | {key: -by for key, by in others.items()}, gains | others, spread=0.001))["h3"]
    assert min(h3["without"].values()) < 0 and h3["holds"] is False


def test_an_association_of_tasks_is_told_from_one_of_critics():
    """Where all critics of a task have one gain, exchanging them changes nothing; where they differ, all."""
    of_task = {(env, critic): 0.1 * i for i, env in enumerate(TASKS) for critic in CRITICS[1:]}
    of_critic = {(env, critic): 0.1 * i for env in TASKS for i, critic in enumerate(CRITICS)}
    tasks, critics = (
        analyse(arms(gains, gains, spread=1e-3))["h3"]["checks"]["critics exchanged"]
        for gains in (of_task, of_critic)
    )
    assert tasks["mean"] > 0.9 and tasks["p"] > 0.05
    assert abs(critics["mean"]) < 0.1 and critics["p"] < 0.001


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_independent_gains_are_rarely_associated(share, monkeypatch):
    """True gains in score and in explained variance of arms, a share of them common to the task."""
    monkeypatch.setattr(critic_memories, "RESAMPLES", 300)
    random, above = np.random.default_rng(1), []
    for _ in range(200):
        some = []
        for env in TASKS:
            common = random.normal(size=2) * share**0.5
            for actor, critic in product(ACTORS, CRITICS):
                gain = (common + random.normal(size=2) * (1 - share) ** 0.5) * (critic != "mlp")
                values = 0.5 + 0.1 * (gain[:, None] + 0.5 * random.normal(size=(2, 10)))
                some.append(Arm(env, actor, critic, *values))
        above.append(critic_memories.correlate(some)[1].low > 0)
    assert np.mean(above) < 0.08  # nominal: 0.025


@pytest.mark.thorough
def test_noise_that_scores_and_explained_variances_share_makes_no_association():
    """The seeds of an arm vary in both alike, and no arm gains."""
    random, rhos = np.random.default_rng(0), []
    for _ in range(30):
        noise = [random.standard_normal(10) for _ in range(20)]
        names = [(env, a, c) for env in TASKS[:2] for a in ACTORS for c in CRITICS]
        some = [Arm(*name, 0.5 + 0.1 * x, 0.3 + 0.1 * x) for name, x in zip(names, noise, strict=True)]
        rhos.append(critic_memories.correlate(some)[0])
    assert abs(np.mean(rhos)) < 0.15


def test_a_hypothesis_waits_for_its_arms():
    some = arms({}, {}, spread=0.2)
    result = analyse([arm for arm in some if (arm.env, arm.critic) != (critic_memories.LOAN, "gru")])
    assert result["missing"] == [f"{critic_memories.LOAN}: {actor} with gru" for actor in ACTORS]
    assert result["h1"]["holds"] is False  # LunarLander is complete, and its gains are too uncertain
    assert [one["holds"] for one in result["h2"]] == [None, None]
    assert result["h3"] == {"rho": None, "interval": None, "without": {}, "checks": None, "holds": None}
    assert set(result["extend"]) == set(TASKS)
    begun = analyse([one for one in some if one.critic in ("mlp", "gru")][:4])
    assert begun["h1"]["holds"] is None and len(begun["missing"]) == 60 - 4


def test_arms_with_one_seed_are_missing_and_those_with_fewer_named():
    some = arms({}, {})
    short = replace(some[3], areas=some[3].areas[:6], explained=some[3].explained[:6])
    single = replace(some[4], areas=some[4].areas[:1], explained=some[4].explained[:1])
    result = analyse([*some[:3], short, single, *some[5:]])
    name = "LunarLander-v3: mlp with "
    assert result["fewer seeds"] == {f"{name}gpt2": 6} and result["missing"] == [f"{name}gpt2 frozen"]


def test_critics_that_see_hidden_variables_are_compared_with_those_that_do_not():
    base = arms({}, {})
    seeing = [
        Arm("PendulumNoVel-v1", "mlp", critic, 0.5 + by + 0.01 * np.arange(10), np.zeros(10))
        for critic, by in (("mlp", 0.0), ("mlp with hidden variables", 0.3))
    ]
    (one,) = analyse(base, seeing)["privileged"]
    assert one["by"] == pytest.approx(0.3) and one["critic"] == "mlp with hidden variables"


def test_the_upper_end_is_above_the_difference_in_95_of_100_studies():
    random, above = np.random.default_rng(0), []
    for _ in range(200):
        x, y = random.normal(0.02, 0.1, 10), random.normal(0.0, 0.2, 10)
        above.append(highest_of_90(x, y) > 0.02)
    assert 0.9 < np.mean(above) < 0.99


def test_rank_correlations_by_hand():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    others = np.stack([x**3, -x, [1.0, 1.0, 2.0, 2.0]])  # equal values have ranks of 1.5 and 3.5
    assert spearman(np.stack([x, x, x]), others) == pytest.approx([1, -1, 2 / np.sqrt(5)])


def test_the_written_analysis_is_that_of_the_archived_runs():
    written, again = critic_memories.read(), critic_memories.analyse_runs()
    assert lines(written) == lines(again)
    for part in ("missing", "fewer seeds", "extend"):
        assert written[part] == again[part]
    assert written["h1"]["holds"] == again["h1"]["holds"]
    assert [one["holds"] for one in written["h2"]] == [one["holds"] for one in again["h2"]]


def test_the_arms_are_those_of_the_study():
    """Each of its configs has a name of its own, and the score of a run is its normalised area."""
    configs = [config for config in read_study(STUDY).configs() if config.seed <= 202]
    steps = np.linspace(0, 500_000, 40)
    runs, random = [], {}
    for config in configs:
        metrics = {name: np.full(40, np.nan) for name in METRICS}
        metrics |= {
            "step": steps,
            "return": np.full(40, 100.0),
            "explained_variance": np.where(steps > 3e5, 0.9, 0.1),
        }
        runs.append(Run(Path(config.env.id), to_dict(config), {"status": "finished"}, metrics))
    failed = replace(
        runs[0], summary={"status": "failed"}, metrics=runs[0].metrics | {"return": np.full(40, 9.0)}
    )
    runs += [failed, replace(failed, summary={"status": "running"})]
    for group in group_runs(runs):
        random[key_of(task_config(group.settings))] = {"mean": -100.0}
    read = read_arms(RunCollection(runs, [], random))
    assert len(read) == 60 and {(arm.actor, arm.critic) for arm in read} == {
        (a, c) for a in ACTORS for c in CRITICS
    }
    (lander,) = (
        one for one in read if (one.env, one.actor, one.critic) == (critic_memories.STATE, "mlp", "mlp")
    )
    # From -100 to 200. A run that failed counts as a random agent, and one that is running not at all.
    assert lander.areas == pytest.approx([2 / 3] * 2 + [0])
    assert lander.explained == pytest.approx([0.9] * 2 + [0])
    assert all(len(arm.areas) == 2 for arm in read if arm is not lander)
    privileged = STUDY.with_name("critic_memories_privileged.yaml")
    names = {
        critic_memories.names_of(flatten(to_dict(config))) for config in read_study(privileged).configs()
    }
    assert names == {(a, "mlp" + sees) for a in ACTORS for sees in ("", " with hidden variables")}
