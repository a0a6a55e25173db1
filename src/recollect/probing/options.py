"""The options of `recollect probe`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..config.options import Playing


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(Playing):
    """Test whether an agent uses its memory: play its episodes with the memory reset, frozen, swapped and
    perturbed, do the same for the critic, and read out the memory state by linear regression.

      recollect probe RUN                      a run folder, a checkpoint or a saved agent
      recollect probe RUN --control RUN ...    test whether the task needs a memory, with runs without one
    """

    POSITIONAL: ClassVar = ("run",)

    run: str
    """A run folder, a checkpoint or a saved agent."""
    episodes: int = 100
    """Episodes to play per intervention on the memory; at least 10."""
    out: Path | None = None
    """Folder of probe.html and probe.json; None: the folder probe in that of the run."""
    control: tuple[str, ...] = ()
    """Runs without a memory in the same environment, to test whether the task needs one: at least 3, of
    different seeds."""
    json: bool = False
    """Print everything as JSON."""
