"""The analysis of studies/memory_length.yaml, on agents whose answers are known."""

import json
import math
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.length_agents import (
    ESTIMATORS,
    LENGTHS,
    Agent,
    evaluated_score,
    horizon_of,
    measure,
    measure_all,
    read_agents,
    single_inputs,
)
from benchmarks.length_tables import calibration_table, draw, solved_table, used_table
from benchmarks.memory_length import CALIBRATED, analyse, calibrate, covers, rank_differences

from benchmarks import length_agents
from recollect.common.errors import UsageError
from recollect.common.intervals import Interval
from recollect.probing.occlusion import Dependence
from recollect.probing.open_loop import Estimate


def agent(horizon, memory="gru", seed=1, reached=1.0, name="task", **estimates):
    """An agent whose estimates are its horizon where nothing else is given."""
    estimates = dict.fromkeys(ESTIMATORS, float(horizon)) | estimates
    intervals = {key: (estimates[key], estimates[key]) for key in LENGTHS if estimates[key]}
    return Agent(f"{name} {horizon}", memory, seed, horizon, reached, estimates, intervals)


HORIZONS = (3, 8, 21, 32, 65)
MEMORIES = ("gru", "lru", "gpt2")


def agents(memories=MEMORIES, **estimates):
    return [
        agent(h, memory, seed, **{key: f(h) for key, f in estimates.items()})
        for h in HORIZONS
        for memory in memories
        for seed in (1, 2)
    ]


def test_exact_estimates_are_calibrated():
    result = calibrate(agents(), "score")
    assert result["slope"] == pytest.approx(1) and result["interval"] == pytest.approx((1, 1))
    assert result["calibrated"] and (result["exact"], result["factor"], result["unknown"]) == (1, 1, 0)
    assert result["memories"] == dict.fromkeys(sorted(MEMORIES), 1) and result["families"] == {"task": 1}
    assert result["coverage"] == {"contained": 30, "of": 30, "wide contained": 0, "wide": 0}
    assert covers(agents(), "score") and not covers(agents(score=lambda h: h + 1.0), "score")
    assert covers(agents()[:4], "score") is None


def test_an_estimate_that_is_wrong_for_one_memory_is_not():
    """Most agents have the right one, so neither the median of all nor the slope is far off."""
    many = [
        agent(h, memory, seed, score=h * (2.0 if memory == "gpt2" else 1.0))
        for h in HORIZONS
        for memory in MEMORIES
        for seed in (1, 2)
    ]
    result = calibrate(many, "score")
    assert result["factor"] == 1 and result["slope"] == pytest.approx(1) and result["exact"] > 0.6
    assert result["memories"]["gpt2"] == 2 and result["calibrated"] is False


def test_too_few_tasks_or_memories_decide_nothing():
    assert calibrate(agents(memories=("gru", "lru")), "score")["calibrated"] is None
    assert calibrate([one for one in agents() if one.horizon > 3], "score")["calibrated"] is None


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_an_estimate_in_proportion_but_too_small_or_large_is_not(factor):
    result = calibrate(agents(score=lambda h: factor * h), "score")
    assert result["slope"] == pytest.approx(1) and result["factor"] == pytest.approx(factor)
    assert not result["calibrated"] and result["exact"] == result["coverage"]["contained"] == 0


def test_an_estimate_that_follows_only_the_shorter_horizons_is_not():
    result = calibrate(agents(score=lambda h: min(h, 21.0)), "score")
    assert result["factor"] == 1 and result["interval"].low < 0.8 and not result["calibrated"]
    flat = calibrate(agents(score=lambda h: 12.0), "score")
    assert flat["slope"] == pytest.approx(0) and not flat["calibrated"]


def test_an_estimator_that_is_often_silent_is_not():
    def silent(horizon):
        return None if horizon == 65 else float(horizon)

    result = calibrate(agents(policy=silent), "policy")
    assert result["unknown"] == pytest.approx(0.2) and result["slope"] == pytest.approx(1)
    assert not result["calibrated"]
    assert result["coverage"]["contained"] == 24 and result["coverage"]["of"] == 30
    assert calibrate(agents(policy=lambda h: None), "policy") is None
    one_task = calibrate([agent(8, seed=seed) for seed in (1, 2)], "score")
    assert math.isnan(one_task["slope"]) and not one_task["calibrated"]


def test_intervals_with_a_width_are_counted_apart():
    some = [agent(8), agent(8, seed=2, score=9.0)]
    some[1].intervals["score"] = (7.0, 9.0)
    assert calibrate(some, "score")["coverage"] == {"contained": 2, "of": 2, "wide contained": 1, "wide": 1}


def test_agents_that_do_not_solve_their_task_and_episodes_that_end_at_the_horizon_are_apart():
    failing = [agent(65, seed=9, reached=0.6), agent(65, seed=10, reached=0.05, score=2.0)]
    ending = [agent(11, seed=seed, name="tmaze") for seed in (1, 2)]
    some = [agent(8, seed=4, policy=math.inf), agent(8, seed=5, policy=None)]
    result = analyse([*agents(), *failing, *ending, *some])
    assert (result["agents"], result["solved"]) == (36, 34)
    assert result["by_task"]["task 65"] == {"gpt2": "2 of 2", "gru": "2 of 4", "lru": "2 of 2"}
    counts = {label: one["agents"] for label, one in result["calibration"]["score"].items()}
    assert counts == {"primary": 32, "all tasks": 34, "half solved": 35}
    assert result["calibration"]["policy"]["primary"]["unknown"] == pytest.approx(2 / 32)
    assert result["calibration"]["score"]["primary"]["exact"] == 1
    assert result["coverage"] == {"score": True, "rewarded": True, "policy": False}
    # What sees 64 earlier inputs could not be above a horizon of 65.
    assert result["calibration"]["largest"]["primary"]["agents"] == 32 - 6


def test_memories_of_equal_return_that_use_different_memory():
    """The GRU's policy depends on what it needs, that of the GPT-2 on twice as much in the longest task."""
    many = [
        agent(h, memory, seed, policy=float(h * (1 + (memory == "gpt2" and h == 65))))
        for h in HORIZONS
        for memory in ("gru", "gpt2")
        for seed in range(8)
    ]
    many += [agent(3, "gpt2", seed, reached=0.96, policy=9.0) for seed in range(9)]  # of a lower return
    result = analyse(many)
    used, attention = ({row["task"]: row for row in result[name]} for name in ("used", "attention"))
    assert used["task 65"]["medians"] == {"gpt2": 130, "gru": 65} and used["task 65"]["adjusted"] < 0.01
    assert all(used[f"task {h}"]["adjusted"] == 1 for h in HORIZONS[:4])
    assert attention["task 65"]["more"] == 1 and attention["task 65"]["adjusted"] < 0.01
    assert attention["task 3"]["more"] == 0.5 and attention["task 3"]["adjusted"] == 1


def test_tables_and_figure_show_the_analysis(tmp_path):
    """Exact scores, policies that depend on twice as much, and a gradient that says nothing."""
    many = agents(policy=lambda h: 2.0 * h, gradient=lambda h: None)
    many += [agent(8, "gru", 9, reached=0.2), agent(65, "lru", 9, score=math.inf)]
    result = json.loads(json.dumps(analyse(many)))  # as it is read from its file
    assert solved_table(many, result)[2:4] == ["| task 3 | 3 | 2 of 2 | 2 of 2 | 2 of 2 |",
                                               "| task 8 | 8 | 2 of 2 | 2 of 3 | 2 of 2 |"]  # fmt: skip
    rows = {row.split("`")[1]: row.split(" | ") for row in calibration_table(result, "primary")[2:]}
    assert rows["score"][1:] == [
        "31", "1.00 (1.00 to 1.00)", "1.00", "1.00 to 1.00", "97 %", "3 %", "30 of 31", "yes |"
    ]  # fmt: skip
    assert rows["policy"][3] == "2.00" and rows["policy"][-1] == "no |" and rows["largest"][1] == "24"
    assert rows["gradient"] == ["| `gradient`", *["-"] * 7, "not decided |"]
    for seed in (3, 4):  # from three agents on memories are compared
        many += [agent(8, memory, seed, policy=math.inf if memory == "gpt2" else 8.0) for memory in MEMORIES]
    (row,) = used_table(many, analyse(many))[2:]
    cells = row.split(" | ")  # two of the GPT-2's four policies depend on more than all of the GRU's
    assert cells[:5] == ["| task 8", "8", "more", "12", "12"] and cells[6] == "0.88"
    draw([one for one in many if one.score > 0.9], CALIBRATED, tmp_path / "lengths.svg")
    picture = (tmp_path / "lengths.svg").read_text()
    assert "<!-- score, none for 1 of 37 -->" in picture and "none for 30 of 37" in picture


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


def test_scores_are_those_of_the_evaluation(tmp_path):
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps({"mean": 0.4, "success": 0.95}))
    assert evaluated_score(tmp_path) == pytest.approx(0.9)
    file.write_text(json.dumps({"mean": 0.25, "success": None}))
    assert evaluated_score(tmp_path) == pytest.approx(0.5)


def test_an_agent_below_half_of_the_best_score_is_not_probed(tmp_path, monkeypatch):
    recall = SimpleNamespace(id="probe:recall", kwargs={"delay": 7})
    config = SimpleNamespace(env=recall, seed=3, actor=SimpleNamespace(memory=SimpleNamespace(name="gru")))
    monkeypatch.setattr(length_agents.api, "load", lambda _: SimpleNamespace(config=config, agent=None))
    monkeypatch.setattr(length_agents, "make_for_evaluation", lambda _: pytest.fail("it is probed"))
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps({"mean": 0.5, "success": 0.74}))
    one = measure(tmp_path)
    assert (one.task, one.seed, one.horizon, one.score) == ("probe:recall delay 7", 3, 8, pytest.approx(0.48))
    assert set(one.estimates) == set(ESTIMATORS) and not any(one.estimates.values()) and not one.intervals
    many = [one, agent(8, "gru", 1), agent(5, "gru", 1)]
    assert analyse(many)["calibration"] == analyse(many[1:])["calibration"]
    file.write_text(json.dumps({"mean": 0.5, "success": 0.75}))
    with pytest.raises(pytest.fail.Exception, match="it is probed"):
        measure(tmp_path)


def test_finished_runs_of_the_report_are_measured_once(tmp_path, monkeypatch):
    runs = [{"folder": f"runs/{i}", "status": "finished"} for i in range(3)]
    runs.append({"folder": "runs/9", "status": "running"})
    runs.append({"folder": "runs/8", "status": "failed", "seed": 8})
    settings = {"env.id": "probe:recall", "env.kwargs.delay": 7, "actor.memory.name": "gru"}
    report, file = tmp_path / "report.json", tmp_path / "agents.json"
    report.write_text(json.dumps({"groups": [{"runs": runs[:2]}]}))
    asked = []

    class Pool:
        def __init__(self, *args, **kwargs):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def submit(self, _, folder):
            asked.append(str(folder))
            future = Future()
            if folder.name == "2":
                future.set_exception(UsageError("no such file"))
            else:
                future.set_result(agent(8, seed=int(folder.name)))
            return future

    monkeypatch.setattr(length_agents, "ProcessPoolExecutor", Pool)
    measure_all(report, file, 1)
    report.write_text(json.dumps({"groups": [{"runs": runs, "settings": settings}]}))
    with pytest.raises(SystemExit, match="not measured:\nruns/2: no such file"):
        measure_all(report, file, 1)
    assert asked == ["runs/0", "runs/1", "runs/2"]
    measured = read_agents(file)
    failed = next(one for one in measured if one.task == "probe:recall delay 7")
    assert [one for one in measured if one is not failed] == [agent(8, seed=seed) for seed in range(2)]
    assert (failed.score, failed.seed, failed.memory, failed.horizon) == (0.0, 8, "gru", 8)
    assert analyse(measured)["by_task"]["probe:recall delay 7"] == {"gru": "0 of 1"}
