"""The process of one run of a comparison.

    python -m recollect.comparison.worker   reads a line of JSON; saves and stops when its stdin closes

Its stdin closes when the process that started it ends, however that ends, so no run outlives its comparison.
"""

import contextlib
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from ..common.errors import UsageError
from ..common.imports import without_collection
from ..common.signals import terminate_this_process
from ..run.run_folder import Claim, is_locked
from .run_process import FINISHED
from .run_request import RunRequest

# On a cluster: storage frees the locks of a machine that was cut off after a while, NFS after 90 s.
CLUSTER_LOCK_SECONDS = 300.0  # to wait until the run of an earlier process has stopped
CLAIM_SECONDS = 1.0  # between two looks at the claim


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
    # Until the run has handlers of its own, SIGINT ends the process without an exception: extensions that are
    # being imported swallow a KeyboardInterrupt, and the run would continue with half of numpy.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    line = sys.stdin.readline()
    # After readline(): two threads that read stdin would divide the request between them.
    threading.Thread(target=stop_with_stdin, daemon=True).start()
    with without_collection():
        from ..config.assembly import from_dict
        from ..run.weights import version_mismatch, versions
        from .one_run import LOCK_SECONDS, train_and_evaluate
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
