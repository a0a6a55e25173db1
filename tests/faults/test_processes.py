"""One run on two hosts ends with the same bits as on one machine, or not at all."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.common.distributed import PATIENCE
from recollect.run import checkpoint

from ..common.test_distributed import together
from ..helpers import assert_same_end, wait_for
from .hosts import Host, hosts, why_not

# Hosts are network namespaces: without root or iproute2 there are none, and this says which is missing.
REASON = why_not()
pytestmark = [pytest.mark.faults, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

TRAIN = ["train", "poc", "-m", "ppo_gru", "--rollouts", "100", "--save-interval", "5", "--keep", "99"]
TRAIN += ["--seed", "2", "--out", "runs", "--run-id", "a"]
RUN = Path("runs/ppo_gru/poc/a")


@pytest.fixture
def pair(tmp_path) -> Iterator[list[Host]]:
    with hosts(tmp_path) as machines:
        yield machines[:2]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The run by two processes of one machine."""
    folder = tmp_path_factory.mktemp("straight")
    assert [code for code, _ in together(2, folder, "recollect", *TRAIN)] == [0, 0]
    return folder / RUN


def torchrun(folder: Path, host: Host, head: Host, restarts: int = 0) -> subprocess.Popen[bytes]:
    """Start the processes of one host."""
    launch = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", str(restarts)]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{head.address}:29500", "--rdzv-id", "a"]
    launch += ["--local-addr", host.address, "--monitor-interval", "0.2"]
    launch += [
        "--rdzv-conf",
        f"is_host={int(host is head)}",
    ]  # these hosts have no names that can be resolved
    command = host.command(sys.executable, "-m", "torch.distributed.run", *launch, "-m", "recollect", *TRAIN)
    # The third variable: torchrun then tells a host that rejoins where to meet.
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    env |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with (folder / host.name).open("a") as log:
        pipes = {"stdout": log, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=folder, env=env, start_new_session=True, **pipes)


def output(folder: Path, host: Host) -> str:
    """The output of a host's processes so far."""
    return (folder / host.name).read_text()


def when_saved(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait for the second checkpoint."""

    def saved() -> bool:
        assert process.poll() is None
        return len(checkpoint.existing(folder / RUN / "checkpoints")) > 1

    wait_for(saved)


def test_two_hosts_end_with_the_bits_of_two_processes(straight, pair, tmp_path):
    begun = [torchrun(tmp_path, host, pair[0]) for host in pair]
    for host, process in zip(pair, begun, strict=True):
        assert process.wait(120) == 0, output(tmp_path, host)
    assert_same_end(straight, tmp_path / RUN)


def test_a_run_resumes_when_a_dead_host_rejoins(straight, pair, tmp_path):
    first, second = pair
    stays, dies = (torchrun(tmp_path, host, first, restarts=3) for host in pair)
    when_saved(tmp_path, stays)
    second.kill()
    dies.wait()
    back = torchrun(tmp_path, second, first, restarts=3)
    for host, process in ((first, stays), (second, back)):
        assert process.wait(240) == 0, output(tmp_path, host)
    assert_same_end(straight, tmp_path / RUN)


def test_a_host_that_is_cut_off_ends_the_run(pair, tmp_path):
    begun = [torchrun(tmp_path, host, pair[0]) for host in pair]
    when_saved(tmp_path, begun[0])
    pair[1].cut()
    # The second torchrun waits until the system gives up the connection, after a quarter of an hour.
    for host in pair:
        wait_for(lambda host=host: "lost the others" in output(tmp_path, host), PATIENCE.seconds + 90)
    assert begun[0].wait(30) != 0
    begun[1].kill()
    begun[1].wait()
