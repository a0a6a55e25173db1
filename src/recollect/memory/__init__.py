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

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from torch import Tensor, nn

from ..common.named import NamedConfig
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

    heads: int = 0
    """Attention heads, each with an equal part of the last axis of every float tensor of the state, which
    has keys and values; 0: the state is no such cache. The first entry of the state has the caches of all
    layers, or each entry is that of a layer, or the state is keys and values of one layer."""

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
class MemoryConfig(NamedConfig):
    """Options of one memory; subclass it in the file of the memory that it builds."""

    folder: ClassVar[str] = __name__
    before_encoder: ClassVar[bool] = False
    """Whether the memory comes before the encoder and takes raw features."""

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


available, find = MemoryConfig.available, MemoryConfig.find
