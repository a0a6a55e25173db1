"""The two memories that lead a task."""

import pytest
from benchmarks.leaders import leaders

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
        ({"gru": -0.4, "lmu": -0.1, "lru": -0.3, "mlp": -0.5}, ("lmu", "lru")),
    ],
)
def test_leaders_of_a_task(means, pair):
    assert leaders(board("tmaze", **means)) == ({} if pair is None else {"tmaze": pair})


def test_later_seeds_choose_nothing():
    cells = board("tmaze", gru=0.6, lmu=0.7, lru=0.3, mlp=0.1)
    cells[2] = cell("tmaze", "lru", [*cells[2].scores.values(), 1.0, 1.0, 1.0, 1.0, 1.0])
    assert leaders(cells) == {"tmaze": ("lmu", "gru")}
