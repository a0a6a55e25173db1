"""Our presets beside RL Zoo's: what the table says of scores, and which runs are repeated."""

import json
from dataclasses import replace

import pytest

from benchmarks import zoo

CARTPOLE, _, CAR = zoo.PAIRS[:3]


def keep(out, pair, mine, theirs):
    """A file of runs with these scores."""
    runs = {
        label: {str(seed): {"score": x, "seconds": seconds} for seed, x in enumerate(scores, 1)}
        for label, scores, seconds in ((zoo.OURS, mine, 2.0), (zoo.ZOO, theirs, 12.0))
    }
    zoo.kept(out, "zoo", pair.name).write_text(json.dumps({"runs": runs}))


def test_a_difference_counts_where_its_interval_excludes_zero(tmp_path):
    keep(tmp_path, CARTPOLE, [500.0, 499.0, 498.0], [400.0, 401.0, 402.0])
    keep(tmp_path, CAR, [-90.0, -70.0, -80.0], [-71.0, -91.0, -72.0])
    *rows, _, words = zoo.lines(tmp_path)
    assert words == (
        "Mean at least as high in 1 of 2 tasks; interval of the difference above 0 in 1 and below in 0."
    )
    assert "| CartPole-v1 (ppo) | 100,000 | 3 | 499.0 (" in rows[2]
    assert "| 98.0 (" in rows[2] and "| 2.0 s | 12.0 s | 6.0x faster |" in rows[2]


def test_the_other_side_can_be_better(tmp_path):
    keep(tmp_path, CAR, [-95.0, -96.0, -97.0], [-71.0, -70.0, -72.0])
    assert zoo.lines(tmp_path)[-1].endswith("above 0 in 0 and below in 1.")


def test_a_task_with_one_seed_is_not_in_the_table(tmp_path):
    keep(tmp_path, CAR, [-95.0], [-71.0])
    assert len(zoo.lines(tmp_path)) == 4


def test_only_missing_runs_are_made(tmp_path, monkeypatch):
    pytest.importorskip("stable_baselines3")  # its version stands in the files
    made = []

    def measure(pair, label, seed):
        made.append((label, seed))
        return {"score": 1.0, "seconds": 1.0}

    monkeypatch.setattr(zoo, "measure", measure)
    keep(tmp_path, CAR, [1.0], [])
    zoo.measure_all([CAR], 2, 1, tmp_path)
    assert sorted(made) == [(zoo.ZOO, 1), (zoo.ZOO, 2), (zoo.OURS, 2)]
    assert {len(runs) for runs in zoo.load(tmp_path, CAR).values()} == {2}


def test_a_changed_preset_has_new_seeds_and_the_first_runs_stay(tmp_path, monkeypatch):
    pytest.importorskip("stable_baselines3")
    monkeypatch.setattr(zoo, "measure", lambda pair, label, seed: {"score": float(seed), "seconds": 1.0})
    changed = replace(CAR, skipped=5)
    before = {"recollect, defaults": {"1": {"score": -9.0, "seconds": 1.0}}, zoo.OURS: {}, zoo.ZOO: {}}
    zoo.kept(tmp_path, "zoo", changed.name).write_text(json.dumps({"runs": before}))
    zoo.measure_all([changed], 2, 1, tmp_path)
    runs = zoo.load(tmp_path, changed)
    assert [*runs[zoo.OURS], *runs[zoo.ZOO]] == ["6", "7", "1", "2"]
    assert runs["recollect, defaults"] == before["recollect, defaults"]
    assert "6.5 (" in zoo.lines(tmp_path)[2]


def test_skipped_seeds_are_runs_of_an_earlier_preset(tmp_path):
    keep(tmp_path, CAR, [-95.0, -96.0, -97.0], [-71.0, -70.0, -72.0])
    runs = zoo.load(tmp_path, replace(CAR, skipped=2))
    assert [*runs[zoo.OURS]] == ["3"] and [*runs[zoo.EARLIER]] == ["1", "2"]
    # So are those that were so already.
    zoo.kept(tmp_path, "zoo", CAR.name).write_text(json.dumps({"runs": runs}))
    assert [*zoo.load(tmp_path, replace(CAR, skipped=3))[zoo.EARLIER]] == ["1", "2", "3"]


def test_times_of_different_processors_are_marked(tmp_path):
    keep(tmp_path, CARTPOLE, [500.0, 499.0], [400.0, 401.0])
    assert "faster |" in zoo.lines(tmp_path)[2]
    file = zoo.kept(tmp_path, "zoo", CARTPOLE.name)
    data = json.loads(file.read_text())
    data["runs"][zoo.OURS]["1"]["processor"] = "another"
    file.write_text(json.dumps(data))
    assert "faster, on different processors |" in zoo.lines(tmp_path)[2]


def test_a_replaced_preset_has_a_row_and_does_not_count(tmp_path):
    keep(tmp_path, CARTPOLE, [500.0, 499.0], [400.0, 401.0])
    file = zoo.kept(tmp_path, "zoo", CARTPOLE.name)
    data = json.loads(file.read_text())
    data["runs"][zoo.EARLIER] = {"8": {"score": 9.0, "seconds": 2.0}, "9": {"score": 11.0, "seconds": 2.0}}
    file.write_text(json.dumps(data))
    *rows, _, words = zoo.lines(tmp_path)
    assert "| CartPole-v1 (ppo, earlier preset) | 100,000 | 2 | 10.0 (" in rows[3] and len(rows) == 4
    assert words.startswith("Mean at least as high in 1 of 1 tasks")
