"""`recollect list presets -v` has the hyperparameters of every preset, as options that set them."""

import re
from pathlib import Path

import pytest

from recollect import cli
from recollect.commands.listing import OTHER, flat_options
from recollect.config.assembly import OPTIONS, assemble
from recollect.config.presets import MODELS, preset
from recollect.config.tasks import TASKS
from recollect.run.run_folder import locked

from ..helpers import run_quietly, sampled, set_status, small_config


@pytest.fixture
def rows(capsys, monkeypatch):
    """Name -> options of its row."""
    monkeypatch.setenv("COLUMNS", "100000")
    assert cli.main(["list", "presets", "-v"]) == 0
    lines = (re.split(r"\s{3,}", line.rstrip()) for line in capsys.readouterr().out.splitlines())
    return {name: rest[0] if rest else "" for name, *rest in lines}


@pytest.mark.parametrize("model", sampled(MODELS, "ppo", "ppo_gru", "ppo_gpt_shared", "a2c", "ppo_gtrxl"))
def test_the_options_of_a_model_make_it_of_ppo(model, rows):
    words = [word for option in rows[model].split(", ") if option for word in f"--{option}".split(" ")]
    options = assemble(["-e", OTHER, "-m", "ppo", *words])
    ours, theirs = flat_options(options), flat_options(preset(model, OTHER))
    ours["model"] = model
    assert ours == theirs


def test_every_task_is_listed_with_options_that_exist(rows):
    for task in TASKS:
        names = [option.partition(" ")[0] for option in rows[task].split(", ") if option]
        fixed = {name for name in names if not re.search(r"\.(memory|encoder|kwargs)\.", name)}
        assert names and fixed <= set(OPTIONS)
    assert "env.normalize_obs true" in rows["any other"]


@pytest.mark.parametrize("kind", ["envs", "memories", "encoders", "agents"])
def test_other_lists_have_no_more(kind, capsys):
    assert cli.main(["list", kind, "--verbose"]) == 2
    assert f"--verbose is for presets, not for {kind}" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [40, 80])
def test_a_listed_agent_can_be_copied(columns, tmp_path, monkeypatch, capsys):
    folder = "runs/ppo_gru-critic_shared/minigrid-MiniGrid-MemoryS9-v0/s1-20260101-120000"
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "summary.json").write_text(
        '{"status": "finished", "step": 5, "return": 0.5, "time": 9}'
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{'a' * 90}.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["list", "agents"]) == 0
    shown = capsys.readouterr().out
    assert f" {folder}" in shown and f" models/{'a' * 90}.safetensors" in shown


def test_listed_environments_can_be_copied(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["list", "envs"]) == 0
    assert "masked:MountainCarContinuousNoVel-v0 " in capsys.readouterr().out


def test_a_list_of_nothing_names_the_lists(capsys):
    assert cli.main(["list"]) == 2
    expected = "list needs KIND: envs, presets, memories, encoders or agents; see"
    assert expected in capsys.readouterr().err


def test_a_run_that_was_killed_is_not_listed_as_running(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = run_quietly(small_config(rollouts=1), Path("runs")).folder
    set_status(folder)  # as it is while the run goes on
    with locked(folder):
        cli.main(["list", "agents"])
    cli.main(["list", "agents"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if str(folder.name) in line]
    assert listed == ["running", "killed"]
