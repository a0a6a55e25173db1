"""Runs on a cluster of several hosts end with the same bits as on one machine, whichever host fails."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import recollect

from ..comparison.test_ray_executor import lines, runs
from ..helpers import assert_same_results, wait_for
from .hosts import TOKEN, Host, hosts, why_not

pytest.importorskip("ray")
# Hosts are network namespaces: without root or iproute2 there are none, and this says which is missing.
REASON = why_not()
pytestmark = [pytest.mark.faults, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

STUDY = ["-e", "CartPole-v1", "-m", "ppo", "ppo_gru", "--env.num-envs", "4", "--ppo.num-steps", "16"]
STUDY += ["--rollouts", "400", "--save-interval", "10", "--seeds", "2", "--episodes", "3"]


def begun(folder: Path, *arguments: str, at: Host | None = None, **environment: str) -> subprocess.Popen[str]:
    """The study on a cluster, or on this machine alone."""
    command = [sys.executable, "-m", "recollect", "compare", *STUDY, *arguments]
    command = at.command(*command) if at else command
    env = {**os.environ, **TOKEN, **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0, out
    return out


def writers(out: Path) -> dict[Path, set[int]]:
    """The processes that have the metrics of each run open."""
    processes: dict[Path, set[int]] = {}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                not process.name.isdigit()
                or b"recollect.comparison.worker" not in (process / "cmdline").read_bytes()
            ):
                continue
            opened = {Path(os.readlink(file)) for file in (process / "fd").iterdir()}
            for path in opened:
                if path.name == "metrics.jsonl" and out in path.parents:
                    processes.setdefault(path.parent, set()).add(int(process.name))
    return processes


@contextlib.contextmanager
def watched(out: Path) -> Iterator[None]:
    """Fail if two processes ever write to one run."""
    conflicts, over = [], threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            conflicts.extend(processes for processes in writers(out).values() if len(processes) > 1)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert conflicts == []


def on(host: Host, out: Path) -> list[Path]:
    """The runs that a host executes."""
    local = set(host.processes())
    return [folder for folder, processes in writers(out).items() if processes & local]


def same(straight: Path, out: Path) -> None:
    """Compare every run with the undisturbed one."""
    folders = runs(out)
    assert folders
    for folder in folders:
        assert_same_results(straight / folder.relative_to(out), folder)


def slow_down(process: int) -> None:
    """Stop a process for most of the time, so that its run does not end before Ray notices its host."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(process, signal.SIGCONT)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The same study by processes of this machine, never disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    ended(begun(folder))
    return folder


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Iterator[list[Host]]:
    """A cluster of three hosts, and one host that is not part of it."""
    with hosts(tmp_path_factory.mktemp("hosts"), "abcd") as machines:
        machines[0].head()
        for host in machines[1:3]:
            host.join(machines[0])
        yield machines


@pytest.fixture
def three(network) -> list[Host]:
    return network[:3]


def test_a_study_across_hosts_ends_as_on_one_machine(straight, three, tmp_path) -> None:
    with watched(tmp_path):
        driver = begun(tmp_path, "--on", f"ray:{three[0].cluster}", at=three[0])
        wait_for(lambda: all(on(host, tmp_path) for host in three))
        assert "2/2" in ended(driver)
    same(straight, tmp_path)
    assert list(tmp_path.rglob(".seen-*")) == []


def test_the_same_command_resumes_after_its_driver_was_killed(straight, three, tmp_path) -> None:
    with watched(tmp_path):
        driver = begun(tmp_path, "--on", f"ray:{three[0].cluster}", at=three[0])
        wait_for(lambda: all(on(host, tmp_path) for host in three) and lines(tmp_path) > 20)
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
        ended(begun(tmp_path, "--on", f"ray:{three[0].cluster}", at=three[0]))
    same(straight, tmp_path)


@pytest.mark.parametrize("how", ["dies", "is cut off"])
def test_the_run_of_a_lost_host_resumes_elsewhere(how, straight, three, tmp_path) -> None:
    """A host that is cut off cannot know it, and its run continues to write to the shared storage."""
    first, *others = three
    with watched(tmp_path):
        driver = begun(tmp_path, "--on", f"ray:{first.cluster}", "--seeds", "1", at=first)
        wait_for(lambda: len(writers(tmp_path)) == 2 and lines(tmp_path) > 20)
        host = next(host for host in others if on(host, tmp_path))
        (lost,) = on(host, tmp_path)
        (writer,) = writers(tmp_path)[lost]
        if how == "dies":
            host.kill()
        else:
            host.cut()
        before = time.monotonic()
        wait_for(lambda: slow_down(writer) or writers(tmp_path).get(lost, set()) - {writer})
        print(f"\nthe run of a host that {how} resumes after {time.monotonic() - before:.0f} s")
        assert how == "dies" or host.processes(), "its Ray ended before its run did"
        ended(driver)
    same(straight, tmp_path)
    host.kill()
    host.mend()
    host.join(first)


def test_unsuitable_machines_are_named_before_any_run_starts(tmp_path) -> None:
    """One without the storage, one with another version, one without recollect."""
    package, other = Path(recollect.__file__).parent, tmp_path / "_version.py"
    other.write_text('__version__ = "0"\n')
    out = tmp_path / "runs"
    with hosts(tmp_path, "abcd") as (first, *others):
        first.head()
        (tmp_path / "nothing").mkdir()
        without = (
            f"mount --bind {tmp_path / 'nothing'} {out}",
            f"mount --bind {other} {package / '_version.py'}",
            f"mount --bind {tmp_path / 'nothing'} {package}",
        )
        out.mkdir()
        for host, before in zip(others, without, strict=True):
            host.join(first, before)
        began = time.monotonic()
        refused = begun(tmp_path, "--on", f"ray:{first.cluster}", at=first)
        output, _ = refused.communicate(timeout=60)
        assert refused.returncode == 2 and time.monotonic() - began < 20, output
        (line,) = [text for text in output.splitlines() if text.startswith("recollect: ")]
        assert f"b does not see {out}" in line and "c has recollect 0 (not " in line
        assert "d cannot run recollect: ModuleNotFoundError: No module named 'recollect" in line
        assert runs(tmp_path) == []


def test_a_machine_outside_of_the_cluster_is_named(network, tmp_path) -> None:
    began = time.monotonic()
    refused = begun(tmp_path, "--on", f"ray:{network[0].cluster}", at=network[3])
    output, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2 and time.monotonic() - began < 20
    assert "this machine is not part of the cluster" in output and len(output.splitlines()) == 1


def test_a_missing_token_is_named(three, tmp_path) -> None:
    began = time.monotonic()
    where = ["--on", f"ray:{three[0].cluster}"]
    refused = begun(tmp_path, *where, at=three[0], RAY_AUTH_MODE="disabled")
    output, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2 and time.monotonic() - began < 20
    assert "the cluster needs a token" in output and len(output.splitlines()) == 1
