"""Runs as Ray tasks: on this machine, or on every machine of a cluster.

Wherever Ray places a task, the task starts the same process as `local_executor.py` starts here, and waits for
it. So a run has its own threads and signals, and saves and stops when the task ends. A task whose worker or
machine dies is started again elsewhere, and its run resumes from its last checkpoint.

All machines see run folders under the same path.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..common.distributed import CORES
from ..common.errors import UsageError, install_hint
from ..run.run_folder import Claim, locked
from ..run.weights import versions
from .jobs import Job
from .preflight import check_machines
from .run_process import run_task
from .run_request import ClusterRequest, RunRequest

CONNECT_SECONDS = 5.0  # until an address that does not answer is given up
HANDSHAKE_SECONDS = 12.0  # until one that answers, but not as a Ray cluster does, is given up
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}


@dataclass(frozen=True)
class RunResources:
    """What one run reserves on its machine."""

    cpus: int = 1
    gpus: float = 0.0

    def runs_on(self, machine: Mapping[str, float]) -> int:
        """Number of runs that fit on a machine with these resources."""
        counts = [int(machine.get("CPU", 0) // self.cpus)]
        if self.gpus:
            counts.append(int(machine.get("GPU", 0) // self.gpus))
        return min(counts)


def local_cpus(slots: int, resources: RunResources) -> int:
    """Number of CPUs that a Ray started on this machine offers.

    Runs of one core each may outnumber the cores, as they may without Ray.
    """
    return slots if resources.cpus == 1 else min(slots * resources.cpus, CORES)


@contextlib.contextmanager
def ray_executor(
    address: str | None, slots: int, resources: RunResources, out: Path
) -> Iterator["RayExecutor"]:
    """An executor on a cluster whose machines can execute these runs; else one line that says why not.

    address  of a cluster; None: start one on this machine, for `slots` runs at a time
    out      the folder of all runs
    """
    ray = _import_ray()
    _connect(ray, address, local_cpus(slots, resources))
    try:
        with _lock_folder(out) as lock_folder:
            executor = RayExecutor(ray, resources, lock_folder)
            if not executor.nodes:
                raise UsageError(executor.too_small())
            if address is not None:
                check_machines(ray, executor.nodes, lock_folder)
            yield executor
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _lock_folder(out: Path) -> Iterator[Path]:
    """A locked folder. Every machine must see it, and see that it is locked, before it writes beside it."""
    folder = out.resolve() / f".seen-{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    try:
        with locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class RayExecutor:
    """Starts runs as tasks, reports which have ended, and stops them."""

    def __init__(self, ray: Any, resources: RunResources, lock_folder: Path) -> None:
        self._ray, self._resources, self._lock_folder = ray, resources, lock_folder
        self._tasks = dict[Any, tuple[Job, RunRequest]]()
        self._abandoned = dict[str, str]()  # task id of a request -> the process that was on a dead machine
        self._cancelled = set[Any]()
        # Ray starts a task again without limit when its worker or machine dies.
        self._run_task = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=-1)(
            run_task
        )

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The machines that are alive now and can hold a run."""
        alive = (node for node in self._ray.nodes() if node["Alive"])
        return [node for node in alive if self._resources.runs_on(node["Resources"])]

    @property
    def slots(self) -> int:
        """Number of runs that fit on the machines that are alive now."""
        return sum(self._resources.runs_on(node["Resources"]) for node in self.nodes)

    @property
    def free(self) -> bool:
        """Whether another run can be started."""
        return len(self._tasks) < self.slots

    @property
    def idle(self) -> bool:
        """Whether no run is executing."""
        return not self._tasks

    def start(self, job: Job, episodes: int) -> None:
        """Start or resume a run."""
        cluster = ClusterRequest(uuid.uuid4().hex, self._lock_folder, versions())
        # Absolute, because a worker runs in another folder than this process.
        request = replace(job.request(episodes), folder=job.folder.resolve(), cluster=cluster)
        self._tasks[self._run_task.remote(request)] = job, request

    def ended(self) -> list[tuple[Job, str | None]]:
        """Runs that ended since the last call, each with its error message, or None."""
        if not self._tasks:
            return []
        stopped: list[tuple[Job, str | None]] = [(job, None) for job in self._restart_lost()]
        # timeout 0: collect what has ended without waiting for the rest.
        over, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        self._cancelled -= set(over)
        return stopped + [(self._tasks.pop(task)[0], self._failure(task)) for task in over]

    def _restart_lost(self) -> list[Job]:
        """Start again the tasks of dead machines; return the jobs of those that were cancelled already.

        Ray would restart them too, but only when its connection to the worker fails, which takes seven
        minutes where a network cable was pulled.
        """
        nodes = self._ray.nodes()
        alive, dead = ({x["NodeManagerHostname"] for x in nodes if x["Alive"] == up} for up in (True, False))
        lost_hosts, stopped = dead - alive, list[Job]()  # a machine that joined again is listed as both
        for task, (job, request) in list(self._tasks.items()) if lost_hosts else []:
            assert request.cluster is not None
            claim, task_id = Claim.read(job.folder), request.cluster.task
            # Once for each process: until the new one has claimed the run, the claim names the dead one.
            if claim and claim.host in lost_hosts and self._abandoned.get(task_id) != claim.process:
                self._abandoned[task_id] = claim.process
                # The request keeps its task id, so an old process that is still alive sees the new claim
                # as one of its own task, and stops.
                self._ray.cancel(task, force=True)
                del self._tasks[task]
                if task in self._cancelled:
                    self._cancelled.remove(task)
                    stopped.append(job)
                else:
                    self._tasks[self._run_task.remote(request)] = job, request
        return stopped

    def stop(self, job: Job | None = None) -> None:
        """Ask one run, or all runs, to save and exit; a run is asked once only."""
        for task, (running, _) in self._tasks.items():
            if (job is None or running is job) and task not in self._cancelled:
                self._cancelled.add(task)
                # force=False interrupts `run_task`, which lets its run save; force=True would kill the
                # worker.
                self._ray.cancel(task, force=False)

    def _failure(self, task: Any) -> str | None:
        """The error message of a task that ended, or None."""
        try:
            message: str | None = self._ray.get(task)
        except self._ray.exceptions.TaskCancelledError:
            return None
        except self._ray.exceptions.RayError as error:
            return str(error).strip().splitlines()[-1]
        return message

    def too_small(self) -> str:
        """The error message where no machine can hold a run."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = {kind: max((x.get(kind, 0) for x in machines), default=0) for kind in ("CPU", "GPU")}
        return (
            f"a run needs {self._resources.cpus} CPUs and {self._resources.gpus:g} GPUs; no machine of the "
            f"cluster has more than {most['CPU']:g} and {most['GPU']:g}: lower --cpus-per-run or "
            "--gpus-per-run"
        )


def _import_ray() -> Any:
    # Without it Ray warns that it will stop hiding GPUs from tasks that reserve none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"--on ray needs Ray: {install_hint('ray')}") from error
    return ray


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C only at the end: one that arrives while Ray starts breaks Ray."""
    signals = list[int]()
    before = signal.getsignal(signal.SIGINT)
    with contextlib.suppress(ValueError):  # not the main thread, which alone may set handlers
        signal.signal(signal.SIGINT, lambda number, frame: signals.append(number))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, before)
    if signals:
        raise KeyboardInterrupt


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    """Connect to the cluster at an address, or start one on this machine."""
    if address is None:
        with _deferred_interrupt():
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **QUIET)
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--on ray:{address}: HOST:PORT is needed, as `ray start --head` prints it")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"--on ray:{address}: no cluster answers there: {error}") from error
    _try_connection(address)
    ray.init(address=address, **QUIET)


def _try_connection(address: str) -> None:
    """Connect in another process first: where something else than a cluster answers, Ray waits for minutes,
    or ends the process that called it.
    """
    command = [sys.executable, "-c", f"import ray; ray.init(address={address!r}, **{QUIET})"]
    try:
        trial = subprocess.run(command, capture_output=True, timeout=HANDSHAKE_SECONDS)
        output, timed_out = trial.stderr + trial.stdout, False
        if trial.returncode == 0:
            return
    except subprocess.TimeoutExpired as error:
        output, timed_out = (error.stderr or b"") + (error.stdout or b""), True
    raise UsageError(f"--on ray:{address}: {_connection_fault(output.decode(errors='replace'), timed_out)}")


def _connection_fault(output: str, timed_out: bool) -> str:
    """Why Ray did not connect, from its output."""
    if "uthentication token" in output:
        return (
            "the cluster needs a token: set RAY_AUTH_MODE=token and copy ~/.ray/auth_token to every machine"
        )
    if "ersion mismatch" in output:
        mismatch = output[output.index("ersion mismatch") :].split("\n\n")[0]
        return f"the cluster has another Python or Ray: v{' '.join(mismatch.split())}"
    if timed_out:
        return f"no cluster answers there: it does not respond as Ray does within {HANDSHAKE_SECONDS:g} s"
    return (
        "this machine is not part of the cluster: run `ray start --address` here, or this command on a "
        "machine that is"
    )
