"""Transformer-XL as a memory: every layer attends to its inputs at the last steps of the episode.

    trxl     residual branches are added to their input (Dai et al., 2019)
    gtrxl    residual branches are merged with their input by a gate (Parisotto et al., 2020)

Keys and values of each layer are cached, so a sequence is one call, and each layer extends the reach by P.

Shapes.  T steps, B sequences, P past steps, W features.
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
from . import Inspection, Memory, MemoryConfig
from .attention import Band, Detached, Distances, count_steps

RELU = math.sqrt(2)  # gain of weights before a ReLU, which halves the mean square
SLOWEST = 10_000.0  # steps in which the slowest sinusoid advances by one radian


@dataclass(frozen=True, kw_only=True)
class TransformerXlConfig(MemoryConfig):
    """Options of trxl and gtrxl."""

    width: int = 64
    """Number of features per step."""
    layers: int = 3
    """Number of blocks, each of attention and a feed-forward layer."""
    heads: int = 4
    """Number of attention heads; must divide the width."""
    context: int = 32
    """Context length: how many past steps each block attends to, beside the present one."""
    positions: Literal["absolute", "relative"] | None = "relative"
    """Position encoding: the step of the episode, or the distance between steps; None: no encoding."""
    norm: Literal["pre", "post"] | None = "pre"
    """Layer normalisation: of the input of each residual branch, or of its sum; None: none."""
    gradient: int | None = None
    """How many past steps receive gradient through attention; 0: none, nor the present step's key and value;
    None: all in the context."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width", "layers", "heads", "context")
        if self.width % self.heads:
            raise UsageError(f"{self.name}.width is {self.width}, which {self.heads} heads do not divide")
        if self.gradient is not None and self.gradient < 0:
            raise UsageError(f"{self.name}.gradient is {self.gradient}, at least 0 is needed")

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return TransformerXl(self, in_dim)

    @abstractmethod
    def junction(self) -> "Sum | Gate":
        """The module that merges the output of a residual branch with its input."""


@dataclass(frozen=True, kw_only=True)
class TrxlConfig(TransformerXlConfig):
    """A Transformer-XL: every layer attends to the last steps of the episode."""

    name: ClassVar[str] = "trxl"

    def junction(self) -> "Sum | Gate":
        return Sum()


@dataclass(frozen=True, kw_only=True)
class GtrxlConfig(TransformerXlConfig):
    """A Transformer-XL with gated residual branches, which starts close to the identity."""

    name: ClassVar[str] = "gtrxl"
    gate_bias: float = 2.0
    """Initial bias that closes the gates; larger values take less of each residual branch at the start of
    training."""

    def junction(self) -> "Sum | Gate":
        return Gate(self.width, self.gate_bias)


class TransformerXl(Memory):
    """Each layer caches the keys and values of the last P steps, so each step is projected once."""

    plain = True

    def __init__(self, cfg: TransformerXlConfig, in_dim: int) -> None:
        super().__init__()
        self.past, self.heads, self.absolute = cfg.context, cfg.heads, cfg.positions == "absolute"
        self.out_dim, self.reach = cfg.width, 1 + cfg.layers * cfg.context
        self.input = _linear(in_dim, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))

    def initial_state(self, batch: int) -> Tree:
        """The key/value cache of each layer (B, 2, P, W), and the steps (B,) that each episode has had."""
        like = self.input.weight
        # Cached steps before the episode are never attended to, so zeros stand for any content.
        caches = tuple(like.new_zeros(batch, 2, self.past, self.out_dim) for _ in self.blocks)
        return caches, torch.zeros(batch, dtype=torch.long, device=like.device)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        return self._run(x, state, first, None)

    def inspect(self, x: Tensor, state: Tree, first: Tensor) -> Inspection:
        weights: list[Tensor] = []
        y, after = self._run(x, state, first, weights)
        return Inspection(x, y, after, tuple(layer.transpose(0, 1) for layer in weights))

    def _run(
        self, x: Tensor, state: Tree, first: Tensor, weights: list[Tensor] | None
    ) -> tuple[Tensor, Tree]:
        """The call; `weights` collects the attention weights of each layer (B, T, H, P + 1)."""
        caches, age = cast(tuple[tuple[Tensor, ...], Tensor], state)
        step, age = count_steps(first, age)
        band = Band(step.clamp(max=self.past), self.past, self.heads, 1, x.dtype, weights)
        h = self.input(x)
        if self.absolute:
            # The step of the episode, not of the call: acting and chunks must see equal positions.
            # Not in half precision, which does not have every step beyond 256.
            exact = step.to(torch.promote_types(h.dtype, torch.float32))
            h = h + sinusoids(exact, self.out_dim).to(h.dtype)
        h, after = h.transpose(0, 1), []
        # Nothing is reset: the mask hides the cached steps of earlier episodes.
        for block, cache in zip(self.blocks, caches, strict=True):
            h, new_cache = block(h, cache, band)
            after.append(new_cache)
        return h.transpose(0, 1), (tuple(after), age)


class Block(nn.Module):
    """Attention, then a feed-forward layer, each with a skip connection."""

    def __init__(self, cfg: TransformerXlConfig) -> None:
        super().__init__()
        width = cfg.width
        self.gradient = cfg.gradient
        self.query = _linear(width, width, bias=False)
        self.key_value = _linear(width, width, blocks=2, bias=False)
        self.places = RelativePositions(width, cfg.context) if cfg.positions == "relative" else None
        self.attended, self.fed = cfg.junction(), cfg.junction()
        self.out = _linear(width, width, self.attended.gain)
        self.feed = _linear(width, width, RELU)
        self.before_attention, self.before_feed = (_norm(cfg, "pre") for _ in range(2))
        self.after_attention, self.after_feed = (_norm(cfg, "post") for _ in range(2))

    def forward(self, x: Tensor, cache: Tensor, band: Band) -> tuple[Tensor, Tensor]:
        """x (B, T, W), cache (B, 2, P, W) -> (B, T, W), and the new cache of the last P steps."""
        attended, new_cache = self._attend(x, cache, band)
        x = self.after_attention(self.attended(x, attended))
        return self.after_feed(self.fed(x, F.relu(self.feed(self.before_feed(x))))), new_cache

    def _attend(self, x: Tensor, cache: Tensor, band: Band) -> tuple[Tensor, Tensor]:
        """The attention output (B, T, W), and the new cache."""
        normed, distances, detached = self.before_attention(x), None, None
        q = self.query(normed)
        if self.places is not None:
            q, distances = self.places(q)
        if self.gradient is None:
            both = self._keys_and_values(normed, cache)
        else:
            # Gradient stops at the inputs of earlier steps; the weights that project them still get theirs.
            stopped = self._keys_and_values(self.before_attention(x.detach()), cache.detach())
            # At 0 the key and value of the present step are detached too; x still gets gradient through its
            # query and the skip connection.
            both = self._keys_and_values(normed, cache) if self.gradient else stopped
            detached = Detached(self.gradient, stopped[:, 0], stopped[:, 1]) if self.gradient else None
        attended = band.attend(q, both[:, 0], both[:, 1], distances, detached)
        # The last P of P + T steps: with T < P some of them are still from the old cache.
        return self.out(attended), both[:, :, x.shape[1] :]

    def _keys_and_values(self, x: Tensor, cache: Tensor) -> Tensor:
        """Of the cached steps, then of x (B, T, W): (B, 2, P + T, W)."""
        now = self.key_value(x).unflatten(-1, (2, -1)).transpose(1, 2)
        return torch.cat([cache, now], 2)


class RelativePositions(nn.Module):
    """Scores of Transformer-XL: (q + u) . key of the step + (q + v) . key of the distance."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.of_row, self.of_distance = (nn.Parameter(torch.zeros(width)) for _ in range(2))  # u, v
        self.key = _linear(width, width, bias=False)
        # Not persistent: it follows from the config, so saved files do without it.
        self.register_buffer("away", sinusoids(torch.arange(context + 1.0), width), persistent=False)
        self.away: Tensor  # (P + 1, W)

    def forward(self, q: Tensor) -> tuple[Tensor, Distances]:
        """q (B, T, W) -> the query of steps (B, T, W), and that of distances with its keys."""
        return q + self.of_row, Distances(q + self.of_distance, self.key(self.away))


class Sum(nn.Module):
    """x + y."""

    gain = 1.0

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Input x and output y of a residual branch (B, T, W) -> (B, T, W)."""
        return x + y


class Gate(nn.Module):
    """r, z = sigmoid(W y + U x - b), with b = 0 for r; h = tanh(V y + S (r x)); (1 - z) x + z h.

    x is the input of a residual branch and y its output after a ReLU. Products with r and z are elementwise.
    """

    # The gate applies a ReLU to the output of the branch.
    gain = RELU

    def __init__(self, width: int, bias: float) -> None:
        super().__init__()
        # Names in saved files: W of r and z with V; U of r and z; S.
        self.said, self.read, self.reset = (
            _linear(width, width, blocks=blocks, bias=False) for blocks in (3, 2, 1)
        )
        self.bias = nn.Parameter(torch.full((width,), bias))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Input x and output y of a residual branch (B, T, W) -> (B, T, W)."""
        of_y, of_x = self.said(F.relu(y)).chunk(3, -1), self.read(x).chunk(2, -1)
        r, z = torch.sigmoid(of_y[0] + of_x[0]), torch.sigmoid(of_y[1] + of_x[1] - self.bias)
        h = torch.tanh(of_y[2] + self.reset(r * x))
        return torch.lerp(x.to(z.dtype), h.to(z.dtype), z)  # bfloat16 products differ from the bias in type


def sinusoids(position: Tensor, width: int) -> Tensor:
    """Sines and cosines of positions, from 1 radian per step to 1 / SLOWEST: (...,) -> (..., W)."""
    waves = torch.arange(0, width, 2, dtype=position.dtype, device=position.device)
    angle = position[..., None] * SLOWEST ** -(waves / width)
    # Of an odd width, half is rounded up, and the last cosine is cut off.
    return torch.cat([angle.sin(), angle.cos()], -1)[..., :width]


def _linear(in_dim: int, width: int, gain: float = 1.0, blocks: int = 1, bias: bool = True) -> nn.Linear:
    """Blocks of weights, each of them orthogonal; the initial bias is 0."""
    layer = nn.Linear(in_dim, blocks * width, bias)
    for block in layer.weight.detach().split(width):
        nn.init.orthogonal_(block, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _norm(cfg: TransformerXlConfig, where: str) -> nn.Module:
    return nn.LayerNorm(cfg.width) if cfg.norm == where else nn.Identity()
