"""The interface by which a comparison starts its runs, on this machine or on a Ray cluster."""

from typing import Protocol

from .jobs import Job


class Executor(Protocol):
    """Runs jobs: as processes of this machine (`local_executor.py`), or as Ray tasks (`ray_executor.py`)."""

    @property
    def slots(self) -> int:
        """Number of runs that execute at the same time."""

    @property
    def free(self) -> bool:
        """Whether another run can be started."""

    @property
    def idle(self) -> bool:
        """Whether no run is executing."""

    def start(self, job: Job, episodes: int) -> None:
        """Start or resume a run."""

    def ended(self) -> list[tuple[Job, str | None]]:
        """Runs that ended since the last call, each with its error message, or None."""

    def stop(self, job: Job | None = None) -> None:
        """Ask one run, or all runs, to save and exit; a run is asked once only."""
