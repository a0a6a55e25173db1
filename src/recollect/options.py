"""What each command takes beside its one positional argument; imported when a command runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .config import RunConfig
from .errors import UsageError
from .session import Destination


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Destination):
    """Where a run goes, and the run."""

    config: Annotated[RunConfig, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Which run, and what its files may not decide alone."""

    run: str = ""
    """The run folder."""
    env: str | None = None
    """The environment again, if its id imports a module (-e)."""
    imports: tuple[str, ...] = ()
    """Other names in its files that may import a module: memories from outside."""
    ignore_versions: bool = False
    """Go on with other versions than the run began with; equality is not promised then."""
    quiet: bool = False
    """Print nothing."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Which agent is written, and where."""

    run: str = ""
    """A run folder, a checkpoint or a saved agent."""
    file: str = ""
    """The file to write; it must not exist."""
    best: bool = False
    """The weights of the best validation instead of the last; of a run folder."""
    env: str | None = None
    """The environment again, if its id imports a module (-e)."""
    imports: tuple[str, ...] = ()
    """Other names in the file that may import a module: memories from outside."""


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """What is played from seeds."""

    seed: int = 0
    """Of the environments; never one that training saw."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}, at least 0 is needed")


@dataclass(frozen=True, kw_only=True)
class EvalOptions(Seeded):
    """Which agent, where, and how much is shown."""

    run: str = ""
    """A run folder, a checkpoint, a saved agent, or random (also -f, --file-path, --model)."""
    env: str | None = None
    """Another environment than it was trained in (-e)."""
    num_episodes: int = 100
    """Episodes to play (-ne)."""
    running_rew_len: int | None = None
    """Print each episode with the mean of this many last ones."""
    sample: bool = False
    """Draw actions from the policy instead of taking the likeliest."""
    json: bool = False
    """Print everything as JSON."""
    render: str | None = None
    """human, or a FILE.mp4, FILE.gif or FILE.webp: show what the agent does (1 episode unless -ne)."""
    imports: tuple[str, ...] = ()
    """Names in the file that may import a module."""

    def __post_init__(self) -> None:
        for name in ("num_episodes", "running_rew_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {value}, at least 1 is needed")
        for flag, given in (("--json", self.json), ("--running-rew-len", self.running_rew_len)):
            if self.render and given:
                raise UsageError(f"{flag} has no place beside --render, which prints the returns it shows")


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


@dataclass(frozen=True, kw_only=True)
class WatchOptions(Seeded):
    """Which agent is watched, and where it is shown."""

    run: str = ""
    """A run folder, a checkpoint or a saved agent."""
    out: str | None = None
    """human: a window; or FILE.html, FILE.mp4, FILE.gif, FILE.webp (-o); None: a window where there is a
    screen, else watch.html in the folder of the run, or here for a saved agent."""
    env: str | None = None
    """Another environment than it was trained in (-e)."""
    episodes: int = 10
    """Episodes to play and to choose from."""
    shown: int = 3
    """Episodes of the page: the best, a typical one, the worst, then others; a film has one."""
    sample: bool = False
    """Draw actions from the policy instead of taking the likeliest."""
    imports: tuple[str, ...] = ()
    """Names in the file that may import a module."""
