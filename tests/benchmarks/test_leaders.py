"""The two memories that lead a task."""

from pathlib import Path

import pytest
from benchmarks.leaders import leaders, lines
from benchmarks.study_tables import Study, View

from .test_leaderboard import cell


def board(task, **means):
    spread = -0.05, 0.0, 0.0, 0.0, 0.05
    return [cell(task, memory, [mean + x for x in spread]) for memory, mean in means.items()]


@pytest.mark.parametrize(
    ("means", "pair"),
    [
        ({"gru": 0.6, "lmu": 0.7, "lru": 0.3, "mlp": 0.1}, ("lmu", "gru")),
        ({"gru": 0.6, "lmu": 0.96, "lru": 0.3, "mlp": 0.1}, None),  # solved
        ({"gru": 0.6, "lmu": 0.7, "lru": 0.3, "mlp": 0.61}, None),  # no memory is needed
        ({"gru": 0.2, "lmu": 0.7, "lru": 0.3, "mlp": 0.5}, ("lmu", "lru")),
        ({"gru": -0.4, "lmu": -0.1, "lru": -0.3, "mlp": -0.5}, ("lmu", "lru")),
    ],
)
def test_leaders_of_a_task(means, pair):
    assert leaders(board("tmaze", **means)) == ({} if pair is None else {"tmaze": pair})


def test_later_seeds_choose_nothing():
    cells = board("tmaze", gru=0.6, lmu=0.7, lru=0.3, mlp=0.1)
    cells[2] = cell("tmaze", "lru", [*cells[2].scores.values(), 1.0, 1.0, 1.0, 1.0, 1.0])
    assert leaders(cells) == {"tmaze": ("lmu", "gru")}


def final(label, scores, **more):
    mean = sum(scores) / len(scores)
    return {
        "env": "tmaze",
        "label": label,
        "scores": scores,
        "mean": mean,
        "mean_interval": [mean, mean],
    } | more


def test_the_table_has_the_better_mean_first_and_the_test_of_two_groups():
    groups = [
        {"env": "tmaze", "label": label, "settings": {"actor.memory.name": label.removeprefix("ppo_")}}
        for label in ("ppo_gru", "ppo_lmu")
    ]
    scores = [0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]
    finals = [final("random actions", [0.0]), final("ppo_gru", scores[0]), final("ppo_lmu", scores[1])]
    study = Study({"groups": groups, "finals": finals}, View(), Path())
    *_, row = lines(study)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:2] == ["tmaze", "`lmu`"] and cells[3] == "`gru`" and cells[5].startswith("1.00")
    assert float(cells[6]) == pytest.approx(2 / 252, rel=0.01)  # of all assignments two are as far apart
