"""The script that draws training episodes: its numbers, and a picture of a run."""

import json
import sys

import numpy as np
import pytest

from benchmarks import episodes
from recollect.common.errors import UsageError

from ..helpers import run_quietly, small_config


def test_a_moving_mean_begins_with_the_first_episode():
    values = np.array([1.0, 3.0, 5.0, 7.0])
    assert episodes.moving_mean(values, 2).tolist() == [1, 2, 4, 6]
    assert episodes.moving_mean(values, 9).tolist() == [1, 2, 3, 4]


def test_a_picture_holds_every_seed_in_order(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    runs = [run_quietly(small_config(seed=seed, rollouts=60), tmp_path, f"s{seed}").folder for seed in (2, 1)]
    random, picture = tmp_path / "random.json", tmp_path / "picture.png"
    random.write_text(json.dumps({"returns": [20.0, 24.0]}))
    (runs[0] / "evaluation.json").write_text(json.dumps({"lengths": [500, 499, 500]}))
    numbers = tmp_path / "numbers.json"
    command = ["episodes", *map(str, runs), "--random", str(random), "-o", str(picture)]
    command += ["--json", str(numbers)]
    monkeypatch.setattr(sys, "argv", command)
    episodes.main()
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    wanted = [episodes.read_returns(run) for run in reversed(runs)]
    assert [line.split()[1] for line in lines[1:3]] == [str(len(values)) for values in wanted]
    assert lines[1].split()[2] == f"{wanted[0][:100].mean():.1f}"
    assert [line.split("  ")[-1] for line in lines[1:3]] == ["- of -", "2 of 3"]
    first, second = json.loads(numbers.read_text())["runs"]
    assert first["seed"] == 1 and "evaluated" not in first
    assert [second[key] for key in ("seed", "evaluated", "until_limit")] == [2, 3, 2]
    assert lines[3] == "random agent: 22.0 over 2 episodes"


def test_runs_of_two_tasks_make_no_picture(tmp_path):
    folders = [
        run_quietly(small_config(env, rollouts=1), tmp_path).folder for env in ("CartPole-v1", "Acrobot-v1")
    ]
    with pytest.raises(UsageError, match="Acrobot-v1, CartPole-v1"):
        episodes.task_of(folders)


def test_a_folder_without_episodes_makes_no_picture(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        episodes.read_returns(tmp_path)
