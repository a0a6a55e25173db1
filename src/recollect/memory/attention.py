"""Causal attention over a bounded number of past steps, for a whole sequence in one call.

Each step attends to at most P steps before it, so scores of steps further apart are never computed. The
sequence is cut into blocks, and the queries of a block meet only the keys that one of its steps attends to.

Shapes.  T steps, B sequences, M tokens per step, P past steps, H heads of D features, W = H D;
n blocks of R steps, each with keys of R + P steps.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 32  # least tokens of a block: larger blocks waste scores, smaller ones waste calls


class Distances(NamedTuple):
    """Queries and keys of scores that depend on the distance alone (Transformer-XL)."""

    query: Tensor  # (B, T, W)
    key: Tensor  # (P + 1, W), of distance 0, 1, ... P


class Detached(NamedTuple):
    """Keys and values for queries more than `steps` steps later: equal numbers, other gradients."""

    steps: int
    k: Tensor  # (B, (P + T) M, W)
    v: Tensor


def count_steps(first: Tensor, age: Tensor) -> tuple[Tensor, Tensor]:
    """The step of its episode at each time (T, B), and the age (B,) of the episode after the last.

    age  (B,)  number of steps that the episode of the carried state has had before time 0
    """
    time = torch.arange(len(first), device=first.device)[:, None]
    # -1 up to the first start in this call: there the episode of the carried state continues.
    start = torch.where(first, time, -1)
    if len(first) > 1:  # a single step needs no maximum, and ONNX has none
        start = start.cummax(0).values
    step = torch.where(start < 0, time + age, time - start)
    return step, step[-1] + 1


class Band:
    """The attention mask of one call, cut into blocks: computed once and used by every layer."""

    def __init__(
        self,
        back: Tensor,
        past: int,
        heads: int,
        tokens: int,
        dtype: torch.dtype,
        weights: list[Tensor] | None = None,
    ) -> None:
        """The mask of T steps.

        back     (T, B): how many steps before it each step attends to, at most P
        weights  each call of `attend` appends its attention weights (B, T, H, P + 1), by the number of
                 steps back; None: they are not computed where a fused kernel does without
        """
        self.steps, self.past, self.heads, self.tokens = len(back), past, heads, tokens
        self.weights = weights
        # The number of blocks is rounded down, so that a block has at least BLOCK tokens (or the whole
        # sequence). Blocks of equal size need the least padding.
        self.size = math.ceil(self.steps / max(1, self.steps * tokens // BLOCK))  # R
        self.count = math.ceil(self.steps / self.size)  # n
        self.missing = self.count * self.size - self.steps
        query, key = (torch.arange(end, device=back.device) for end in (self.size, self.size + past))
        self.away = query[:, None] + past - key  # (R, R + P): distance of each key from each query
        self.bias = self._bias(back, dtype)  # (B, n, 1, R M, (R + P) M)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        distances: Distances | None = None,
        detached: Detached | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """The attention output, in the shape of q.

        q          (B, T M, W) of all tokens; or (B, T, W) of the last token of each step
        k, v       (B, (P + T) M, W) of the P past steps, then of the T steps
        distances  scores to add, with one token per step
        detached   other keys and values for steps further back
        dropout    share of attention weights set to 0; ignored with distances, detached or weights
        """
        query, key, value = self._split_queries(q), self._split_keys(k), self._split_keys(v)
        # The number of queries shows whether q has all tokens of a step or only the last.
        bias = self.bias if q.shape[1] > self.steps else self.bias[..., self.tokens - 1 :: self.tokens, :]
        if distances is None and detached is None and self.weights is None:
            # The fused kernel stores no scores. It takes one batch axis, so sequences and blocks share it.
            q, k, v, mask = (x.flatten(0, 1) for x in (query, key, value, bias))
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout)
            return self._join(attended.unflatten(0, query.shape[:2]))
        # The fused kernel scales scores itself. Here the queries are scaled, those of distances too: both
        # scores are terms of one sum.
        query = query * (q.shape[-1] // self.heads) ** -0.5
        if distances is not None:
            by_distance = self._split_queries(distances.query) * (q.shape[-1] // self.heads) ** -0.5
            bias = bias + self._score_distances(by_distance, distances.key)
        # `detached` changes gradients and no numbers, so an inspection does without it.
        if detached is None or self.weights is not None:
            weights = (query @ key.transpose(-1, -2) + bias).softmax(-1)
            if self.weights is not None:
                self.weights.append(self._sort_by_distance(weights))
            return self._join(weights @ value)
        # Both products are complete; `near` decides which of them gives a score, and so which keys and values
        # get its gradient. Masked weights are exactly 0, so the last two products only add up.
        near = (self.away <= detached.steps).repeat_interleave(self.tokens, 1)
        near = near.repeat_interleave(q.shape[1] // self.steps, 0)
        far_scores = query @ self._split_keys(detached.k).transpose(-1, -2)
        scores = torch.where(near, query @ key.transpose(-1, -2), far_scores)
        weights = (scores + bias).softmax(-1)
        far = (weights * ~near) @ self._split_keys(detached.v)
        return self._join((weights * near) @ value + far)

    def _sort_by_distance(self, weights: Tensor) -> Tensor:
        """(B, n, H, tokens, (R + P) M) -> the weight on the step k back (B, T, H, P + 1).

        Of several tokens per step the query is the last; the weights on the tokens of a step are summed.
        """
        queries = weights.shape[3] // self.size  # tokens per step that have a query
        by_step = weights[..., queries - 1 :: queries, :].unflatten(-1, (-1, self.tokens)).sum(-1)
        back = torch.arange(self.past + 1, device=weights.device)
        place = torch.arange(self.size, device=weights.device)[:, None] + self.past - back
        sorted_weights = by_step.gather(-1, place.expand(*by_step.shape[:-1], -1))
        return sorted_weights.transpose(2, 3).flatten(1, 2)[:, : self.steps]

    def _bias(self, back: Tensor, dtype: torch.dtype) -> Tensor:
        """The mask as a bias of scores: 0 where a token attends, else minus infinity."""
        # Padding steps get back = 0, so they attend to themselves: softmax of a row of minus infinities is
        # NaN, and so would be gradients, although the padding is cut off afterwards.
        back = F.pad(back.T, (0, self.missing)).unflatten(1, (self.count, self.size))
        seen = (self.away >= 0) & (self.away <= back[..., None])
        if self.tokens > 1:
            # Within its step a token attends to itself and to the tokens before it.
            order = torch.ones(self.tokens, self.tokens, dtype=torch.bool, device=back.device).tril()
            inside = order.repeat(self.away.shape) | _repeat_for_tokens(self.away != 0, self.tokens)
            seen = _repeat_for_tokens(seen, self.tokens) & inside
        # Minus infinity, not a large number: the weight of a hidden key is exactly 0, and so is its gradient.
        # The caches hold steps of earlier episodes, and only this mask separates them from the present one.
        zero = torch.zeros((), dtype=dtype, device=back.device)
        return zero.where(seen, -math.inf)[:, :, None]

    def _split_queries(self, x: Tensor) -> Tensor:
        """(B, T M, W) -> (B, n, H, R M, D)."""
        x = self._pad(x, x.shape[1] // self.steps).unflatten(2, (self.heads, -1))
        return x.unflatten(1, (self.count, -1)).transpose(2, 3)

    def _split_keys(self, x: Tensor) -> Tensor:
        """(B, (P + T) M, W) -> (B, n, H, (R + P) M, D)."""
        width, stride = (self.size + self.past) * self.tokens, self.size * self.tokens
        if self.count == 1:  # the same result, without a copy of the gradient
            return x[:, None].unflatten(-1, (self.heads, -1)).transpose(2, 3)
        blocks = _overlapping(self._pad(x, self.tokens), width, stride)
        return blocks.unflatten(3, (self.heads, -1)).transpose(2, 3)

    def _pad(self, x: Tensor, tokens: int) -> Tensor:
        """x with zeros at its end that complete the last block."""
        return F.pad(x, (0, 0, 0, self.missing * tokens)) if self.missing else x

    def _join(self, x: Tensor) -> Tensor:
        """(B, n, H, R M, D) -> (B, T M, W)."""
        x = x.transpose(2, 3).flatten(3)  # (B, n, R M, W)
        tokens = x.shape[2] // self.size
        return x.flatten(1, 2)[:, : self.steps * tokens]

    def _score_distances(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores by distance, each at the place of the key at that distance: (B, n, H, R, R + P)."""
        scores = query @ key.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (B, n, H, R, P + 1)
        # Keys that are ahead or too far away get the score of another distance, which the mask removes.
        place = self.away.clamp(0, self.past)
        return scores.gather(-1, place.expand(*scores.shape[:-1], -1))


class _Overlapping(torch.autograd.Function):
    """Blocks of `width` tokens, one every `stride`: (B, tokens, W) -> (B, n, width, W).

    The same as Tensor.unfold, whose gradient takes several times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, width: int, stride: int) -> Tensor:
        ctx.shape, ctx.stride = x.shape, stride
        return x.unfold(1, width, stride).transpose(2, 3).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        out = grads[0].new_zeros(ctx.shape)
        # Blocks overlap, so their gradients are added one block after another, always in the same order.
        # Not strict: the last block extends beyond its stride, so there may be more starts than blocks.
        for start, grad in zip(range(0, ctx.shape[1], ctx.stride), grads[0].unbind(1), strict=False):
            out[:, start : start + grad.shape[1]] += grad
        return out, None, None


_overlapping: Callable[[Tensor, int, int], Tensor] = _Overlapping.apply


def _repeat_for_tokens(x: Tensor, tokens: int) -> Tensor:
    """(..., steps, steps) -> (..., steps M, steps M)."""
    return x.repeat_interleave(tokens, -2).repeat_interleave(tokens, -1)
