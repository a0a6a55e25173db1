"""Transformer-XL as a memory: every layer looks back on what it read in the last rows of an episode.

    trxl     what a branch of a block says is added to what it read (Dai et al., 2019)
    gtrxl    a gate decides how much of it is taken (Parisotto et al., 2020)

What layer l read is kept, so a sequence is one call, and each layer sees as far again as the one before.

Shapes.  T rows, B rows of a batch, P rows of the past, W features.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.errors import UsageError
from ..common.tree import Tree
from . import Memory, MemoryConfig
from .attention import Band, Distances, Far, steps

RELU = math.sqrt(2)  # gain of weights whose result goes through a relu, which halves its square
SLOWEST = 10_000.0  # of the sinusoids, in radians: how many rows the slowest takes for one


@dataclass(frozen=True, kw_only=True)
class TransformerXlConfig(MemoryConfig):
    """What both have."""

    width: int = 64
    """Features of a row."""
    layers: int = 3
    """Blocks, each of attention and a feed-forward layer."""
    heads: int = 4
    """Heads of each attention; they divide the width."""
    context: int = 32
    """Rows before the present one that each block looks back on."""
    positions: Literal["absolute", "relative"] | None = "relative"
    """What tells rows apart: their step in the episode, or how far back they are; None: nothing."""
    norm: Literal["pre", "post"] | None = "pre"
    """Whether what a branch reads is normalised, or what is given on after it; None: nothing."""
    gradient: int | None = None
    """Rows back that errors travel by what is looked up, the present one apart; 0: none; None: all."""

    def __post_init__(self) -> None:
        self.check_sizes("width", "layers", "heads", "context")
        if self.width % self.heads:
            raise UsageError(f"{self.name}.width is {self.width}, which {self.heads} heads do not divide")
        if self.gradient is not None and self.gradient < 0:
            raise UsageError(f"{self.name}.gradient is {self.gradient}, at least 0 is needed")

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return TransformerXl(self, in_dim)

    @abstractmethod
    def junction(self) -> "Sum | Gate":
        """How what a branch says comes to what it read."""


@dataclass(frozen=True, kw_only=True)
class TrxlConfig(TransformerXlConfig):
    """A Transformer-XL: what is relevant is looked up in the last rows of every layer."""

    name: ClassVar[str] = "trxl"

    def junction(self) -> "Sum | Gate":
        return Sum()


@dataclass(frozen=True, kw_only=True)
class GtrxlConfig(TransformerXlConfig):
    """A Transformer-XL with gates, which begins near one that passes on what it reads."""

    name: ClassVar[str] = "gtrxl"
    gate_bias: float = 2.0
    """How firmly gates are closed to what branches say, at the start."""

    def junction(self) -> "Sum | Gate":
        return Gate(self.width, self.gate_bias)


class TransformerXl(Memory):
    """Each layer keeps the keys and values of the last P rows: each row is projected once."""

    def __init__(self, cfg: TransformerXlConfig, in_dim: int) -> None:
        super().__init__()
        self.past, self.heads, self.absolute = cfg.context, cfg.heads, cfg.positions == "absolute"
        self.out_dim, self.reach = cfg.width, 1 + cfg.layers * cfg.context
        self.input = _linear(in_dim, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))

    def initial_state(self, batch: int) -> Tree:
        """Keys and values of each layer (B, 2, P, W), and the age (B,) of each row's episode."""
        like = self.input.weight
        kept = tuple(like.new_zeros(batch, 2, self.past, self.out_dim) for _ in self.blocks)
        return kept, torch.zeros(batch, dtype=torch.long, device=like.device)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        kept, age = cast(tuple[tuple[Tensor, ...], Tensor], state)
        step, age = steps(first, age)
        band = Band(step.clamp(max=self.past), self.past, self.heads, 1, x.dtype)
        h = self.input(x)
        if self.absolute:
            h = h + sinusoids(step.to(h.dtype), self.out_dim)
        h, after = h.transpose(0, 1), []
        for block, past in zip(self.blocks, kept, strict=True):
            h, left = block(h, past, band)
            after.append(left)
        return h.transpose(0, 1), (tuple(after), age)


class Block(nn.Module):
    """Attention over what it read, then a feed-forward layer, each beside a way around it."""

    def __init__(self, cfg: TransformerXlConfig) -> None:
        super().__init__()
        width = cfg.width
        self.gradient = cfg.gradient
        self.query = _linear(width, width, bias=False)
        self.key_value = _linear(width, width, blocks=2, bias=False)
        self.places = Places(width, cfg.context) if cfg.positions == "relative" else None
        self.attended, self.fed = cfg.junction(), cfg.junction()
        self.out = _linear(width, width, self.attended.gain)
        self.feed = _linear(width, width, RELU)
        self.before_attention, self.before_feed = (_norm(cfg, "pre") for _ in range(2))
        self.after_attention, self.after_feed = (_norm(cfg, "post") for _ in range(2))

    def forward(self, x: Tensor, past: Tensor, band: Band) -> tuple[Tensor, Tensor]:
        """x (B, T, W), past (B, 2, P, W) -> (B, T, W), and keys and values of the last P rows."""
        found, kept = self._look(x, past, band)
        x = self.after_attention(self.attended(x, found))
        return self.after_feed(self.fed(x, F.relu(self.feed(self.before_feed(x))))), kept

    def _look(self, x: Tensor, past: Tensor, band: Band) -> tuple[Tensor, Tensor]:
        """What rows find in the past and in one another, and what they leave to look at."""
        seen, distances, far = self.before_attention(x), None, None
        q = self.query(seen)
        if self.places is not None:
            q, distances = self.places(q)
        if self.gradient is None:
            both = self._keys_and_values(seen, past)
        else:
            # Errors end at what the rows before had to say; how it is read is still learned.
            ended = self._keys_and_values(self.before_attention(x.detach()), past.detach())
            both = self._keys_and_values(seen, past) if self.gradient else ended
            far = Far(self.gradient, ended[:, 0], ended[:, 1]) if self.gradient else None
        found = band.attend(q, both[:, 0], both[:, 1], distances, far)
        return self.out(found), both[:, :, x.shape[1] :]

    def _keys_and_values(self, seen: Tensor, past: Tensor) -> Tensor:
        """Of the past and of what is seen now (B, T, W): (B, 2, P + T, W)."""
        now = self.key_value(seen).unflatten(-1, (2, -1)).transpose(1, 2)
        return torch.cat([past, now], 2)


class Places(nn.Module):
    """Scores of Transformer-XL: (q + u) . key of the row + (q + v) . key of how far back it is."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.of_row, self.of_distance = (nn.Parameter(torch.zeros(width)) for _ in range(2))  # u, v
        self.key = _linear(width, width, bias=False)
        self.register_buffer("away", sinusoids(torch.arange(context + 1.0), width), persistent=False)
        self.away: Tensor  # (P + 1, W)

    def forward(self, q: Tensor) -> tuple[Tensor, Distances]:
        """q (B, T, W) -> the query of rows (B, T, W), and that of distances with its keys."""
        return q + self.of_row, Distances(q + self.of_distance, self.key(self.away))


class Sum(nn.Module):
    """x + y."""

    gain = 1.0

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """What a branch read and what it says (B, T, W) -> (B, T, W)."""
        return x + y


class Gate(nn.Module):
    """r, z = sigmoid(W y + U x - b), with b = 0 for r; h = tanh(V y + S (r x)); (1 - z) x + z h.

    y is what a branch says, after a relu. Products with r and z are number by number.
    """

    gain = RELU

    def __init__(self, width: int, bias: float) -> None:
        super().__init__()
        self.said = _linear(width, width, blocks=3, bias=False)  # W of r and z, V
        self.read = _linear(width, width, blocks=2, bias=False)  # U of r and z
        self.reset = _linear(width, width, bias=False)  # S
        self.bias = nn.Parameter(torch.full((width,), bias))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """What a branch read and what it says (B, T, W) -> (B, T, W)."""
        said, read = self.said(F.relu(y)).chunk(3, -1), self.read(x).chunk(2, -1)
        r, z = torch.sigmoid(said[0] + read[0]), torch.sigmoid(said[1] + read[1] - self.bias)
        return torch.lerp(x, torch.tanh(said[2] + self.reset(r * x)), z)


def sinusoids(place: Tensor, width: int) -> Tensor:
    """Sines and cosines of places, from one radian a row to one in SLOWEST rows: (...,) -> (..., W)."""
    waves = torch.arange(0, width, 2, dtype=place.dtype, device=place.device)
    angle = place[..., None] * SLOWEST ** -(waves / width)
    return torch.cat([angle.sin(), angle.cos()], -1)[..., :width]


def _linear(in_dim: int, width: int, gain: float = 1.0, blocks: int = 1, bias: bool = True) -> nn.Linear:
    """Blocks of weights, each orthogonal by itself, without bias at the start."""
    layer = nn.Linear(in_dim, blocks * width, bias)
    for block in layer.weight.detach().split(width):
        nn.init.orthogonal_(block, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _norm(cfg: TransformerXlConfig, where: str) -> nn.Module:
    return nn.LayerNorm(cfg.width) if cfg.norm == where else nn.Identity()
