"""Fast and forgetful memory: sums of past inputs that decay and oscillate at fixed, learned rates.

T steps, B sequences, M traces, C contexts.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory
from .layers import LayeredConfig
from .sequences import SequenceMemory


@dataclass(frozen=True, kw_only=True)
class FfmConfig(LayeredConfig):
    """Fast and forgetful memory: decaying and oscillating sums of the inputs."""

    name: ClassVar[str] = "ffm"
    memory_size: int = 32
    """Number of traces m, each with its decay."""
    context_size: int = 4
    """Number of contexts c, each with its period; the state has m c complex numbers."""
    max_period: int = 1024
    """Longest initial period, in steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "memory_size", "context_size", "max_period")

    def layer(self, in_dim: int) -> Memory:
        return Ffm(in_dim, self.width, self.memory_size, self.context_size, self.max_period)


class Ffm(SequenceMemory):
    """S'[j, k] = exp(-|alpha_j| + i omega_k) S[j, k] + v_j, v = (V x + b) sigmoid(U x + c);
    y = norm(g Z [Re S', Im S']) + (1 - g) (W x + d), g = sigmoid(G x + e) (Morad et al., 2023).
    """

    state_names = ("FFM memory S, real parts then imaginary parts",)

    def __init__(self, in_dim: int, width: int, memory_size: int, context_size: int, max_period: int) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.sizes = memory_size, context_size
        self.alpha = nn.Parameter(torch.linspace(1e-6, 0.5, memory_size))
        self.omega = nn.Parameter(2 * math.pi / torch.linspace(1, max_period, context_size))
        # One product for the input and its gate, the output gate and the skip connection.
        self.input = nn.Linear(in_dim, 2 * memory_size + 2 * width)
        self.mix = nn.Linear(2 * memory_size * context_size, width)

    def initial_state(self, batch: int) -> Tree:
        return (self.alpha.new_zeros(batch, 2 * self.sizes[0] * self.sizes[1]),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (start,) = cast(tuple[Tensor], state)
        sizes = [self.sizes[0], self.sizes[0], self.out_dim, self.out_dim]
        value, write, gate, skip = self.input(x).split(sizes, -1)
        value = (value * torch.sigmoid(write))[..., None].expand(*x.shape[:2], *self.sizes).flatten(2)
        size = torch.exp(-self.alpha.abs())[:, None]
        parts = size * torch.cos(self.omega), size * torch.sin(self.omega)
        decay = torch.cat([part.flatten() for part in parts])
        add = torch.cat([value, torch.zeros_like(value)], -1)
        memory = self.sequences.oscillating(decay, add, first, start)
        gate = torch.sigmoid(gate)
        y = F.layer_norm(gate * self.mix(memory), (self.out_dim,)) + (1 - gate) * skip
        return y, (memory[-1],)
