"""A run as a process of its own, started here or on another machine by a task of Ray.

Every worker of Ray imports this, so it imports nothing that takes time or memory.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ..run.run_folder import is_locked

# Done; stopped in good order; and stopped where nothing was there to save: importing, or evaluating.
NO_FAULT = (0, 130, 143, -signal.SIGINT, -signal.SIGTERM)
LIVES = 5  # times that a run is begun whose process is killed, as it is where memory is short
TICK = 0.05  # seconds between two looks at a run


def launch(said: Mapping[str, Any]) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """A process for one run, and what it complains of."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (open for the life of the run)
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect.comparison.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C is ours to pass on
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(said).encode() + b"\n")
    process.stdin.flush()
    return process, errors


def complaint(process: subprocess.Popen[bytes], errors: IO[bytes]) -> str | None:
    """The last line of what a run said before it failed."""
    assert process.stdin is not None
    process.stdin.close()
    with errors:
        if process.returncode in NO_FAULT:
            return None
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the process ended with {process.returncode}"


def unfit(sign: str) -> str | None:
    """On whichever machine: why nothing can be run there, or None.

    sign  a folder beside those of runs, locked by whoever asks for them
    """
    here, out = socket.gethostname(), Path(sign).parent
    if not Path(sign).exists():
        return f"{here} does not see {out}: run folders must lie where every machine sees them"
    try:
        if not is_locked(Path(sign)):
            return f"{here} does not see locks of other machines on {out}: they keep two from writing one run"
    except OSError as error:
        return f"{here} cannot use {out}: {error}"
    return None


def work(said: Mapping[str, Any]) -> str | None:
    """On whichever machine: one run to its end; what went wrong, or None."""
    reason = unfit(said["sign"])
    if reason is not None:
        return reason
    # Ray cancels by SIGINT, which is ignored below whatever was begun in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for _ in range(LIVES):
        process, errors = launch(said)
        try:
            # A cancelled task is interrupted between two lines, and never inside a wait.
            while process.poll() is None:
                time.sleep(TICK)
        except KeyboardInterrupt:
            process.terminate()  # Ray blocks SIGINT in what its workers start
            process.wait()
        reason = complaint(process, errors)
        if process.returncode != -signal.SIGKILL:
            break
    return reason
