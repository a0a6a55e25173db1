"""Recurrent memories: GRU, LSTM and the linear minGRU, in one or more layers.

A whole sequence is one call, with its resets inside. T steps, B sequences, H units.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory, kernels
from .layers import LayeredConfig
from .sequences import SequenceMemory

SHUT = 1e4  # a gate input so large that its sigmoid is exactly 0 or 1


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(LayeredConfig):
    """Options of gated recurrent memories."""

    keep: float = 1.0
    """Initial bias of the gate that retains the state: the update gate, or the forget gate of an LSTM. Larger
    values retain more of the hidden state at the start of training."""


@dataclass(frozen=True, kw_only=True)
class GruConfig(RecurrentConfig):
    """A gated recurrent unit: a hidden state and two gates."""

    name: ClassVar[str] = "gru"

    def layer(self, in_dim: int) -> Memory:
        return Gru(in_dim, self.width, self.keep)


@dataclass(frozen=True, kw_only=True)
class LstmConfig(RecurrentConfig):
    """Long short-term memory: a hidden state, a cell state and three gates."""

    name: ClassVar[str] = "lstm"

    def layer(self, in_dim: int) -> Memory:
        return Lstm(in_dim, self.width, self.keep)


@dataclass(frozen=True, kw_only=True)
class MinGruConfig(RecurrentConfig):
    """A linear recurrence whose gate depends on the input alone; the cheapest recurrent memory."""

    name: ClassVar[str] = "mingru"

    def layer(self, in_dim: int) -> Memory:
        return MinGru(in_dim, self.width, self.keep)


def _orthogonal(in_dim: int, width: int, blocks: int) -> nn.Parameter:
    """(G H, in): G blocks, each of them orthogonal."""
    weights = [torch.empty(width, in_dim) for _ in range(blocks)]
    return nn.Parameter(torch.cat([nn.init.orthogonal_(weight) for weight in weights]))


def _bias(*blocks: float, width: int) -> Tensor:
    """(G H,): one value for each block."""
    return torch.tensor(blocks).repeat_interleave(width)


class Gru(Memory):
    """r, z = sigmoid(W x + U h + b); n = tanh(V x + c + r (S h + d)); h' = n + z (h - n).

    On a GPU a sequence is one call of torch's GRU, with resets inserted as for an LSTM.
    """

    state_names = ("GRU hidden state h",)

    def __init__(self, in_dim: int, width: int, keep: float = 1.0) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = _orthogonal(in_dim, width, 3)
        self.recurrent = _orthogonal(width, width, 3)
        # Blocks r, z and candidate: the order of torch.gru_cell, and of saved files.
        self.bias = nn.Parameter(_bias(0.0, keep, 0.0, width=width))
        self.recalled = nn.Parameter(torch.zeros(width))  # d
        # Inputs of r, z and the candidate in an extra step that resets, and in one that pads.
        shut, none = torch.full((width,), -SHUT), torch.zeros(width)
        signals = torch.cat([shut, shut, none]), torch.cat([none, none, none])
        self.register_buffer("signals", torch.stack(signals, 1), persistent=False)
        self.signals: Tensor  # (3H, 2)

    def initial_state(self, batch: int) -> Tree:
        return (self.bias.new_zeros(batch, self.out_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (h,) = cast(tuple[Tensor], state)
        if len(x) == 1:
            h = self._step(x[0], h.masked_fill(first[0, :, None], 0.0))
            return h[None], (h,)
        if not x.is_cpu:
            return self._run(x, h, first)
        keep = (~first).to(x.dtype)[..., None]
        y = kernels.gru(F.linear(x, self.input, self.bias), self.recurrent, self.recalled, h, keep)
        return y, (y[-1],)

    def _step(self, x: Tensor, h: Tensor) -> Tensor:
        """h after one step: acting takes single steps, and this is twice as fast as a sequence of one."""
        return torch.gru_cell(x, h, self.input, self.recurrent, self.bias, self._second_bias)

    @property
    def _second_bias(self) -> Tensor:
        """torch adds two biases per gate. r and z need one, so their other one is 0."""
        return F.pad(self.recalled, (2 * self.out_dim, 0))

    def _run(self, x: Tensor, h: Tensor, first: Tensor) -> tuple[Tensor, Tree]:
        """All steps by torch's GRU."""
        h, place = h.masked_fill(first[0, :, None], 0.0), _places(first)
        # The bias is the weight of an input that is 1 in real steps. In an extra step that resets, x and this
        # input are 0 and the gates are shut: the candidate, and so h, is exactly 0.
        spread = _spread(F.pad(x, (0, 1), value=1.0), place, first, 2 * len(x) - 1)
        weights = torch.cat([self.input, self.bias[:, None], self.signals], 1)
        parameters = [weights, self.recurrent, torch.zeros_like(self.bias), self._second_bias]
        y = torch.gru(spread, h[None], parameters, True, 1, 0.0, self.training, False, False)[0]
        y = y[place, torch.arange(x.shape[1], device=x.device)]
        return y, (y[-1],)


class MinGru(SequenceMemory):
    """z = sigmoid(W x + b); h' = (1 - z) h + z (V x + c) (Feng et al., 2024).

    Only the sum depends on the state, so all the rest is a few products over the whole sequence.
    """

    state_names = ("minGRU hidden state h",)

    def __init__(self, in_dim: int, width: int, keep: float = 1.0) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = _orthogonal(in_dim, width, 2)
        # Here z lets the input in, unlike the gates of GRU and LSTM, so retaining takes a negative bias.
        self.bias = nn.Parameter(_bias(-keep, 0.0, width=width))

    def initial_state(self, batch: int) -> Tree:
        return (self.bias.new_zeros(batch, self.out_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (h,) = cast(tuple[Tensor], state)
        gate, candidate = F.linear(x, self.input, self.bias).chunk(2, -1)
        update = torch.sigmoid(gate)
        # A reset removes the state before the step and nothing of the input of the step.
        y = self.sequences.linear(1 - update, update * candidate, first, h)
        return y, (y[-1],)


class Lstm(Memory):
    """i, f, o = sigmoid(W x + U h + b); c' = f c + i tanh(V x + S h + d); h' = o tanh(c').

    torch computes a whole LSTM sequence in one fast call, which has no resets. They are inserted into the
    sequence instead: before the first step of an episode comes an extra step that closes all gates, so
    that c and h are exactly 0 after it. Sequences with fewer resets than others are padded at their end
    with steps that leave c as it is. How many steps that takes is read on a CPU only: a GPU would have to
    be waited for, and gets as many as there can be.
    """

    state_names = ("LSTM hidden state h", "LSTM cell state c")

    def __init__(self, in_dim: int, width: int, keep: float = 1.0) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = _orthogonal(in_dim, width, 4)
        self.recurrent = _orthogonal(width, width, 4)
        # Blocks i, f, candidate and o: the order of torch.lstm, and of saved files.
        self.bias = nn.Parameter(_bias(0.0, keep, 0.0, 0.0, width=width))
        # Inputs of i, f, the candidate and o in an extra step that resets, and in one that pads.
        # SHUT must outweigh U h + b, which is added in these steps too.
        shut, none = torch.full((width,), -SHUT), torch.zeros(width)
        signals = torch.cat([shut, shut, none, shut]), torch.cat([shut, -shut, none, none])
        self.register_buffer("signals", torch.stack(signals, 1), persistent=False)
        self.register_buffer("no_bias", torch.zeros(4 * width), persistent=False)
        self.signals: Tensor  # (4H, 2)
        self.no_bias: Tensor  # torch.lstm adds two biases; ours is the other one

    def initial_state(self, batch: int) -> Tree:
        zeros = self.bias.new_zeros(batch, self.out_dim)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        h, c = (s.masked_fill(first[0, :, None], 0.0) for s in cast(tuple[Tensor, Tensor], state))
        if len(x) == 1:
            h, c = self._step(x[0], h, c)
            return h[None], (h, c)
        # first[0] is handled above, on the carried state; without resets after it, nothing is inserted.
        if x.is_cpu and not first[1:].any():
            y, h, c = self._run(x, self.input, h, c)
            return y, (h, c)
        place = _places(first)  # (T, B)
        sequence = torch.arange(x.shape[1], device=x.device)
        spread = _spread(x, place, first, int(place[-1].max()) + 1 if x.is_cpu else 2 * len(x) - 1)
        # h after the last step is y there, not torch's last h, which has gone through the padding.
        y, _, c = self._run(spread, torch.cat([self.input, self.signals], 1), h, c)
        return y[place, sequence], (y[place[-1], sequence], c)

    def _step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """h and c after one step; faster than a sequence of one."""
        gates = F.linear(x, self.input, self.bias) + F.linear(h, self.recurrent)
        i, f, candidate, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(candidate)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _run(self, x: Tensor, weights: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All steps, without resets: y, and h and c after the last step."""
        # By position: has_biases, num_layers, dropout, train, bidirectional, batch_first (False: time-major).
        parameters = [weights, self.recurrent, self.bias, self.no_bias]
        y, h, c = torch.lstm(x, (h[None], c[None]), parameters, True, 1, 0.0, self.training, False, False)
        return y, h[0], c[0]


def _spread(x: Tensor, place: Tensor, first: Tensor, length: int) -> Tensor:
    """x (T, B, in) -> (length, B, in + 2): each step at its place, extra steps between.

    The last two features are 1 in the extra steps that reset, and in those that pad.
    """
    batch = x.shape[1]
    # Before the place of a step that resets; all others write into a row that is cut off.
    extra = torch.where(first, place - 1, length)[1:]
    reset = x.new_zeros(length + 1, batch).scatter(0, extra, 1.0)[:length]
    pad = torch.arange(length, device=x.device)[:, None] > place[-1]
    spread = x.new_zeros(length, batch, x.shape[2])
    spread = spread.index_put((place, torch.arange(batch, device=x.device)), x)
    return torch.cat([spread, torch.stack([reset, pad.to(x.dtype)], -1)], 2)


def _places(first: Tensor) -> Tensor:
    """The place of each step (T, B) once an extra step is inserted before every reset."""
    resets = first.long()
    resets[0] = 0  # the carried state is reset before the sequence starts
    return resets.cumsum(0) + torch.arange(len(first), device=first.device)[:, None]
