"""The leaderboard: ranks with known answers, and tasks that are not complete."""

from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.leaderboard import Cell, complete, kinds_table, memories_table, ranked, standings
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leaderboard


def cell(task, memory, scores, seconds=60.0):
    return Cell(task, memory, np.array(scores, float), seconds)


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


def test_a_memory_that_always_wins_is_first():
    first, last = standings(BOARD)
    assert (first.memory, first.rank, first.first) == ("gru", 1.0, 1.0)
    assert (last.memory, last.rank, last.first) == ("mlp", 2.0, 0.0)
    assert first.rank_interval == (1.0, 1.0) and last.seconds == 30.0
    assert first.iqm_interval.low < first.iqm < first.iqm_interval.high


def test_equal_memories_have_equal_ranks():
    same = [cell("tmaze", name, [0.2, 0.4, 0.6]) for name in ("a", "b", "c")]
    board = standings(same)
    assert [row.rank for row in board] == [2.0, 2.0, 2.0]
    assert all(row.rank_interval == (1.0, 3.0) and 0.2 < row.first < 0.5 for row in board)


def test_tasks_that_lack_a_memory_or_seeds_enter_nothing():
    assert complete([*BOARD, cell("minigrid:S9", "gru", [1.0, 1.0])]) == BOARD
    one_seed = [cell("minigrid:S9", name, [1.0]) for name in ("gru", "mlp")]
    assert complete([*BOARD, *one_seed]) == BOARD
    assert memories_table(BOARD)[-1] == "2 tasks, 3 seeds each."
    assert memories_table([BOARD[0], BOARD[3]]) == kinds_table([]) == ["No task is complete yet."]


def test_kinds_of_tasks_have_a_column_each():
    header, _, gru, _ = kinds_table(BOARD)
    assert header == "| memory | copy a sequence | one fact, long ago |"
    assert gru.startswith("| `gru` | 0.50 (") and "| 0.95 (" in gru


def test_scores_are_normalised_and_time_is_that_of_a_million_steps():
    runs = [{"status": "finished", "seconds": 30.0, "steps": 5e5}, {"status": "failed"}]
    group = {"env": "E", "label": "L", "settings": {"actor.memory.name": "lru"}, "runs": runs}
    report = {
        "scales": [{"env": "E", "low": -0.5, "high": 1.0}],
        "groups": [group, group | {"label": "unfinished"}],
    }
    study = SimpleNamespace(
        report=report,
        has=lambda part, env, label: label == "L",
        of=lambda part, env, label: {"scores": [1.0, 0.25]},
    )
    (only,) = leaderboard.cells_of(study)
    assert only.scores.tolist() == [1.0, 0.5]
    assert (only.task, only.memory, only.seconds) == ("E", "lru", 60.0)
