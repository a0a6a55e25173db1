"""`recollect push`: an agent to the Hugging Face hub."""

from dataclasses import dataclass
from typing import ClassVar

from ..common.errors import UsageError
from ..run import api, hub


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Upload an agent to the Hugging Face hub, with a card that has its score and config (extra hf).

      recollect push RUN owner/name

    `recollect.load("hf:owner/name")` loads it. The token is that of `hf auth login`, or HF_TOKEN.
    """

    POSITIONAL: ClassVar = ("run", "repository")

    run: str
    """A run folder, a checkpoint or a saved agent."""
    repository: str
    """Repository of the hub, owner/name; created if it does not exist."""
    episodes: int = 100
    """Episodes of the score on the card."""
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
    trained = api.load(options.run, env=options.env, imports=options.imports)
    address = hub.upload(trained, options.repository, options.episodes, options.private)
    print(f"{address}: the agent of {options.run}")
    return 0
