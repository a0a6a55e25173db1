"""Recurrences over whole sequences, written out with their gradients.

A step of a recurrence is a few small products. Called one by one through autograd they cost more in
calls than in arithmetic; written out, a GRU learns more than twice as fast as torch's own (figures in
ARCHITECTURE.md). On a CPU numpy runs the loop, elsewhere autograd does (`*_reference`, which the tests
hold this file against). Products of matrices are torch's, which keeps to the threads it was given.

Shapes.  T rows, B rows of a batch, H units. keep (T, B, 1) is 0 where a row is cleared, else 1.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def gru(gates: Tensor, recurrent: Tensor, bias: Tensor, h: Tensor, keep: Tensor) -> Tensor:
    """All T states (T, B, H) of a GRU.

    gates      (T, B, 3H)  what the input says to reset gate, update gate and candidate
    recurrent  (3H, H)     what the state says to them      bias  (H,)  beside it, of the candidate
    h          (B, H)      the state before the first row
    """
    if not gates.is_cpu:
        return gru_reference(gates, recurrent, bias, h, keep)
    return _gru(gates, recurrent, bias, h, keep)


def linear(decay: Tensor, add: Tensor, h: Tensor) -> Tensor:
    """All T states (T, B, H) of h[t] = decay[t] h[t-1] + add[t]; decay and add (T, B, H)."""
    if not add.is_cpu:
        return linear_reference(decay, add, h)
    return _linear(decay, add, h)


# As autograd would have it --------------------------------------------------------------------


def gru_reference(gates: Tensor, recurrent: Tensor, bias: Tensor, h: Tensor, keep: Tensor) -> Tensor:
    """The same as `gru`, one step at a time."""
    states = []
    for gate, kept in zip(gates, keep, strict=True):
        h = h * kept
        reset, update, candidate = gate.chunk(3, -1)
        to_reset, to_update, to_candidate = (h @ recurrent.T).chunk(3, -1)
        z = torch.sigmoid(update + to_update)
        n = torch.tanh(candidate + torch.sigmoid(reset + to_reset) * (to_candidate + bias))
        h = n + z * (h - n)
        states.append(h)
    return torch.stack(states)


def linear_reference(decay: Tensor, add: Tensor, h: Tensor) -> Tensor:
    """The same as `linear`, one step at a time."""
    states = []
    for a, b in zip(decay, add, strict=True):
        h = a * h + b
        states.append(h)
    return torch.stack(states)


# On a CPU -------------------------------------------------------------------------------------


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor, bias: Tensor, h: Tensor, keep: Tensor) -> Tensor:
        arrays = [x.detach().numpy() for x in (gates, recurrent, bias, h, keep)]
        states, *kept = _gru_forward(*arrays)
        ctx.arrays = (arrays[1], arrays[4], *kept)
        return torch.from_numpy(states)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found = _gru_backward(np.ascontiguousarray(grads[0].numpy()), *ctx.arrays)
        return *map(torch.from_numpy, found), None


def _gru_forward(
    gates: Array, recurrent: Array, bias: Array, h: Array, keep: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The states, and what the gradient needs: cleared states before each row, r beside z, c, n."""
    steps, batch, width = gates.shape[0], gates.shape[1], h.shape[1]
    two = 2 * width
    # sigmoid(x) = (tanh(x / 2) + 1) / 2, and numpy's tanh is fast: halve what the sigmoids read.
    weights = np.ascontiguousarray(recurrent.T)
    weights[:, :two] *= 0.5
    halves = gates[..., :two] * gates.dtype.type(0.5)
    states, before, said, n = (np.empty((steps, batch, width), gates.dtype) for _ in range(4))
    rz = np.empty((steps, batch, two), gates.dtype)
    spoken = np.empty((batch, 3 * width), gates.dtype)
    to_gates, to_candidate = spoken[:, :two], spoken[:, two:]
    of_weights, of_spoken, of_before = map(torch.from_numpy, (weights, spoken, before))
    rows = zip(states, before, of_before, said, n, rz, halves, gates[..., two:], keep, strict=True)
    for new, old, of_old, said_t, n_t, rz_t, half, candidate, kept in rows:
        np.multiply(h, kept, out=old)
        torch.mm(of_old, of_weights, out=of_spoken)
        np.add(half, to_gates, out=rz_t)
        np.tanh(rz_t, out=rz_t)
        rz_t += 1.0
        rz_t *= 0.5
        np.add(to_candidate, bias, out=said_t)
        np.multiply(rz_t[:, :width], said_t, out=n_t)
        n_t += candidate
        np.tanh(n_t, out=n_t)
        np.subtract(old, n_t, out=new)
        new *= rz_t[:, width:]
        new += n_t
        h = new
    return states, before, rz, said, n


def _gru_backward(
    grad: Array, recurrent: Array, keep: Array, before: Array, rz: Array, said: Array, n: Array
) -> tuple[Array, Array, Array, Array]:
    """Gradients of gates, recurrent, bias and h."""
    width = n.shape[2]
    r, z = rz[..., :width], rz[..., width:]
    # What does not depend on the gradient, for all rows at once.
    to_z = (before - n) * z * (1 - z)
    to_n = (1 - z) * (1 - n * n)
    to_r = said * r * (1 - r)
    spoken, by_n = np.empty((*n.shape[:2], 3 * width), n.dtype), np.empty_like(n)
    running, product = np.zeros_like(n[0]), np.empty_like(n[0])
    of_recurrent, of_spoken, of_product = map(torch.from_numpy, (recurrent, spoken, product))
    rows = zip(grad, to_z, to_n, to_r, r, z, keep, spoken, of_spoken, by_n, strict=True)
    for grad_t, to_z_t, to_n_t, to_r_t, r_t, z_t, kept, spoken_t, of_spoken_t, by_n_t in reversed(list(rows)):
        running += grad_t
        np.multiply(running, to_z_t, out=spoken_t[:, width : 2 * width])
        np.multiply(running, to_n_t, out=by_n_t)
        np.multiply(by_n_t, to_r_t, out=spoken_t[:, :width])
        np.multiply(by_n_t, r_t, out=spoken_t[:, 2 * width :])
        running *= z_t
        torch.mm(of_spoken_t, of_recurrent, out=of_product)
        running += product
        running *= kept
    by_recurrent = of_spoken.flatten(0, 1).T @ torch.from_numpy(before).flatten(0, 1)
    by_bias = spoken[..., 2 * width :].sum((0, 1))
    spoken[..., 2 * width :] = by_n
    return spoken, by_recurrent.numpy(), by_bias, running


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, add: Tensor, h: Tensor) -> Tensor:
        a, b, start = (x.detach().numpy() for x in (decay, add, h))
        states = np.empty((len(b) + 1, *b.shape[1:]), b.dtype)
        states[0] = start
        for old, new, a_t, b_t in zip(states, states[1:], a, b, strict=False):
            np.multiply(a_t, old, out=new)
            new += b_t
        ctx.arrays = a, states
        return torch.from_numpy(states[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, states = ctx.arrays
        of_add = np.array(grads[0].numpy())
        for t in range(len(a) - 1, 0, -1):
            of_add[t - 1] += a[t] * of_add[t]
        of_decay, of_start = of_add * states[:-1], a[0] * of_add[0]
        return torch.from_numpy(of_decay), torch.from_numpy(of_add), torch.from_numpy(of_start)


_gru: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] = _Gru.apply
_linear: Callable[[Tensor, Tensor, Tensor], Tensor] = _Linear.apply
