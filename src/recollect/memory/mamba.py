"""Mamba-2: a state space whose step sizes, inputs and outputs depend on the input.

T steps, B sequences, N heads, P numbers of a head, K of the state of each.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.errors import UsageError
from ..common.tree import Tree
from . import Memory
from .deltanet import TAPS, initial_steps
from .layers import BlockConfig
from .sequences import SequenceMemory

EPS = 1e-5  # added to the mean square of the norm


@dataclass(frozen=True, kw_only=True)
class MambaConfig(BlockConfig):
    """Mamba-2: a selective state space."""

    name: ClassVar[str] = "mamba"
    d_state: int = 16
    """Numbers of state of each channel."""
    expand: int = 2
    """Number of channels, as a multiple of the width."""
    headdim: int = 16
    """Channels of a head; a head has one decay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "d_state", "expand", "headdim")
        if self.expand * self.width % self.headdim:
            raise UsageError(
                f"mamba.headdim is {self.headdim}; it must divide mamba.expand times mamba.width, "
                f"which is {self.expand * self.width}"
            )

    def layer(self, in_dim: int) -> Memory:
        return Mamba(self.width, self.d_state, self.expand * self.width, self.headdim)


class Mamba(SequenceMemory):
    """h' = exp(-a d) h + d B x^T; y = W norm((C h' + D x) silu(z)) (Dao and Gu, 2024).

    The step size d of a head, B, C, x and z are linear in the input; B, C and x then pass a convolution over
    the last four steps and silu.
    """

    state_names = ("Mamba state h", "Mamba last inputs of the convolution")

    def __init__(self, width: int, state: int, channels: int, headdim: int) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.channels, self.state, self.heads = channels, state, channels // headdim
        self.input = nn.Linear(width, 2 * channels + 2 * state + self.heads, bias=False)
        self.taps = nn.Parameter(torch.randn(TAPS, channels + 2 * state) / TAPS**0.5)
        self.rate = nn.Parameter(
            torch.log(torch.linspace(1.0, 16.0, self.heads) if self.heads > 1 else torch.ones(1))
        )
        self.step = nn.Parameter(initial_steps(self.heads))
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = nn.RMSNorm(channels, eps=EPS)
        self.output = nn.Linear(channels, width, bias=False)

    def initial_state(self, batch: int) -> Tree:
        h = self.step.new_zeros(batch, self.heads, self.state, self.channels // self.heads)
        return h, self.step.new_zeros(batch, TAPS - 1, self.channels + 2 * self.state)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        h, last = cast(tuple[Tensor, Tensor], state)
        sizes = [self.channels, self.channels + 2 * self.state, self.heads]
        gate, mixed, step = self.input(x).split(sizes, -1)
        mixed, last = self.sequences.convolution(mixed, self.taps, first, last)
        value, key, query = mixed.split([self.channels, self.state, self.state], -1)
        value = value.unflatten(2, (self.heads, -1))
        step = F.softplus(step + self.step)
        # B and C are shared by all heads.
        key, query = key[:, :, None], query[:, :, None]
        log_decay = -torch.exp(self.rate) * step
        y, h = self.sequences.outer(query, key, value, step, log_decay, first, h)
        y = (y + self.skip[:, None] * value).flatten(2)
        y = self.sequences.gated_norm(y, gate, self.norm.weight, EPS)
        return self.output(y), (h, last)
