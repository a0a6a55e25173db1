"""`recollect list presets -v` has the hyperparameters of every preset, as options that set them."""

import re

import pytest

from recollect import cli
from recollect.commands.listing import OTHER, flat_options
from recollect.config.assembly import OPTIONS, assemble
from recollect.config.presets import MODELS, preset
from recollect.config.tasks import TASKS


@pytest.fixture
def rows(capsys, monkeypatch):
    """Name -> options of its row."""
    monkeypatch.setenv("COLUMNS", "100000")
    assert cli.main(["list", "presets", "-v"]) == 0
    lines = (re.split(r"\s{3,}", line.rstrip()) for line in capsys.readouterr().out.splitlines())
    return {name: rest[0] if rest else "" for name, *rest in lines}


@pytest.mark.parametrize("model", MODELS)
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
