"""Agents on the hub: a folder stands for the hub, and there is no network."""

import contextlib
import io
import json
import re
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

import recollect
from recollect import cli
from recollect.commands.card import find_other_seeds
from recollect.common.errors import UsageError

from ..helpers import branch, run_quietly, small_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_quietly(small_config(actor=branch("gru")), tmp_path_factory.mktemp("hub"))


def folder_as_hub(root, monkeypatch):
    """A folder with a folder for each repository, behind the three functions of huggingface_hub."""

    class Api:
        def create_repo(self, repository, private, exist_ok):
            (root / repository).mkdir(parents=True, exist_ok=exist_ok)
            (root / repository / ".private").write_text(str(private))
            return f"https://hub/{repository}"

        def upload_folder(self, repo_id, folder_path):
            shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)

    def hf_hub_download(repository, filename):
        if not (root / repository / filename).exists():
            raise FileNotFoundError(f"404: {repository} has no\n{filename}")
        return str(root / repository / filename)

    fake = SimpleNamespace(HfApi=Api, hf_hub_download=hf_hub_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return root


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return folder_as_hub(tmp_path / "hub", monkeypatch)


@pytest.fixture(scope="module")
def pushed(run, tmp_path_factory):
    """The agent of the run there, and what was said of it."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        root = folder_as_hub(tmp_path_factory.mktemp("pushed"), patch)
        command = ["push", str(run.folder), "me/my-agent", "--episodes", "4", "--private", "True"]
        assert cli.main(command) == 0
    return root, said.getvalue()


def test_an_agent_that_is_pushed_and_loaded_is_the_same(run, pushed, monkeypatch):
    root, said = pushed
    folder_as_hub(root, monkeypatch)
    assert "https://hub/me/my-agent" in said
    loaded = recollect.load("hf:me/my-agent")
    weights = loaded.agent.state_dict()
    assert all(torch.equal(x, weights[name]) for name, x in run.agent.state_dict().items())
    assert loaded.config == run.config
    assert loaded.evaluate(4).returns == run.evaluate(4).returns
    assert cli.main(["eval", "hf:me/my-agent", "--num-episodes", "4"]) == 0


def test_the_card_has_the_score_the_config_and_how_to_load(run, pushed):
    hub, _ = pushed
    card = (hub / "me/my-agent/README.md").read_text()
    score = run.evaluate(4)
    assert f"| {run.config.seed} | {score.mean:.4g} | " in card and "Returns of 4 deterministic" in card
    assert "Other seeds of this config may score differently" in card
    head = yaml.safe_load(card.split("---\n")[1])
    metric = head["model-index"][0]["results"][0]["metrics"][0]
    assert metric["value"] == f"{score.mean:.2f} +/- {np.std(score.returns):.2f}"
    assert 'recollect.load("hf:me/my-agent")' in card and "gru (actor), mlp (critic)" in card
    assert "learning_rate: 0.01" in card and f"torch {torch.__version__}" in card
    assert (hub / "me/my-agent/.private").read_text() == "True"
    assert sorted(path.name for path in (hub / "me/my-agent").iterdir()) == [
        ".private",
        "README.md",
        "agent.safetensors",
        "episode.gif",
        "probe.html",
        "probe.json",
        "watch.html",
    ]
    assert "(episode.gif)" in card and "(watch.html)" in card and "(probe.html)" in card
    probed = json.loads((hub / "me/my-agent/probe.json").read_text())
    assert f"{probed['uses']} {probed['needs']}" in card


def test_the_card_has_the_scores_of_all_seeds_of_the_config(hub, tmp_path):
    config = small_config(rollouts=2)
    runs = {seed: run_quietly(replace(config, seed=seed), tmp_path, f"seed-{seed}") for seed in (3, 4)}
    run_quietly(replace(config, seed=5, ppo=replace(config.ppo, learning_rate=1e-4)), tmp_path, "other")
    assert len({run.folder.parent for run in runs.values()}) == 1
    cli.main(["push", str(runs[4].folder), "me/my-agent", "--episodes", "6"])
    card = (hub / "me/my-agent/README.md").read_text()
    means = {seed: run.evaluate(6).mean for seed, run in runs.items()}
    assert f"| 3 | {means[3]:.4g} | " in card and f"| 4 (this agent) | {means[4]:.4g} | " in card
    assert f"| mean of 2 | {sum(means.values()) / 2:.4g} | " in card and "| 5" not in card
    assert "## Memory" not in card and not (hub / "me/my-agent/probe.html").exists()


def test_another_run_of_the_same_seed_takes_no_place_on_the_card(hub, tmp_path, capsys):
    config = small_config(rollouts=2)
    seeds = {"a": 1, "b": 1, "c": 2}
    runs = [run_quietly(replace(config, seed=seed), tmp_path, name) for name, seed in seeds.items()]
    for run in runs[:2]:
        assert {seed: folder.name for seed, folder in find_other_seeds(run).items()} == {2: "c"}
        assert f"leaves out {run.folder}:" not in capsys.readouterr().out


def test_a_seed_that_cannot_be_read_is_named(hub, tmp_path, capsys):
    runs = [
        run_quietly(replace(small_config(rollouts=2), seed=seed), tmp_path, f"s{seed}") for seed in (1, 2)
    ]
    (runs[1].folder / "metrics.jsonl").write_text("{}\n")
    assert find_other_seeds(runs[0]) == {}
    assert f"the card leaves out {runs[1].folder}: metrics.jsonl" in capsys.readouterr().out


def test_an_environment_without_pictures_gives_a_card_without_a_film(hub, tmp_path, capsys):
    run = run_quietly(small_config("popgym:RepeatFirstEasy", rollouts=1), tmp_path)
    assert cli.main(["push", str(run.folder), "me/my-agent", "--episodes", "4"]) == 0
    assert "the card has no film: popgym:RepeatFirstEasy cannot be rendered" in capsys.readouterr().out
    assert "episode.gif" not in (hub / "me/my-agent/README.md").read_text()


def test_the_code_of_the_card_loads_an_agent_that_imports_modules(hub, tmp_path, monkeypatch, capsys):
    (tmp_path / "their_env.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Theirs-v0', CartPoleEnv, max_episode_steps=20)\n"
    )
    (tmp_path / "their_memory.py").write_text(
        "from recollect.memory.rnn import GruConfig\nclass Config(GruConfig): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {"actor": "their_memory:Config", "env.num_envs": 4, "rollouts": 1}
    run = recollect.train("their_env:Theirs-v0", options=options, out=tmp_path / "runs", quiet=True)
    names = ["-e", "their_env:Theirs-v0", "--imports", "their_memory:Config"]
    assert cli.main(["push", str(run.folder), "me/my-agent", "--episodes", "4", *names]) == 0
    card = (hub / "me/my-agent/README.md").read_text()
    assert "must be on the path: their_env, their_memory." in card
    capsys.readouterr()
    exec(re.search(r"```python\n(.*?)```", card, re.DOTALL)[1], {})
    assert float(capsys.readouterr().out) == run.evaluate().mean


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "hf:me/other",
            "hf:me/other: the download of agent.safetensors from the hub failed: 404: me/other",
        ),
        ("hf:nothing", "nothing is not the name of a repository of the hub: owner/name is needed"),
        ("hf:../me/other", "owner/name is needed"),
    ],
)
def test_what_cannot_be_loaded(name, message, hub):
    with pytest.raises(UsageError, match=message):
        recollect.load(name)


def test_a_failed_upload_is_one_line(hub, tmp_path, monkeypatch, capsys):
    run = run_quietly(small_config(rollouts=1), tmp_path)  # without a memory there is nothing to probe

    def refuse(*args, **kwargs):
        raise OSError("401\nno token")

    monkeypatch.setattr(sys.modules["huggingface_hub"].HfApi, "create_repo", refuse)
    assert cli.main(["push", str(run.folder), "me/my-agent", "--episodes", "1"]) == 2
    assert "me/my-agent: the upload to the hub failed: 401 no token" in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"agents on the hub need huggingface-hub: pip install"):
        recollect.load("hf:me/my-agent")
