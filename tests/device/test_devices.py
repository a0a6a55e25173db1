"""Which device a name means on a machine, and what somebody is told whose machine does not have it."""

import os

import pytest
import torch
from torch import nn

import recollect
from recollect import cli
from recollect.agent.agent import Agent
from recollect.common import devices
from recollect.common.distributed import Ranks
from recollect.common.errors import OutOfMemoryError, UsageError
from recollect.comparison.options import ExecutorOptions
from recollect.learn import ppo
from recollect.run import build

from ..helpers import run_quietly, small_config

SMALL, WIDE = nn.Linear(8, 8), nn.Linear(1000, 500)
PICTURES = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 4))


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many GPUs of a kind; None: without."""

    def build(kind, count=1):
        device = torch.device(kind) if kind else None
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: device)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: count if kind else 0)
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: kind == "cuda")

    return build


@pytest.mark.parametrize(
    ("kind", "agent", "chosen"),
    [
        (None, WIDE, "cpu"),
        ("cuda", SMALL, "cpu"),
        ("cuda", WIDE, "cuda"),
        ("cuda", PICTURES, "cuda"),
        ("mps", WIDE, "mps"),
        ("mps", SMALL, "cpu"),
        ("xpu", WIDE, "cpu"),
        ("cuda", None, "cpu"),
    ],
)
def test_auto_takes_a_gpu_for_large_networks_and_pictures(kind, agent, chosen, machine):
    machine(kind)
    assert devices.choose("auto", agent) == chosen
    assert devices.choose("cpu", agent) == "cpu" and devices.choose("cuda:1", agent) == "cuda:1"


def test_the_choice_is_printed_where_there_is_one(machine):
    machine(None)
    assert devices.announcement(torch.device("cpu")) is None
    machine("mps")
    assert devices.announcement(torch.device("cpu")) == "device: cpu (cpu)"
    assert devices.announcement(torch.device("mps")) == "device: mps (mps)"


REFUSED = {
    "no gpu": (None, 0, "cuda", "this build of torch has no CUDA"),
    "another kind": ("mps", 1, "cuda", "this build of torch has no CUDA"),
    "no mps": ("cuda", 1, "mps", "torch sees no mps device on this machine"),
    "index": ("cuda", 2, "cuda:2", "this machine has 2, counted from 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_missing_device_is_one_line_that_names_the_cpu(case, machine):
    kind, count, name, message = REFUSED[case]
    machine(kind, count)
    with pytest.raises(UsageError) as caught:
        devices.find_device(name)
    text = str(caught.value)
    assert text.startswith(f"device {name}: ") and message in text
    assert text.endswith("take --device cpu") and "\n" not in text


def test_cuda_that_is_built_but_not_there_is_told_apart(machine, monkeypatch):
    machine(None)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    with pytest.raises(UsageError, match="torch sees no cuda device on this machine; take --device cpu"):
        devices.find_device("cuda")


def test_each_process_takes_a_gpu_of_its_own(machine):
    machine("cuda", 2)
    taken = [devices.find_device("cuda", Ranks(rank, 4, 2)).index for rank in range(4)]
    assert taken == [0, 1, 0, 1]
    assert devices.find_device("cuda:1") == torch.device("cuda:1")
    for name, ranks in (("cuda:0", Ranks(0, 2, 2)), ("cuda", Ranks(0, 3, 3))):
        with pytest.raises(UsageError, match="needs a GPU of its own"):
            devices.find_device(name, ranks)
    machine("mps")
    with pytest.raises(UsageError, match="needs a GPU of its own"):
        devices.find_device("mps", Ranks(0, 2, 2))


@pytest.mark.parametrize(
    "command", ["train CartPole-v1", "eval models/x", "watch models/x", "probe models/x"]
)
@pytest.mark.parametrize("name", ["qpu", "cuda:x", "meta", "", "cpu:-1"])
def test_an_unknown_name_is_one_line(command, name, capsys):
    assert cli.main([*command.split(), "--device", name]) == 2
    error = capsys.readouterr().err
    assert error == f"recollect: device {name!r} is unknown; take auto, cpu, cuda, cuda:1 or mps\n"


def test_a_full_gpu_is_one_line_and_leaves_checkpoints_intact(tmp_path, monkeypatch):
    update, calls = ppo.descend, []

    def full(*parts):
        calls.append(parts)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return update(*parts)

    monkeypatch.setattr(ppo, "descend", full)
    with pytest.raises(OutOfMemoryError) as caught:
        run_quietly(small_config(rollouts=4, save_interval=1), tmp_path)
    text = str(caught.value)
    for setting in ("ppo.num_minibatches", "env.num_envs", "width"):
        assert setting in text
    monkeypatch.setattr(ppo, "descend", update)
    (summary,) = tmp_path.rglob("summary.json")
    assert '"failed"' in summary.read_text()
    resumed = recollect.resume(summary.parent, quiet=True)
    assert resumed.summary["status"] == "finished" and resumed.summary["iteration"] == 4


def test_a_gpu_that_is_full_before_training_is_one_line(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")

    monkeypatch.chdir(tmp_path)
    for owner, name in ((Agent, "to"), (build, "begin")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            assert cli.main(["train", "CartPole-v1", "--cpu"]) == 1
        error = capsys.readouterr().err
        assert (
            error.startswith("recollect: OutOfMemoryError: cpu is out of memory") and error.count("\n") == 1
        )


def test_cublas_is_told_before_its_first_use(machine, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    machine("cuda")
    devices.find_device("cpu")
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    devices.find_device("cuda")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_settings_for_equal_bits_are_restored(device):
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32
    with devices.deterministic(torch.device(device)):
        assert torch.are_deterministic_algorithms_enabled() == (device == "cuda")
        assert not (device == "cuda" and torch.backends.cuda.matmul.allow_tf32)
    assert before == (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32)


RESERVED = {
    "none": (0.0, ["cuda", "cpu"], "--device cuda: Ray shows a run only the GPUs that it reserves"),
    "unused": (0.25, ["cpu", "cpu"], "--gpus-per-run 0.25: all runs are on the CPU"),
}


@pytest.mark.parametrize("case", RESERVED)
def test_gpus_that_ray_reserves_are_those_that_runs_use(case):
    gpus, names, message = RESERVED[case]
    with pytest.raises(UsageError, match=message):
        ExecutorOptions(on="ray", gpus_per_run=gpus).check_devices(names)
    ExecutorOptions(gpus_per_run=gpus).check_devices(names)  # without Ray nothing is reserved
    ExecutorOptions(on="ray", gpus_per_run=0.5).check_devices(["cpu", "cuda"])
    ExecutorOptions(on="ray").check_devices(["cpu"])


@pytest.mark.parametrize("command", ["compare -e CartPole-v1 -m ppo --seeds 1", "tune -e CartPole-v1 -m ppo"])
def test_compare_and_tune_check_them_before_they_start(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command.split(), "--on", "ray", "--gpus-per-run", "0.25"]) == 2
    assert "add --device cuda" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
