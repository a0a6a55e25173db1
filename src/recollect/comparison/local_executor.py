"""Runs as processes of this machine, so many at a time, each on one core."""

import signal
import subprocess
from typing import IO, Any

from ..config.config import to_dict
from .jobs import Job
from .run_process import complaint, launch


class LocalExecutor:
    """Starts runs, says which have ended, and stops them.

    A run's input stays open for as long as this process lives; when it closes, the run stops.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._running: list[tuple[Job, subprocess.Popen[bytes], IO[bytes]]] = []
        self._asked: set[int] = set()  # processes that were asked to end; a second signal is not so kind

    @property
    def free(self) -> bool:
        """Whether another run may start."""
        return len(self._running) < self.slots

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._running

    def start(self, job: Job, episodes: int) -> None:
        """Begin a run, or go on with it."""
        process, errors = launch(asked(job, episodes))
        self._running.append((job, process, errors))

    def ended(self) -> list[tuple[Job, str | None]]:
        """Runs that have ended since the last look, each with what went wrong, or None."""
        over = [entry for entry in self._running if entry[1].poll() is not None]
        self._running = [entry for entry in self._running if entry not in over]
        self._asked -= {process.pid for _, process, _ in over}
        return [(job, complaint(process, errors)) for job, process, errors in over]

    def stop(self, job: Job | None = None) -> None:
        """Ask a run, or all, to save and end; whoever was asked before is not asked again."""
        for one, process, _ in self._running:
            if (job is None or one is job) and process.pid not in self._asked:
                self._asked.add(process.pid)
                process.send_signal(signal.SIGINT)


def asked(job: Job, episodes: int) -> dict[str, Any]:
    """What a process is told of its run."""
    return {
        "config": to_dict(job.config),
        "folder": str(job.folder),
        "episodes": episodes,
        "probes": job.probes,
    }
