"""The options of `recollect probe`."""

from dataclasses import dataclass
from pathlib import Path

from ..config.options import Seeded


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(Seeded):
    """Which agent is probed, and how thoroughly."""

    run: str = ""
    """A run folder, a checkpoint or a saved agent."""
    episodes: int = 100
    """Episodes to play for each thing that is done to the memory; at least 10."""
    out: Path | None = None
    """Where probe.html and probe.json are written (-o); None: the folder probe in that of the run."""
    control: str | None = None
    """A run without a memory in the same environment, to tell whether the task needs one."""
    json: bool = False
    """Print everything as JSON."""
