"""Memories of several layers: a plain chain, and residual blocks with normalisation.

T steps, B sequences, H units.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory, MemoryConfig


@dataclass(frozen=True, kw_only=True)
class LayeredConfig(MemoryConfig):
    """Options of all memories of equal layers."""

    width: int = 64
    """Number of units of each layer."""
    layers: int = 1
    """Number of layers; each takes the output of the one before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers")

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        widths = [in_dim] + [self.width] * (self.layers - 1)
        return Chain([self.layer(width) for width in widths])

    @abstractmethod
    def layer(self, in_dim: int) -> Memory:
        """One layer."""


@dataclass(frozen=True, kw_only=True)
class BlockConfig(LayeredConfig):
    """Options of all memories of residual blocks."""

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return Blocks(in_dim, self.width, [self.layer(self.width) for _ in range(self.layers)])


class Chain(Memory):
    """Memories as layers; each takes the output of the one before."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(memories)
        self.out_dim, self.reach = memories[-1].out_dim, None
        self.state_names = _names(memories)

    @property
    def _memories(self) -> Iterable[Memory]:
        return cast(Iterable[Memory], self.layers)

    def initial_state(self, batch: int) -> Tree:
        return tuple(memory.initial_state(batch) for memory in self._memories)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        end = []
        for memory, start in zip(self._memories, state, strict=True):
            x, after = memory(x, start, first)
            end.append(after)
        return x, tuple(end)


class Blocks(Memory):
    """x = W x + b; x = x + memory(norm(x)) in each block; y = norm(x)."""

    def __init__(self, in_dim: int, width: int, memories: Sequence[Memory]) -> None:
        super().__init__()
        self.input = nn.Linear(in_dim, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(len(memories) + 1))
        self.blocks = nn.ModuleList(memories)
        self.out_dim, self.reach = width, None
        self.state_names = _names(memories)

    @property
    def _memories(self) -> Iterable[Memory]:
        return cast(Iterable[Memory], self.blocks)

    def initial_state(self, batch: int) -> Tree:
        return tuple(memory.initial_state(batch) for memory in self._memories)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        x, end = self.input(x), []
        *norms, last = self.norms
        for memory, norm, start in zip(self._memories, norms, state, strict=True):
            y, after = memory(norm(x), start, first)
            x = x + y
            end.append(after)
        return last(x), tuple(end)


def _names(memories: Sequence[Memory]) -> tuple[str, ...]:
    """The display names of the states of all layers."""
    if len(memories) == 1:
        return memories[0].state_names
    return tuple(
        f"{name}, layer {layer} of {len(memories)}"
        for layer, memory in enumerate(memories, 1)
        for name in memory.state_names
    )
