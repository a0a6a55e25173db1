"""A memory turns a sequence of features into a sequence of features with a past.

    y, state = memory(x, state, first)

    x      (T, B, in)   what is read        first  (T, B) bool   true where an episode opens
    y      (T, B, out)  what is given on    state  a nested tuple of tensors, batch axis first

One call serves acting (T = 1) and learning (T = L). What every memory obeys, and what
`recollect.testing.check_memory` tests:

1. State is passed, never kept in the module. No memory: ().
2. Where first[t, b], row b is cleared before x[t, b] is read, and no other row notices.
3. T calls of length 1 equal one call of length T.
4. y[t] never depends on what comes later, on another row, or on another episode.
5. How far back y can see is `reach` rows, or None where it is unbounded.

One file in this folder = one family of memories with its config; it is found by name.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn

from ..common.errors import UsageError, nearest
from ..common.tree import Tree


class Memory(nn.Module, ABC):
    """Weights only: what is remembered goes in and comes out as `state`."""

    out_dim: int
    reach: int | None
    dropout: float = 0.0
    """Share of features that gradient steps leave out; acting and values never do."""

    def begin(self) -> None:
        """Load what it begins from, once, for a new run."""

    @abstractmethod
    def initial_state(self, batch: int) -> Tree:
        """The state of `batch` rows that remember nothing."""

    @abstractmethod
    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """x (T, B, in), first (T, B) -> y (T, B, out), state."""


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(ABC):
    """Settings of one memory; subclass it beside the memory it builds."""

    name: ClassVar[str]
    """What it is called on the command line and in config.yaml."""
    before_encoder: ClassVar[bool] = False
    """Whether it reads the raw features rather than the encoded ones."""

    def check_sizes(self, *settings: str) -> None:
        """Refuse what is below 1, by its name."""
        for setting in settings:
            value = getattr(self, setting)
            if value < 1:
                raise UsageError(f"{self.name}.{setting} is {value}, at least 1 is needed")

    @property
    def action_apart(self) -> bool:
        """Whether the action before reaches it as the last features of x, past the encoder."""
        return False

    def resolved(self) -> Self:
        """The config with everything that it depends on from outside written in, for a new run."""
        return self

    @abstractmethod
    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        """The memory for features of this width, of which the last `action_dim` are an action apart."""


def available() -> dict[str, type[MemoryConfig]]:
    """Every memory in this folder, by name."""
    found: dict[str, type[MemoryConfig]] = {}
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for item in contents.values():
            if isinstance(item, type) and issubclass(item, MemoryConfig) and "name" in vars(item):
                found[item.name] = item
    return found


def find(name: str) -> type[MemoryConfig]:
    """A memory's config by its name, or from outside as package.module:Config."""
    module, colon, attribute = name.partition(":")
    if not colon:
        known = available()
        if name not in known:
            raise UsageError(f"memory {name!r} is unknown; {nearest(name, sorted(known))}")
        return known[name]
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(f"memory {name}: module {module} does not import: {error}") from error
    if not (isinstance(found, type) and issubclass(found, MemoryConfig)):
        raise UsageError(f"memory {name}: {attribute} in {module} is not a MemoryConfig")
    return found
