"""The analysis of the study of critic memories: its hypotheses on scores whose answer is known."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.critic_memories import (
    ACTORS,
    CRITICS,
    Arm,
    analyse,
    highest_of_90,
    read_arms,
    spearman,
    table,
)

from benchmarks import critic_memories
from recollect.common.metrics import METRICS
from recollect.comparison.study import read_study
from recollect.config.data import to_dict
from recollect.reporting.groups import group_runs
from recollect.reporting.runs import Run, RunCollection, flatten, key_of, task_config

STUDY = Path(__file__).parents[2] / "studies" / "critic_memories.yaml"


def arms(gains, explained, spread=0.01, envs=(critic_memories.STATE, critic_memories.LOAN)):
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
TASKS = (critic_memories.STATE, critic_memories.LOAN, "CartPoleNoVel-v1")


def test_hypotheses_hold_where_they_are_true():
    gains = GAINS | {("CartPoleNoVel-v1", "gru"): 0.15, ("CartPoleNoVel-v1", "gpt2 frozen"): -0.2}
    gains |= {(critic_memories.STATE, "gru"): 0.02, (critic_memories.STATE, "gpt2"): -0.02}
    result = analyse(arms(gains, gains, envs=TASKS, spread=0.005))
    assert result["h1"]["holds"] and len(result["h1"]["highest"]) == 8
    assert len(result["h2"]) == 4 and all(one["holds"] and one["adjusted"] < 0.01 for one in result["h2"])
    assert result["h3"]["holds"] and result["h3"]["rho"] > 0.4 and set(result["h3"]["without"]) == set(TASKS)
    assert result["missing"] == result["extend"] == [] and set(map(tuple, result["seeds"].values())) == {
        (10,)
    }
    assert len(table(result)) == 2 + 24


def test_and_do_not_hold_where_they_are_false():
    gains = {(critic_memories.STATE, "gru"): 0.1, (critic_memories.LOAN, "gpt2"): -0.1}
    opposite = {name: -by for name, by in gains.items()}
    result = analyse(arms(gains, opposite))
    assert not result["h1"]["holds"] and sum(one < 0.05 for one in result["h1"]["highest"]) == 6
    assert not any(one["holds"] for one in result["h2"])
    assert not result["h3"]["holds"] and result["h3"]["rho"] < 0


def test_one_task_alone_makes_no_association():
    """In the others, gains in explained variance come with losses."""
    gains = GAINS | {("CartPoleNoVel-v1", "gru"): -0.05, (critic_memories.STATE, "gru"): -0.05}
    explained = GAINS | {("CartPoleNoVel-v1", "gru"): 0.05, (critic_memories.STATE, "gru"): 0.05}
    h3 = analyse(arms(gains, explained, envs=TASKS, spread=0.001))["h3"]
    assert min(h3["without"].values()) < 0 and not h3["holds"]


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


def test_arms_that_are_missing_and_tasks_that_need_more_seeds_are_named():
    some = arms({}, {}, spread=0.2)
    result = analyse([arm for arm in some if (arm.env, arm.critic) != (critic_memories.LOAN, "gru")])
    assert result["missing"] == [f"{critic_memories.LOAN}: {actor} with gru" for actor in ACTORS]
    assert result["extend"] == sorted([critic_memories.STATE, critic_memories.LOAN])
    assert not result["h1"]["holds"] and not any(one["holds"] for one in result["h2"])


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
    for group in group_runs(runs):
        random[key_of(task_config(group.settings))] = {"mean": -100.0}
    read = read_arms(RunCollection(runs, [], random))
    assert len(read) == 60 and {(arm.actor, arm.critic) for arm in read} == {
        (a, c) for a in ACTORS for c in CRITICS
    }
    lander = next(arm for arm in read if arm.env == critic_memories.STATE)
    assert lander.areas == pytest.approx([2 / 3] * 2)  # -100 to 200
    assert lander.explained == pytest.approx([0.9] * 2)
    privileged = STUDY.with_name("critic_memories_privileged.yaml")
    names = {
        critic_memories.names_of(flatten(to_dict(config))) for config in read_study(privileged).configs()
    }
    assert names == {(a, "mlp" + sees) for a in ACTORS for sees in ("", " with hidden variables")}
