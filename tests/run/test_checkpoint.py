"""Checkpoints: whole or not there, damage found, data only."""

import json
import os
import pickle
from pathlib import Path

import gymnasium
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from recollect.common.errors import CheckpointError, UsageError
from recollect.config.config import resolve
from recollect.run import api, checkpoint
from recollect.run.build import build, build_learner
from recollect.run.run import Trained

from ..helpers import run_quietly, small_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    return run_quietly(small_config(), tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def good(trained) -> Path:
    return checkpoint.existing(trained.folder / "checkpoints")[-1]


def test_what_is_written_is_read(tmp_path) -> None:
    tensors = {
        "a": torch.arange(6, dtype=torch.int64).reshape(2, 3),
        "b": torch.tensor(True),
        "c": torch.randn(4, 4).T,
    }
    checkpoint.write(tmp_path / "x.safetensors", tensors, {"n": 1.5, "inf": float("-inf")})
    found, meta = checkpoint.read(tmp_path / "x.safetensors")
    assert meta == {"n": 1.5, "inf": float("-inf")}
    assert all(torch.equal(found[name], x) for name, x in tensors.items())
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_data_keeps_its_order(tmp_path) -> None:
    """Entries of an observation in another order would meet the input weights of each other."""
    checkpoint.write(tmp_path / "x.safetensors", {}, {"b": 1, "a": {"d": 2, "c": 3}})
    assert json.dumps(checkpoint.read(tmp_path / "x.safetensors")[1]) == '{"b": 1, "a": {"d": 2, "c": 3}}'


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(good, tmp_path_factory, place, bit) -> None:
    data = bytearray(good.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    damaged = tmp_path_factory.mktemp("flip") / "x.safetensors"
    damaged.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        checkpoint.read(damaged)


@given(st.floats(0, 1, exclude_max=True))
def test_a_cut_file_is_found(good, tmp_path_factory, fraction) -> None:
    data = good.read_bytes()
    cut = tmp_path_factory.mktemp("cut") / "x.safetensors"
    cut.write_bytes(data[: int(fraction * len(data))])
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        checkpoint.read(cut)


class Touch:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_refused_and_never_run(tmp_path) -> None:
    sentinel = tmp_path / "touched"
    hostile = tmp_path / "agent.safetensors"
    hostile.write_bytes(pickle.dumps(Touch(sentinel)))
    with pytest.raises(UsageError, match=r"agent\.safetensors is not a whole safetensors file"):
        api.load(hostile)
    assert not sentinel.exists()


def test_files_of_others_are_refused(tmp_path) -> None:
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(2)}, foreign)
    with pytest.raises(CheckpointError, match="was not written by recollect"):
        checkpoint.read(foreign)
    header = {"format": "1", "meta": "[" * 100_000, "sha256": ""}
    header["sha256"] = checkpoint._digest({}, header["meta"])
    save_file({}, foreign, header)
    with pytest.raises(CheckpointError, match="does not parse"):
        checkpoint.read(foreign)
    save_file({}, foreign, {"format": "99", "meta": "{}", "sha256": "x"})
    with pytest.raises(UsageError, match="has format 99, this version reads 1") as caught:
        checkpoint.read(foreign)
    assert not isinstance(caught.value, CheckpointError)  # which a resumed run skips
    claim = json.dumps({"a": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    foreign.write_bytes(len(claim).to_bytes(8, "little") + claim)
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        checkpoint.read(foreign)


def test_a_saved_environment_that_imports_a_module_needs_leave(trained, tmp_path) -> None:
    tensors, meta = checkpoint.read(trained.folder / "checkpoints" / "last.safetensors")
    meta["config"]["env"]["id"] = "antigravity_of_a_stranger:Env-v0"
    checkpoint.write(tmp_path / "agent.safetensors", tensors, meta)
    with pytest.raises(UsageError, match="imports a module: allow it with -e"):
        api.load(tmp_path / "agent.safetensors")
    # Of another environment the agent knows only the spaces.
    for env in ("CartPole-v1", lambda: gymnasium.make("CartPole-v1")):
        elsewhere = api.load(tmp_path / "agent.safetensors", env=env)
        assert elsewhere.evaluate(2).returns and "stranger" not in elsewhere.config.env.id
    meta["config"]["env"]["id"] = "CartPole-v1"
    meta["config"]["actor"]["memory"]["name"] = "antigravity_of_a_stranger:Config"
    checkpoint.write(tmp_path / "agent.safetensors", tensors, meta)
    with pytest.raises(UsageError, match="imports a module: allow it with --imports"):
        api.load(tmp_path / "agent.safetensors")


def test_nothing_is_taken_from_a_checkpoint_of_another_agent(trained, good, tmp_path) -> None:
    other = small_config("Acrobot-v1")
    envs, agent, config = build(other)
    learner = build_learner(config, envs, agent)
    before = {name: x.clone() for name, x in checkpoint.learner_tensors(learner).items()}
    with pytest.raises(UsageError, match=r"of other spaces or settings.*: .* has shape"):
        checkpoint.restore(good, learner, envs, 3)
    after = checkpoint.learner_tensors(learner)
    assert all(torch.equal(before[name], x) for name, x in after.items())


def test_a_system_that_opens_no_folders_saves_all_the_same(tmp_path, monkeypatch) -> None:
    """As Windows: only the folder cannot be synced there."""
    opened = os.open

    def refuse(path, *arguments, **options):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    checkpoint.write(tmp_path / "a.safetensors", {"x": torch.ones(2)}, {"step": 1})
    assert checkpoint.read(tmp_path / "a.safetensors")[1] == {"step": 1}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.write(path, {"a": torch.zeros(3)}, {})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(path, {"a": torch.ones(3)}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize(("steps", "rollouts"), [(6400, 10**6), (10**9, 100), (6400, None), (None, 100)])
def test_a_run_saves_ten_checkpoints_before_the_end_of_its_first_budget(steps, rollouts):
    config = small_config(steps=steps, rollouts=rollouts, save_interval=None)
    assert resolve(config, "own", native=True, time_limit=500).save_interval == 10


def test_only_the_last_are_kept_and_leftovers_go(tmp_path) -> None:
    for iteration in (1, 2, 30, 4):
        checkpoint.write(checkpoint.path_of(tmp_path, iteration), {"a": torch.zeros(1)}, {})
    (tmp_path / ".iteration-00000031.safetensors.tmp").write_bytes(b"half")
    checkpoint.prune(tmp_path, 2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["iteration-00000004.safetensors", "iteration-00000030.safetensors"]
