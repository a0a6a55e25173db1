"""Runs as tasks of Ray end as processes of this machine do, whatever dies on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect import cli, cluster, compare
from recollect.build import settled
from recollect.jobs import Job
from recollect.weights import versions

from .helpers import assert_same_end, small_config

pytest.importorskip("ray")

STUDY = ["-e", "CartPole-v1", "-m", "ppo", "ppo_stack", "--env.num-envs", "4", "--ppo.num-steps", "16"]
STUDY += ["--rollouts", "100", "--seeds", "1", "--episodes", "3", "--jobs", "2", "--save-interval", "1"]


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "recollect", "compare", *STUDY, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    return out


def wait_for(condition, limit: float = 120.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def lines(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


def runs(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.rglob("config.yaml"))


def workers(folder: Path) -> list[int]:
    """The processes of Ray that wait for runs in this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                name = (process / "cmdline").read_bytes()
                if b"ray::work" in name and str(folder) in str((process / "cwd").resolve()):
                    found.append(int(process.name))
            except OSError:
                continue
    return found


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The same study by processes of this machine, never disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    ended(begun(folder))
    return folder


def same(one: Path, other: Path) -> None:
    pairs = zip(runs(one), runs(other), strict=True)
    for a, b in pairs:
        assert_same_end(a, b)
        one_score, other_score = (json.loads((x / "evaluation.json").read_text()) for x in (a, b))
        assert one_score["returns"] == other_score["returns"]


def test_a_study_ends_alike_though_its_workers_and_its_driver_are_killed(straight, tmp_path) -> None:
    driver = begun(tmp_path, "--on", "ray")
    wait_for(lambda: lines(tmp_path) > 20)
    for worker in workers(tmp_path):
        os.kill(worker, signal.SIGKILL)
    before = lines(tmp_path)
    wait_for(lambda: lines(tmp_path) > before + 20 or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[0]
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    out = ended(begun(tmp_path, "--on", "ray"))
    assert "1/1" in out and "failed" not in out.partition("environment")[2]
    assert len(list(tmp_path.rglob(".seen-*"))) == 1  # of the driver that was killed
    same(straight, tmp_path)


def test_ctrl_c_stops_its_runs_in_good_order(tmp_path) -> None:
    driver = begun(tmp_path, "--on", "ray", "--rollouts", "100_000")
    wait_for(lambda: lines(tmp_path) > 20)
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130 and "the same command goes on" in out
    ends = [json.loads((run / "summary.json").read_text())["status"] for run in runs(tmp_path)]
    assert ends == ["SIGTERM"] * len(ends) and ends


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


ERRORS = {
    "elsewhere": (["--on", "dask"], "--on takes ray or ray:HOST:PORT, not 'dask'"),
    "no port": (["--on", "ray:somewhere"], "--on ray:somewhere: HOST:PORT is needed"),
    "too much": (["--cpus-per-run", "0"], "--cpus-per-run takes a number above 0, not '0'"),
    "part of a gpu": (["--gpus-per-run", "-1"], "--gpus-per-run takes 0 or a number above it, not '-1'"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_mistakes_are_one_line(case, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = ERRORS[case]
    assert cli.main(["compare", *STUDY, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_where_no_cluster_answers_it_is_said_at_once(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    before = time.monotonic()
    assert cli.main(["compare", *STUDY, "--on", f"ray:127.0.0.1:{free_port()}"]) == 2
    assert "no cluster answers there" in capsys.readouterr().err
    assert time.monotonic() - before < 20


def test_without_ray_it_is_said_what_to_install(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["compare", *STUDY, "--on", "ray"]) == 2
    assert "--on ray needs Ray: pip install 'recollect[ray]'" in capsys.readouterr().err


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path) -> None:
    said = cluster.work({}, str(tmp_path / "nowhere" / ".seen"), versions())
    assert said.startswith(socket.gethostname()) and "must lie where every machine sees them" in said


def test_a_machine_with_other_versions_says_so(tmp_path) -> None:
    (tmp_path / ".seen").touch()
    said = cluster.work({}, str(tmp_path / ".seen"), versions() | {"numpy": "1.0"})
    assert "numpy" in said and "(not 1.0)" in said and "torch" not in said


class Task:
    """A stand-in for a cluster, whose machines are given."""

    def __init__(self, *nodes):
        self.listed = nodes

    def nodes(self):
        return [{"Alive": alive, "Resources": resources} for alive, resources in self.listed]

    def shutdown(self):
        pass


def test_runs_that_fit_are_counted_machine_by_machine() -> None:
    machines = Task((True, {"CPU": 5, "GPU": 1}), (True, {"CPU": 3}), (False, {"CPU": 64}))
    here = object.__new__(cluster.Cluster)
    here._ray, here._tasks = machines, {}
    for share, slots in (((1, 0.0), 8), ((2, 0.0), 3), ((4, 0.0), 1), ((1, 0.5), 2)):
        here._share = cluster.Share(*share)
        assert here.slots == slots, share
    here._share = cluster.Share(6, 0.0)
    with pytest.raises(compare.UsageError, match="no machine of the cluster has more than 5 and 1"):
        here._check_share()


def test_one_run_is_stopped_and_nobody_asked_twice() -> None:
    jobs = [Job(settled(small_config()), Path(name)) for name in "abc"]
    cancelled = []
    here = object.__new__(cluster.Cluster)
    here._ray = SimpleNamespace(cancel=lambda task, force: cancelled.append(task))
    here._tasks, here._asked = dict(zip((1, 2, 3), jobs, strict=True)), set()
    here.stop(jobs[1])
    here.stop(jobs[1])
    assert cancelled == [2]
    here.stop()
    assert cancelled == [2, 1, 3]


def test_a_cluster_says_what_each_run_is_told(tmp_path) -> None:
    job = Job(settled(small_config()), Path("runs/x"))
    said = cluster.asked(job, 7)
    assert said["episodes"] == 7 and said["config"]["seed"] == 3 and not said["probes"]
