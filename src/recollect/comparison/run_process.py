"""The process of one run, started on this machine or, by a Ray task, on another.

Every Ray worker imports this module, so it imports nothing that takes time or memory.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from ..run.run_folder import is_locked
from .run_request import RunRequest

# Not 0, with which an environment may end the process.
FINISHED = 100
# Finished; stopped and saved; or stopped while there was nothing to save: importing, or evaluating.
NO_FAULT = (FINISHED, 130, 143, -signal.SIGINT, -signal.SIGTERM)
MAX_STARTS = 5  # of a run whose process is killed, as the system does when memory runs out
POLL_SECONDS = 0.05
NICENESS_TRIES = 20


def start_process(request: RunRequest) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """The process of a run, and the file that collects its stderr."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (open for the life of the run)
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect.comparison.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,  # a pipe would block the run when it is full
        # One core for each run: threads of several runs would wait for each other.
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C reaches the comparison alone, which passes it on
    )
    keep_niceness(process.pid)
    assert process.stdin is not None
    # Stdin stays open: the worker stops when it is closed, as it is when the comparison dies.
    process.stdin.write(request.to_json().encode() + b"\n")
    process.stdin.flush()
    return process, errors


def keep_niceness(process: int) -> None:
    """Give the session of a run the niceness of this process.

    Linux divides a processor between sessions before it looks at their processes, and a new session begins
    at 0: without this, `nice recollect compare` would take as much of it as anything else.
    """
    niceness = os.nice(0) if hasattr(os, "nice") else 0  # Windows has none
    session = Path(f"/proc/{process}/autogroup")
    if niceness <= 0:
        return
    for _ in range(NICENESS_TRIES):
        try:
            session.write_text(str(niceness))
        except BlockingIOError:  # of a user, Linux takes one change in a tenth of a second
            time.sleep(0.1)
        except OSError:  # no Linux, or one that does not divide by sessions
            return
        else:
            return


def failure(process: subprocess.Popen[bytes], errors: IO[bytes]) -> str | None:
    """The last line of stderr of a run that failed; None if it finished or was stopped."""
    assert process.stdin is not None
    process.stdin.close()
    with errors:
        if process.returncode in NO_FAULT:
            return None
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if process.returncode == 0:
        return "the process ended with 0 before its run was finished: something in it called os._exit"
    return lines[-1] if lines else f"the process ended with {process.returncode}"


def storage_fault(lock_folder: str) -> str | None:
    """Why this machine cannot write run folders beside `lock_folder`, or None.

    lock_folder  locked by the comparison, on its own machine
    """
    host, out = socket.gethostname(), Path(lock_folder).parent
    if not Path(lock_folder).exists():
        return f"{host} does not see {out}: every machine must see run folders under the same path"
    try:
        if not is_locked(Path(lock_folder)):
            return (
                f"{host} does not see file locks of other machines on {out}: without them two machines "
                "could write the same run; use storage with locks across machines, such as NFS 4"
            )
    except OSError as error:
        return f"{host} cannot use {out}: {error}"
    return None


def run_task(request: RunRequest) -> str | None:
    """The Ray task: execute one run on whichever machine this is; an error message, or None."""
    assert request.cluster is not None
    fault = storage_fault(str(request.cluster.lock_folder))
    if fault is not None:
        return fault
    # Ray cancels a task by SIGINT, which the processes of a shell's background job ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for _ in range(MAX_STARTS):
        process, errors = start_process(request)
        try:
            # Ray interrupts a cancelled task between two lines of Python, never inside a wait.
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            process.terminate()  # SIGINT is blocked in the processes that a Ray worker starts
            process.wait()
        fault = failure(process, errors)
        # Only a kill is worth another try: an error would occur again, and a stop was asked for.
        if process.returncode != -signal.SIGKILL:
            break
    return fault
