"""The recurrences of memories, and a norm after one, as one object: by torch here, in C by
`native/sequences.py`.

A memory calls `self.sequences`, which the engine of a training exchanges (`use`). Both implementations
compute the same up to rounding.

Shapes.  T steps, B sequences, H units, N heads, K numbers of a key, V of a value, D channels, J taps. first
(T, B) is true where an episode starts: the state before it is 0, for every recurrence.
"""

from abc import ABC
from typing import Protocol, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from . import Memory, matrix, scan

Pair: TypeAlias = tuple[Tensor, Tensor]


class Sequences(Protocol):
    """Recurrences over whole sequences, with gradients."""

    @property
    def name(self) -> str:
        """Of the implementation; equal names compute equal bits. Torch's is empty."""

    def linear(self, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        """All h[t] = decay[t] h[t-1] + add[t] (T, B, H); decay and add (T, B, H), h[-1] (B, H)."""

    def oscillating(self, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        """The same with one complex decay (H,) per unit, the same at each step.

        H real parts, then H imaginary parts: decay (2H,), add (T, B, 2H), h (B, 2H).
        """

    def convolution(self, x: Tensor, taps: Tensor, first: Tensor, past: Tensor) -> Pair:
        """y[t] = silu(sum over j of taps[j] x[t-j]) (T, B, D) within the episode, and the last J - 1 inputs.

        x (T, B, D), taps (J, D), past (B, J - 1, D)
        """

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
        """y[t] = q[t] S[t] (T, B, N, V) of S[t] = a[t] S[t-1] + c[t] k[t] v[t]^T, and the last S.

        query, key (T, B, N or 1, K), value (T, B, N, V), scale c (T, B, N; None: 1), log_decay (T, B, N) at
        most 0, S (B, N, K, V)
        """

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
        """As `outer`, by the delta rule, with beta (T, B, N) in [0, 1].

        S[t] = a[t] (I - beta[t] k[t] k[t]^T) S[t-1] + beta[t] k[t] v[t]^T; queries and keys are divided by
        their lengths.
        """

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
        """h (T, B, N, V) of mLSTM, and its state after the last step.

        query, key, value (T, B, N, V); log_input, log_forget (T, B, N); state: memory (B, N, V, V + 1), of
        which the last column is the normaliser, and stabiliser m (B, N)
        """

    def gated(
        self, x: Tensor, weight: Tensor, first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """h (T, B, N, D) of sLSTM, and its state after the last step.

        x (T, B, N, 4 D) and weight (N, D, 4 D) with the gates z, o, i and f beside each other; state: h, c, n
        and m (B, N, D)
        """

    def gated_norm(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        """z = x silu(gate), divided by its root mean square and multiplied by a weight.

        x, gate (T, B, D), weight (D,); eps is added to the mean square
        """


class TorchSequences:
    """By torch, on every device, and in exported graphs."""

    name = ""

    def linear(self, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        return scan.linear(decay.masked_fill(first[..., None], 0.0), add, h)

    def oscillating(self, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        return scan.linear((~first).to(add.dtype)[..., None] * decay, add, h, pairs=True)

    def convolution(self, x: Tensor, taps: Tensor, first: Tensor, past: Tensor) -> Pair:
        y, past = matrix.short_convolution(x, taps, past, first)
        return F.silu(y), past

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
        value = value if scale is None else value * scale[..., None]
        return matrix.outer(query, key, value, log_decay, first, state)

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
        query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        return matrix.delta(query, key, value, beta, log_decay, first, state)

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
        return matrix.exponential(query, key, value, log_input, log_forget, first, state)

    def gated(
        self, x: Tensor, weight: Tensor, first: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return scan.gated(x, weight, first, state)

    def gated_norm(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(x * F.silu(gate), weight.shape, weight, eps)


TORCH = TorchSequences()


class SequenceMemory(Memory, ABC):
    """A memory whose recurrence is one of `Sequences`."""

    sequences: Sequences = TORCH


def use(sequences: Sequences, net: nn.Module) -> None:
    """Compute the recurrences of all memories of a network with these."""
    for memory in sequence_memories(net):
        memory.sequences = sequences


def sequence_memories(net: nn.Module) -> list[SequenceMemory]:
    """The memories of a network that `use` changes."""
    return [module for module in net.modules() if isinstance(module, SequenceMemory)]
