"""Gated DeltaNet: a matrix memory that replaces what a key stores instead of adding to it.

T steps, B sequences, N heads, D numbers of a head.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory
from .layers import BlockConfig
from .linear_attention import check_heads
from .sequences import SequenceMemory

TAPS = 4  # steps of the short convolution


@dataclass(frozen=True, kw_only=True)
class DeltaNetConfig(BlockConfig):
    """Gated DeltaNet: a matrix memory per head, which writes by the delta rule and decays by a gate."""

    name: ClassVar[str] = "deltanet"
    heads: int = 4
    """Number of heads; it divides the width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "heads")
        check_heads(self.name, self.width, self.heads, normalised=True)

    def layer(self, in_dim: int) -> Memory:
        return DeltaNet(self.width, self.heads)


class DeltaNet(SequenceMemory):
    """S' = alpha (I - beta k k^T) S + beta k v^T; y = W (norm(q S') silu(g)) (Yang et al., 2025).

    q, k and v are silu of a convolution over the last four steps; q and k have length 1.
    """

    state_names = ("DeltaNet memory S", "DeltaNet last inputs of the convolution")

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.out_dim, self.reach, self.heads = width, None, heads
        self.input = nn.Linear(width, 4 * width + 2 * heads, bias=False)
        self.taps = nn.Parameter(torch.randn(TAPS, 3 * width) / TAPS**0.5)
        # As Mamba-2: log decay = -exp(a) softplus(x + dt), with a rate from 1 to 16 and small steps.
        self.rate = nn.Parameter(torch.log(torch.linspace(1.0, 16.0, heads) if heads > 1 else torch.ones(1)))
        self.step = nn.Parameter(initial_steps(heads))
        self.norm = nn.RMSNorm(width // heads, eps=1e-5)
        self.output = nn.Linear(width, width, bias=False)

    def initial_state(self, batch: int) -> Tree:
        size = self.out_dim // self.heads
        memory = self.step.new_zeros(batch, self.heads, size, size)
        return memory, self.step.new_zeros(batch, TAPS - 1, 3 * self.out_dim)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        memory, last = cast(tuple[Tensor, Tensor], state)
        sizes = [3 * self.out_dim, self.out_dim, self.heads, self.heads]
        mixed, gate, beta, step = self.input(x).split(sizes, -1)
        mixed, last = self.sequences.convolution(mixed, self.taps, first, last)
        query, key, value = (p.unflatten(2, (self.heads, -1)) for p in mixed.chunk(3, -1))
        log_decay = -torch.exp(self.rate) * F.softplus(step + self.step)
        y, memory = self.sequences.delta(query, key, value, torch.sigmoid(beta), log_decay, first, memory)
        return self.output(self.norm(y).flatten(2) * F.silu(gate)), (memory, last)


def initial_steps(count: int) -> Tensor:
    """Inputs of softplus for step sizes from 0.001 to 0.1, evenly in their logarithm."""
    steps = torch.logspace(-3, -1, count) if count > 1 else torch.full((1,), 0.01)
    return steps + torch.log(-torch.expm1(-steps))
