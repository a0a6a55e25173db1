"""The linear recurrent unit: a diagonal complex linear recurrence in residual blocks.

T steps, B sequences, W features, H complex units.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.errors import UsageError
from ..common.tree import Tree
from . import Memory
from .layers import BlockConfig
from .sequences import SequenceMemory


@dataclass(frozen=True, kw_only=True)
class LruConfig(BlockConfig):
    """A linear recurrent unit: damped oscillations, whose periods and decays are learned."""

    name: ClassVar[str] = "lru"
    units: int = 64
    """Number of complex units of each layer."""
    r_min: float = 0.5
    """Least initial modulus r of the eigenvalues; r to the power of d of an input is left after d steps."""
    r_max: float = 0.999
    """Largest initial modulus of the eigenvalues; 1 would be no decay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "units")
        if not 0 <= self.r_min <= self.r_max < 1:  # at 1 the weights would not be finite
            raise UsageError(
                f"lru.r_min is {self.r_min:g} and lru.r_max {self.r_max:g}: r_min must be between 0 and "
                "r_max, and r_max below 1"
            )

    def layer(self, in_dim: int) -> Memory:
        return Lru(in_dim, self.units, self.r_min, self.r_max)


class Lru(SequenceMemory):
    """h' = lambda h + gamma (B x); s = Re(C h') + D x; y = a sigmoid(g), [a, g] = V gelu(s) + b
    (Orvieto et al., 2023).

    lambda = exp(-exp(nu) + i theta) lies inside the unit circle; gamma keeps the size of h independent of it.
    """

    state_names = ("LRU state h, real parts then imaginary parts",)

    def __init__(self, width: int, units: int, r_min: float, r_max: float) -> None:
        super().__init__()
        self.out_dim, self.reach, self.units = width, None, units
        modulus = (torch.rand(units) * (r_max**2 - r_min**2) + r_min**2).sqrt()
        self.nu = nn.Parameter(torch.log(-torch.log(modulus)))
        self.theta = nn.Parameter(torch.log(torch.rand(units) * math.pi + 1e-3))
        self.gamma = nn.Parameter(0.5 * torch.log(1 - modulus**2))
        # Real parts, then imaginary parts.
        self.b = nn.Parameter(torch.randn(2 * units, width) / math.sqrt(2 * width))
        self.c = nn.Parameter(torch.randn(width, 2 * units) / math.sqrt(units))
        self.d = nn.Parameter(torch.randn(width))
        self.gate = nn.Linear(width, 2 * width)

    def initial_state(self, batch: int) -> Tree:
        return (self.d.new_zeros(batch, 2 * self.units),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (start,) = cast(tuple[Tensor], state)
        size, angle = torch.exp(-torch.exp(self.nu)), torch.exp(self.theta)
        decay = torch.cat([size * torch.cos(angle), size * torch.sin(angle)])
        add = F.linear(x, self.b * torch.exp(self.gamma).repeat(2)[:, None])
        h = self.sequences.oscillating(decay, add, first, start)
        # Re(C h) with C = c_1 + i c_2; the sign of c_2 is learned.
        s = F.linear(h, self.c) + self.d * x
        return F.glu(self.gate(F.gelu(s)), -1), (h[-1],)
