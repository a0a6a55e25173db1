"""Damaged, truncated, swapped and hostile files: one line, and never another result without a word."""

import itertools
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gymnasium.spaces import Discrete

import recollect
from recollect import cli
from recollect.agent.agent import build_agent
from recollect.common.digests import digest_existing
from recollect.common.errors import CheckpointError, UsageError
from recollect.config.data import read_yaml
from recollect.envs.spaces import read_spaces
from recollect.reporting.runs import read_runs
from recollect.reporting.summary import as_json, summarise
from recollect.run import api, checkpoint, weights
from recollect.run.run_folder import read_summary

from ..helpers import MEMORIES, VECTOR, branch, run_quietly, sampled, set_status, small_config, stopped_run

MUTANTS = int(os.environ.get("MUTANTS", "60"))  # of each file
OURS = (UsageError, OSError)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that was stopped."""
    return stopped_run(tmp_path_factory.mktemp("run"), 3)


def mutants(data: bytes, dice: random.Random):
    """The data with flipped bytes, cut short, with a piece twice or moved, or empty."""
    for number in range(MUTANTS):
        changed = bytearray(data)
        place = dice.randrange(len(data))
        match number % 4:
            case 0:
                changed[place] ^= 1 << dice.randrange(8)
            case 1:
                changed = changed[:place]
            case 2:
                changed[place:place] = changed[place : place + 20]
            case 3:
                other = dice.randrange(len(data))
                changed[place], changed[other] = changed[other], changed[place]
        if bytes(changed) != data:
            yield bytes(changed)


def attempts(run: Path, tmp_path: Path, name: str):
    """Copies of the run in which a file is damaged."""
    dice = random.Random(20261124)
    folder = tmp_path / "ppo" / "CartPole-v1" / "copy"
    shutil.copytree(run, folder)
    data = (run / name).read_bytes()
    for mutant in mutants(data, dice):
        (folder / name).write_bytes(mutant)
        yield folder


def test_a_damaged_agent_is_refused(run, tmp_path):
    for folder in attempts(run, tmp_path, "checkpoints/last.safetensors"):
        with pytest.raises(CheckpointError, match=r"last\.safetensors"):
            recollect.load(folder)


def test_a_damaged_config_is_refused_or_is_the_same_config(run, tmp_path):
    same = 0
    for folder in attempts(run, tmp_path, "config.yaml"):
        before = {path: path.stat().st_mtime_ns for path in (folder / "checkpoints").iterdir()}
        try:
            config = api.from_dict(api.read_yaml(folder / "config.yaml"))
            if config == recollect.load(folder).config:  # as after a flip in a comment or a blank
                same += 1
                continue
            api.resume(folder, quiet=True)
        except OURS as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError("resumed with another config")
        assert {path: path.stat().st_mtime_ns for path in (folder / "checkpoints").iterdir()} == before
    assert same < MUTANTS / 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that is finished."""
    return run_quietly(small_config(), tmp_path_factory.mktemp("finished")).folder


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "config.yaml"])
def test_a_finished_run_whose_files_were_damaged_is_left_out_of_reports_or_is_the_same(
    finished, tmp_path, name
):
    whole = json.dumps(as_json(summarise(read_runs([finished]))))
    for folder in attempts(finished, tmp_path, name):
        report = as_json(summarise(read_runs([folder])))
        if report["groups"]:
            assert json.dumps(report).replace(str(folder), str(finished)) == whole
        else:
            (left,) = report["left_out"]
            assert name in left["reason"] and "\n" not in left["reason"]


def test_damaged_episodes_of_a_finished_run_are_refused(finished, tmp_path):
    trained = recollect.load(finished)
    for folder in attempts(finished, tmp_path, "episodes.jsonl"):
        with pytest.raises(UsageError, match=r"episodes\.jsonl is not as it was written"):
            replace(trained, folder=folder).episodes()


def test_a_damaged_summary_is_not_resumed(run, tmp_path):
    for folder in attempts(run, tmp_path, "summary.json"):
        try:
            assert read_summary(folder) == read_summary(run)
        except UsageError as error:
            assert "summary.json" in str(error) and "\n" not in str(error)


def test_a_run_is_sealed_when_it_is_finished_and_only_its_config_before(run, finished, tmp_path):
    def sealed(folder: Path) -> dict[str, str]:
        return json.loads((folder / "summary.json").read_text())["files"]

    results = ["config.yaml", "metrics.jsonl", "episodes.jsonl"]
    assert list(sealed(run)) == results[:1] and list(sealed(finished)) == results
    assert sealed(finished) == digest_existing(finished, results)
    resumed = recollect.resume(copied(run, tmp_path), quiet=True).folder
    assert sealed(resumed) == digest_existing(resumed, results)


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "config.yaml", "episodes.jsonl"])
def test_a_report_of_damaged_files_has_one_line_for_each(run, tmp_path, name):
    for folder in attempts(run, tmp_path, name):
        collection = read_runs([folder])
        assert len(collection.runs) + len(collection.left_out) == 1
        assert all("\n" not in left.reason for left in collection.left_out)


def test_a_damaged_line_of_episodes_is_named(tmp_path):
    trained = run_quietly(small_config(), tmp_path)
    set_status(trained.folder)  # without digests of its results, by which every change is found
    file = trained.folder / "episodes.jsonl"
    lines = file.read_text().splitlines()
    for damaged in ("{", "[]", '{"step": 1}', '"x"'):
        file.write_text("\n".join([lines[0], damaged, *lines[2:]]) + "\n")
        with pytest.raises(UsageError, match=r"episodes\.jsonl, line 2, is damaged"):
            trained.episodes()


def test_codes_of_terminals_and_styles_in_a_summary_have_no_effect(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "runs" / "ppo" / "poc" / "[b]x[" / "summary.json"
    folder.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    folder.write_text(json.dumps({"status": "[/x] \x1b[31mred", "logging": {}}))
    assert cli.main(["list", "agents"]) == 0
    out = capsys.readouterr().out
    assert "[/x] ?[31mred" in out and "[b]x[" in out and "\x1b[31m" not in out


def test_a_damaged_summary_is_listed(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in attempts(run, tmp_path / "runs", "summary.json"):
        assert cli.main(["list", "agents"]) == 0
        assert str(folder.relative_to(tmp_path)) in capsys.readouterr().out


FORMS = [[], 3, None, {"status": []}, {"status": "finished", "step": "x"}, {"status": "x", "return": []}]


@pytest.mark.parametrize("text", [*map(json.dumps, FORMS), pytest.param("[" * 100_000, id="nested")])
def test_a_summary_of_another_form_is_listed(run, tmp_path, monkeypatch, capsys, text):
    folder = tmp_path / "runs" / "ppo" / "CartPole-v1" / "copy"
    shutil.copytree(run, folder)
    (folder / "summary.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["list", "agents"]) == 0
    assert "unreadable" in capsys.readouterr().out


@pytest.mark.parametrize("logging", [3, "x", {"quiet": 1}, {"out": "/"}, {"wandb_project": ["x"]}])
def test_a_summary_of_another_form_is_not_resumed(run, tmp_path, logging):
    folder = tmp_path / "ppo" / "CartPole-v1" / "copy"
    shutil.copytree(run, folder)
    (folder / "summary.json").write_text(json.dumps({"status": "SIGTERM", "logging": logging}))
    with pytest.raises(UsageError, match=r"summary\.json"):
        api.resume(folder, quiet=True)


@pytest.mark.parametrize(
    ("error", "message"),
    [(None, "has format 2, this version reads 1"), (OSError(5, "Input/output error"), "cannot be read")],
)
def test_checkpoints_that_are_whole_but_not_readable_here_are_kept(
    run, tmp_path, error, message, monkeypatch
):
    """Of another version, or on a disk that does not answer: the run must not restart from its seed."""
    folder = copied(run, tmp_path)
    files = checkpoint.existing(folder / "checkpoints")
    if error is None:
        monkeypatch.setattr(checkpoint, "FORMAT", 2)
        for path in files:
            checkpoint.write(path, {}, {})
        monkeypatch.setattr(checkpoint, "FORMAT", 1)
    else:
        opened = checkpoint.safe_open

        def refuse(path, **options):
            if path in files:
                raise error
            return opened(path, **options)

        monkeypatch.setattr(checkpoint, "safe_open", refuse)
    with pytest.raises(UsageError, match=message):
        api.resume(folder, quiet=True)
    assert checkpoint.existing(folder / "checkpoints") == files != []


@pytest.mark.parametrize("lost", ["damaged", "removed"])
def test_a_restart_from_the_seed_replaces_no_trained_weights(lost, run, tmp_path):
    folder = copied(run, tmp_path)
    last = folder / "checkpoints" / "last.safetensors"
    before = last.read_bytes()
    for path in checkpoint.existing(folder / "checkpoints"):
        path.write_bytes(path.read_bytes()[:100]) if lost == "damaged" else path.unlink()
    metrics = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"would replace the weights in .*last\.safetensors.* --init"):
        api.resume(folder, quiet=True)
    assert (last.read_bytes(), (folder / "metrics.jsonl").read_bytes()) == (before, metrics)
    last.rename(tmp_path / "kept.safetensors")
    assert api.resume(folder, quiet=True).summary["status"] == "finished"


def test_swapped_files_are_found(run, tmp_path):
    """Of a run with other settings: each file is whole, but they do not belong together."""
    other = run_quietly(small_config(seed=9, rollouts=3), tmp_path, "other").folder
    folder = tmp_path / "ppo" / "CartPole-v1" / "copy"
    shutil.copytree(run, folder)
    for path in checkpoint.existing(folder / "checkpoints"):
        path.unlink()
    shutil.copy(checkpoint.existing(other / "checkpoints")[-1], folder / "checkpoints")
    with pytest.raises(UsageError, match="seed is 3, was 9"):
        api.resume(folder, quiet=True)


# Files that are whole but hostile -------------------------------------------------------------------


def rewritten(run: Path, tmp_path: Path, change) -> Path:
    """The agent of the run, with other tensors or metadata and a right digest."""
    tensors, meta = checkpoint.read(run / "checkpoints" / "last.safetensors")
    change(tensors, meta)
    path = tmp_path / "agent.safetensors"
    checkpoint.write(path, tensors, meta)
    return path


def wide(tensors, meta):
    meta["config"]["actor"]["hidden"] = [10**9, 10**9]


def wider_than_any_memory(tensors, meta):
    meta["config"]["critic"]["memory"] = {"name": "gru", "width": 10**9}


def wide_leaf(tensors, meta):
    meta["spaces"]["obs"]["obs"]["shape"] = [10**12]


def lacking(tensors, meta):
    del tensors[next(name for name in tensors if name.startswith("agent.critic"))]


def turned(tensors, meta):
    name = next(name for name, x in tensors.items() if name.startswith("agent.") and x.ndim == 2)
    tensors[name] = tensors[name].T.contiguous()


@pytest.mark.parametrize("change", [wide, wider_than_any_memory, wide_leaf, lacking, turned])
def test_weights_that_do_not_fit_their_config_are_refused_without_memory(run, tmp_path, change):
    with pytest.raises(CheckpointError, match="its weights do not fit its config") as caught:
        recollect.load(rewritten(run, tmp_path, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MEMORIES)
def test_an_agent_that_fits_its_file_is_built_once(name, tmp_path, monkeypatch):
    """And not on the meta device, where torch would import its compiler, for a second."""
    config = small_config(actor=branch(name), critic=branch(name))
    spaces = read_spaces(VECTOR, Discrete(2))
    agent = build_agent(spaces, config.actor, config.critic, True, seed=1)
    weights.save_weights(tmp_path / "agent.safetensors", agent, config)
    built = []
    monkeypatch.setattr(weights, "build_agent", lambda *args: built.append(build_agent(*args)) or built[-1])
    loaded = recollect.load(tmp_path / "agent.safetensors").agent
    assert built == [loaded]
    for x, y in zip(loaded.parameters(), agent.parameters(), strict=True):
        assert torch.equal(x, y)


def test_a_wide_config_is_not_resumed_and_takes_no_memory(run, tmp_path):
    """Checkpoint and config.yaml agree, and only the weights are small."""
    folder = shutil.copytree(run, tmp_path / "ppo" / "CartPole-v1" / "copy")
    for file in (folder / "checkpoints").glob("*.safetensors"):
        tensors, meta = checkpoint.read(file)
        wide(tensors, meta)
        checkpoint.write(file, tensors, meta)
    data = read_yaml(folder / "config.yaml")
    data["actor"]["hidden"] = [10**9, 10**9]
    (folder / "config.yaml").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="its weights do not fit its config"):
        api.resume(folder, quiet=True)


def test_a_scale_of_rewards_that_lacks_a_part_is_refused(run, tmp_path):
    def change(tensors, meta):
        meta["config"]["env"]["normalize_reward"] = True
        tensors["rewards.var"] = torch.ones(())
        tensors.pop("rewards.mean", None)

    trained = recollect.load(rewritten(run, tmp_path, change))
    with pytest.raises(CheckpointError, match=r"a part of a reward scale only: 'rewards\.mean' is missing"):
        trained.save(tmp_path / "again.safetensors")


@pytest.mark.parametrize("value", [[], "x", 3, None])
def test_metadata_that_is_no_mapping_is_one_line(run, tmp_path, value):
    tensors, _ = checkpoint.read(run / "checkpoints" / "last.safetensors")
    checkpoint.write(tmp_path / "agent.safetensors", tensors, value)
    with pytest.raises(CheckpointError, match="its metadata is no mapping"):
        recollect.load(tmp_path / "agent.safetensors")


@pytest.mark.parametrize("key", ["config", "spaces"])
@pytest.mark.parametrize("value", [None, [], {}, "x", {"obs": 3}, {"env": []}, 10**400])
def test_metadata_of_another_form_is_one_line(run, tmp_path, key, value):
    def change(tensors, meta):
        meta[key] = value

    with pytest.raises(UsageError) as caught:
        recollect.load(rewritten(run, tmp_path, change))
    assert "\n" not in str(caught.value)


def test_a_newer_format_is_refused_with_both_versions(run, tmp_path, monkeypatch):
    path = tmp_path / "agent.safetensors"
    tensors, meta = checkpoint.read(run / "checkpoints" / "last.safetensors")
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoint.write(path, tensors, meta)
    monkeypatch.setattr(checkpoint, "FORMAT", 1)
    with pytest.raises(UsageError, match="has format 2, this version reads 1"):
        recollect.load(path)


def unknown_option(meta):
    meta["config"]["ppo"]["dreams"] = 3


def unknown_memory(meta):
    meta["config"]["actor"]["memory"] = {"name": "hippocampus", "width": 8}


@pytest.mark.parametrize("change, name", [(unknown_option, "dreams"), (unknown_memory, "hippocampus")])
def test_what_a_newer_version_added_is_refused_with_both_versions(change, name, run, tmp_path):
    def newer(version):
        def apply(tensors, meta):
            change(meta)
            meta["versions"]["recollect"] = version

        return rewritten(run, tmp_path, apply)

    with pytest.raises(UsageError, match=name) as caught:
        recollect.load(newer("9.1.0"))
    assert f"recollect 9.1.0 wrote the file, and this is {recollect.__version__}" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=name) as caught:
        recollect.load(newer(recollect.__version__))
    assert "wrote the file" not in str(caught.value)


# Files of a stranger, whose digest is right -----------------------------------------------------

SAID = [*checkpoint.ABOUT_RUN, *checkpoint.SINCE, "envs", "spaces"]


def copied(run: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "ppo" / "CartPole-v1" / "copy"
    shutil.copytree(run, folder)
    return folder


def rewrite(file: Path, change) -> None:
    """The file after a change of its tensors and its metadata, with a digest of its own."""
    tensors, meta = checkpoint.read(file)
    change(tensors, meta)
    checkpoint.write(file, tensors, meta)


@pytest.mark.parametrize("name", sampled(SAID, *SAID[::4]))
def test_metadata_of_a_stranger_ends_in_one_line_or_changes_nothing(name, run, tmp_path):
    folder = copied(run, tmp_path)
    kept = {path: path.read_bytes() for path in (folder / "checkpoints").iterdir()}
    for file in kept:
        for value in (None, [], "x", {"x": 1}):

            def change(tensors, meta, value=value):
                meta.pop(name, None) if value is None else meta.update({name: value})

            rewrite(file, change)
            try:
                recollect.resume(folder, quiet=True)
            except OURS as error:
                assert str(error)
            for path, data in kept.items():
                path.write_bytes(data)
            shutil.copy(run / "summary.json", folder)


@pytest.mark.parametrize("counter", checkpoint.COUNTERS)
def test_a_counter_that_is_no_number_is_named(counter, run, tmp_path, capsys):
    folder = copied(run, tmp_path)
    newest = checkpoint.existing(folder / "checkpoints")[-1]
    rewrite(newest, lambda _, meta: meta["counters"].update({counter: "x"}))
    assert cli.main(["resume", str(folder)]) == 0
    assert f"{newest.name} does not describe a run: {counter} is" in capsys.readouterr().out.replace("\n", "")


def test_tensors_of_a_stranger_end_in_one_line_or_count_as_damaged(run, tmp_path, capsys):
    newest = checkpoint.existing(run / "checkpoints")[-1]
    changes = (lambda x: x.sum(), lambda x: x[None], lambda x: x.reshape(-1)[:0])
    for (name, before), change in itertools.product(checkpoint.read(newest)[0].items(), changes):
        if change(before).shape != before.shape:
            folder = copied(run, tmp_path / name)
            for path in (folder / "checkpoints").iterdir():
                if path.name != newest.name:
                    path.unlink()
            rewrite(
                folder / "checkpoints" / newest.name,
                lambda tensors, _, name=name, change=change: tensors.update({name: change(tensors[name])}),
            )
            code, said = cli.main(["resume", str(folder)]), capsys.readouterr()
            assert said.err.count("\n") == 1 if code else "restarting from the seed" in said.out, name
            shutil.rmtree(folder)


def test_a_config_that_was_edited_is_refused_though_the_weights_are_damaged(run, tmp_path):
    """And no checkpoint is whole, whose config could be compared."""
    folder = copied(run, tmp_path)
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    text = (folder / "config.yaml").read_text()
    assert "gamma: 0.99\n" in text
    (folder / "config.yaml").write_text(text.replace("gamma: 0.99\n", "gamma: 0.5\n"))
    with pytest.raises(UsageError, match=r"config\.yaml is not the config of this run"):
        recollect.resume(folder, quiet=True)
