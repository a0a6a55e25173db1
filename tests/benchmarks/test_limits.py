"""The errors of the tutorial's code, as benchmarks/limits.py puts them into PPO."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import limits
from recollect.learn import ppo
from recollect.learn.episodes import Episode

from ..helpers import metrics_of


def tutorial_advantages(reward, value, done, gamma, lam):
    """The double sum of the tutorial: it runs to the last step but one, and passes ends of episodes."""
    steps, advantage = len(reward), np.zeros(len(reward))
    for t in range(steps - 1):
        discount = 1.0
        for k in range(t, steps - 1):
            after = 0.0 if done[k] else gamma * value[k + 1]
            advantage[t] += discount * (reward[k] + after - value[k])
            discount *= gamma * lam
    return advantage


def test_advantages_are_those_of_the_tutorial():
    """Six steps with an end after the third; here it is followed by a tail row, there by the next episode."""
    random = np.random.default_rng(0)
    reward, value = random.normal(size=6), random.normal(size=7)
    done = np.array([False, False, True, False, False, False])
    wanted = tutorial_advantages(reward, value, done, 0.9, 0.8)
    at = [0, 1, 2, 4, 5, 6]  # of the steps; row 3 is the tail row, with a value that must not matter
    valid = torch.ones(8, 1, dtype=torch.bool)
    valid[3] = False
    terminated, values = torch.zeros(7, 1, dtype=torch.bool), torch.full((8, 1), 99.0, dtype=torch.float64)
    terminated[2] = True
    values[[*at, 7], 0] = torch.from_numpy(value)
    rewards = torch.full((7, 1), 55.0, dtype=torch.float64)
    rewards[at, 0] = torch.from_numpy(reward)
    rollout = SimpleNamespace(value=values, valid=valid, terminated=terminated)
    result = limits.advantages(rollout, rewards, 0.9, 0.8)[:, 0]
    np.testing.assert_allclose(result[at], wanted, atol=1e-12)
    assert result[3] == 0 and result[6] == 0


def test_a_mean_target_has_the_gradient_of_all_pairs():
    values, targets = torch.randn(1, 16, requires_grad=True), torch.randn(1, 16)
    weight = torch.full((1, 16), 1 / 16)
    (pairs,) = torch.autograd.grad((targets[0] - values.T).square().mean(), values)  # (16, 16), as there
    errors = (values - limits.broadcast_mean(weight, targets)).square()
    (gradient,) = torch.autograd.grad((weight * errors).sum(), values)
    torch.testing.assert_close(gradient, pairs)


def test_tail_rows_do_not_count_in_a_mean_target():
    weight, targets = torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[1.0, 3.0, 99.0]])
    assert limits.broadcast_mean(weight, targets).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("arm", limits.ARMS)
def test_an_arm_changes_what_it_says_and_leaves_nothing_behind(arm):
    ours = ppo.loss, ppo.advantages
    with limits.patched_errors(arm):
        changed = ppo.loss is not ours[0], ppo.advantages is not ours[1]
    assert changed == (arm in ("critic", "published"), arm == "published")
    assert (ppo.loss, ppo.advantages) == ours


def test_training_episodes_end_in_one_of_three_ways():
    def episode(total, length):
        return Episode(0, 0, total, length, float("nan"), length < limits.LIMIT)

    episodes = [episode(250.0, 300), episode(-120.0, 90), episode(150.0, 400), episode(210.0, 1000)]
    result = limits.training_endings(episodes)
    assert [result[key] for key in limits.ENDINGS] == [0.25, 0.5, 0.25]
    assert result["return"] == 122.5 and result["length"] == 447.5


@pytest.mark.thorough
def test_each_error_changes_training(tmp_path):
    """Three rollouts, each arm from the same seed; the first rollout is the same in all."""
    pytest.importorskip("Box2D")
    losses = {}
    for arm in limits.ARMS:
        rows = metrics_of(limits.train_arm(arm, 1, 1536, tmp_path))
        losses[arm] = rows[-1]["value_loss"]
    assert losses["truncated"] == losses["terminated"]  # no episode met the time limit
    assert len(set(losses.values())) == 3


def test_a_run_that_a_signal_stopped_is_not_evaluated(tmp_path, monkeypatch):
    (tmp_path / "summary.json").write_text('{"status": "interrupted"}')
    monkeypatch.setattr(limits, "train_arm", lambda *_: tmp_path)
    with pytest.raises(SystemExit, match="is interrupted, not finished: the same command resumes it"):
        limits.measure("truncated", 1, 1536, tmp_path)


def test_the_table_has_means_over_seeds_and_no_interval_where_all_are_equal():
    def result(seed, landed, total):
        run = {"landed": landed, "crashed": 1 - landed, "time limit": 0.0, "return": total, "length": 300.0}
        return {"arm": "critic", "seed": seed} | dict.fromkeys(("training", "deterministic", "sampled"), run)

    rows = limits.table([result(seed, 0.5, total) for seed, total in enumerate((100.0, 120.0, 140.0))])
    assert rows[2].startswith("| critic | training | 50 % | 50 % | 0 % | 120 (")
    assert rows[2].endswith(") | 300 |") and len(rows) == 5
