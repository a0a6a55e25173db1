"""Runs as tasks of Ray end as processes of this machine do, whatever dies on the way."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect import cli
from recollect.common.errors import UsageError
from recollect.comparison import local_executor, ray_executor
from recollect.comparison import preflight as nodes
from recollect.comparison import run_process as launch
from recollect.comparison.jobs import Job
from recollect.run.build import resolved_config
from recollect.run.run_folder import Claim, locked
from recollect.run.weights import version_mismatch, versions

from ..helpers import assert_same_end, small_config, wait_for

pytest.importorskip("ray")

STUDY = ["-e", "CartPole-v1", "-m", "ppo", "ppo_stack", "--env.num-envs", "4", "--ppo.num-steps", "16"]
STUDY += ["--rollouts", "100", "--seeds", "1", "--episodes", "3", "--jobs", "2", "--save-interval", "1"]


# A shell that starts a command with & has it ignore Ctrl-C.
IN_BACKGROUND = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]


def begun(folder: Path, *arguments: str, how: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [*how, sys.executable, "-m", "recollect", "compare", *STUDY, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    return out


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


@pytest.mark.parametrize(("number", "how"), [(signal.SIGINT, []), (signal.SIGTERM, IN_BACKGROUND)])
def test_a_signal_stops_its_runs_in_good_order(number, how, tmp_path) -> None:
    driver = begun(tmp_path, "--on", "ray", "--rollouts", "100_000", how=how)
    wait_for(lambda: lines(tmp_path) > 20)
    driver.send_signal(number)
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 128 + number and "the same command goes on" in out
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


SAYS = {
    "closes": b"",
    "web": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("kind", SAYS)
def test_what_is_no_cluster_is_found_out(kind, tmp_path, monkeypatch, capsys) -> None:
    """Ray itself waits for minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_executor, "TRIAL", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = listening.accept()
                    caller.sendall(SAYS[kind])
                    caller.close()

        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        assert cli.main(["compare", *STUDY, "--on", f"ray:127.0.0.1:{port}"]) == 2
        listening.shutdown(socket.SHUT_RDWR)
    said = capsys.readouterr().err
    assert "no cluster answers there: something else does" in said and len(said.splitlines()) == 1


REASONS = {
    "AuthenticationError: Authentication token is missing or incorrect.": "it asks for a token",
    "RuntimeError: Version mismatch: It was started with:\n    Ray: 2.50\n    Python: 3.12": (
        "another Python or Ray is there: version mismatch: It was started with: Ray: 2.50 Python: 3.12"
    ),
    "F raylet.cc: Check failed": "this machine is not one of the cluster",
}


@pytest.mark.parametrize("said", REASONS)
def test_what_ray_says_becomes_one_line(said) -> None:
    reason = ray_executor._reason(f"{said}\n\nmore", late=False)
    assert reason.startswith(REASONS[said]) and "\n" not in reason


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path) -> None:
    said = launch.unfit(str(tmp_path / "nowhere" / ".seen"))
    assert said.startswith(socket.gethostname()) and "must lie where every machine sees them" in said


def test_a_machine_that_does_not_see_locks_says_so(tmp_path) -> None:
    (tmp_path / ".seen").mkdir()
    assert "does not see locks of other machines" in launch.unfit(str(tmp_path / ".seen"))
    with locked(tmp_path / ".seen"):
        assert launch.unfit(str(tmp_path / ".seen")) is None


def test_storage_without_locks_is_named(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert "lies on storage that has no locks" in launch.unfit(str(tmp_path))


def test_a_machine_with_other_versions_says_so(tmp_path) -> None:
    said = version_mismatch("b", versions(), versions() | {"numpy": "1.0"})
    assert said.startswith("b has numpy") and "(not 1.0)" in said and "torch" not in said
    assert version_mismatch("b", versions(), versions() | {"cpu": "other"}) is None
    job = Job(resolved_config(small_config()), tmp_path / "ppo" / "CartPole-v1" / "x")
    told = {"task": "1", "sign": str(tmp_path), "versions": versions() | {"numpy": "1.0"}}
    with locked(tmp_path):
        assert "(not 1.0)" in launch.work(local_executor.asked(job, 3) | told)
    assert not job.folder.exists()


def test_a_worker_of_ray_needs_no_torch() -> None:
    code = "import sys, recollect.comparison.run_process; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


ANSWERS = {
    "one line for all": ([("a", "no room"), ("b", None), ("c", OSError("x\nlost"))], r"no room; c .*: lost$"),
    "processors": ([("a", None)], r"with AVX2 \(a\) and AVX512 \(b\), .* ATEN_CPU_CAPABILITY=avx2"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_unfit_machines_are_refused(case, tmp_path, monkeypatch) -> None:
    answers, message = ANSWERS[case]
    kinds = [(host, versions() | {"cpu": cpu}) for host, cpu in (("a", "AVX2"), ("b", "AVX512"))]
    monkeypatch.setattr(nodes, "_each", lambda ray, there, ask, *_: kinds if ask is versions else answers)
    with pytest.raises(UsageError, match=message):
        nodes.check(None, [], tmp_path)


@pytest.mark.parametrize(("ends", "begun"), [([-9, 0], 2), ([-9] * 9, launch.LIVES), ([1, 0], 1)])
def test_a_run_that_is_killed_begins_again_and_not_for_ever(ends, begun, tmp_path, monkeypatch) -> None:
    launched = []

    def begin(said):
        launched.append(subprocess.Popen(["true"], stdin=subprocess.PIPE))
        launched[-1].wait()
        launched[-1].returncode = ends[len(launched) - 1]
        return launched[-1], open(os.devnull, "rb")

    monkeypatch.setattr(launch, "launch", begin)
    with locked(tmp_path):
        said = launch.work({"sign": str(tmp_path)})
    assert len(launched) == begun and said == (
        None if ends[begun - 1] == 0 else f"the process ended with {ends[begun - 1]}"
    )


class Task:
    """A stand-in for a cluster, whose machines are given."""

    def __init__(self, *machines):
        self.listed = machines

    def nodes(self):
        return [{"Alive": alive, "Resources": resources} for alive, resources in self.listed]


def test_runs_that_fit_are_counted_machine_by_machine() -> None:
    machines = Task((True, {"CPU": 5, "GPU": 1}), (True, {"CPU": 3}), (False, {"CPU": 64}))
    here = object.__new__(ray_executor.RayExecutor)
    here._ray, here._tasks = machines, {}
    for share, slots in (((1, 0.0), 8), ((2, 0.0), 3), ((4, 0.0), 1), ((1, 0.5), 2), ((6, 0.0), 0)):
        here._share = ray_executor.Share(*share)
        assert here.slots == slots, share
    assert "no machine of the cluster has more than 5 and 1" in here.too_small()


class Gone(Task):
    """A stand-in for a cluster that cancels."""

    def __init__(self):
        super().__init__()
        self.cancelled, self.asked = [], []

    def nodes(self):
        names = {"a": True, "b": False, "c": False, "again": True}
        there = [{"NodeManagerHostname": name, "Alive": alive} for name, alive in names.items()]
        return [*there, {"NodeManagerHostname": "again", "Alive": False}]

    def cancel(self, task, force):
        self.cancelled.append(task)

    def remote(self, said):
        self.asked.append(said["task"])
        return f"{said['task']} anew"


def test_what_ran_on_a_machine_that_is_gone_begins_again_once(tmp_path) -> None:
    ray = Gone()
    here = object.__new__(ray_executor.RayExecutor)
    here._ray = here._work = ray
    here._left, here._tasks, here._asked = {}, {}, set()
    for host in ("a", "b", "again", "nowhere"):
        job = Job(resolved_config(small_config()), tmp_path / host)
        here._tasks[host] = job, {"task": host}
        if host != "nowhere":
            Claim(host, "1", host).write(job.folder)
    for _ in range(3):
        here._leave_the_dead()
    assert (
        ray.cancelled == ["b"]
        and ray.asked == ["b"]
        and set(here._tasks) == {"a", "again", "nowhere", "b anew"}
    )
    Claim("b", "2", "c").write(tmp_path / "b")
    here._leave_the_dead()
    assert ray.cancelled == ["b", "b anew"]
    # What was asked to end is not begun again.
    Claim("b", "3", "c").write(tmp_path / "b")
    (again,) = set(here._tasks) - {"a", "again", "nowhere"}
    here._asked.add(again)
    assert [job.folder.name for job, _ in here._leave_the_dead()] == ["b"]
    assert set(here._tasks) == {"a", "again", "nowhere"} and not here._asked


TOO_MUCH = {"--cpus-per-run": ("9999", "9999 CPUs and 0 GPUs"), "--gpus-per-run": ("1", "1 CPUs and 1 GPUs")}


@pytest.mark.parametrize("flag", TOO_MUCH)
def test_more_than_there_is_is_refused(flag, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    number, asked = TOO_MUCH[flag]
    assert cli.main(["compare", *STUDY, "--on", "ray", flag, number]) == 2
    assert f"a run asks for {asked}; no machine" in capsys.readouterr().err
    assert runs(tmp_path) == []


def test_a_ray_that_is_begun_here_has_the_cores_that_are_here(monkeypatch) -> None:
    monkeypatch.setattr(ray_executor, "CORES", 4)
    asked = {(1, 1): 1, (4, 1): 4, (8, 1): 8, (2, 2): 4, (8, 2): 4, (1, 3): 3, (4, 9): 4, (9, 9): 4}
    assert {each: ray_executor.cores(each[0], ray_executor.Share(each[1])) for each in asked} == asked


def test_ray_is_not_interrupted_while_it_begins() -> None:
    before, reached = signal.getsignal(signal.SIGINT), False
    with pytest.raises(KeyboardInterrupt), ray_executor._unhurried():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        reached = True
    assert reached and signal.getsignal(signal.SIGINT) is before


def test_one_run_is_stopped_and_nobody_asked_twice() -> None:
    jobs = [Job(resolved_config(small_config()), Path(name)) for name in "abc"]
    cancelled = []
    here = object.__new__(ray_executor.RayExecutor)
    here._ray = SimpleNamespace(cancel=lambda task, force: cancelled.append(task))
    here._tasks = {i: (job, {}) for i, job in enumerate(jobs, 1)}
    here._asked = set()
    here.stop(jobs[1])
    here.stop(jobs[1])
    assert cancelled == [2]
    here.stop()
    assert cancelled == [2, 1, 3]


def test_a_cluster_says_what_each_run_is_told(tmp_path) -> None:
    job = Job(resolved_config(small_config()), Path("runs/x"))
    said = local_executor.asked(job, 7)
    assert said["episodes"] == 7 and said["config"]["seed"] == 3 and not said["probes"]
