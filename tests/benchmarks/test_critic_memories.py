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
from recollect.reporting.runs import Run, RunCollection, key_of, task_config

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


def test_hypotheses_hold_where_they_are_true():
    gains = {(critic_memories.LOAN, "gru"): 0.2, (critic_memories.LOAN, "gpt2"): 0.1}
    result = analyse(arms(gains, gains))
    assert len(result["h1"]) == 8 and all(one["holds"] for one in result["h1"])
    assert len(result["h2"]) == 4 and all(one["holds"] and one["adjusted"] < 0.01 for one in result["h2"])
    assert result["h3"]["holds"] and result["h3"]["rho"] > 0.4 and result["h3"]["arms"] == 16
    assert result["missing"] == [] and result["seeds"] == [10]
    assert len(table(result)) == 2 + 16


def test_and_do_not_hold_where_they_are_false():
    gains = {(critic_memories.STATE, "gru"): 0.1, (critic_memories.LOAN, "gpt2"): -0.1}
    opposite = {name: -by for name, by in gains.items()}
    result = analyse(arms(gains, opposite))
    assert [one["holds"] for one in result["h1"]] == [one["critic"] != "gru" for one in result["h1"]]
    assert not any(one["holds"] for one in result["h2"])
    assert not result["h3"]["holds"] and result["h3"]["rho"] < 0


def test_wide_scores_show_no_equivalence():
    result = analyse(arms({}, {}, spread=0.2))
    assert not any(one["holds"] for one in (*result["h1"], *result["h2"]))


def test_the_upper_end_is_above_the_difference_in_95_of_100_studies():
    random, above = np.random.default_rng(0), []
    for _ in range(200):
        x, y = random.normal(0.02, 0.1, 10), random.normal(0.0, 0.2, 10)
        above.append(highest_of_90(x, y) > 0.02)
    assert 0.9 < np.mean(above) < 0.99


def test_rank_correlations_by_hand():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(x, x**3) == pytest.approx(1) and spearman(x, -x) == pytest.approx(-1)
    assert spearman(x, np.array([1.0, 1.0, 2.0, 2.0])) == pytest.approx(
        2 / np.sqrt(5)
    )  # ties have 1.5 and 3.5


def test_the_arms_are_those_of_the_study():
    """Each of its configs has a name of its own, and the score of a run is its normalised area."""
    configs = [config for config in read_study(STUDY).configs() if config.seed <= 2]
    steps = np.linspace(0, 500_000, 40)
    runs, random = [], {}
    for config in configs:
        metrics = {name: np.full(40, np.nan) for name in METRICS}
        metrics |= {
            "step": steps,
            "return": np.full(40, 100.0),
            "explained_variance": np.where(steps > 3e5, 0.9, 0),
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
    assert lander.explained == pytest.approx([0.9 * (steps > 3e5).sum() / (steps > 2.5e5).sum()] * 2)
