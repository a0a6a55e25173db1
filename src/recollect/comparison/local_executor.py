"""Runs as processes of this machine, a fixed number at a time, each on one core."""

import signal
import subprocess
import time
from typing import IO

from ..common import signals
from .jobs import Job
from .run_process import failure, start_process


class LocalExecutor:
    """Starts runs, reports which have ended, and stops them.

    The stdin of a run stays open for as long as this process lives. When it closes, the run stops.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._running: list[tuple[Job, subprocess.Popen[bytes], IO[bytes]]] = []
        # Process id -> when the run was asked; a second SIGINT would end it without saving.
        self._interrupted: dict[int, float] = {}

    @property
    def free(self) -> bool:
        """Whether another run can be started."""
        return len(self._running) < self.slots

    @property
    def idle(self) -> bool:
        """Whether no run is executing."""
        return not self._running

    def start(self, job: Job, episodes: int) -> None:
        """Start or resume a run."""
        process, errors = start_process(job.request(episodes))
        self._running.append((job, process, errors))

    def ended(self) -> list[tuple[Job, str | None]]:
        """Runs that ended since the last call, each with its error message, or None."""
        # A process id may be reused once its process was polled, so ids are forgotten at the same time.
        self._kill_overdue()
        over = [entry for entry in self._running if entry[1].poll() is not None]
        self._running = [entry for entry in self._running if entry not in over]
        return [(job, self._fault(process, errors)) for job, process, errors in over]

    def _fault(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> str | None:
        stopping = self._interrupted.pop(process.pid, None) is not None
        fault = failure(process, errors)
        # A run that was killed because it did not stop has not failed: it resumes from its last checkpoint.
        return None if stopping and process.returncode == -signal.SIGKILL else fault

    def stop(self, job: Job | None = None) -> None:
        """Ask one run, or all runs, to save and exit; a run is asked once only."""
        for running, process, _ in self._running:
            if (job is None or running is job) and process.pid not in self._interrupted:
                self._interrupted[process.pid] = time.monotonic()
                process.send_signal(signal.SIGINT)

    def _kill_overdue(self) -> None:
        """Kill runs that have not stopped: training ends itself in time, but an evaluation may hang."""
        for _, process, _ in self._running:
            stopped = self._interrupted.get(process.pid)
            if stopped is not None and time.monotonic() > stopped + signals.GRACE + signals.LAST_GRACE:
                process.kill()
