"""Options that several commands share."""

from dataclasses import dataclass

from ..common.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """What is played from seeds."""

    seed: int = 0
    """Of the environments; never one that training saw."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}, at least 0 is needed")
