"""The recurrences of memories, in C (sequences.h, outer.h, gated.h, gated_norm.h).

Tensors that the kernels cannot read, as those of another type or device, and graphs for export take torch's.

Shapes.  T steps, B sequences, H units, N heads, K numbers of a key, V of a value, D channels, J taps.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_exporting

from ..memory.sequences import TORCH, Pair
from .autograd import convolution, gated, gated_norm, library, matrix, scan, stabilisers
from .library import version


class NativeSequences:
    """By the native kernels; an UnavailableError if they cannot be used on this machine."""

    def __init__(self) -> None:
        library()

    @property
    def name(self) -> str:
        return f"sequences {version()}"

    def linear(self, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        if not _are_readable(decay, add, h):
            return TORCH.linear(decay, add, first, h)
        return scan("scan", decay, add, first, h)

    def oscillating(self, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        if not _are_readable(decay, add, h):
            return TORCH.oscillating(decay, add, first, h)
        return scan("oscillate", decay, add, first, h)

    def convolution(self, x: Tensor, taps: Tensor, first: Tensor, past: Tensor) -> Pair:
        if not _are_readable(x, taps, past):
            return TORCH.convolution(x, taps, first, past)
        return convolution(x, taps, first, past)

    def outer(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: Tensor | None,
        log_decay: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> Pair:
        scales = () if scale is None else (scale,)
        if not _are_readable(query, key, value, *scales, log_decay, state):
            return TORCH.outer(query, key, value, scale, log_decay, first, state)
        return matrix(query, key, value, scale, torch.exp(log_decay), first, state, False)

    def delta(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        beta: Tensor,
        log_decay: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> Pair:
        if not _are_readable(query, key, value, beta, log_decay, state):
            return TORCH.delta(query, key, value, beta, log_decay, first, state)
        return matrix(query, key, value, beta, torch.exp(log_decay), first, state, True)

    def exponential(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        log_input: Tensor,
        log_forget: Tensor,
        first: Tensor,
        state: Pair,
    ) -> tuple[Tensor, Pair]:
        """A matrix memory with weights divided by exp(m): exp of nothing above 0."""
        if not _are_readable(query, key, value, log_input, log_forget, *state):
            return TORCH.exponential(query, key, value, log_input, log_forget, first, state)
        memory, start = state
        m = stabilisers(log_input, log_forget, first, start)
        # After a reset nothing is carried, and the decay is exp(-inf), whose gradient is 0.
        before = torch.cat([start[None], m[:-1]]).masked_fill(first[..., None], -torch.inf)
        decay = torch.exp(log_forget + before - m)
        key = key * torch.exp(log_input - m)[..., None]
        y, memory = matrix(query, key, F.pad(value, (0, 1), value=1.0), None, decay, first, memory, False)
        scale = torch.maximum(y[..., -1:].abs(), torch.exp(-m)[..., None])
        return y[..., :-1] / scale, (memory, m[-1])

    def gated(
        self, x: Tensor, weight: Tensor, first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if not _are_readable(x, weight, *state):
            return TORCH.gated(x, weight, first, state)
        y, *after = gated(x, weight, first, *state)
        return y, (y[-1], *after)

    def gated_norm(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        if not _are_readable(x, gate, weight):
            return TORCH.gated_norm(x, gate, weight, eps)
        return gated_norm(x, gate, weight, eps)


def _are_readable(*tensors: Tensor) -> bool:
    return all(x.is_cpu and x.dtype == torch.float32 for x in tensors) and not is_exporting()
