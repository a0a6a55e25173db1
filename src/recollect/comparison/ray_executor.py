"""Runs as tasks of Ray: on this machine, or on every machine of a cluster.

Where Ray puts a task, the task starts the process that `local_executor.py` starts here, and waits for it. So
a run has threads and signals of its own, and stops in good order when whoever asked for it is gone. A task
whose worker or machine dies is begun again somewhere, and its run goes on from its last checkpoint.

Run folders lie where every machine sees them under the same path.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.distributed import CORES
from ..common.errors import UsageError
from ..run.run_folder import Claim, locked
from ..run.weights import versions
from .jobs import Job
from .local_executor import asked
from .preflight import check
from .run_process import work

PATIENCE = 5.0  # seconds until an address that does not answer is given up
TRIAL = 12.0  # seconds until one that answers, and not as a cluster does, is given up
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}


@dataclass(frozen=True)
class Share:
    """What of a machine one run has."""

    cpus: int = 1
    gpus: float = 0.0


def cores(slots: int, share: Share) -> int:
    """Of a Ray that is begun here: what so many runs ask for, if this machine has it.

    Runs of one core each may be more than its cores, as they may without Ray.
    """
    return slots if share.cpus == 1 else min(slots * share.cpus, CORES)


@contextlib.contextmanager
def cluster(address: str | None, slots: int, share: Share, out: Path) -> Iterator["RayExecutor"]:
    """Machines that can run these runs, or one line that says why they cannot.

    address  of a cluster; None: one that is begun on this machine, for so many runs at a time
    out      the folder of all runs
    """
    ray = _ray()
    _connect(ray, address, cores(slots, share))
    try:
        with _signed(out) as sign:
            found = RayExecutor(ray, share, sign)
            if not found.nodes:
                raise UsageError(found.too_small())
            if address is not None:
                check(ray, found.nodes, sign)
            yield found
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _signed(out: Path) -> Iterator[Path]:
    """A folder that every machine must see, and see to be locked, before it may write beside it."""
    sign = out.resolve() / f".seen-{uuid.uuid4().hex}"
    sign.mkdir(parents=True)
    try:
        with locked(sign):
            yield sign
    finally:
        shutil.rmtree(sign, ignore_errors=True)


class RayExecutor:
    """Starts runs as tasks, says which have ended, and stops them."""

    def __init__(self, ray: Any, share: Share, sign: Path) -> None:
        self._ray, self._share, self._sign = ray, share, sign
        self._tasks = dict[Any, tuple[Job, dict[str, Any]]]()
        self._left = dict[str, str]()
        self._asked = set[Any]()  # tasks that were asked to end
        self._work = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=-1)(work)

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The machines that are there now and hold a run."""
        alive = (node for node in self._ray.nodes() if node["Alive"])
        return [node for node in alive if _fits(node["Resources"], self._share)]

    @property
    def slots(self) -> int:
        """Runs that fit into the machines that are there now."""
        return sum(_fits(node["Resources"], self._share) for node in self.nodes)

    @property
    def free(self) -> bool:
        """Whether another run may start."""
        return len(self._tasks) < self.slots

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._tasks

    def start(self, job: Job, episodes: int) -> None:
        """Begin a run, or go on with it."""
        said = asked(job, episodes) | {"folder": str(job.folder.resolve())}
        said |= {"task": uuid.uuid4().hex, "sign": str(self._sign), "versions": versions()}
        self._give(job, said)

    def _give(self, job: Job, said: dict[str, Any]) -> None:
        self._tasks[self._work.remote(said)] = job, said

    def ended(self) -> list[tuple[Job, str | None]]:
        """Runs that have ended since the last look, each with what went wrong, or None."""
        if not self._tasks:
            return []
        left = self._leave_the_dead()
        over, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        self._asked -= set(over)
        return left + [(self._tasks.pop(task)[0], self._complaint(task)) for task in over]

    def _leave_the_dead(self) -> list[tuple[Job, str | None]]:
        """Begin again what ran on a machine that is gone, but for runs that were asked to end, which are
        returned as ended. Ray itself waits until its connection to the worker there fails, and where a
        cable was pulled that is seven minutes.
        """
        left = list[tuple[Job, str | None]]()
        nodes = self._ray.nodes()
        alive, dead = ({x["NodeManagerHostname"] for x in nodes if x["Alive"] == up} for up in (True, False))
        gone = dead - alive
        for task, (job, said) in list(self._tasks.items()) if gone else []:
            claim = Claim.read(job.folder)
            if claim and claim.host in gone and self._left.get(said["task"]) != claim.process:
                self._left[said["task"]] = claim.process
                self._ray.cancel(task, force=True)
                del self._tasks[task]
                if task in self._asked:
                    self._asked.remove(task)
                    left.append((job, None))
                else:
                    self._give(job, said)
        return left

    def stop(self, job: Job | None = None) -> None:
        """Ask a run, or all, to save and end; whoever was asked before is not asked again."""
        for task, (one, _) in self._tasks.items():
            if (job is None or one is job) and task not in self._asked:
                self._asked.add(task)
                self._ray.cancel(task, force=False)

    def _complaint(self, task: Any) -> str | None:
        try:
            said: str | None = self._ray.get(task)
        except self._ray.exceptions.TaskCancelledError:
            return None
        except self._ray.exceptions.RayError as error:
            return str(error).strip().splitlines()[-1]
        return said

    def too_small(self) -> str:
        """What is said where no machine holds a run."""
        there = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = {kind: max((node.get(kind, 0) for node in there), default=0) for kind in ("CPU", "GPU")}
        return (
            f"a run asks for {self._share.cpus} CPUs and {self._share.gpus:g} GPUs; no machine of the "
            f"cluster has more than {most['CPU']:g} and {most['GPU']:g}: --cpus-per-run, --gpus-per-run"
        )


def _fits(resources: Mapping[str, float], share: Share) -> int:
    """How many runs one machine holds."""
    counts = [int(resources.get("CPU", 0) // share.cpus)]
    if share.gpus:
        counts.append(int(resources.get("GPU", 0) // share.gpus))
    return min(counts)


def _ray() -> Any:
    """Ray, which says nothing of its own."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError("--on ray needs Ray: pip install 'recollect[ray]'") from error
    return ray


@contextlib.contextmanager
def _unhurried() -> Iterator[None]:
    """Hear of a Ctrl-C when this is over: Ray dies of one while it begins."""
    asked = list[int]()
    before = signal.getsignal(signal.SIGINT)
    with contextlib.suppress(ValueError):  # not the main thread: signals are not ours to handle
        signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    """To a cluster that answers, or to one that is begun here."""
    if address is None:
        with _unhurried():
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **QUIET)
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--on ray:{address}: HOST:PORT is needed, as `ray start --head` prints it")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"--on ray:{address}: no cluster answers there: {error}") from error
    _try(address)
    ray.init(address=address, **QUIET)


def _try(address: str) -> None:
    """Connect in another process first: Ray waits for minutes where something else answers, and ends a
    process that it does not like.
    """
    command = [sys.executable, "-c", f"import ray; ray.init(address={address!r}, **{QUIET})"]
    try:
        trial = subprocess.run(command, capture_output=True, timeout=TRIAL)
        said, late = trial.stderr + trial.stdout, False
        if trial.returncode == 0:
            return
    except subprocess.TimeoutExpired as error:
        said, late = (error.stderr or b"") + (error.stdout or b""), True
    raise UsageError(f"--on ray:{address}: {_reason(said.decode(errors='replace'), late)}")


def _reason(said: str, late: bool) -> str:
    """Why Ray did not connect, in words."""
    if "uthentication token" in said:
        return (
            "it asks for a token: RAY_AUTH_MODE=token, and one ~/.ray/auth_token, are needed on every machine"
        )
    if "ersion mismatch" in said:
        unlike = said[said.index("ersion mismatch") :].split("\n\n")[0]
        return f"another Python or Ray is there: v{' '.join(unlike.split())}"
    if late:
        return f"no cluster answers there: something else does, or it is not well ({TRIAL:g} s)"
    return "this machine is not one of the cluster: run `ray start --address` here, or this command there"
