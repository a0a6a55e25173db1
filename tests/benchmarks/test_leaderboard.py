"""The leaderboard: ranks with known answers, and tasks that are not complete."""

from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.intervals import rank_coverage
from benchmarks.leaderboard import (
    Cell,
    complete,
    draw,
    kinds_table,
    memories_table,
    ranked,
    standings,
    tasks_table,
)
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leaderboard

from ..helpers import sampled


def cell(task, memory, scores, seconds=60.0):
    return Cell(task, memory, dict(enumerate(scores, 1)), seconds)


BOARD = [
    cell("tmaze", "gru", [0.9, 1.0, 0.95]),
    cell("tmaze", "mlp", [0.0, 0.1, 0.05], 20.0),
    cell("popgym:RepeatPreviousEasy", "gru", [0.5, 0.6, 0.4]),
    cell("popgym:RepeatPreviousEasy", "mlp", [0.0, 0.0, 0.0], 40.0),
]


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=5))
def test_ranks_are_those_of_sorting(means):
    ranks = ranked(np.array(means, float))
    np.testing.assert_allclose(ranks.sum(1), 10)  # 1 + 2 + 3 + 4, however many are equal
    for row, rank in zip(means, ranks, strict=True):
        for i, x in enumerate(row):
            better = [y for y in row if y > x]
            assert rank[i] == pytest.approx(len(better) + (row.count(x) + 1) / 2)


def test_means_of_equal_scores_in_another_order_share_a_place():
    x = np.array([0.1, 0.2, 0.3])
    assert x.mean() != x[::-1].mean()
    assert ranked(np.array([[x.mean(), x[::-1].mean()]])).tolist() == [[1.5, 1.5]]


def test_a_memory_that_always_wins_is_first():
    first, last = standings(complete(BOARD))
    assert (first.memory, first.rank, first.first) == ("gru", 1.0, 1.0)
    assert (last.memory, last.rank, last.first) == ("mlp", 2.0, 0.0)
    assert first.rank_interval == (1.0, 1.0) and last.seconds == 30.0
    assert first.iqm_interval.low < first.iqm < first.iqm_interval.high
    # Of 20 orders of 3 and 3 scores in each of two tasks this one and its reverse are the farthest.
    assert last.wins == 0.0 and last.p == pytest.approx(2 / 400) and np.isnan(first.p)


@pytest.mark.parametrize("seeds", sampled([2, 5], 2))
def test_intervals_of_mean_ranks_contain_the_rank_by_true_scores(seeds):
    # The percentiles of two seeds do so in four of five cases.
    assert 0.9 < rank_coverage(8, seeds, 0.5, studies=20) <= 1


def test_equal_memories_have_equal_ranks():
    same = [cell("tmaze", name, [0.2, 0.4, 0.6]) for name in ("gru", "b", "c")]
    board = standings(complete(same))
    assert [row.rank for row in board] == [2.0, 2.0, 2.0]
    assert all(row.rank_interval == (1.0, 3.0) and 0.2 < row.first < 0.5 for row in board)
    assert [row.wins for row in board] == [0.5] * 3 and [row.p for row in board[1:]] == [1.0, 1.0]


def test_tasks_that_lack_a_memory_or_seeds_enter_nothing():
    whole = complete(BOARD)
    assert len(whole) == 4
    same = complete([*BOARD, cell("minigrid:S9", "gru", [1.0, 1.0])])
    assert [(one.task, one.memory) for one in same] == [(one.task, one.memory) for one in whole]
    one_seed = [cell("minigrid:S9", name, [1.0]) for name in ("gru", "mlp")]
    assert len(complete([*BOARD, *one_seed])) == 4
    assert memories_table(BOARD)[-1] == "2 of 13 tasks are complete, 3 seeds each."
    assert memories_table([BOARD[0], BOARD[3]]) == kinds_table([]) == ["No task is complete yet."]


def test_only_seeds_that_every_memory_has_count():
    some = complete([cell("tmaze", "gru", [0.1, 0.2, 0.3, 0.9]), cell("tmaze", "mlp", [0.4, 0.5, 0.6])])
    assert [one.scores.tolist() for one in some] == [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]


def test_kinds_of_tasks_have_a_column_each():
    header, _, gru, _ = kinds_table(BOARD)
    assert header == "| memory | copy a sequence | one fact, long ago |"
    assert gru.startswith("| `gru` | 0.50 (") and "| 0.95 (" in gru


def test_scores_are_normalised_and_time_is_that_of_a_million_steps():
    runs = [{"status": "finished", "seconds": 30.0, "steps": 5e5, "seed": seed} for seed in (1, 2)]
    runs += [{"status": "failed", "seed": 3}, {"status": "running", "seed": 4}]
    group = {"env": "E", "label": "L", "settings": {"actor.memory.name": "lru"}, "runs": runs}
    report = {
        "scales": [{"env": "E", "low": -0.5, "high": 1.0}],
        "groups": [group, group | {"label": "unfinished", "runs": [runs[3]]}],
    }
    study = SimpleNamespace(
        report=report,
        has=lambda part, env, label: label == "L",
        of=lambda part, env, label: {"seeds": [1, 2], "scores": [1.0, 0.25]},
    )
    one, unfinished = leaderboard.cells_of(study)
    assert one.scores == {1: 1.0, 2: 0.5, 3: 0.0}  # a run that failed is a random agent
    assert (one.task, one.memory, one.seconds) == ("E", "lru", 60.0)
    assert unfinished.scores == {}


def test_the_best_learning_rate_is_that_of_the_highest_mean_over_tasks():
    groups = [
        {"env": env, "label": f"{memory} {rate}", "settings": settings(memory, rate)}
        for env in ("A", "B")
        for memory in ("gru", "lru")
        for rate in (0.001, 0.002)
    ]
    means = {
        ("A", "gru 0.001"): 9.0,
        ("B", "gru 0.001"): 0.0,
        ("A", "gru 0.002"): 4.0,
        ("B", "gru 0.002"): 0.9,
    }
    means |= {("A", "lru 0.001"): 2.0, ("B", "lru 0.001"): 0.3, ("A", "lru 0.002"): 4.0}
    finals = [{"env": env, "label": label, "mean": mean} for (env, label), mean in means.items()]
    finals.append({"env": "A", "label": "random actions", "mean": 99.0})
    scales = [{"env": "A", "low": 0.0, "high": 10.0}, {"env": "B", "low": 0.0, "high": 1.0}]
    study = SimpleNamespace(report={"groups": groups, "finals": finals, "scales": scales})
    # gru: 0.45 and 0.65; lru: 0.25 and 0.4 in the one task that ran.
    assert leaderboard.best_rates(study) == {"gru": 0.002, "lru": 0.002}


def settings(memory, rate):
    return {"actor.memory.name": memory, "ppo.learning_rate": rate}


def test_each_task_has_a_column_with_means_and_numbers_of_seeds():
    header, _, gru, mlp = tasks_table([*BOARD, cell("minigrid:S9", "gru", [])])
    assert header == "| memory | tmaze | RepeatPreviousEasy | S9 |"
    assert gru == "| `gru` | 0.95 (3) | 0.50 (3) |  |"
    assert mlp == "| `mlp` | 0.05 (3) | 0.00 (3) |  |"


def test_a_board_is_drawn_with_the_best_at_the_top_and_alike_each_time(tmp_path):
    board = standings(complete(BOARD))
    for name in ("a.svg", "b.svg"):
        draw(board, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert text.index("<!-- mlp -->") < text.index("<!-- gru -->")  # drawn from below
