"""Weights & Biases that is not installed, or refuses: one line, and the run is as it was."""

import sys
from types import ModuleType

import pytest

from recollect import cli
from recollect.run.run_folder import read_summary, write_summary

from ..helpers import stopped_run

TRAIN = ["train", "CartPole-v1", "--rollouts", "1", "--wandb-project", "ours"]


class CommError(Exception):
    """An error of theirs, which is none of Python's."""


@pytest.fixture
def stopped(tmp_path):
    """A stopped run that logs to a project."""
    folder = stopped_run(tmp_path, 3)
    summary = read_summary(folder)
    write_summary(folder, {**summary, "logging": {**summary["logging"], "wandb_project": "ours"}})
    return folder


def refused(capsys, *words):
    assert cli.main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it is an ImportError, whatever is installed
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)


def test_where_it_is_not_installed_nothing_begins(absent, tmp_path, capsys):
    assert "pip install 'recollect-rl[wandb]'" in refused(capsys, *TRAIN, "--out", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_where_it_is_not_installed_a_run_of_it_is_not_resumed(stopped, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    error = refused(capsys, "resume", str(stopped))
    assert "the project ours of Weights & Biases, which is not installed; pip install" in error


def test_what_it_refuses_is_one_line(stopped, monkeypatch, capsys):
    module = ModuleType("wandb")

    def init(**_):
        raise CommError("api_key not configured\n(no-tty)")

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    error = refused(capsys, "resume", str(stopped))
    assert "refuses the project ours: api_key not configured (no-tty); log in with `wandb login`" in error
