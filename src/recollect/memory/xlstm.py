"""The memories of xLSTM: mLSTM with a matrix, sLSTM with recurrent gates, both with exponential gates.

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


@dataclass(frozen=True, kw_only=True)
class XlstmConfig(BlockConfig):
    """Options of both memories."""

    heads: int = 4
    """Number of heads; it divides the width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "heads")
        check_heads(self.name, self.width, self.heads, normalised=True)


@dataclass(frozen=True, kw_only=True)
class MlstmConfig(XlstmConfig):
    """mLSTM: a matrix memory per head with an exponential input gate and a forget gate."""

    name: ClassVar[str] = "mlstm"

    def layer(self, in_dim: int) -> Memory:
        return Mlstm(self.width, self.heads)


@dataclass(frozen=True, kw_only=True)
class SlstmConfig(XlstmConfig):
    """sLSTM: an LSTM with an exponential input gate and a normaliser."""

    name: ClassVar[str] = "slstm"

    def layer(self, in_dim: int) -> Memory:
        return Slstm(self.width, self.heads)


class Mlstm(SequenceMemory):
    """C' = f C + i k v^T; n' = f n + i k; h = (q C') / max(|q n'|, 1); y = W (norm(h) sigmoid(o))
    (Beck et al., 2024).

    f = sigmoid and i = exp of numbers that are linear in the input. C and n are stored divided by exp(m), m
    the largest logarithm of a weight so far, so that no number overflows; h does not depend on m.
    """

    state_names = ("mLSTM memory C and normaliser n", "mLSTM stabiliser m")

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.out_dim, self.reach, self.heads = width, None, heads
        self.input = nn.Linear(width, 4 * width)
        self.gates = nn.Linear(width, 2 * heads)
        self.norm = nn.LayerNorm(width // heads)
        self.output = nn.Linear(width, width, bias=False)
        # Forget gates from short to long, as the authors'; input gates of 1, theirs are random and near 1.
        with torch.no_grad():
            self.gates.weight.zero_()
            self.gates.bias.copy_(torch.cat([torch.zeros(heads), torch.linspace(3.0, 6.0, heads)]))

    def initial_state(self, batch: int) -> Tree:
        size = self.out_dim // self.heads
        memory = self.gates.bias.new_zeros(batch, self.heads, size, size + 1)
        return memory, memory.new_zeros(batch, self.heads)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        query, key, value, out = (p.unflatten(2, (self.heads, -1)) for p in self.input(x).chunk(4, -1))
        key = key * key.shape[-1] ** -0.5
        log_input, forget = self.gates(x).chunk(2, -1)
        h, after = self.sequences.exponential(
            query, key, value, log_input, F.logsigmoid(forget), first, cast(tuple[Tensor, Tensor], state)
        )
        return self.output((self.norm(h) * torch.sigmoid(out)).flatten(2)), after


class Slstm(SequenceMemory):
    """c' = f c + i z; n' = f n + i; h' = o c' / n', z = tanh, o = sigmoid, i = exp, f = sigmoid of
    W x + R h + b (Beck et al., 2024); y = V norm(h').

    R has a block for each head. c and n are stored divided by exp(m), as in mLSTM.
    """

    state_names = ("sLSTM hidden state h", "sLSTM cell state c", "sLSTM normaliser n", "sLSTM stabiliser m")

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.out_dim, self.reach, self.heads = width, None, heads
        self.input = nn.Linear(width, 4 * width)  # z, o, i, f
        self.recurrent = nn.Parameter(torch.zeros(heads, width // heads, 4 * width // heads))
        self.norm = nn.LayerNorm(width // heads)
        self.output = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            self.input.bias.zero_()
            self.input.bias[3 * width :] = torch.linspace(3.0, 6.0, width)

    def initial_state(self, batch: int) -> Tree:
        return tuple(self.recurrent.new_zeros(4, batch, self.heads, self.out_dim // self.heads))

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        # (T, B, N, 4 D): the four inputs of a head beside each other.
        inputs = self.input(x).unflatten(2, (4, self.heads, -1)).transpose(2, 3).flatten(3)
        h, after = self.sequences.gated(inputs, self.recurrent, first, cast(tuple[Tensor, ...], state))
        return self.output(self.norm(h).flatten(2)), after
