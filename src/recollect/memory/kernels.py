"""Recurrences over whole sequences, written out with their gradients.

A step of a recurrence is a few small products. Called one by one through autograd, the calls cost more
than the arithmetic; with gradients written out, a GRU trains more than twice as fast as torch's (figures
in ARCHITECTURE.md). The loop is in numpy, for a CPU; the tests compare it with autograd (`*_reference`).
Matrix products are torch's, which keeps to the thread count that it was given.

Shapes.  T steps, B sequences, H units. keep (T, B, 1) is 0 where a sequence is reset, else 1.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_exporting

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def gru(gates: Tensor, recurrent: Tensor, bias: Tensor, h: Tensor, keep: Tensor) -> Tensor:
    """The hidden state after each step (T, B, H) of a GRU.

    gates      (T, B, 3H)  inputs of the reset gate, the update gate and the candidate
    recurrent  (3H, H)     recurrent weights of the three
    bias       (H,)        recurrent bias of the candidate
    h          (B, H)      the hidden state before the first step
    """
    return _gru(gates, recurrent, bias, h, keep)


def elman(inputs: Tensor, recurrent: Tensor, h: Tensor, keep: Tensor, linear: int = 0) -> Tensor:
    """All h[t] = tanh(inputs[t] + recurrent h[t-1]) (T, B, H); the last `linear` units have no tanh.

    inputs (T, B, H), recurrent (H, H), h[-1] (B, H). Elsewhere than on a CPU, and in an exported
    graph, torch runs the loop.
    """
    if not inputs.is_cpu or is_exporting():
        return elman_reference(inputs, recurrent, h, keep, linear)
    return _elman(inputs, recurrent, h, keep, linear)


# References, by autograd ----------------------------------------------------------------------


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


def elman_reference(inputs: Tensor, recurrent: Tensor, h: Tensor, keep: Tensor, linear: int = 0) -> Tensor:
    """The same as `elman`, one step at a time."""
    states, units = [], h.shape[-1] - linear
    for x, kept in zip(inputs, keep, strict=True):
        h = x + (h * kept) @ recurrent.T
        h = torch.cat([torch.tanh(h[:, :units]), h[:, units:]], -1)
        states.append(h)
    return torch.stack(states)


# On a CPU -------------------------------------------------------------------------------------


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor, bias: Tensor, h: Tensor, keep: Tensor) -> Tensor:
        arrays = [x.detach().numpy() for x in (gates, recurrent, bias, h, keep)]
        states, *saved = _gru_forward(*arrays)
        # Not save_for_backward, so autograd does not notice changes: arrays[1] is the memory of the weights,
        # and the backward pass must come before the optimiser writes to it.
        ctx.arrays = (arrays[1], arrays[4], *saved)
        return torch.from_numpy(states)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # The gradient of a sum is one expanded number without strides, which numpy's loops are slow on.
        gradients = _gru_backward(np.ascontiguousarray(grads[0].numpy()), *ctx.arrays)
        return *map(torch.from_numpy, gradients), None


def _gru_forward(
    gates: Array, recurrent: Array, bias: Array, h: Array, keep: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The states, and arrays for the gradient: states before each step after resets, r beside z, c, n.

    c is the recurrent input of the candidate, n the candidate.
    """
    steps, batch, width = gates.shape[0], gates.shape[1], h.shape[1]
    two = 2 * width
    # sigmoid(x) = (tanh(x / 2) + 1) / 2, and numpy's tanh is fast: halve the inputs of the sigmoids.
    # Halving is exact in floating point, so no sum is rounded differently.
    # A copy always: of width 1 the transposed weights are contiguous, and would be halved in the module.
    weights = np.array(recurrent.T, order="C")
    weights[:, :two] *= 0.5
    halves = gates[..., :two] * gates.dtype.type(0.5)
    states, before, c, n = (np.empty((steps, batch, width), gates.dtype) for _ in range(4))
    rz = np.empty((steps, batch, two), gates.dtype)
    product = np.empty((batch, 3 * width), gates.dtype)
    to_gates, to_candidate = product[:, :two], product[:, two:]
    # Tensors that share the memory of these arrays: torch writes its products where numpy reads them.
    of_weights, of_product, of_before = map(torch.from_numpy, (weights, product, before))
    arrays = zip(states, before, of_before, c, n, rz, halves, gates[..., two:], keep, strict=True)
    for new, old, of_old, c_t, n_t, rz_t, half, candidate, kept in arrays:
        # Not in place: h is the output of the step before.
        np.multiply(h, kept, out=old)
        torch.mm(of_old, of_weights, out=of_product)
        np.add(half, to_gates, out=rz_t)
        np.tanh(rz_t, out=rz_t)
        rz_t += 1.0
        rz_t *= 0.5
        np.add(to_candidate, bias, out=c_t)
        np.multiply(rz_t[:, :width], c_t, out=n_t)
        n_t += candidate
        np.tanh(n_t, out=n_t)
        np.subtract(old, n_t, out=new)
        new *= rz_t[:, width:]
        new += n_t
        h = new
    return states, before, rz, c, n


def _gru_backward(
    grad: Array, recurrent: Array, keep: Array, before: Array, rz: Array, c: Array, n: Array
) -> tuple[Array, Array, Array, Array]:
    """Gradients of gates, recurrent, bias and h."""
    width = n.shape[2]
    r, z = rz[..., :width], rz[..., width:]
    # Factors that do not depend on the gradient, for all steps at once.
    # h' = n + z (h - n): through z, factor h - n; through n, factor 1 - z. The input of n contains r c:
    # through r, factor c. Each times the derivative of its sigmoid, s (1 - s), or of tanh, 1 - n n.
    to_z = (before - n) * z * (1 - z)
    to_n = (1 - z) * (1 - n * n)
    to_r = c * r * (1 - r)
    by_gates, by_n = np.empty((*n.shape[:2], 3 * width), n.dtype), np.empty_like(n)
    by_h, product = np.zeros_like(n[0]), np.empty_like(n[0])
    of_recurrent, of_gates, of_product = map(torch.from_numpy, (recurrent, by_gates, product))
    arrays = zip(grad, to_z, to_n, to_r, r, z, keep, by_gates, of_gates, by_n, strict=True)
    for grad_t, to_z_t, to_n_t, to_r_t, r_t, z_t, kept, gates_t, of_gates_t, by_n_t in reversed(list(arrays)):
        # by_h is the gradient from step t+1; that of y[t] is added.
        by_h += grad_t
        np.multiply(by_h, to_z_t, out=gates_t[:, width : 2 * width])
        np.multiply(by_h, to_n_t, out=by_n_t)
        np.multiply(by_n_t, to_r_t, out=gates_t[:, :width])
        np.multiply(by_n_t, r_t, out=gates_t[:, 2 * width :])
        # Two paths to the state before: directly through z, and through the recurrent products of all gates.
        # A reset has cut both, so `kept` comes last.
        by_h *= z_t
        torch.mm(of_gates_t, of_recurrent, out=of_product)
        by_h += product
        by_h *= kept
    # One product over all steps. `before` is 0 where a sequence was reset, so these steps add nothing.
    by_recurrent = of_gates.flatten(0, 1).T @ torch.from_numpy(before).flatten(0, 1)
    by_bias = by_gates[..., 2 * width :].sum((0, 1))
    # Until here the last third was the gradient of c, r times that of the candidate's input.
    by_gates[..., 2 * width :] = by_n
    return by_gates, by_recurrent.numpy(), by_bias, by_h


class _Elman(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, recurrent: Tensor, h: Tensor, keep: Tensor, linear: int) -> Tensor:
        x, weights, start, kept = (t.detach().numpy() for t in (inputs, recurrent, h, keep))
        states, before = np.empty_like(x, order="C"), np.empty_like(x, order="C")
        units = x.shape[2] - linear
        of_weights, of_before, of_states = map(torch.from_numpy, (weights.T, before, states))
        arrays = zip(before, of_before, states, of_states, x, kept, strict=True)
        for old, of_old, new, of_new, x_t, kept_t in arrays:
            np.multiply(start, kept_t, out=old)
            torch.mm(of_old, of_weights, out=of_new)
            new += x_t
            np.tanh(new[:, :units], out=new[:, :units])
            start = new
        ctx.arrays = weights, kept, before, states, units
        return of_states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weights, kept, before, states, units = ctx.arrays
        of_inputs = np.array(grads[0].numpy())
        slopes = 1 - np.square(states[..., :units])
        by_h = np.zeros_like(before[0])
        of_weights, of_of_inputs, of_by_h = map(torch.from_numpy, (weights, of_inputs, by_h))
        for t in range(len(before) - 1, -1, -1):
            of_inputs[t] += by_h
            of_inputs[t, :, :units] *= slopes[t]
            torch.mm(of_of_inputs[t], of_weights, out=of_by_h)
            by_h *= kept[t]
        of_recurrent = of_of_inputs.flatten(0, 1).T @ torch.from_numpy(before).flatten(0, 1)
        return of_of_inputs, of_recurrent, of_by_h, None, None


_gru: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] = _Gru.apply
_elman: Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor] = _Elman.apply
