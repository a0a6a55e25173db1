"""A memory maps a sequence of features to a sequence of features that depends on earlier steps.

    y, state = memory(x, state, first)

    x      (T, B, in)   input features      first  (T, B) bool   true where an episode starts
    y      (T, B, out)  output features     state  nested tuple of tensors, batch axis first

One call serves acting (T = 1) and training (T = length of a chunk). Every memory obeys these rules, which
`recollect.testing.check_memory` tests:

1. The state is an argument and a result of the call, never an attribute of the module. No memory: ().
2. Where first[t, b] is true, sequence b is reset before x[t, b] is processed. No other sequence changes.
3. T calls of length 1 equal one call of length T.
4. y[t] never depends on later steps, on another sequence, or on another episode.
5. y[t] depends on the last `reach` steps, or on all steps of the episode if `reach` is None.

Each file of this folder holds one family of memories with its configs; `available` lists them by name.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from torch import Tensor, nn

from ..common.errors import UsageError, nearest
from ..common.tree import Tree


class Inspection(NamedTuple):
    """One call of a memory with its intermediate quantities.

    x          (T, B, in)
    y          (T, B, out)
    state      after the last step
    attention  one tensor per layer (T, B, H, K): the weight of each head on the step k before; empty for
               memories without attention
    """

    x: Tensor
    y: Tensor
    state: Tree
    attention: tuple[Tensor, ...] = ()


class Memory(nn.Module, ABC):
    """Weights only: the memory state is an argument and a result of each call."""

    out_dim: int
    """Width of y."""
    reach: int | None
    """Number of steps that y[t] can depend on, step t included; None: unbounded."""
    dropout: float = 0.0
    """Dropout rate of gradient steps; acting, values and evaluation have no dropout."""
    plain: ClassVar[bool] = False
    """Whether it consists of operations of torch that may be compiled, and of products that may be rounded
    to bfloat16. A recurrence would add up the rounding of all its steps."""
    state_names: tuple[str, ...] = ()
    """Display names of the tensors of the state, in their order; empty: they are numbered."""

    def begin(self) -> None:
        """Load pretrained weights; called once, when a new run starts, and never on resume."""

    @abstractmethod
    def initial_state(self, batch: int) -> Tree:
        """The state of `batch` sequences before their first step."""

    @abstractmethod
    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """x (T, B, in), first (T, B) -> y (T, B, out), state."""

    def inspect(self, x: Tensor, state: Tree, first: Tensor) -> Inspection:
        """The same call with its intermediate quantities; y may differ from `forward` by rounding."""
        y, after = self(x, state, first)
        return Inspection(x, y, after)


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(ABC):
    """Options of one memory; subclass it in the file of the memory that it builds."""

    name: ClassVar[str]
    """Name on the command line and in config.yaml."""
    before_encoder: ClassVar[bool] = False
    """Whether the memory comes before the encoder and takes raw features."""

    def check_sizes(self, *fields: str) -> None:
        """Raise an error that names the first of these fields that is below 1."""
        for field in fields:
            value = getattr(self, field)
            if value < 1:
                raise UsageError(f"{self.name}.{field} is {value}, at least 1 is needed")

    @property
    def action_apart(self) -> bool:
        """Whether the previous action bypasses the encoder and is appended to the features x."""
        return False

    def resolved(self) -> Self:
        """The config with values from elsewhere filled in, such as sizes in a file; for a new run."""
        return self

    @abstractmethod
    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        """The memory for x of width `in_dim`; the last `action_dim` features are the previous action."""


def available() -> dict[str, type[MemoryConfig]]:
    """Every memory config of this folder, by name."""
    configs: dict[str, type[MemoryConfig]] = {}
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for item in contents.values():
            # vars, not hasattr: a subclass that sets no name would replace the memory whose name it inherits.
            if isinstance(item, type) and issubclass(item, MemoryConfig) and "name" in vars(item):
                configs[item.name] = item
    return configs


def find(name: str) -> type[MemoryConfig]:
    """A memory config by its name, or a third-party one as package.module:Config."""
    module, colon, attribute = name.partition(":")
    if not colon:
        configs = available()
        if name not in configs:
            raise UsageError(f"memory {name!r} is unknown; {nearest(name, sorted(configs))}")
        return configs[name]
    try:
        # import_module raises ValueError for an empty name, and TypeError for a relative one.
        config = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(f"memory {name}: module {module} does not import: {error}") from error
    if not (isinstance(config, type) and issubclass(config, MemoryConfig)):
        raise UsageError(f"memory {name}: {attribute} in {module} is not a MemoryConfig")
    return config
