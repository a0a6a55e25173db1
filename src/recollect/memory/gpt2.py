"""GPT-2 as a memory: a causal transformer over the last steps of the episode.

    banded   each layer attends to its inputs at the last `context` steps and caches keys and values, so a
             whole sequence is one call. Two layers reach nearly twice as far as one.
    window   the output of each step depends on exactly the last `context` steps, which are computed again
             for every step: `context` times the work. The reference.

If no episode is longer than the context, the two are the same function.

Shapes.  T steps, B sequences, M tokens per step, P = context - 1 past steps, W features.
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
from . import Inspection, Memory, MemoryConfig
from .attention import Band, count_steps
from .pretrained import load, sizes

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Gpt2Config(MemoryConfig):
    """A GPT-2 over the last steps of the episode."""

    name: ClassVar[str] = "gpt2"
    tokens: Literal["merged", "interleaved"] = "merged"
    """One token per step; or two, the previous action and the observation, of which the second gives the
    output."""
    attention: Literal["banded", "window"] = "banded"
    """Context length of each block (banded), or of all blocks together (window)."""
    context: int = 64
    """Context length: how many steps are attended to, the present one included."""
    width: int = 64
    """Number of features of a token."""
    layers: int = 2
    """Number of blocks, each of attention and a feed-forward network."""
    heads: int = 8
    """Number of attention heads; must divide the width."""
    positions: int = 1024
    """Number of position embeddings, one for each step of an episode; all later steps share the last."""
    dropout: float = 0.0
    """Dropout rate of features in gradient steps, in [0, 1); for critics only."""
    attention_dropout: float = 0.0
    """Dropout rate of attention weights in gradient steps, in [0, 1); for critics only."""
    embedding_init: Literal["gpt2", "torch"] = "gpt2"
    """Initial weights of the token embeddings: normal with deviation 0.02, as in GPT-2; or torch's defaults,
    of which the position embeddings are the largest part."""
    pretrained: str | None = None
    """Folder or hub id of a Hugging Face GPT-2: the initial weights of the blocks, with its width, layers and
    heads; None: random weights."""
    trained_blocks: int | None = None
    """How many of the last blocks are trained; None: all; 0: none."""
    trained_ends: bool = True
    """Whether the token embeddings and the final normalisation are trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("context", "width", "layers", "heads", "positions")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"gpt2.{name} is {getattr(self, name)}, it must lie in [0, 1)")
        if self.trained_blocks is not None and self.trained_blocks < 0:
            raise UsageError(f"gpt2.trained_blocks is {self.trained_blocks}, at least 0 is needed")
        if self.pretrained is None:  # else `resolved` fills in the sizes
            self._check_sizes()

    def _check_sizes(self) -> None:
        if self.width % self.heads:
            raise UsageError(f"gpt2.width is {self.width}, which {self.heads} heads do not divide")
        if (self.trained_blocks or 0) > self.layers:
            raise UsageError(f"gpt2.trained_blocks is {self.trained_blocks}, there are {self.layers}")

    @property
    def largest_dropout(self) -> float:
        """The larger dropout rate: above 0, gradient steps compute another function than acting."""
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
        # In this order: each draws its initial weights from one generator, so that the other order would
        # change the weights of every seed.
        trunk = Trunk(self)
        tokens = Tokens(self, in_dim, action_dim)
        kind = Banded if self.attention == "banded" else Window
        return kind(self, tokens, trunk)


class Tokens(nn.Module):
    """Token embeddings: features and steps of the episode -> tokens (..., M, W)."""

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
            for layer in self.children():
                cast(nn.Linear | nn.Embedding | nn.LayerNorm, layer).reset_parameters()
        self.dropout = cfg.dropout
        self.requires_grad_(cfg.trained_ends)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        """x (..., in), step (...) -> (..., M, W)."""
        split = x.shape[-1] - self.action_dim
        embeddings = [self.seen(x[..., :split])]
        if self.count == 2:
            action = self.action(x[..., split:])
            embeddings.insert(0, torch.where((step == 0)[..., None], self.opening, action))
        position = self.step(step.clamp(max=self.last))
        tokens = torch.stack([embedding + position for embedding in embeddings], -2)
        return dropout(self.norm(tokens), self.dropout, self.training)


class Trunk(nn.Module):
    """The blocks of GPT-2 and the final normalisation."""

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
        """Load the pretrained weights that the config names, if any."""
        if self.pretrained is not None:
            load(self, self.pretrained)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, layers: int, p: float) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = _linear(width, 3 * width)
        # As in GPT-2: the more blocks add to the residual stream, the smaller the weights that do.
        self.out = _linear(width, width, 0.02 / math.sqrt(2 * layers))
        self.up = _linear(width, 4 * width)
        self.down = _linear(4 * width, width, 0.02 / math.sqrt(2 * layers))
        self.dropout = p

    def forward(self, x: Tensor, attend: Attend, queries: slice = slice(None)) -> Tensor:
        """x (B, tokens, W) -> (B, tokens with a query, W)."""
        q, k, v = self.qkv(self.before_attention(x)).chunk(3, -1)
        x, q = x[:, queries], q[:, queries]
        x = x + dropout(self.out(attend(q, k, v)), self.dropout, self.training)
        hidden = F.gelu(self.up(self.before_mlp(x)), approximate="tanh")
        return x + dropout(self.down(hidden), self.dropout, self.training)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout in gradient steps only: acting, values and evaluation are without."""
    return F.dropout(x, p) if active_rate(p, training) else x


def active_rate(p: float, training: bool) -> float:
    """The dropout rate of this call: p in a gradient step, else 0."""
    return p if training and torch.is_grad_enabled() else 0.0


def _linear(in_dim: int, out_dim: int, std: float = 0.02) -> nn.Linear:
    """A layer with the initial weights of GPT-2."""
    layer = nn.Linear(in_dim, out_dim)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


class Banded(Memory):
    """Each layer caches the keys and values of the last P steps."""

    plain = True

    def __init__(self, cfg: Gpt2Config, tokens: Tokens, trunk: Trunk) -> None:
        super().__init__()
        self.tokens, self.trunk = tokens, trunk
        self.past, self.dropout = cfg.context - 1, cfg.largest_dropout
        self.attention_dropout = cfg.attention_dropout
        self.out_dim, self.reach, self.heads = cfg.width, 1 + cfg.layers * self.past, cfg.heads

    def begin(self) -> None:
        self.trunk.begin()

    def initial_state(self, batch: int) -> Tree:
        """Key/value cache of each layer, 2 x (B, P M, W), and the steps (B,) that each episode has had."""
        like = self.trunk.norm.weight
        size = batch, self.past * self.tokens.count, self.out_dim
        caches = tuple((like.new_zeros(size), like.new_zeros(size)) for _ in self.trunk.blocks)
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
        caches, age = cast(tuple[tuple[KeysValues, ...], Tensor], state)
        step, age = count_steps(first, age)
        count, (steps, batch) = self.tokens.count, first.shape
        # No cache is reset: where an episode starts, `step` is 0 again, and the mask hides what came before.
        band = Band(step.clamp(max=self.past), self.past, self.trunk.heads, count, x.dtype, weights)
        p = active_rate(self.attention_dropout, self.training)
        # Tokens of a step follow one another; attention takes the batch axis first.
        h = self.tokens(x, step).transpose(0, 1).reshape(batch, steps * count, -1)
        # Only the last token of each step is an output, so the last block computes no other queries.
        queries = [slice(None)] * (len(self.trunk) - 1) + [slice(count - 1, None, count)]
        # The new caches are views: training does not use them, and copies took a fifteenth of its time.
        after = []
        for block, cache, which in zip(self.trunk.blocks, caches, queries, strict=True):

            def attend(q: Tensor, k: Tensor, v: Tensor, cache: KeysValues = cache) -> Tensor:
                k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
                after.append((k[:, steps * count :], v[:, steps * count :]))
                return band.attend(q, k, v, dropout=p)

            h = block(h, attend, which)
        y = self.trunk.norm(h).transpose(0, 1)
        return y, (tuple(after), age)


class Window(Memory):
    """The state is the input features of the last P steps; all of them are computed again for every step."""

    plain = True

    def __init__(self, cfg: Gpt2Config, tokens: Tokens, trunk: Trunk) -> None:
        super().__init__()
        self.tokens, self.trunk = tokens, trunk
        self.in_dim = tokens.seen.in_features + tokens.action_dim
        self.past, self.dropout = cfg.context - 1, cfg.largest_dropout
        self.attention_dropout = cfg.attention_dropout
        self.out_dim, self.reach = cfg.width, cfg.context

    def begin(self) -> None:
        self.trunk.begin()

    def initial_state(self, batch: int) -> Tree:
        """Features of the last P steps (B, P, in), and the steps (B,) that each episode has had."""
        like = self.trunk.norm.weight
        age = torch.zeros(batch, dtype=torch.long, device=like.device)
        return like.new_zeros(batch, self.past, self.in_dim), age

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        return self._run(x, state, first, None)

    def inspect(self, x: Tensor, state: Tree, first: Tensor) -> Inspection:
        weights: list[Tensor] = []
        y, after = self._run(x, state, first, weights)
        # Of each window (T B, context, H, P + 1) only the last step is an output.
        attention = (layer[:, -1].unflatten(0, first.shape) for layer in weights)
        return Inspection(x, y, after, tuple(attention))

    def _run(
        self, x: Tensor, state: Tree, first: Tensor, weights: list[Tensor] | None
    ) -> tuple[Tensor, Tree]:
        """The call; `weights` collects the attention weights of each layer (T B, context, H, P + 1)."""
        carried, age = cast(tuple[Tensor, Tensor], state)
        step, age = count_steps(first, age)
        (steps, batch), context, count = first.shape, self.past + 1, self.tokens.count
        every = torch.cat([carried.transpose(0, 1), x])  # (P + T, B, in)
        windows = every.unfold(0, context, 1).movedim(-1, 2).reshape(steps * batch, context, -1)
        ahead = torch.arange(-self.past, 1, device=x.device)
        step = step.reshape(-1, 1) + ahead  # (T B, context); below 0 before the episode
        h = self.tokens(windows, step.clamp(min=0)).reshape(steps * batch, context * count, -1)
        # No token attends to steps before its window (ahead + P) or its episode (step). Tokens before the
        # episode attend to themselves, because an empty row of the mask would be NaN.
        back = torch.minimum(step, ahead + self.past).clamp(min=0).T
        band = Band(back, self.past, self.trunk.heads, count, x.dtype, weights)
        p = active_rate(self.attention_dropout, self.training)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            # A window has no past; the mask hides these keys.
            past = q.new_zeros(len(q), self.past * count, q.shape[2])
            return band.attend(q, torch.cat([past, k], 1), torch.cat([past, v], 1), dropout=p)

        for block in self.trunk.blocks:
            h = block(h, attend)
        y = self.trunk.norm(h[:, -1]).view(steps, batch, -1)
        return y, (every[steps:].transpose(0, 1), age)
