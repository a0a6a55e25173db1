"""GPT-2 as a memory: a causal transformer that looks back over the last rows of an episode.

    banded   every layer looks back `context` rows; what was read is kept, layer by layer, so that a
             whole sequence is one call. Two layers see nearly twice as far as one.
    window   every row is answered from exactly the last `context` rows, read anew: as many times the
             work as there are rows in a context. The reference.

Where no episode is longer than the context the two are the same function.

Shapes.  T rows, B rows of a batch, M tokens a row, P = context - 1 rows of the past, W features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common.errors import UsageError
from ..common.tree import Tree
from . import Memory, MemoryConfig
from .attention import Band, steps
from .pretrained import load, sizes

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Gpt2Config(MemoryConfig):
    """A GPT-2 over the last rows: what is relevant is looked up, not carried along."""

    name: ClassVar[str] = "gpt2"
    tokens: Literal["merged", "interleaved"] = "merged"
    """One token a row; or two, the action before and what is seen, of which the second is answered."""
    attention: Literal["banded", "window"] = "banded"
    """Whether each block looks back over the context, or all of them together."""
    context: int = 64
    """Rows that are looked back on, the present one included."""
    width: int = 64
    """Features of a token."""
    layers: int = 2
    """Blocks, each of attention and a feed-forward network."""
    heads: int = 8
    """Heads of each attention; they divide the width."""
    positions: int = 1024
    """Steps of an episode that have an embedding of their own; all later ones share the last."""
    dropout: float = 0.0
    """Share of features left out in gradient steps; critics only."""
    attention_dropout: float = 0.0
    """Share of attention weights left out in gradient steps; critics only."""
    embedding_init: Literal["gpt2", "torch"] = "gpt2"
    """Initial weights of what makes tokens: GPT-2's normal of 0.02, or torch's defaults, of which those of
    the step are the largest part."""
    pretrained: str | None = None
    """Folder or hub id of a Hugging Face GPT-2 that blocks begin as, with its width, layers and heads."""
    trained_blocks: int | None = None
    """How many of the last blocks learn; None: all; 0: none."""
    trained_ends: bool = True
    """Whether what comes before the blocks, and the normalisation after them, learns."""

    def __post_init__(self) -> None:
        self.check_sizes("context", "width", "layers", "heads", "positions")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"gpt2.{name} is {getattr(self, name)}, it must lie in [0, 1)")
        if self.trained_blocks is not None and self.trained_blocks < 0:
            raise UsageError(f"gpt2.trained_blocks is {self.trained_blocks}, at least 0 is needed")
        if self.pretrained is None:  # else the sizes are not known yet
            self._check_sizes()

    def _check_sizes(self) -> None:
        if self.width % self.heads:
            raise UsageError(f"gpt2.width is {self.width}, which {self.heads} heads do not divide")
        if (self.trained_blocks or 0) > self.layers:
            raise UsageError(f"gpt2.trained_blocks is {self.trained_blocks}, there are {self.layers}")

    @property
    def leaves_out(self) -> float:
        """The larger of both dropouts: above 0 gradient steps see another function than acting."""
        return max(self.dropout, self.attention_dropout)

    @property
    def action_apart(self) -> bool:
        return self.tokens == "interleaved"

    def resolved(self) -> Self:
        if self.pretrained is None:
            return self
        width, layers, heads = sizes(self.pretrained)
        return replace(self, width=width, layers=layers, heads=heads)

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        self._check_sizes()
        trunk = Trunk(self)
        tokens = Tokens(self, in_dim, action_dim)
        kind = Banded if self.attention == "banded" else Window
        return kind(self, tokens, trunk)


class Tokens(nn.Module):
    """Rows and their steps -> tokens (T, B, M, W)."""

    def __init__(self, cfg: Gpt2Config, in_dim: int, action_dim: int) -> None:
        super().__init__()
        self.action_dim, self.last = action_dim, cfg.positions - 1
        self.seen = _linear(in_dim - action_dim, cfg.width)
        self.step = nn.Embedding(cfg.positions, cfg.width)
        nn.init.normal_(self.step.weight, std=0.02)
        self.count = 1
        if cfg.action_apart:
            self.count = 2
            self.action = _linear(action_dim, cfg.width)
            self.opening = nn.Parameter(0.02 * torch.randn(cfg.width))
        self.norm = nn.LayerNorm(cfg.width)
        if cfg.embedding_init == "torch":
            for part in self.children():
                cast(nn.Linear | nn.Embedding | nn.LayerNorm, part).reset_parameters()
        self.dropout = cfg.dropout
        self.requires_grad_(cfg.trained_ends)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        """x (..., in), step (...) -> (..., M, W)."""
        split = x.shape[-1] - self.action_dim
        parts = [self.seen(x[..., :split])]
        if self.count == 2:
            action = self.action(x[..., split:])
            parts.insert(0, torch.where((step == 0)[..., None], self.opening, action))
        place = self.step(step.clamp(max=self.last))
        tokens = torch.stack([part + place for part in parts], -2)
        return dropout(self.norm(tokens), self.dropout, self.training)


class Trunk(nn.Module):
    """GPT-2's blocks and its last normalisation."""

    def __init__(self, cfg: Gpt2Config) -> None:
        super().__init__()
        self.heads, self.pretrained = cfg.heads, cfg.pretrained
        self.blocks = nn.ModuleList(Block(cfg.width, cfg.layers, cfg.dropout) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)
        frozen = 0 if cfg.trained_blocks is None else cfg.layers - cfg.trained_blocks
        self.blocks[:frozen].requires_grad_(False)
        self.norm.requires_grad_(cfg.trained_ends)

    def __len__(self) -> int:
        return len(self.blocks)

    def begin(self) -> None:
        """Take the weights that the config names."""
        if self.pretrained is not None:
            load(self, self.pretrained)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, layers: int, p: float) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = _linear(width, 3 * width)
        # What enters the residual stream is the smaller the more blocks write to it.
        self.out = _linear(width, width, 0.02 / math.sqrt(2 * layers))
        self.up = _linear(width, 4 * width)
        self.down = _linear(4 * width, width, 0.02 / math.sqrt(2 * layers))
        self.dropout = p

    def forward(self, x: Tensor, look: Attend, asked: slice = slice(None)) -> Tensor:
        """x (B, tokens, W) -> (B, tokens that are asked for, W)."""
        q, k, v = self.qkv(self.before_attention(x)).chunk(3, -1)
        x, q = x[:, asked], q[:, asked]
        x = x + dropout(self.out(look(q, k, v)), self.dropout, self.training)
        hidden = F.gelu(self.up(self.before_mlp(x)), approximate="tanh")
        return x + dropout(self.down(hidden), self.dropout, self.training)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """In gradient steps only: acting, values and evaluation are one function."""
    return F.dropout(x, p) if share(p, training) else x


def share(p: float, training: bool) -> float:
    """The share that is left out now."""
    return p if training and torch.is_grad_enabled() else 0.0


def _linear(in_dim: int, out_dim: int, std: float = 0.02) -> nn.Linear:
    """As GPT-2 begins."""
    layer = nn.Linear(in_dim, out_dim)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


class Banded(Memory):
    """Each layer keeps the keys and values of the last P rows."""

    def __init__(self, cfg: Gpt2Config, tokens: Tokens, trunk: Trunk) -> None:
        super().__init__()
        self.tokens, self.trunk = tokens, trunk
        self.past, self.dropout = cfg.context - 1, cfg.leaves_out
        self.attention_dropout = cfg.attention_dropout
        self.out_dim, self.reach = cfg.width, 1 + cfg.layers * self.past

    def begin(self) -> None:
        self.trunk.begin()

    def initial_state(self, batch: int) -> Tree:
        """Keys and values of each layer, (B, P M, W) each, and the age (B,) of each row's episode."""
        like = self.trunk.norm.weight
        size = batch, self.past * self.tokens.count, self.out_dim
        kept = tuple((like.new_zeros(size), like.new_zeros(size)) for _ in self.trunk.blocks)
        return kept, torch.zeros(batch, dtype=torch.long, device=like.device)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        kept, age = cast(tuple[tuple[KeysValues, ...], Tensor], state)
        step, age = steps(first, age)
        count, (rows, batch) = self.tokens.count, first.shape
        band = Band(step.clamp(max=self.past), self.past, self.trunk.heads, count, x.dtype)
        p = share(self.attention_dropout, self.training)
        h = self.tokens(x, step).transpose(0, 1).reshape(batch, rows * count, -1)
        # After the last block nothing is read but the last token of each row.
        answered = slice(count - 1, None, count)
        asked = [slice(None)] * (len(self.trunk) - 1) + [answered]
        # Views: when learning nobody asks for them, and copies were a fifteenth of its time.
        after = []
        for block, past, which in zip(self.trunk.blocks, kept, asked, strict=True):

            def look(q: Tensor, k: Tensor, v: Tensor, past: KeysValues = past) -> Tensor:
                k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
                after.append((k[:, rows * count :], v[:, rows * count :]))
                return band.attend(q, k, v, dropout=p)

            h = block(h, look, which)
        y = self.trunk.norm(h).transpose(0, 1)
        return y, (tuple(after), age)


class Window(Memory):
    """Keeps the last P rows as they came, and reads all of them again for every row."""

    def __init__(self, cfg: Gpt2Config, tokens: Tokens, trunk: Trunk) -> None:
        super().__init__()
        self.tokens, self.trunk = tokens, trunk
        self.in_dim = tokens.seen.in_features + tokens.action_dim
        self.past, self.dropout = cfg.context - 1, cfg.leaves_out
        self.attention_dropout = cfg.attention_dropout
        self.out_dim, self.reach = cfg.width, cfg.context

    def begin(self) -> None:
        self.trunk.begin()

    def initial_state(self, batch: int) -> Tree:
        """Rows (B, P, in), and the age (B,) of each row's episode."""
        like = self.trunk.norm.weight
        age = torch.zeros(batch, dtype=torch.long, device=like.device)
        return like.new_zeros(batch, self.past, self.in_dim), age

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        kept, age = cast(tuple[Tensor, Tensor], state)
        step, age = steps(first, age)
        (rows, batch), context, count = first.shape, self.past + 1, self.tokens.count
        every = torch.cat([kept.transpose(0, 1), x])  # (P + T, B, in)
        windows = every.unfold(0, context, 1).movedim(-1, 2).reshape(rows * batch, context, -1)
        ahead = torch.arange(-self.past, 1, device=x.device)
        step = step.reshape(-1, 1) + ahead  # (T B, context); below 0 before the episode
        h = self.tokens(windows, step.clamp(min=0)).reshape(rows * batch, context * count, -1)
        back = torch.minimum(step, ahead + self.past).clamp(min=0).T
        band = Band(back, self.past, self.trunk.heads, count, x.dtype)
        p = share(self.attention_dropout, self.training)

        def look(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            past = q.new_zeros(len(q), self.past * count, q.shape[2])
            return band.attend(q, torch.cat([past, k], 1), torch.cat([past, v], 1), dropout=p)

        for block in self.trunk.blocks:
            h = block(h, look)
        y = self.trunk.norm(h[:, -1]).view(rows, batch, -1)
        return y, (every[rows:].transpose(0, 1), age)
