"""One run on two hosts ends as it does on one machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..helpers import assert_same_end
from ..test_ranks import together
from .hosts import Host, hosts, why_not

REASON = why_not()
pytestmark = [pytest.mark.faults, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

TRAIN = ["train", "poc", "-m", "ppo_gru", "--rollouts", "100", "--save-interval", "5", "--keep", "99"]
TRAIN += ["--seed", "2", "--out", "runs", "--run-id", "a"]
RUN = Path("runs/ppo_gru/poc/a")


@pytest.fixture
def pair(tmp_path) -> Iterator[list[Host]]:
    with hosts(tmp_path) as found:
        yield found[:2]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The run by two processes of one machine."""
    folder = tmp_path_factory.mktemp("straight")
    assert [code for code, _ in together(2, folder, "recollect", *TRAIN)] == [0, 0]
    return folder / RUN


def torchrun(folder: Path, host: Host, head: Host) -> subprocess.Popen[str]:
    """A host's part in the run."""
    launch = ["--nnodes", "2", "--nproc-per-node", "1"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{head.address}:29500", "--rdzv-id", "a"]
    launch += ["--local-addr", host.address, "--monitor-interval", "0.2"]
    launch += ["--rdzv-conf", f"is_host={int(host is head)}"]  # names of these hosts stand nowhere
    command = host.command(sys.executable, "-m", "torch.distributed.run", *launch, "-m", "recollect", *TRAIN)
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    said = process.communicate(timeout=seconds)[0]
    return process.returncode, said


def test_two_hosts_learn_what_two_processes_learn(straight, pair, tmp_path):
    begun = [torchrun(tmp_path, host, pair[0]) for host in pair]
    for process in begun:
        code, said = ended(process)
        assert code == 0, said
    assert_same_end(straight, tmp_path / RUN)
