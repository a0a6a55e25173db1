"""Runs as tasks of Ray: on this machine, or on every machine of a cluster.

Where Ray puts a task, the task starts the process that `local.py` starts here, and waits for it. So a
run has threads and signals of its own, and stops in good order when whoever asked for it is gone. A task
whose worker or machine dies is begun again somewhere, and its run goes on from its last checkpoint.

Run folders lie where every machine sees them under the same path.
"""

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UsageError
from .jobs import Job
from .local import asked, complaint, launch
from .weights import versions

TICK = 0.2  # seconds between two looks at a run
PATIENCE = 5.0  # seconds until an address that does not answer is given up


@dataclass(frozen=True)
class Share:
    """What of a machine one run has."""

    cpus: int = 1
    gpus: float = 0.0


class Cluster:
    """Starts runs as tasks, says which have ended, and stops them; a context, which Ray is left with.

    address  of a cluster; None: one that is begun on this machine, with so many slots
    out      the folder of all runs
    """

    def __init__(self, address: str | None, slots: int, share: Share, out: Path) -> None:
        ray = _ray()
        self._ray, self._share, self._tasks = ray, share, dict[Any, Job]()
        self._asked: set[Any] = set()  # tasks that were asked to end
        _connect(ray, address, slots * share.cpus)
        self._check_share()
        out.mkdir(parents=True, exist_ok=True)
        # A file that every machine must see before it may write beside it.
        self._sign = out.resolve() / f".seen-{uuid.uuid4().hex}"
        self._sign.touch()
        options = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_retries": -1}
        self._work = ray.remote(**options)(work)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *ended: object) -> None:
        self._sign.unlink(missing_ok=True)
        self._ray.shutdown()

    @property
    def slots(self) -> int:
        """Runs that fit into the machines that are there now."""
        return sum(_fits(node["Resources"], self._share) for node in self._ray.nodes() if node["Alive"])

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
        self._tasks[self._work.remote(said, str(self._sign), versions())] = job

    def ended(self) -> list[tuple[Job, str | None]]:
        """Runs that have ended since the last look, each with what went wrong, or None."""
        if not self._tasks:
            return []
        over, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        self._asked -= set(over)
        return [(self._tasks.pop(task), self._complaint(task)) for task in over]

    def stop(self, job: Job | None = None) -> None:
        """Ask a run, or all, to save and end; whoever was asked before is not asked again."""
        for task, one in self._tasks.items():
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

    def _check_share(self) -> None:
        if self.slots:
            return
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in ("CPU", "GPU")}
        self._ray.shutdown()
        raise UsageError(
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


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    """To a cluster that answers, or to one that is begun here."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if address is None:
        ray.init(address="local", num_cpus=cpus, **quiet)
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--on ray:{address}: HOST:PORT is needed, as `ray start --head` prints it")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
        del quiet["include_dashboard"]  # that of the cluster is its own affair
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"--on ray:{address}: no cluster answers there: {error}") from error


def work(said: dict[str, Any], sign: str, wanted: dict[str, str]) -> str | None:
    """On whichever machine: one run to its end; what went wrong, or None."""
    here = socket.gethostname()
    if not Path(sign).exists():
        return f"{here} does not see {Path(sign).parent}: run folders must lie where every machine sees them"
    found = versions()
    unlike = [
        f"{name} {found[name]} (not {wanted[name]})"
        for name in found
        if name != "cpu" and found[name] != wanted.get(name)
    ]
    if unlike:
        return f"{here} has {', '.join(unlike)}: the same versions are needed everywhere"
    process, errors = launch(said)
    try:
        # A cancelled task is interrupted between two lines, and never inside a wait.
        while process.poll() is None:
            time.sleep(TICK)
    except KeyboardInterrupt:
        process.terminate()  # Ray blocks SIGINT in what its workers start
        process.wait()
    return complaint(process, errors)
