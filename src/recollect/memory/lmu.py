"""The Legendre memory unit: a hidden state beside a polynomial approximation of the past of one signal.

T steps, B sequences, H units, D Legendre coefficients.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory, kernels
from .layers import LayeredConfig


@dataclass(frozen=True, kw_only=True)
class LmuConfig(LayeredConfig):
    """A Legendre memory unit: a window of one learned signal as polynomial coefficients."""

    name: ClassVar[str] = "lmu"
    order: int = 32
    """Number of Legendre coefficients d; more represent faster changes within the window."""
    theta: int = 64
    """Length of the window in steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "order", "theta")

    def layer(self, in_dim: int) -> Memory:
        return Lmu(in_dim, self.width, self.order, self.theta)


class Lmu(Memory):
    """u = e_x x + e_h h + e_m m; m' = A m + B u; h' = tanh(W x + U h + M m' + b) (Voelker et al., 2019).

    Inserting u and m' gives an Elman network of H + D units, D of them without tanh, so it runs with the same
    kernel.
    """

    state_names = ("LMU hidden state h", "LMU Legendre coefficients m")

    def __init__(self, in_dim: int, width: int, order: int, theta: int) -> None:
        super().__init__()
        self.out_dim, self.reach, self.order = width, None, order
        self.encode_input = nn.Parameter(_lecun(1, in_dim))
        self.encode_hidden = nn.Parameter(_lecun(1, width))
        self.encode_memory = nn.Parameter(torch.zeros(1, order))
        self.input = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, in_dim)))
        self.recurrent = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, width)))
        self.memory = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, order)))
        self.bias = nn.Parameter(torch.zeros(width))
        a, b = legendre(order, theta)
        self.register_buffer("a", a.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("b", b.to(torch.get_default_dtype()), persistent=False)
        self.a: Tensor  # (D, D)
        self.b: Tensor  # (D, 1)

    def initial_state(self, batch: int) -> Tree:
        return self.bias.new_zeros(batch, self.out_dim), self.bias.new_zeros(batch, self.order)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        start = torch.cat(cast(tuple[Tensor, Tensor], state), -1)
        keep = (~first).to(x.dtype)[..., None]
        # m' as a function of x, h and m, then h' as one of the same.
        of_x, of_h = self.b @ self.encode_input, self.b @ self.encode_hidden
        of_m = self.a + self.b @ self.encode_memory
        inputs = torch.cat([self.input + self.memory @ of_x, of_x])
        hidden = torch.cat([self.recurrent + self.memory @ of_h, self.memory @ of_m], 1)
        recurrent = torch.cat([hidden, torch.cat([of_h, of_m], 1)])
        bias = F.pad(self.bias, (0, self.order))
        y = kernels.elman(F.linear(x, inputs, bias), recurrent, start, keep, self.order)
        return y[..., : self.out_dim], tuple(y[-1].split([self.out_dim, self.order], -1))


def _lecun(rows: int, columns: int) -> Tensor:
    """Uniform numbers with variance 1 / columns."""
    limit = (3 / columns) ** 0.5
    return torch.empty(rows, columns).uniform_(-limit, limit)


def legendre(order: int, theta: int) -> tuple[Tensor, Tensor]:
    """A (D, D) and B (D, 1) of a window of theta steps, for inputs that are constant within a step."""
    i = torch.arange(order, dtype=torch.float64)[:, None]
    j = i.T
    scale = (2 * i + 1) / theta
    a = scale * torch.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    b = scale * (-1.0) ** i
    # The exponential of [[A, B], [0, 0]] has both in its first rows.
    whole = torch.linalg.matrix_exp(F.pad(torch.cat([a, b], 1), (0, 0, 0, 1)))
    return whole[:order, :order], whole[:order, order:]
