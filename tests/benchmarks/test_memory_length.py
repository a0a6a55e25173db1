"""The analysis of studies/memory_length.yaml, on agents whose answers are known."""

import math

import numpy as np
import pytest
from benchmarks.memory_length import (
    ESTIMATORS,
    Agent,
    analyse,
    calibrate,
    horizon_of,
    rank_differences,
    single_inputs,
)

from recollect.common.intervals import Interval
from recollect.probing.occlusion import Dependence
from recollect.probing.open_loop import Estimate


def agent(horizon, memory="gru", seed=1, reached=1.0, **estimates):
    """An agent whose estimates are its horizon where nothing else is given."""
    estimates = dict.fromkeys(ESTIMATORS, float(horizon)) | estimates
    intervals = {key: (float(estimates[key] or 0), float(estimates[key] or 0)) for key in ("score", "policy")}
    return Agent(f"task {horizon}", memory, seed, horizon, reached, estimates, intervals)


HORIZONS = (3, 8, 21, 65)


def agents(memories=("gru", "lru"), **estimates):
    return [
        agent(h, memory, seed, **{key: f(h) for key, f in estimates.items()})
        for h in HORIZONS
        for memory in memories
        for seed in (1, 2, 3)
    ]


def test_exact_estimates_are_calibrated():
    result = calibrate(agents(), "score")
    assert result["slope"] == pytest.approx(1) and result["interval"] == pytest.approx((1, 1))
    assert result["calibrated"] and (result["exact"], result["coverage"], result["unknown"]) == (1, 1, 0)


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_an_estimate_in_proportion_but_too_small_or_large_is_not(factor):
    result = calibrate(agents(score=lambda h: factor * h), "score")
    assert result["slope"] == pytest.approx(factor) and not result["calibrated"]
    assert result["coverage"] == result["exact"] == 0


def test_an_estimate_that_is_right_for_one_memory_only_is_not():
    alike = agents(("gru",)) + agents(("lru",), score=lambda h: 2.0)
    result = calibrate(alike, "score")
    assert result["slope"] == pytest.approx(0.5) and not result["calibrated"]
    assert result["interval"].low < 0.5 < result["interval"].high


def test_unknown_estimates_are_counted_and_agents_that_guess_are_left_out():
    failing = [agent(65, seed=9, reached=0.5), agent(65, seed=10, reached=0.05, score=2.0)]
    some = [agent(8, seed=4, policy=math.inf), agent(8, seed=5, policy=None)]
    result = analyse([*agents(), *failing, *some])
    assert (result["agents"], result["better"], result["solved"]) == (28, 27, 26)
    assert result["by_task"]["task 65"] == {"gru": "3 of 5", "lru": "3 of 3"}
    assert (result["calibration"]["policy"]["agents"], result["calibration"]["policy"]["unknown"]) == (25, 2)
    assert result["calibration"]["score"]["exact"] == 1


def test_memories_of_equal_return_that_use_different_memory():
    """The GRU's policy depends on what it needs, that of the LRU on twice as much in the longest task."""
    many = [
        agent(h, memory, seed, policy=float(h * (1 + (memory == "lru" and h == 65))))
        for h in HORIZONS
        for memory in ("gru", "lru")
        for seed in range(8)
    ]
    used = {row["task"]: row for row in analyse(many)["used"]}
    assert used["task 65"]["medians"] == {"gru": 65, "lru": 130} and used["task 65"]["adjusted"] < 0.01
    assert all(used[f"task {h}"]["adjusted"] == 1 for h in HORIZONS[:3])


def test_equal_ranks_are_rarely_told_apart():
    random = np.random.default_rng(0)
    p = [rank_differences(random.normal(size=(3, 5)).tolist()) for _ in range(60)]
    assert np.mean(np.array(p) < 0.1) < 0.25 and min(p) > 1e-4
    assert rank_differences([[1.0] * 5, [2.0] * 5, [math.inf] * 5]) < 0.01


def test_the_present_step_counts_as_one():
    def one(back, value, gradient=None):
        estimate = Estimate(value, Interval(value / 2, 2 * value))
        slope = None if gradient is None else Estimate(gradient, Interval(0, 1))
        return Dependence(back, 100, estimate, slope)

    some = [one(1, 0.5, 0.9), one(2, 3.0, 0.2), one(3, 0.001), one(9, 0.03), one(12, 0.015)]
    assert single_inputs(some) == {"largest": 3, "farthest": 10, "gradient": 2}
    assert single_inputs([one(1, 0.001)]) == single_inputs([]) == {}


def test_horizons():
    assert horizon_of("probe:recall", {"delay": 7}) == 8  # shown at the first step, told 7 steps later
    assert horizon_of("popgym:RepeatPreviousEasy", {"k": 4}) == 4  # the present card is the first of the four
    assert horizon_of("tmaze", {"length": 10}) == 11  # the sign is in the cell before the corridor's ten
    with pytest.raises(SystemExit, match="CartPole-v1 is not a task of the study"):
        horizon_of("CartPole-v1", {})
