"""Recurrent memories: GRU, LSTM and the linear minGRU, layer upon layer.

A whole sequence is one call, with its resets inside. T rows, B rows of a batch, H units.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.tree import Tree
from . import Memory, MemoryConfig, kernels

SHUT = 1e4  # what a gate must hear to be closed, or opened, to the last bit


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(MemoryConfig):
    """What all recurrences have."""

    width: int = 64
    """Units of each layer."""
    layers: int = 1
    """Layers, each reading the one before."""
    keep: float = 1.0
    """What the gate that keeps hears at the start beside its input: above 0, more is kept than lost."""

    def __post_init__(self) -> None:
        self.check_sizes("width", "layers")

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        widths = [in_dim] + [self.width] * (self.layers - 1)
        return Chain([self.layer(width) for width in widths])

    @abstractmethod
    def layer(self, in_dim: int) -> Memory:
        """One layer."""


@dataclass(frozen=True, kw_only=True)
class GruConfig(RecurrentConfig):
    """A gated recurrent unit: one state, two gates."""

    name: ClassVar[str] = "gru"

    def layer(self, in_dim: int) -> Memory:
        return Gru(in_dim, self.width, self.keep)


@dataclass(frozen=True, kw_only=True)
class LstmConfig(RecurrentConfig):
    """Long short-term memory: what is kept apart from what is said, three gates."""

    name: ClassVar[str] = "lstm"

    def layer(self, in_dim: int) -> Memory:
        return Lstm(in_dim, self.width, self.keep)


@dataclass(frozen=True, kw_only=True)
class MinGruConfig(RecurrentConfig):
    """A linear recurrence, the cheap modern choice: its gate sees the input alone."""

    name: ClassVar[str] = "mingru"

    def layer(self, in_dim: int) -> Memory:
        return MinGru(in_dim, self.width, self.keep)


class Chain(Memory):
    """Memories one after another, each reading what the one before says."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(memories)
        self.out_dim, self.reach = memories[-1].out_dim, None

    @property
    def _memories(self) -> Iterable[Memory]:
        return cast(Iterable[Memory], self.layers)

    def initial_state(self, batch: int) -> Tree:
        return tuple(memory.initial_state(batch) for memory in self._memories)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        end = []
        for memory, begin in zip(self._memories, state, strict=True):
            x, after = memory(x, begin, first)
            end.append(after)
        return x, tuple(end)


def _orthogonal(in_dim: int, width: int, blocks: int) -> nn.Parameter:
    """(G H, in): G blocks, each orthogonal by itself."""
    parts = [torch.empty(width, in_dim) for _ in range(blocks)]
    return nn.Parameter(torch.cat([nn.init.orthogonal_(part) for part in parts]))


def _bias(*blocks: float, width: int) -> Tensor:
    """(G H,): one number for each block."""
    return torch.tensor(blocks).repeat_interleave(width)


class Gru(Memory):
    """r, z = sigmoid(W x + U h + b); n = tanh(V x + c + r (S h + d)); h' = n + z (h - n)."""

    def __init__(self, in_dim: int, width: int, keep: float = 1.0) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = _orthogonal(in_dim, width, 3)
        self.recurrent = _orthogonal(width, width, 3)
        self.bias = nn.Parameter(_bias(0.0, keep, 0.0, width=width))
        self.recalled = nn.Parameter(torch.zeros(width))  # d

    def initial_state(self, batch: int) -> Tree:
        return (self.bias.new_zeros(batch, self.out_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (h,) = cast(tuple[Tensor], state)
        if len(x) == 1:
            h = self._step(x[0], h.masked_fill(first[0, :, None], 0.0))
            return h[None], (h,)
        keep = (~first).to(x.dtype)[..., None]
        y = kernels.gru(F.linear(x, self.input, self.bias), self.recurrent, self.recalled, h, keep)
        return y, (y[-1],)

    def _step(self, x: Tensor, h: Tensor) -> Tensor:
        """One row: h after it; half the time of a sequence of one, and acting is such rows."""
        recalled = F.pad(self.recalled, (2 * self.out_dim, 0))
        return torch.gru_cell(x, h, self.input, self.recurrent, self.bias, recalled)


class MinGru(Memory):
    """z = sigmoid(W x + b); h' = (1 - z) h + z (V x + c) (Feng et al., 2024).

    Nothing but the sum needs the state, so all the rest is a few products over the whole sequence.
    """

    def __init__(self, in_dim: int, width: int, keep: float = 1.0) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = _orthogonal(in_dim, width, 2)
        self.bias = nn.Parameter(_bias(-keep, 0.0, width=width))

    def initial_state(self, batch: int) -> Tree:
        return (self.bias.new_zeros(batch, self.out_dim),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        (h,) = cast(tuple[Tensor], state)
        gate, candidate = F.linear(x, self.input, self.bias).chunk(2, -1)
        update = torch.sigmoid(gate)
        decay = (1 - update).masked_fill(first[..., None], 0.0)
        y = kernels.linear(decay, update * candidate, h)
        return y, (y[-1],)


class Lstm(Memory):
    """i, f, o = sigmoid(W x + U h + b); c' = f c + i tanh(V x + S h + d); h' = o tanh(c').

    torch runs a whole LSTM sequence in one fast call, which knows no resets. They are put into the
    sequence instead: before a row that opens an episode goes a row that shuts all gates, after which
    c and h are exactly 0. Columns with fewer resets than others end in rows that keep c as it is.
    """

    def __init__(self, in_dim: int, width: int, keep: float = 1.0) -> None:
        super().__init__()
        self.out_dim, self.reach = width, None
        self.input = _orthogonal(in_dim, width, 4)
        self.recurrent = _orthogonal(width, width, 4)
        self.bias = nn.Parameter(_bias(0.0, keep, 0.0, 0.0, width=width))
        # What i, f, the candidate and o hear in a row that clears, and in one that keeps.
        shut, none = torch.full((width,), -SHUT), torch.zeros(width)
        signals = torch.cat([shut, shut, none, shut]), torch.cat([shut, -shut, none, none])
        self.register_buffer("signals", torch.stack(signals, 1), persistent=False)
        self.register_buffer("no_bias", torch.zeros(4 * width), persistent=False)
        self.signals: Tensor  # (4H, 2)
        self.no_bias: Tensor  # torch adds two, of which one is enough

    def initial_state(self, batch: int) -> Tree:
        zeros = self.bias.new_zeros(batch, self.out_dim)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        h, c = (s.masked_fill(first[0, :, None], 0.0) for s in cast(tuple[Tensor, Tensor], state))
        if len(x) == 1:
            h, c = self._step(x[0], h, c)
            return h[None], (h, c)
        if not first[1:].any():
            y, h, c = self._run(x, self.input, h, c)
            return y, (h, c)
        place = _places(first)  # (T, B)
        end, column = place[-1], torch.arange(x.shape[1], device=x.device)
        spread = self._spread(x, place, first)
        y, _, c = self._run(spread, torch.cat([self.input, self.signals], 1), h, c)
        return y[place, column], (y[end, column], c)

    def _step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One row: h and c after it; faster than a sequence of one."""
        gates = F.linear(x, self.input, self.bias) + F.linear(h, self.recurrent)
        i, f, candidate, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(candidate)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _run(self, x: Tensor, weights: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All rows without a reset: y, h and c after the last."""
        parameters = [weights, self.recurrent, self.bias, self.no_bias]
        y, h, c = torch.lstm(x, (h[None], c[None]), parameters, True, 1, 0.0, self.training, False, False)
        return y, h[0], c[0]

    def _spread(self, x: Tensor, place: Tensor, first: Tensor) -> Tensor:
        """x (T, B, in) -> (T + most resets, B, in + 2): rows at their places, signals between."""
        (steps, batch), length = first.shape, int(place[-1].max()) + 1
        time = torch.arange(length, device=x.device)[:, None]
        row, which = (first & (torch.arange(steps, device=x.device)[:, None] > 0)).nonzero(as_tuple=True)
        signal = x.new_zeros(length, batch, 2)
        signal[place[row, which] - 1, which, 0] = 1.0
        signal[..., 1] = time > place[-1]
        spread = x.new_zeros(length, batch, x.shape[2])
        spread = spread.index_put((place, torch.arange(batch, device=x.device)), x)
        return torch.cat([spread, signal], 2)


def _places(first: Tensor) -> Tensor:
    """Where each row (T, B) stands once a row is put before every reset but those of row 0."""
    resets = first.long()
    resets[0] = 0
    return resets.cumsum(0) + torch.arange(len(first), device=first.device)[:, None]
