"""Element-wise recurrences over whole sequences, with their gradients written out.

One scan serves every memory whose state is a vector that decays: minGRU, LRU, FFM and SHM. It keeps the
states and nothing else, so its memory grows with T alone, and it never waits for a device.

Shapes.  T steps, B sequences, H units; more axes after them are units as well.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_exporting

TINY = 1e-30  # so that a state of zeros divides by no 0

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def linear(decay: Tensor, add: Tensor, h: Tensor, pairs: bool = False) -> Tensor:
    """All h[t] = decay[t] h[t-1] + add[t] (T, B, H); decay and add (T, B, H), h[-1] (B, H).

    A reset is a decay of 0. With `pairs` the numbers are complex: real parts, then imaginary parts, on the
    last axis. On a CPU the loop is in numpy; elsewhere it runs in chunks, with about 2 sqrt(T) steps of a
    few launches each instead of T. An exported graph has the steps one by one.
    """
    if is_exporting():
        return linear_reference(decay, add, h, pairs)
    return _linear(decay, add, h, pairs)


def rectified(decay: Tensor, add: Tensor, h: Tensor) -> Tensor:
    """All h[t] = relu(decay[t] h[t-1] + add[t]), as `linear`, real only."""
    if not add.is_cpu or is_exporting():
        return rectified_reference(decay, add, h)
    return _rectified(decay, add, h)


def gated(
    x: Tensor, weight: Tensor, first: Tensor, state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """h (T, B, N, D) of sLSTM, one step at a time and by autograd, and its state after the last step.

    x (T, B, N, 4 D) and weight (N, D, 4 D) with the gates z, o, i and f beside each other; state: h, c, n
    and m (B, N, D)
    """
    h, c, n, m = state
    outputs = []
    for x_t, opens in zip(x, first[..., None, None], strict=True):
        h, c, n = (s.masked_fill(opens, 0.0) for s in (h, c, n))
        z, o, log_i, log_f = (x_t + torch.einsum("bnd,nde->bne", h, weight)).chunk(4, -1)
        # After a reset nothing is carried, so m is that of the input alone.
        kept = (F.logsigmoid(log_f) + m).masked_fill(opens, -torch.inf)
        m = torch.maximum(kept, log_i).detach()
        i, f = torch.exp(log_i - m), torch.exp(kept - m)
        c, n = f * c + i * torch.tanh(z), f * n + i
        h = torch.sigmoid(o) * c / n.clamp_min(TINY)
        outputs.append(h)
    return torch.stack(outputs), (h, c, n, m)


# References, by autograd ----------------------------------------------------------------------


def linear_reference(decay: Tensor, add: Tensor, h: Tensor, pairs: bool = False) -> Tensor:
    """The same as `linear`, one step at a time."""
    states = []
    for a, b in zip(decay, add, strict=True):
        h = product(a, h, pairs) + b
        states.append(h)
    return torch.stack(states)


def product(a: Tensor, b: Tensor, pairs: bool) -> Tensor:
    """a b, of real numbers or of pairs."""
    if not pairs:
        return a * b
    real, imaginary = a.chunk(2, -1)
    x, y = b.chunk(2, -1)
    return torch.cat([real * x - imaginary * y, real * y + imaginary * x], -1)


def conjugate(a: Tensor, pairs: bool) -> Tensor:
    """The factor of a gradient through a product with a."""
    if not pairs:
        return a
    real, imaginary = a.chunk(2, -1)
    return torch.cat([real, -imaginary], -1)


def rectified_reference(decay: Tensor, add: Tensor, h: Tensor) -> Tensor:
    """The same as `rectified`, one step at a time."""
    states = []
    for a, b in zip(decay, add, strict=True):
        h = torch.relu(a * h + b)
        states.append(h)
    return torch.stack(states)


# With gradients -------------------------------------------------------------------------------


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, add: Tensor, h: Tensor, pairs: bool) -> Tensor:
        ctx.pairs = pairs
        if not add.is_cpu:
            states = linear_in_chunks(decay, add, h, pairs)
            ctx.save_for_backward(decay, h, states)
            return states
        a, b, start = (_to_numpy(x.detach(), pairs) for x in (decay, add, h))
        arrays = np.empty((len(b) + 1, *b.shape[1:]), b.dtype)
        arrays[0] = start
        for old, new, a_t, b_t in zip(arrays, arrays[1:], a, b, strict=False):
            np.multiply(a_t, old, out=new)
            new += b_t
        # The result may be a view of `arrays`, which the backward pass reads: a caller that changed it in
        # place would corrupt gradients without an error.
        ctx.arrays = a, arrays
        return _to_torch(arrays[1:], pairs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        pairs = ctx.pairs
        if not grads[0].is_cpu:
            decay, h, states = ctx.saved_tensors
            return *linear_gradients(grads[0], decay, h, states, pairs), None
        a, arrays = ctx.arrays
        before = arrays[:-1]
        if pairs:
            a, before = a.conj(), before.conj()
        of_add = np.array(_to_numpy(grads[0], pairs))  # a copy: autograd's array must not change
        # From the end on, of_add[t] becomes the whole gradient of h[t], which is that of add[t] as well. A
        # reset is a decay of 0 and lets no gradient through.
        for t in range(len(a) - 1, 0, -1):
            of_add[t - 1] += a[t] * of_add[t]
        gradients = of_add * before, of_add, a[0] * of_add[0]
        return *(_to_torch(x, pairs) for x in gradients), None


def _to_numpy(x: Tensor, pairs: bool) -> Array:
    """An array with the memory of x; of pairs a new complex array."""
    array: Array = x.numpy()
    if not pairs:
        return array
    width = array.shape[-1] // 2
    numbers = np.empty((*array.shape[:-1], width), np.result_type(array.dtype, np.complex64))
    numbers.real, numbers.imag = array[..., :width], array[..., width:]
    return numbers


def _to_torch(x: Array, pairs: bool) -> Tensor:
    return torch.from_numpy(np.concatenate([x.real, x.imag], -1) if pairs else x)


class _Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, add: Tensor, h: Tensor) -> Tensor:
        a, b, start = (x.detach().numpy() for x in (decay, add, h))
        states = np.empty((len(b) + 1, *b.shape[1:]), b.dtype)
        states[0] = start
        for old, new, a_t, b_t in zip(states, states[1:], a, b, strict=False):
            np.multiply(a_t, old, out=new)
            new += b_t
            np.maximum(new, 0, out=new)
        ctx.arrays = a, states
        return torch.from_numpy(states[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, states = ctx.arrays
        of_add = np.array(grads[0].numpy())
        open_units = states[1:] > 0
        for t in range(len(a) - 1, 0, -1):
            of_add[t] *= open_units[t]
            of_add[t - 1] += a[t] * of_add[t]
        of_add[0] *= open_units[0]
        of_decay, of_start = of_add * states[:-1], a[0] * of_add[0]
        return torch.from_numpy(of_decay), torch.from_numpy(of_add), torch.from_numpy(of_start)


# Elsewhere ------------------------------------------------------------------------------------


def linear_in_chunks(decay: Tensor, add: Tensor, h: Tensor, pairs: bool = False) -> Tensor:
    """The same as `linear`: chunks of about sqrt(T) steps at once, then from chunk to chunk."""
    steps, length = len(add), math.isqrt(len(add) - 1) + 1
    count = -(-steps // length)
    # Steps after the end, which are cut off again.
    pad = [0, 0] * (add.ndim - 1) + [0, count * length - steps]
    a, b = (F.pad(x, pad).unflatten(0, (count, length)) for x in (decay, add))
    local, factor = [b[:, 0]], [a[:, 0]]  # by step of a chunk: state from 0, and factor on its first state
    for t in range(1, length):
        local.append(product(a[:, t], local[-1], pairs) + b[:, t])
        factor.append(product(a[:, t], factor[-1], pairs))
    starts = [h]
    for chunk in range(count - 1):
        starts.append(product(factor[-1][chunk], starts[-1], pairs) + local[-1][chunk])
    carried = product(torch.stack(factor, 1), torch.stack(starts)[:, None].expand_as(a), pairs)
    return (torch.stack(local, 1) + carried).flatten(0, 1)[:steps]


def linear_gradients(
    grad: Tensor, decay: Tensor, h: Tensor, states: Tensor, pairs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of decay, add and h: the same recurrence, from the last step to the first."""
    decay = conjugate(decay, pairs)
    later = torch.cat([decay[1:], torch.zeros_like(decay[:1])]).flip(0)
    of_add = linear_in_chunks(later, grad.flip(0), torch.zeros_like(h), pairs).flip(0)
    before = conjugate(torch.cat([h[None], states[:-1]]), pairs)
    return product(of_add, before, pairs), of_add, product(decay[0], of_add[0], pairs)


_linear: Callable[[Tensor, Tensor, Tensor, bool], Tensor] = _Linear.apply
_rectified: Callable[[Tensor, Tensor, Tensor], Tensor] = _Rectified.apply
