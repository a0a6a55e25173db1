"""Attention over the last rows of an episode, for a whole sequence at once.

Every row looks back a bounded number of rows, so scores of rows further apart are never needed.
Queries are cut into blocks, and each block meets only the keys that its rows can see.

Shapes.  T rows, B rows of a batch, M tokens a row, P rows of the past, H heads of D features, W = H D;
Q queries and K keys of a block.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 32  # queries whose keys are read together, at least; more waste scores, fewer waste calls


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


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    back: Tensor,
    heads: int,
    tokens: int = 1,
    distances: Distances | None = None,
    far: Far | None = None,
) -> Tensor:
    """What rows find among the rows before them, in the shape of q.

    q          (B, T M, W)        of T rows, M tokens each; or (B, T, W) of the last token of each row
    k, v       (B, (P + T) M, W)  of the P rows before them, and theirs
    back       (T, B)             how many rows each may look back, at most P
    distances  scores to add, with one token a row
    far        other keys and values for rows further back
    Inside a row a token sees itself and the tokens before it.
    """
    rows, past = len(back), k.shape[1] // tokens - len(back)
    cut = Blocks(rows, past, (q.shape[1] // rows, tokens), heads)
    back = cut.padded(back.T)  # (B, blocks, rows)
    scale = (q.shape[-1] // heads) ** -0.5
    query, key, value = cut.queries(q * scale), cut.keys(k), cut.keys(v)
    bias = _bias(back, past, cut.tokens, q.dtype)[:, :, None]
    if distances is not None:
        bias = bias + _shifted(cut.queries(distances.query * scale), distances.key, cut.size, past, heads)
    if far is None:
        weights = (query @ key + bias).softmax(-1)
        return cut.joined(weights @ value.transpose(-1, -2))
    far_key, far_value = cut.keys(far.k), cut.keys(far.v)
    near = _away(cut.size, past, q.device) <= far.rows  # rows of a block, rows of its keys
    near = _for_tokens(near, cut.tokens)  # (Q, K)
    weights = (torch.where(near, query @ key, query @ far_key) + bias).softmax(-1)
    live, rest = weights * near, weights * ~near
    return cut.joined(live @ value.transpose(-1, -2) + rest @ far_value.transpose(-1, -2))


class Blocks:
    """Rows cut into blocks, each beside the keys that it can see."""

    def __init__(self, rows: int, past: int, tokens: tuple[int, int], heads: int) -> None:
        self.rows, self.tokens, self.heads = rows, tokens, heads  # tokens a row: of queries, of keys
        self.size = math.ceil(rows / max(1, rows * tokens[1] // BLOCK))  # rows of a block
        self.count = math.ceil(rows / self.size)
        self.missing = self.count * self.size - rows
        self.width = (self.size + past) * tokens[1]

    def padded(self, x: Tensor) -> Tensor:
        """(B, T) -> (B, blocks, rows of a block)."""
        return F.pad(x, (0, self.missing)).unflatten(1, (self.count, self.size))

    def queries(self, x: Tensor) -> Tensor:
        """(B, T M, W) -> (B, blocks, H, Q, D)."""
        x = self._full(x, self.tokens[0]).unflatten(2, (self.heads, -1))
        return x.unflatten(1, (self.count, -1)).transpose(2, 3)

    def keys(self, x: Tensor) -> Tensor:
        """(B, (P + T) M, W) -> (B, blocks, H, D, K)."""
        windows = self._full(x, self.tokens[1]).unfold(1, self.width, self.size * self.tokens[1])
        return windows.unflatten(2, (self.heads, -1))

    def joined(self, x: Tensor) -> Tensor:
        """(B, blocks, H, Q, D) -> (B, T M, W)."""
        return x.transpose(2, 3).flatten(3).flatten(1, 2)[:, : self.rows * self.tokens[0]]

    def _full(self, x: Tensor, tokens: int) -> Tensor:
        return F.pad(x, (0, 0, 0, self.missing * tokens)) if self.missing else x


def _away(size: int, past: int, device: torch.device) -> Tensor:
    """How many rows a key lies behind a query: (rows of a block, rows of its keys)."""
    row, key = torch.arange(size, device=device), torch.arange(size + past, device=device)
    return row[:, None] + past - key


def _for_tokens(x: Tensor, tokens: tuple[int, int]) -> Tensor:
    """(..., rows, rows of keys) -> (..., Q, K)."""
    return x.repeat_interleave(tokens[0], -2).repeat_interleave(tokens[1], -1)


def _bias(back: Tensor, past: int, tokens: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """0 where a token of a block may look, else minus infinity: back (B, blocks, rows) -> (..., Q, K)."""
    size, device = back.shape[-1], back.device
    away = _away(size, past, device)
    seen = (away >= 0) & (away <= back[..., None])
    if tokens[1] > 1:
        asked, count = tokens
        order = torch.ones(count, count, dtype=torch.bool, device=device).tril()[count - asked :]
        in_order = order.repeat(size, size + past) | _for_tokens(away != 0, tokens)
        seen = _for_tokens(seen, tokens) & in_order
    return torch.zeros((), dtype=dtype, device=device).where(seen, -math.inf)


def _shifted(query: Tensor, key: Tensor, size: int, past: int, heads: int) -> Tensor:
    """Scores by distance, laid where the keys at that distance are: (B, blocks, H, Q, K)."""
    scores = query @ key.unflatten(1, (heads, -1)).permute(1, 2, 0)  # (B, blocks, H, Q, P + 1)
    place = _away(size, past, key.device).clamp(0, past)
    return scores.gather(-1, place.expand(*scores.shape[:-1], -1))
