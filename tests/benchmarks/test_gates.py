"""The gates of the presets: which losses they find, and that they do not see what is none."""

import numpy as np
import pytest
from benchmarks.gates import TASKS, Gate, judge, loss_p, stored
from benchmarks.returns import ROWS

from benchmarks import gates


def test_p_of_a_loss_by_hand():
    # Of ten ways to choose two of five scores, one has the lowest sum, and three sums are at most 4.
    assert loss_p(np.array([3.0, 4.0, 5.0]), np.array([1.0, 2.0])) == pytest.approx(1 / 10)
    assert loss_p(np.array([2.0, 4.0, 5.0]), np.array([1.0, 3.0])) == pytest.approx(2 / 10)
    assert loss_p(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1
    assert loss_p(np.full(5, 0.1), np.full(5, 0.1)) == 1


def board(losses):
    random = np.random.default_rng(0)
    names = [f"task {i}" for i in range(10)]
    return [
        Gate(name, random.normal(0, 1, 5), random.normal(-losses.get(i, 0), 1, 5))
        for i, name in enumerate(names)
    ]


def test_one_lost_task_of_ten_fails_and_is_named():
    lines, passed = judge(board({3: 8.0}))
    assert not passed and next(line for line in lines if "LOSS" in line).startswith("| task 3 |")
    assert sum("LOSS" in line for line in lines) == 1


def test_the_least_loss_that_is_found():
    """Beside five stored scores all five seeds must be lower, beside ten four of five."""
    collapsed = np.array([-9.0, -9.0, -9.0, -9.0, 4.5])
    others = [Gate("x", np.arange(10.0), np.arange(10.0)[:5] + 3) for _ in range(9)]
    for seeds, now, lost in ((5, collapsed, False), (5, np.full(5, -9.0), True), (10, collapsed, True)):
        assert judge([Gate("y", np.arange(float(seeds)), now), *others])[1] is not lost


def test_too_few_seeds_to_find_any_loss_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gates", "--seeds", "4"])
    with pytest.raises(SystemExit):
        gates.main()
    assert "with fewer than 5 seeds a loss is not detectable" in capsys.readouterr().err


def test_equal_presets_pass_in_most_weeks():
    random = np.random.default_rng(1)
    failed = 0
    for _ in range(200):
        draws = [Gate("x", random.normal(size=5), random.normal(size=5)) for _ in range(10)]
        failed += not judge(draws)[1]
    assert failed <= 20  # 5 % are 10


def test_gains_are_no_losses():
    assert judge(board({i: -8.0 for i in range(10)}))[1]


def test_every_gate_has_stored_scores():
    rows = {row.name: row for row in ROWS}
    assert all(len(stored(rows[name])) >= 5 for name in TASKS) and len(TASKS) == 10


def test_the_command_fails_with_a_loss(monkeypatch, capsys):
    lower = dict.fromkeys(("mean", "success"), -1e6)
    monkeypatch.setattr(gates, "in_a_process", lambda row, seed, threads, keep: lower)
    monkeypatch.setattr("sys.argv", ["gates", "--tasks", "poc-ppo_gru", "Acrobot-v1"])
    with pytest.raises(SystemExit, match="a preset learns less than it did"):
        gates.main()
    assert capsys.readouterr().out.count("LOSS") == 2
