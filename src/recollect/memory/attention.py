"""Attention over the last rows of an episode, for a whole sequence at once.

Every row looks back a bounded number of rows, so scores of rows further apart are never needed.
Rows are cut into blocks, and the queries of a block meet only the keys that its rows can see.

Shapes.  T rows, B rows of a batch, M tokens a row, P rows of the past, H heads of D features, W = H D;
n blocks of R rows, whose keys are of R + P rows.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 32  # tokens of a block, at least: more waste scores, fewer waste calls


class Distances(NamedTuple):
    """Scores that depend on how many rows lie between (Transformer-XL): query . key of the distance."""

    query: Tensor  # (B, T, W)
    key: Tensor  # (P + 1, W), of distance 0, 1, ... P


class Far(NamedTuple):
    """What keys and values are for queries further ahead than `rows`: the same, with other gradients."""

    rows: int
    k: Tensor  # (B, (P + T) M, W)
    v: Tensor


def steps(first: Tensor, age: Tensor) -> tuple[Tensor, Tensor]:
    """Steps of each row (T, B) into its episode, and the age (B,) of the episode after the last row.

    age  (B,)  rows that an episode which goes on has had before row 0
    """
    row = torch.arange(len(first), device=first.device)[:, None]
    opened = torch.where(first, row, -1).cummax(0).values
    step = torch.where(opened < 0, row + age, row - opened)
    return step, step[-1] + 1


_listeners: list[list[Tensor]] = []


@contextmanager
def listen() -> Iterator[list[Tensor]]:
    """What rows look at while this is open: for each call of attention, weights (B, T, H, P + 1).

    The last axis is how many rows back; with several tokens a row, what its last one finds in all those
    of another is one weight.
    """
    heard: list[Tensor] = []
    _listeners.append(heard)
    try:
        yield heard
    finally:
        _listeners.remove(heard)


class Band:
    """Which rows see which in one call: cut into blocks and masked once, then asked by every layer."""

    def __init__(self, back: Tensor, past: int, heads: int, tokens: int, dtype: torch.dtype) -> None:
        """back (T, B): how many rows each may look back, at most P."""
        self.rows, self.past, self.heads, self.tokens = len(back), past, heads, tokens
        self.size = math.ceil(self.rows / max(1, self.rows * tokens // BLOCK))  # R
        self.count = math.ceil(self.rows / self.size)  # n
        self.missing = self.count * self.size - self.rows
        row, key = (torch.arange(end, device=back.device) for end in (self.size, self.size + past))
        self.away = row[:, None] + past - key  # (R, R + P): how many rows a key lies behind
        self.bias = self._bias(back, dtype)  # (B, n, 1, R M, (R + P) M)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        distances: Distances | None = None,
        far: Far | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """What tokens find among those before them, in the shape of q.

        q          (B, T M, W)        of T rows; or (B, T, W) of the last token of each
        k, v       (B, (P + T) M, W)  of the P rows before them, and theirs
        distances  scores to add, with one token a row
        far        other keys and values for rows further back
        dropout    share of weights to leave out, without distances and far
        """
        query, key, value = self._queries(q), self._keys(k), self._keys(v)
        bias = self.bias if q.shape[1] > self.rows else self.bias[..., self.tokens - 1 :: self.tokens, :]
        if distances is None and far is None and not _listeners:
            # One call, which keeps no scores; it knows one axis of batches.
            q, k, v, mask = (x.flatten(0, 1) for x in (query, key, value, bias))
            found = F.scaled_dot_product_attention(q, k, v, mask, dropout)
            return self._joined(found.unflatten(0, query.shape[:2]))
        query = query * (q.shape[-1] // self.heads) ** -0.5
        if distances is not None:
            asked = self._queries(distances.query) * (q.shape[-1] // self.heads) ** -0.5
            bias = bias + self._shifted(asked, distances.key)
        if far is None or _listeners:
            weights = (query @ key.transpose(-1, -2) + bias).softmax(-1)
            for heard in _listeners:
                heard.append(self._by_distance(weights))
            return self._joined(weights @ value)
        near = (self.away <= far.rows).repeat_interleave(self.tokens, 1)
        near = near.repeat_interleave(q.shape[1] // self.rows, 0)
        scores = torch.where(near, query @ key.transpose(-1, -2), query @ self._keys(far.k).transpose(-1, -2))
        weights = (scores + bias).softmax(-1)
        rest = (weights * ~near) @ self._keys(far.v)
        return self._joined((weights * near) @ value + rest)

    def _by_distance(self, weights: Tensor) -> Tensor:
        """(B, n, H, tokens, (R + P) M) -> how much each row looks how many rows back (B, T, H, P + 1)."""
        asked = weights.shape[3] // self.size
        of_rows = weights[..., asked - 1 :: asked, :].unflatten(-1, (-1, self.tokens)).sum(-1)
        back = torch.arange(self.past + 1, device=weights.device)
        place = torch.arange(self.size, device=weights.device)[:, None] + self.past - back
        found = of_rows.gather(-1, place.expand(*of_rows.shape[:-1], -1))
        return found.transpose(2, 3).flatten(1, 2)[:, : self.rows]

    def _bias(self, back: Tensor, dtype: torch.dtype) -> Tensor:
        """0 where a token may look, else minus infinity."""
        back = F.pad(back.T, (0, self.missing)).unflatten(1, (self.count, self.size))
        seen = (self.away >= 0) & (self.away <= back[..., None])
        if self.tokens > 1:
            # Inside its row a token sees itself and the tokens before it.
            order = torch.ones(self.tokens, self.tokens, dtype=torch.bool, device=back.device).tril()
            inside = order.repeat(self.away.shape) | _for_tokens(self.away != 0, self.tokens)
            seen = _for_tokens(seen, self.tokens) & inside
        zero = torch.zeros((), dtype=dtype, device=back.device)
        return zero.where(seen, -math.inf)[:, :, None]

    def _queries(self, x: Tensor) -> Tensor:
        """(B, T M, W) -> (B, n, H, R M, D)."""
        x = self._full(x, x.shape[1] // self.rows).unflatten(2, (self.heads, -1))
        return x.unflatten(1, (self.count, -1)).transpose(2, 3)

    def _keys(self, x: Tensor) -> Tensor:
        """(B, (P + T) M, W) -> (B, n, H, (R + P) M, D)."""
        width, step = (self.size + self.past) * self.tokens, self.size * self.tokens
        if self.count == 1:  # the same, without a copy of the gradient
            return x[:, None].unflatten(-1, (self.heads, -1)).transpose(2, 3)
        blocks = _overlapping(self._full(x, self.tokens), width, step)
        return blocks.unflatten(3, (self.heads, -1)).transpose(2, 3)

    def _full(self, x: Tensor, tokens: int) -> Tensor:
        """With rows at the end that complete the last block."""
        return F.pad(x, (0, 0, 0, self.missing * tokens)) if self.missing else x

    def _joined(self, x: Tensor) -> Tensor:
        """(B, n, H, R M, D) -> (B, T M, W)."""
        x = x.transpose(2, 3).flatten(3)  # (B, n, R M, W)
        tokens = x.shape[2] // self.size
        return x.flatten(1, 2)[:, : self.rows * tokens]

    def _shifted(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores by distance, laid where the keys at that distance are: (B, n, H, R, R + P)."""
        scores = query @ key.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (B, n, H, R, P + 1)
        place = self.away.clamp(0, self.past)
        return scores.gather(-1, place.expand(*scores.shape[:-1], -1))


class _Overlapping(torch.autograd.Function):
    """Blocks of so many tokens, one every `step`: (B, tokens, W) -> (B, n, width, W).

    As unfold does it, whose gradient takes several times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, width: int, step: int) -> Tensor:
        ctx.shape, ctx.step = x.shape, step
        return x.unfold(1, width, step).transpose(2, 3).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        out = grads[0].new_zeros(ctx.shape)
        for start, grad in zip(range(0, ctx.shape[1], ctx.step), grads[0].unbind(1), strict=False):
            out[:, start : start + grad.shape[1]] += grad
        return out, None, None


_overlapping: Callable[[Tensor, int, int], Tensor] = _Overlapping.apply


def _for_tokens(x: Tensor, tokens: int) -> Tensor:
    """(..., rows, rows) -> (..., rows M, rows M)."""
    return x.repeat_interleave(tokens, -2).repeat_interleave(tokens, -1)
