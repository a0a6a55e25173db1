"""`recollect export`: the agent of a run as one file, and what is refused."""

from pathlib import Path

import pytest
import torch

import recollect
from recollect import cli

from ..helpers import run_quietly, small_config


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of ten rollouts, validated after the seventh."""
    config = small_config(val_check_interval=7, val_episodes=2)
    return run_quietly(config, tmp_path_factory.mktemp("export")).folder


def export(*words: object) -> int:
    return cli.main(["export", *map(str, words)])


def assert_same_agent(one: recollect.Trained, other: recollect.Trained) -> None:
    """Equal in config and in every bit of the weights."""
    assert one.config == other.config
    weights, others = one.agent.state_dict(), other.agent.state_dict()
    assert weights.keys() == others.keys()
    assert all(torch.equal(x, others[name]) for name, x in weights.items())


def test_a_file_is_the_agent_of_the_last_weights(run, tmp_path, capsys):
    assert export(run, tmp_path / "agent.safetensors") == 0
    assert str(tmp_path / "agent.safetensors") in capsys.readouterr().out
    exported, kept = recollect.load(tmp_path / "agent.safetensors"), recollect.load(run)
    assert_same_agent(exported, kept)
    assert exported.evaluate(episodes=5).returns == kept.evaluate(episodes=5).returns


def test_best_are_the_weights_of_the_best_validation(run, tmp_path):
    best = recollect.load(run / "checkpoints" / "best.safetensors")
    assert export(run, tmp_path / "agent", "--best") == 0
    assert_same_agent(recollect.load(tmp_path / "agent"), best)
    with pytest.raises(AssertionError):
        assert_same_agent(recollect.load(run), best)


def test_the_best_of_a_run_that_was_never_validated_is_refused(tmp_path, capsys):
    folder = run_quietly(small_config(rollouts=2, val_check_interval=0), tmp_path).folder
    assert export(folder, tmp_path / "agent", "--best") == 2
    assert "was never validated, so no weights are its best" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "watch", "probe"])
def test_other_commands_take_the_file(command, run, tmp_path, capsys):
    file = tmp_path / "agent.safetensors"
    assert export(run, file) == 0
    options = {
        "eval": ["-ne", "2"],
        "watch": ["--episodes", "1", "--shown", "1", "-o", str(tmp_path / "page.html")],
        "probe": ["--episodes", "10", "-o", str(tmp_path / "probe")],
    }
    assert cli.main([command, str(file), *options[command]]) == 0
    assert capsys.readouterr().out


BAD = {
    "no run": (["nowhere", "x"], "nowhere does not exist"),
    "nothing saved yet": (["begun", "x"], "the run has saved nothing yet"),
    "no best": (["begun", "x", "--best"], "--best needs the folder of a run that was validated"),
    "file exists": (["RUN", "taken"], "taken exists, and nothing is overwritten"),
    "another format": (["RUN", "x.zip"], "x.zip: an agent is saved as .safetensors or .onnx, and .zip is"),
    "a folder": (["RUN", "begun"], "begun is a folder: add the name of the file to write, as in begun/NAME"),
    "no folder": (["RUN", "no/x"], "no is not a folder: create it"),
    "no file": (
        ["RUN"],
        "recollect export needs FILE, the file to write, .safetensors or .onnx; it must not exist",
    ),
    "nothing": ([], "recollect export needs RUN, a run folder, a checkpoint or a saved agent"),
    "a word too many": (
        ["RUN", "x", "y"],
        "unexpected argument 'y': this command takes RUN FILE",
    ),
    "unknown option": (["RUN", "x", "--bset"], "unknown option --bset; did you mean --best"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line_and_write_nothing(case, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun" / "checkpoints").mkdir(parents=True)
    (tmp_path / "taken").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    words, message = BAD[case]
    assert export(*(run if word == "RUN" else word for word in words)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before and (tmp_path / "taken").read_text() == "kept"
