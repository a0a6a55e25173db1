"""Runs as Ray tasks end with the same bits as runs on this machine, whichever process is killed."""

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect import cli
from recollect.common.errors import UsageError
from recollect.comparison import one_run, preflight, ray_executor, run_process
from recollect.comparison.compare import CompareOptions, study_of
from recollect.comparison.jobs import Job, plan_jobs
from recollect.comparison.run_request import ClusterRequest
from recollect.config.command import parse
from recollect.run.build import resolved_config
from recollect.run.run_folder import Claim, locked
from recollect.run.weights import version_mismatch, versions

from ..helpers import assert_same_end, sampled, small_config, wait_for

pytest.importorskip("ray")

STUDY = ["-e", "CartPole-v1", "-m", "ppo", "ppo_stack", "--env.num-envs", "4", "--ppo.num-steps", "16"]
STUDY += ["--rollouts", "60", "--seeds", "1", "--episodes", "3", "--jobs", "2", "--save-interval", "1"]


# A shell that starts a command with & has it ignore Ctrl-C.
IN_BACKGROUND = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]


def begun(folder: Path, *arguments: str, how: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [*how, sys.executable, "-m", "recollect", "compare", *STUDY, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    # Workers that are as nice as Ray makes them get no time beside the other tests.
    env = {**os.environ, "RAY_worker_niceness": "0"}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, start_new_session=True, **pipes)


def ended(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    return out


def lines(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


def runs(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.rglob("config.yaml"))


def workers(folder: Path) -> list[int]:
    """The Ray workers that wait for runs in this folder."""
    matches = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                name = (process / "cmdline").read_bytes()
                if b"ray::run_task" in name and str(folder) in str((process / "cwd").resolve()):
                    matches.append(int(process.name))
            except OSError:
                continue
    return matches


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The runs of the same study in this process, never disturbed."""
    folder = tmp_path_factory.mktemp("straight")
    configs = study_of(parse(CompareOptions, STUDY, "recollect compare")).configs()
    for job in plan_jobs([resolved_config(config) for config in configs], folder / "runs", 3):
        one_run.train_and_evaluate(job.config, job.folder, 3)
    return folder


def same(one: Path, other: Path) -> None:
    pairs = zip(runs(one), runs(other), strict=True)
    for a, b in pairs:
        assert_same_end(a, b)
        one_score, other_score = (json.loads((x / "evaluation.json").read_text()) for x in (a, b))
        assert one_score["returns"] == other_score["returns"]


@pytest.mark.faults
def test_a_study_ends_with_the_same_bits_when_workers_and_driver_are_killed(straight, tmp_path) -> None:
    driver = begun(tmp_path, "--on", "ray")
    wait_for(lambda: lines(tmp_path) > 10)
    for process in workers(tmp_path):
        os.kill(process, signal.SIGKILL)
    before = lines(tmp_path)
    wait_for(lambda: lines(tmp_path) > before + 10 or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[0]
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    out = ended(begun(tmp_path, "--on", "ray"))
    assert "1/1" in out and "failed" not in out.partition("environment")[2]
    assert len(list(tmp_path.rglob(".seen-*"))) == 1  # of the driver that was killed
    same(straight, tmp_path)


def cluster_of(driver: subprocess.Popen[str]) -> str:
    """The address of the Ray that a comparison started."""
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes().decode() for child in children]
    (address,) = {
        found[1] for command in commands if (found := re.search(r"--gcs-address=(\S+?)\0", command))
    }
    return address


@pytest.mark.thorough
def test_strangers_do_not_reach_a_ray_that_a_comparison_started(tmp_path, monkeypatch) -> None:
    driver = begun(tmp_path, "--on", "ray", "--rollouts", "100_000")
    wait_for(lambda: lines(tmp_path) > 0)
    monkeypatch.setattr(ray_executor, "HANDSHAKE_SECONDS", 6.0)
    with pytest.raises(UsageError, match="the cluster needs a token"):
        ray_executor._try_connection(cluster_of(driver))
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=60)
    assert driver.returncode == 130


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGINT, []),
        pytest.param(signal.SIGTERM, IN_BACKGROUND, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.thorough
def test_a_signal_saves_and_stops_its_runs(number, how, tmp_path) -> None:
    driver = begun(tmp_path, "--on", "ray", "--rollouts", "100_000", how=how)
    wait_for(lambda: lines(tmp_path) > 20)
    driver.send_signal(number)
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 128 + number and "repeat the command to resume them" in out
    ends = [json.loads((run / "summary.json").read_text())["status"] for run in runs(tmp_path)]
    assert ends == ["SIGTERM"] * len(ends) and ends


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


ERRORS = {
    "elsewhere": (["--on", "dask"], "--on takes ray or ray:HOST:PORT, not 'dask'"),
    "no port": (["--on", "ray:somewhere"], "--on ray:somewhere: HOST:PORT is needed"),
    "too much": (["--cpus-per-run", "0"], "--cpus-per-run is 0, at least 1 is needed"),
    "part of a gpu": (["--gpus-per-run", "-1"], "--gpus-per-run is -1.0, at least 0 is needed"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_mistakes_are_one_line(case, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = ERRORS[case]
    assert cli.main(["compare", *STUDY, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_address_without_a_cluster_is_reported_at_once(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    before = time.monotonic()
    assert cli.main(["compare", *STUDY, "--on", f"ray:127.0.0.1:{free_port()}"]) == 2
    assert "no cluster answers there" in capsys.readouterr().err
    assert time.monotonic() - before < 20


def test_without_ray_the_error_names_the_extra(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["compare", *STUDY, "--on", "ray"]) == 2
    assert "--on ray needs Ray: pip install 'recollect-rl[ray]'" in capsys.readouterr().err


REPLIES = {
    "closes": b"",
    "web": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("kind", sampled(REPLIES, "web"))
def test_a_server_that_is_no_cluster_is_detected(kind, tmp_path, monkeypatch, capsys) -> None:
    """Ray itself waits for minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_executor, "HANDSHAKE_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = listening.accept()
                    caller.sendall(REPLIES[kind])
                    caller.close()

        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        assert cli.main(["compare", *STUDY, "--on", f"ray:127.0.0.1:{port}"]) == 2
        listening.shutdown(socket.SHUT_RDWR)
    error = capsys.readouterr().err
    assert "no cluster answers there: it does not respond as Ray does" in error
    assert len(error.splitlines()) == 1


REASONS = {
    "AuthenticationError: Authentication token is missing or incorrect.": "the cluster needs a token",
    "RuntimeError: Version mismatch: It was started with:\n    Ray: 2.50\n    Python: 3.12": (
        "the cluster has another Python or Ray: version mismatch: It was started with: Ray: 2.50 Python: 3.12"
    ),
    "F raylet.cc: Check failed": "this machine is not part of the cluster",
}


@pytest.mark.parametrize("output", REASONS)
def test_the_output_of_ray_becomes_one_line(output) -> None:
    reason = ray_executor._connection_fault(f"{output}\n\nmore", timed_out=False)
    assert reason.startswith(REASONS[output]) and "\n" not in reason


def test_a_machine_that_does_not_see_the_folder_is_named(tmp_path) -> None:
    fault = run_process.storage_fault(str(tmp_path / "nowhere" / ".seen"))
    assert fault.startswith(socket.gethostname())
    assert "every machine must see run folders under the same path" in fault


def test_a_machine_that_does_not_see_locks_is_named(tmp_path) -> None:
    (tmp_path / ".seen").mkdir()
    assert "does not see file locks of other machines" in run_process.storage_fault(str(tmp_path / ".seen"))
    with locked(tmp_path / ".seen"):
        assert run_process.storage_fault(str(tmp_path / ".seen")) is None


def test_storage_without_locks_is_named(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert "lies on storage that has no locks" in run_process.storage_fault(str(tmp_path))


def test_a_machine_with_other_versions_is_named(tmp_path) -> None:
    mismatch = version_mismatch("b", versions(), versions() | {"numpy": "1.0"})
    assert mismatch.startswith("b has numpy") and "(not 1.0)" in mismatch and "torch" not in mismatch
    assert version_mismatch("b", versions(), versions() | {"cpu": "other"}) is None
    job = Job(resolved_config(small_config()), tmp_path / "ppo" / "CartPole-v1" / "x")
    cluster = ClusterRequest("1", tmp_path, versions() | {"numpy": "1.0"})
    with locked(tmp_path):
        assert "(not 1.0)" in run_process.run_task(replace(job.request(3), cluster=cluster))
    assert not job.folder.exists()


def test_a_worker_of_ray_needs_no_torch() -> None:
    code = "import sys, recollect.comparison.run_process; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


ANSWERS = {
    "one line for all": ([("a", "no room"), ("b", None), ("c", OSError("x\nlost"))], r"no room; c .*: lost$"),
    "processors": ([("a", None)], r"with AVX2 \(a\) and AVX512 \(b\), .* ATEN_CPU_CAPABILITY=avx2"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_unsuitable_machines_are_refused(case, tmp_path, monkeypatch) -> None:
    answers, message = ANSWERS[case]
    kinds = [(host, versions() | {"cpu": cpu}) for host, cpu in (("a", "AVX2"), ("b", "AVX512"))]
    monkeypatch.setattr(
        preflight, "call_on_each", lambda ray, nodes, call, *_: kinds if call is versions else answers
    )
    with pytest.raises(UsageError, match=message):
        preflight.check_machines(None, [], tmp_path)


DONE = run_process.FINISHED


@pytest.mark.parametrize(
    ("ends", "begun"), [([-9, DONE], 2), ([-9] * 9, run_process.MAX_STARTS), ([1, DONE], 1)]
)
def test_a_run_that_is_killed_is_started_again_a_few_times(ends, begun, tmp_path, monkeypatch) -> None:
    launched = []

    def start_process(request):
        launched.append(subprocess.Popen(["true"], stdin=subprocess.PIPE))
        launched[-1].wait()
        launched[-1].returncode = ends[len(launched) - 1]
        return launched[-1], open(os.devnull, "rb")

    monkeypatch.setattr(run_process, "start_process", start_process)
    job = Job(resolved_config(small_config()), tmp_path)
    with locked(tmp_path):
        request = replace(job.request(3), cluster=ClusterRequest("1", tmp_path / "x", {}))
        (tmp_path / "x").mkdir()
        with locked(tmp_path / "x"):
            error = run_process.run_task(request)
    assert len(launched) == begun and error == (
        None if ends[begun - 1] == DONE else f"the process ended with {ends[begun - 1]}"
    )


class MachineList:
    """A stand-in for a cluster, whose machines are given."""

    def __init__(self, *machines):
        self.listed = machines

    def nodes(self):
        return [{"Alive": alive, "Resources": resources} for alive, resources in self.listed]


def test_runs_that_fit_are_counted_machine_by_machine() -> None:
    machines = MachineList((True, {"CPU": 5, "GPU": 1}), (True, {"CPU": 3}), (False, {"CPU": 64}))
    executor = object.__new__(ray_executor.RayExecutor)
    executor._ray, executor._tasks = machines, {}
    for share, slots in (
        ((1, 0.0), 8),
        ((2, 0.0), 3),
        ((4, 0.0), 1),
        ((1, 0.5), 2),
        ((6, 0.0), 0),
        ((1, 2.0), 0),
    ):
        executor._resources = ray_executor.RunResources(*share)
        assert executor.slots == slots, share
    assert "no machine of the cluster has more than 5 and 1" in executor.too_small()


class CancellingCluster(MachineList):
    """A stand-in for a cluster that cancels."""

    def __init__(self):
        super().__init__()
        self.cancelled, self.restarted = [], []

    def nodes(self):
        names = {"a": True, "b": False, "c": False, "again": True}
        there = [{"NodeManagerHostname": name, "Alive": alive} for name, alive in names.items()]
        return [*there, {"NodeManagerHostname": "again", "Alive": False}]

    def cancel(self, task, force):
        self.cancelled.append(task)

    def remote(self, request):
        self.restarted.append(request.cluster.task)
        return f"{request.cluster.task} anew"


def test_runs_of_a_dead_machine_are_restarted_once(tmp_path) -> None:
    ray = CancellingCluster()
    executor = object.__new__(ray_executor.RayExecutor)
    executor._ray = executor._run_task = ray
    executor._abandoned, executor._tasks, executor._cancelled = {}, {}, set()
    for host in ("a", "b", "again", "nowhere"):
        job = Job(resolved_config(small_config()), tmp_path / host)
        executor._tasks[host] = job, replace(job.request(3), cluster=ClusterRequest(host, tmp_path, {}))
        if host != "nowhere":
            Claim(host, "1", host).write(job.folder)
    for _ in range(3):
        executor._restart_lost()
    assert (
        ray.cancelled == ["b"]
        and ray.restarted == ["b"]
        and set(executor._tasks) == {"a", "again", "nowhere", "b anew"}
    )
    Claim("b", "2", "c").write(tmp_path / "b")
    executor._restart_lost()
    assert ray.cancelled == ["b", "b anew"]
    # A cancelled run is not restarted.
    Claim("b", "3", "c").write(tmp_path / "b")
    (again,) = set(executor._tasks) - {"a", "again", "nowhere"}
    executor._cancelled.add(again)
    assert [job.folder.name for job in executor._restart_lost()] == ["b"]
    assert set(executor._tasks) == {"a", "again", "nowhere"} and not executor._cancelled


@pytest.mark.thorough
def test_more_resources_than_any_machine_has_are_refused(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--cpus-per-run", "9999", "--gpus-per-run", "1", "--device", "cuda"]
    assert cli.main(["compare", *STUDY, "--on", "ray", *flags]) == 2
    assert "a run needs 9999 CPUs and 1 GPUs; no machine" in capsys.readouterr().err
    assert runs(tmp_path) == []


def test_a_ray_started_here_offers_no_more_cores_than_there_are(monkeypatch) -> None:
    monkeypatch.setattr(ray_executor, "CORES", 4)
    cpus = {(1, 1): 1, (4, 1): 4, (8, 1): 8, (2, 2): 4, (8, 2): 4, (1, 3): 3, (4, 9): 4, (9, 9): 4}
    for (slots, per_run), expected in cpus.items():
        assert ray_executor.local_cpus(slots, ray_executor.RunResources(per_run)) == expected


def test_ray_is_not_interrupted_while_it_starts() -> None:
    before, reached = signal.getsignal(signal.SIGINT), False
    with pytest.raises(KeyboardInterrupt), ray_executor._deferred_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        reached = True
    assert reached and signal.getsignal(signal.SIGINT) is before


def test_one_run_is_stopped_and_none_is_cancelled_twice() -> None:
    jobs = [Job(resolved_config(small_config()), Path(name)) for name in "abc"]
    cancelled = []
    executor = object.__new__(ray_executor.RayExecutor)
    executor._ray = SimpleNamespace(cancel=lambda task, force: cancelled.append(task))
    executor._tasks = {i: (job, None) for i, job in enumerate(jobs, 1)}
    executor._cancelled = set()
    executor.stop(jobs[1])
    executor.stop(jobs[1])
    assert cancelled == [2]
    executor.stop()
    assert cancelled == [2, 1, 3]
