"""Recurrent memories without gates: the Elman network and IndRNN.

T steps, B sequences, H units.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory, kernels, scan
from .layers import LayeredConfig


@dataclass(frozen=True, kw_only=True)
class RnnConfig(LayeredConfig):
    """An Elman network: a hidden state without gates."""

    name: ClassVar[str] = "rnn"

    def layer(self, in_dim: int) -> Memory:
        return Rnn(in_dim, self.width)


@dataclass(frozen=True, kw_only=True)
class IndRnnConfig(LayeredConfig):
    """An independently recurrent network: each unit receives its own state only."""

    name: ClassVar[str] = "indrnn"

    def layer(self, in_dim: int) -> Memory:
        return IndRnn(in_dim, self.width)


class Rnn(Memory):
    """h' = tanh(W x + U h + b) (Elman, 1990)."""

    state_names = ("RNN hidden state h",)

    def __init__(self, in_dim: int, width: int) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = nn.Parameter(nn.init.orthogonal_(torch.empty(width, in_dim)))
        self.recurrent = nn.Parameter(nn.init.orthogonal_(torch.empty(width, width)))
        self.bias = nn.Parameter(torch.zeros(width))

    def initial_state(self, batch: int) -> Tree:
        return (self.bias.new_zeros(batch, self.out_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (h,) = cast(tuple[Tensor], state)
        keep = (~first).to(x.dtype)[..., None]
        y = kernels.elman(F.linear(x, self.input, self.bias), self.recurrent, h, keep)
        return y, (y[-1],)


class IndRnn(Memory):
    """h' = relu(W x + u h + b), elementwise in h (Li et al., 2018).

    u is limited to [-1, 1], so that no unit grows without bound.
    """

    state_names = ("IndRNN hidden state h",)

    def __init__(self, in_dim: int, width: int) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = nn.Parameter(nn.init.orthogonal_(torch.empty(width, in_dim), math.sqrt(2)))
        # From units that are cleared within a step to units that sum over an episode, as in the paper.
        self.recurrent = nn.Parameter(torch.linspace(0.0, 1.0, width) if width > 1 else torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(width))

    def initial_state(self, batch: int) -> Tree:
        return (self.bias.new_zeros(batch, self.out_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (h,) = cast(tuple[Tensor], state)
        decay = (~first).to(x.dtype)[..., None] * limited(self.recurrent)
        y = scan.rectified(decay, F.linear(x, self.input, self.bias), h)
        return y, (y[-1],)


def limited(u: Tensor) -> Tensor:
    """u in [-1, 1]. The gradient of a number outside is that at the bound if a step along it leads inside."""
    return _limited(u) if u.requires_grad and torch.is_grad_enabled() else u.clamp(-1.0, 1.0)


class _Limited(torch.autograd.Function):
    # By autograd a weight that an optimiser moved outside would have no gradient, and stay there for good.

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        return u.clamp(-1.0, 1.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        outward = ((u > 1) & (gradient < 0)) | ((u < -1) & (gradient > 0))
        return gradient.masked_fill(outward, 0.0)


_limited: Callable[[Tensor], Tensor] = _Limited.apply
