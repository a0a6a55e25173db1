"""One run of a comparison, in its own process: trained to the end, then evaluated.

    python -m recollect.comparison.worker   reads a line of JSON; saves and stops when its stdin closes

Its stdin closes when the process that started it ends, however that ends, so no run outlives its comparison.
"""

import contextlib
import socket
import sys
import threading
import time
from pathlib import Path

from ..common.errors import UsageError
from ..common.signals import terminate_this_process
from ..config.assembly import from_dict
from ..config.config import RunConfig
from ..probing import probe, write
from ..reporting.runs import PROBE_FILE
from ..run.destination import Destination
from ..run.run import resume_run, start_run
from ..run.run_folder import Claim, is_locked, is_unstarted
from ..run.weights import version_mismatch, versions
from .jobs import write_evaluation
from .run_process import FINISHED
from .run_request import RunRequest

LOCK_SECONDS = 60.0  # to wait until a run that an earlier comparison started has stopped
# On a cluster: storage frees the locks of a machine that was cut off after a while, NFS after 90 s.
CLUSTER_LOCK_SECONDS = 300.0
CLAIM_SECONDS = 1.0  # between two looks at the claim


def train_and_evaluate(
    config: RunConfig,
    folder: Path,
    episodes: int,
    with_probe: bool = False,
    lock_seconds: float = LOCK_SECONDS,
) -> str:
    """Train or resume the run in <out>/<model>/<env>/<id>, evaluate its last weights; its status."""
    deadline = time.monotonic() + lock_seconds
    while folder.exists() and is_locked(folder) and time.monotonic() < deadline:
        time.sleep(0.1)  # if it is still locked afterwards, start or resume says so
    if is_unstarted(folder):
        trained = start_run(config, Destination(out=folder.parents[2], run_id=folder.name, quiet=True))
    else:
        trained = resume_run(folder, config, quiet=True)
    # Also of a run that was finished before: a worker that was killed here comes back to do this.
    if trained.summary["status"] == "finished":
        # Seeded by the run's seed, so that a repeated evaluation gives the same returns.
        evaluation = trained.evaluate(episodes, seed=config.seed)
        write_evaluation(folder, evaluation, trained.summary.get("config_hash"))
        if with_probe:
            write(probe(trained, episodes, config.seed), (folder / PROBE_FILE).parent)
    return str(trained.summary["status"])


def stop_when_replaced(folder: Path, task: str, lock_folder: Path) -> None:
    """Claim the run for this process, and end it when another process claims the run.

    Where a network is cut, two processes may hold the same run for a time, and the file of the claim is
    all that both still see.
    """
    claim = Claim.new(task)
    claim.write(folder)
    # Before the lock is taken: the claim makes a process elsewhere release it.

    def watch_claim() -> None:
        while True:
            time.sleep(CLAIM_SECONDS)
            with contextlib.suppress(OSError):
                if is_replaced(claim, Claim.read(folder), lock_folder):
                    terminate_this_process()
                    return

    # A daemon thread, which does not keep the process alive when the run has ended.
    threading.Thread(target=watch_claim, daemon=True).start()


def is_replaced(claim: Claim, newest: Claim | None, lock_folder: Path) -> bool:
    """Whether the newest claim is of another process of the same task, or of another comparison while the
    one of this process is gone.
    """
    if newest is None or newest == claim:
        return False
    return newest.task == claim.task or not lock_folder.exists() or not is_locked(lock_folder)


def stop_with_stdin() -> None:
    """Wait until stdin is closed, then stop this process."""
    sys.stdin.read()
    # The signal handler of the run saves before it exits; during imports the default one ends the process.
    terminate_this_process()


def main() -> int:
    """Read a request, execute it, and report how it ended by the exit code."""
    line = sys.stdin.readline()
    # After readline(): two threads that read stdin would divide the request between them.
    threading.Thread(target=stop_with_stdin, daemon=True).start()
    try:
        request = RunRequest.from_json(line)
        data, cluster = request.config, request.cluster
        # The comparison has resolved the config already, so the modules that it names may be imported.
        parts = (data[branch][part] for branch in ("actor", "critic") for part in ("memory", "encoder"))
        imports = [data["env"]["id"], *(part["name"] for part in parts)]
        if cluster is not None:
            if mismatch := version_mismatch(socket.gethostname(), versions(), cluster.versions):
                raise UsageError(mismatch)
            stop_when_replaced(request.folder, cluster.task, cluster.lock_folder)
        status = train_and_evaluate(
            from_dict(dict(data), imports),
            request.folder,
            request.episodes,
            request.probe,
            LOCK_SECONDS if cluster is None else CLUSTER_LOCK_SECONDS,
        )
    except (UsageError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    # As a shell reports a process that a signal ended: 128 + the number of the signal.
    return {"finished": FINISHED, "SIGINT": 130, "SIGTERM": 143}[status]


if __name__ == "__main__":
    sys.exit(main())
