"""`recollect push`: an agent to the Hugging Face hub."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..common.errors import UsageError
from ..run import api, hub
from ..run.run import Trained
from . import card


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Upload an agent to the Hugging Face hub, with a card (extra hf).

      recollect push RUN owner/name

    The card has the scores of this run and of those beside it that differ only in the seed, what `recollect
    probe` says of its memory, a film, a page of `recollect watch`, and the config.

    `recollect.load("hf:owner/name")` loads it. The token is that of `hf auth login`, or HF_TOKEN.
    """

    POSITIONAL: ClassVar = ("run", "repository")

    run: str
    """A run folder, a checkpoint or a saved agent."""
    repository: str
    """Repository of the hub, owner/name; created if it does not exist."""
    episodes: int = 100
    """Episodes of each score on the card, and of the probe."""
    private: bool = False
    """Create the repository as a private one."""
    env: str | None = None
    """The environment's id again, if it imports a module."""
    imports: tuple[str, ...] = ()
    """Third-party memories and encoders named in the file, which may then be imported."""


def run_push(options: PushOptions) -> int:
    """Evaluate the agent and upload it; the exit code."""
    if options.episodes < 1:
        raise UsageError(f"--episodes is {options.episodes}, at least 1 is needed")
    # Name and package are checked before the evaluation, which takes long.
    hub.check(options.repository)

    def load(run: str | Path) -> Trained:
        return api.load(run, env=options.env, imports=options.imports)

    trained = load(options.run)
    with tempfile.TemporaryDirectory() as folder:
        card.write_files(trained, Path(folder), options.repository, options.episodes, load)
        address = hub.upload(Path(folder), options.repository, options.private)
    print(f"{address}: the agent of {options.run}")
    return 0
