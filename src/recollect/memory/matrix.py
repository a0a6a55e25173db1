"""Matrix memories over whole sequences: sums of outer products that decay, read by queries.

    S[t] = a[t] S[t-1] + k[t] v[t]^T        y[t] = q[t] S[t]

Within a chunk of steps the states are never made: y[t] is a sum over the earlier steps of the chunk, weighted
by products of queries and keys and by the decay between, as in attention, and the state before the chunk. So
a chunk is a few matrix products on any device. A reset is a decay of 0.

Shapes.  T steps, B sequences, N heads, K numbers of a key, V of a value, C steps of a chunk.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 16  # longer chunks have more products of queries and keys, shorter ones more calls


class Decay(NamedTuple):
    """How much of each step is left at each other step of a chunk, as logarithms.

    between  (B, N, C, C) from step j, at step i: -inf where j is later, or where a reset is between
    before   (B, N, C) from the state before the chunk
    """

    between: Tensor
    before: Tensor


def decay_of(log_decay: Tensor, first: Tensor) -> Decay:
    """log_decay (C, B, N) at most 0, first (C, B)."""
    episode = first.movedim(0, -1).cumsum(-1)[:, None]  # (B, 1, C)
    log_decay = log_decay.movedim(0, -1)
    same = (episode[..., :, None] == episode[..., None, :]).tril()
    # The sum over the steps after j: a difference of sums from the start would leak, by rounding, what is
    # before a reset.
    steps = log_decay[..., :, None].where(same.tril(-1), 0.0)
    # Products with ones instead of cumsum, which has no deterministic kernel on CUDA.
    ones = torch.ones(len(first), len(first), dtype=steps.dtype, device=steps.device).tril()
    between = (ones @ steps).masked_fill(~same, -torch.inf)
    same = episode == 0
    before = log_decay.where(same, 0.0) @ ones.T
    return Decay(between, before.masked_fill(~same, -torch.inf))


def outer(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, first: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y (T, B, N, V) and the state (B, N, K, V) after the last step.

    query, key (T, B, N or 1, K), value (T, B, N, V), log_decay (T, B, N) at most 0, first (T, B)
    """
    outputs = []
    for q, k, v, log_a, opens in chunks(query, key, value, log_decay, first):
        between, before = (torch.exp(x) for x in decay_of(log_a, opens))
        q, k, v = by_head(q), by_head(k), by_head(v)
        outputs.append(((q @ k.mT) * between) @ v + (q * before[..., None]) @ state)
        state = (k * between[..., -1, :, None]).mT @ v + before[..., -1, None, None] * state
    return torch.cat([y.movedim(2, 0) for y in outputs]), state


def delta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    first: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """The delta rule: y and state as `outer`, with beta (T, B, N) in [0, 1].

        S[t] = a[t] (I - beta[t] k[t] k[t]^T) S[t-1] + beta[t] k[t] v[t]^T

    It is `outer` with values u[t] = beta[t] (v[t] - a[t] S[t-1]^T k[t]). Those of a chunk depend on
    each other linearly, each on those of earlier steps: they solve a triangular system.
    """
    outputs = []
    for q, k, v, b, log_a, opens in chunks(query, key, value, beta, log_decay, first):
        between, before = (torch.exp(x) for x in decay_of(log_a, opens))
        q, k, v, b = by_head(q), by_head(k), by_head(v), b.movedim(0, -1)[..., None]
        system = b * ((k @ k.mT) * between).tril(-1)
        right = b * (v - (k * before[..., None]) @ state)
        # A single step depends on no other step of its chunk, and ONNX has no triangular solver.
        single = len(opens) == 1
        v = right if single else torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        outputs.append(((q @ k.mT) * between) @ v + (q * before[..., None]) @ state)
        state = (k * between[..., -1, :, None]).mT @ v + before[..., -1, None, None] * state
    return torch.cat([y.movedim(2, 0) for y in outputs]), state


def exponential(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_input: Tensor,
    log_forget: Tensor,
    first: Tensor,
    state: tuple[Tensor, Tensor],
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """h (T, B, N, V) of mLSTM, and its state after the last step.

    query, key, value (T, B, N, V); log_input, log_forget (T, B, N); state: memory (B, N, V, V + 1), of which
    the last column is the normaliser, and stabiliser m (B, N)
    """
    outputs = []
    for q, k, v, log_i, log_f, opens in chunks(
        query, key, F.pad(value, (0, 1), value=1.0), log_input, log_forget, first
    ):
        decay = decay_of(log_f, opens)
        y, state = _exponential_chunk(by_head(q), by_head(k), by_head(v), log_i.movedim(0, -1), decay, state)
        outputs.append(y.movedim(2, 0))
    return torch.cat(outputs), state


def _exponential_chunk(
    query: Tensor, key: Tensor, value: Tensor, log_input: Tensor, decay: Decay, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """h (B, N, C, V), and the state after the last step; the last number of each value is 1."""
    memory, m = state
    log_weights = decay.between + log_input[..., None, :]
    log_before = decay.before + m[..., None]
    # No gradient: h is the same for every m.
    largest = torch.maximum(log_weights.amax(-1), log_before).detach()
    weights, before = torch.exp(log_weights - largest[..., None]), torch.exp(log_before - largest)
    y = ((query @ key.mT) * weights) @ value + (query * before[..., None]) @ memory
    memory = (key * weights[..., -1, :, None]).mT @ value + before[..., -1, None, None] * memory
    scale = torch.maximum(y[..., -1:].abs(), torch.exp(-largest)[..., None])
    return y[..., :-1] / scale, (memory, largest[..., -1])


def chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same steps of each tensor (T, ...)."""
    return zip(*(x.split(CHUNK) for x in tensors), strict=True)


def by_head(x: Tensor) -> Tensor:
    """(C, B, N, D) -> (B, N, C, D)."""
    return x.movedim(0, 2)


def short_convolution(x: Tensor, weight: Tensor, state: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """y[t] = sum over j of weight[j] x[t-j] (T, B, D) within the episode, and the last J - 1 inputs.

    x (T, B, D), weight (J, D), state (B, J - 1, D)
    """
    taps = len(weight)
    padded = torch.cat([state.movedim(1, 0), x])
    whole = torch.ones_like(first)  # whether the episode has the step j before, as far as this call sees
    y, kept = weight[0] * x, []
    for j in range(1, taps):
        opens = F.pad(first, (0, 0, j - 1, 0))[: len(first)]
        whole = whole & ~opens
        y = y + weight[j] * padded[taps - 1 - j : taps - 1 - j + len(x)].masked_fill(~whole[..., None], 0.0)
        # The input of j - 1 steps before the last one.
        open_since = first[-(j - 1) :].any(0) if j > 1 else torch.zeros_like(first[0])
        kept.append(padded[len(padded) - j].masked_fill(open_since[:, None], 0.0))
    return y, torch.stack(kept[::-1], 1)
