"""What each command takes beside its one positional argument; imported when a command runs."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from ..common.errors import UsageError
from ..config.config import RunConfig
from ..config.options import Seeded
from ..run.session import Destination


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
