"""One run on two hosts ends as it does on one machine, or not at all."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import checkpoint
from recollect.ranks import PATIENCE

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


def torchrun(folder: Path, host: Host, head: Host, restarts: int = 0) -> subprocess.Popen[str]:
    """A host's part in the run."""
    launch = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", str(restarts)]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{head.address}:29500", "--rdzv-id", "a"]
    launch += ["--local-addr", host.address, "--monitor-interval", "0.2"]
    launch += ["--rdzv-conf", f"is_host={int(host is head)}"]  # names of these hosts stand nowhere
    command = host.command(sys.executable, "-m", "torch.distributed.run", *launch, "-m", "recollect", *TRAIN)
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, start_new_session=True, **pipes)


def when_saved(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait for a checkpoint that is not the first."""
    end = time.monotonic() + 120
    while len(checkpoint.existing(folder / RUN / "checkpoints")) < 2:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


def ended(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    said = process.communicate(timeout=seconds)[0]
    return process.returncode, said


def test_two_hosts_learn_what_two_processes_learn(straight, pair, tmp_path):
    begun = [torchrun(tmp_path, host, pair[0]) for host in pair]
    for process in begun:
        code, said = ended(process)
        assert code == 0, said
    assert_same_end(straight, tmp_path / RUN)


def test_a_host_that_dies_and_comes_back_goes_on(straight, pair, tmp_path):
    first, second = pair
    stays, dies = (torchrun(tmp_path, host, first, restarts=3) for host in pair)
    when_saved(tmp_path, stays)
    second.kill()
    ended(dies)
    back = torchrun(tmp_path, second, first, restarts=3)
    for process in (stays, back):
        code, said = ended(process, 240)
        assert code == 0, said
    assert_same_end(straight, tmp_path / RUN)


def test_a_host_that_is_cut_off_ends_the_run(pair, tmp_path):
    begun = [torchrun(tmp_path, host, pair[0]) for host in pair]
    when_saved(tmp_path, begun[0])
    pair[1].cut()
    start = time.monotonic()
    for process in begun:
        code, said = ended(process, PATIENCE.seconds + 120)
        assert code != 0 and "lost the others" in said, said
    assert time.monotonic() - start < PATIENCE.seconds + 90
