"""Runs on a cluster of several hosts end as they do on one machine, whatever happens to a host."""

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
    """Who has the metrics of each run open."""
    found: dict[Path, set[int]] = {}
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
                    found.setdefault(path.parent, set()).add(int(process.name))
    return found


@contextlib.contextmanager
def watched(out: Path) -> Iterator[None]:
    """Fails where two processes ever wrote to one run."""
    crowds, over = [], threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            crowds.extend(who for who in writers(out).values() if len(who) > 1)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert crowds == []


def on(host: Host, out: Path) -> list[Path]:
    """The runs that a host is busy with."""
    there = set(host.processes())
    return [folder for folder, who in writers(out).items() if who & there]


def same(straight: Path, out: Path) -> None:
    """Every run that is there."""
    found = runs(out)
    assert found
    for folder in found:
        assert_same_results(straight / folder.relative_to(out), folder)


def crawls(process: int) -> None:
    """Let a process work for a tenth of the time, so that its run does not end before it is missed."""
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
    """A cluster of three hosts, and one that is beside it."""
    with hosts(tmp_path_factory.mktemp("hosts"), "abcd") as found:
        found[0].head()
        for host in found[1:3]:
            host.join(found[0])
        yield found


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


def test_the_same_command_goes_on_after_its_driver_was_killed(straight, three, tmp_path) -> None:
    with watched(tmp_path):
        driver = begun(tmp_path, "--on", f"ray:{three[0].cluster}", at=three[0])
        wait_for(lambda: all(on(host, tmp_path) for host in three) and lines(tmp_path) > 20)
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
        ended(begun(tmp_path, "--on", f"ray:{three[0].cluster}", at=three[0]))
    same(straight, tmp_path)


@pytest.mark.parametrize("how", ["dies", "is cut off"])
def test_the_run_of_a_host_that_is_gone_goes_on_elsewhere(how, straight, three, tmp_path) -> None:
    """One that is cut off does not know it, and its run goes on writing where all hosts see it."""
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
        wait_for(lambda: crawls(writer) or writers(tmp_path).get(lost, set()) - {writer})
        print(f"\nthe run of a host that {how} goes on after {time.monotonic() - before:.0f} s")
        assert how == "dies" or host.processes(), "its Ray went before its run did"
        ended(driver)
    same(straight, tmp_path)
    host.kill()
    host.mend()
    host.join(first)


def test_machines_that_cannot_run_it_are_named_before_anything_runs(tmp_path) -> None:
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
        said, _ = refused.communicate(timeout=60)
        assert refused.returncode == 2 and time.monotonic() - began < 20, said
        (line,) = [text for text in said.splitlines() if text.startswith("recollect: ")]
        assert f"b does not see {out}" in line and "c has recollect 0 (not " in line
        assert "d cannot run recollect: ModuleNotFoundError: No module named 'recollect" in line
        assert runs(tmp_path) == []


def test_a_machine_that_is_not_of_the_cluster_says_so(network, tmp_path) -> None:
    began = time.monotonic()
    refused = begun(tmp_path, "--on", f"ray:{network[0].cluster}", at=network[3])
    said, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2 and time.monotonic() - began < 20
    assert "this machine is not one of the cluster" in said and len(said.splitlines()) == 1


def test_a_token_that_is_missing_is_asked_for(three, tmp_path) -> None:
    began = time.monotonic()
    where = ["--on", f"ray:{three[0].cluster}"]
    refused = begun(tmp_path, *where, at=three[0], RAY_AUTH_MODE="disabled")
    said, _ = refused.communicate(timeout=60)
    assert refused.returncode == 2 and time.monotonic() - began < 20
    assert "it asks for a token" in said and len(said.splitlines()) == 1
