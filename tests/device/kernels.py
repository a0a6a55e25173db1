"""Kernels that torch wants of a device under names that the CPU has not: convolutions, recurrent cells.

Shapes.  B sequences, H units.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *settings: Any) -> Any:
    *geometry, mask = settings
    return aten.convolution_backward(grad, x, weight, [len(weight)], *geometry, mask)


def _with_biases(x: Tensor, h: Tensor, biases: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor]:
    for_x, for_h = (*biases, None, None)[:2]
    return x if for_x is None else x + for_x, h if for_h is None else h + for_h


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, *biases: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of the gates from x and from h (B, 4H), c -> h', c', and the gates for the gradient."""
    x, h = _with_biases(x, h, biases)
    i, f, candidate, o = (x + h).chunk(4, 1)
    i, f, candidate, o = i.sigmoid(), f.sigmoid(), candidate.tanh(), o.sigmoid()
    new = f * c + i * candidate
    return o * new.tanh(), new, torch.cat([i, f, candidate, o], 1)


def lstm_cell_backward(
    of_h: Tensor | None, of_c: Tensor | None, c: Tensor, new: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates' inputs, of c and of the bias."""
    i, f, candidate, o = gates.chunk(4, 1)
    squashed = new.tanh()
    of_h = torch.zeros_like(c) if of_h is None else of_h
    of_new = of_h * o * (1 - squashed.square())
    of_new = of_new if of_c is None else of_new + of_c
    of_gates = torch.cat(
        [
            of_new * candidate * i * (1 - i),
            of_new * c * f * (1 - f),
            of_new * i * (1 - candidate.square()),
            of_h * squashed * o * (1 - o),
        ],
        1,
    )
    return of_gates, of_new * f, of_gates.sum(0) if has_bias else torch.empty(0)


def gru_cell(x: Tensor, recurrent: Tensor, h: Tensor, *biases: Tensor | None) -> tuple[Tensor, Tensor]:
    """Inputs of the gates from x and from h (B, 3H), h -> h', and what the gradient needs."""
    x, recurrent = _with_biases(x, recurrent, biases)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, 1), recurrent.chunk(3, 1)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    n = (x_n + r * h_n).tanh()
    return n + z * (h - n), torch.cat([r, z, n, h, h_n], 1)


def gru_cell_backward(grad: Tensor, saved: Tensor, has_bias: bool) -> tuple[Tensor, ...]:
    """Gradients of the gates' inputs from x and from h, of h, and of both biases."""
    r, z, n, h, h_n = saved.chunk(5, 1)
    of_n = grad * (1 - z) * (1 - n.square())
    of_z, of_r = grad * (h - n) * z * (1 - z), of_n * h_n * r * (1 - r)
    of_x, of_recurrent = torch.cat([of_r, of_z, of_n], 1), torch.cat([of_r, of_z, of_n * r], 1)
    biases = [x.sum(0) if has_bias else torch.empty(0) for x in (of_x, of_recurrent)]
    return of_x, of_recurrent, grad * z, *biases


KERNELS: dict[Any, Callable[..., Any]] = {
    aten.convolution_overrideable.default: aten.convolution,
    aten.convolution_backward_overrideable.default: convolution_backward,
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: gru_cell,
    aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
}
