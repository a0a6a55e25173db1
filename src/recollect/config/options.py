"""Options that several commands share."""

from dataclasses import dataclass

from ..common.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Playing:
    """Options of commands that play episodes."""

    env: str | None = None
    """The environment; None: the one of training. Its id again if it imports a module."""
    imports: tuple[str, ...] = ()
    """Third-party memories and encoders named in the file, which may then be imported."""
    seed: int = 0
    """Seed of the environments; training and validation use other ones."""
    device: str = "cpu"
    """Device of the networks, whichever they were trained on: cpu, cuda, cuda:1, mps, auto."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}, at least 0 is needed")
