"""The kernels of sequences.h, outer.h, gated.h and gated_norm.h as functions of autograd.

Shapes.  T steps, B sequences, H units, N heads, K numbers of a key, V of a value, D channels, J taps.
"""

import functools
from collections.abc import Callable
from ctypes import CDLL, byref
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..memory.sequences import Pair
from . import structures as c
from .library import load


@functools.cache
def library() -> CDLL:
    return load()


def _check(first: Tensor, *shapes: tuple[Tensor, tuple[int, ...]]) -> None:
    """Raise a ValueError for another shape than the kernels read: they would read other memory."""
    if first.dtype != torch.bool:
        raise ValueError(f"first has the type {first.dtype}; it must be torch.bool")
    for x, shape in ((first, tuple(first.shape[:2])), *shapes):
        if tuple(x.shape) != shape:
            raise ValueError(f"a tensor has the shape {tuple(x.shape)}; it must be {shape}")


class _Scan(Function):
    """States of one decay for each step and unit; of `oscillate` of one complex decay for each unit."""

    @staticmethod
    def forward(ctx: Any, kernel: str, decay: Tensor, add: Tensor, first: Tensor, h: Tensor) -> Tensor:
        numbers = h.shape[-1]
        shape = *first.shape, numbers
        _check(first, (decay, shape if kernel == "scan" else shape[2:]), (add, shape), (h, shape[1:]))
        decay, add, first, h = (x.contiguous() for x in (decay, add, first, h))
        states = torch.empty_like(add)
        ctx.kernel, ctx.units = kernel, numbers if kernel == "scan" else numbers // 2
        ctx.save_for_backward(decay, first, h, states)
        forward = getattr(library(), f"{kernel}_forward")
        forward(*first.shape, ctx.units, *_addresses(decay, add, first, h, states))
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_states: Tensor) -> tuple[Tensor | None, ...]:
        decay, first, h, states = ctx.saved_tensors
        by_states = by_states.contiguous()
        by_decay, by_add, by_h = (torch.empty_like(x) for x in (decay, states, h))
        tensors = decay, first, h, states, by_states, by_decay, by_add, by_h
        getattr(library(), f"{ctx.kernel}_backward")(*first.shape, ctx.units, *_addresses(*tensors))
        return None, by_decay, by_add, None, by_h


class _Convolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, first: Tensor, past: Tensor) -> Pair:
        channels = x.shape[-1]
        _check(
            first,
            (x, (*first.shape, channels)),
            (taps, (len(taps), channels)),
            (past, (first.shape[1], len(taps) - 1, channels)),
        )
        x, taps, first, past = _rows(x), taps.contiguous(), first.contiguous(), past.contiguous()
        sums, y, end = (like.new_empty(like.shape) for like in (x, x, past))
        ctx.save_for_backward(x, taps, first, past, sums)
        _convolve("convolution_forward", (x, taps, first, past, sums), y=y, end=end)
        return y, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_y: Tensor, by_end: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, _, past, _ = ctx.saved_tensors
        by_x, by_taps, by_past = (like.new_empty(like.shape) for like in (x, taps, past))
        _convolve(
            "convolution_backward",
            ctx.saved_tensors,
            by_y=by_y.contiguous(),
            by_end=by_end.contiguous(),
            by_sums=x.new_empty(x.shape[2]),
            by_x=by_x,
            by_weight=by_taps,
            by_start=by_past,
        )
        return by_x, by_taps, None, by_past


def _convolve(function: str, saved: tuple[Tensor, ...], **results: Tensor) -> None:
    """Call the kernel with the saved tensors of `_Convolution`, into some results."""
    x, taps, first, past, sums = saved
    tensors = {"x": x, "weight": taps, "start": past, "first": first, "sums": sums, **results}
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    rows = _row_stride(x), *[x.shape[2]] * 3
    getattr(library(), function)(byref(c.Convolution(*x.shape, len(taps), *rows, **pointers)))


class _Matrix(Function):
    @staticmethod
    def forward(  # noqa: PLR0913 (autograd sees only tensors that are arguments)
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        beta: Tensor | None,
        decay: Tensor,
        first: Tensor,
        state: Tensor,
        is_delta: bool,
    ) -> Pair:
        heads, values, keys = value.shape[2:3], value.shape[3:], key.shape[3:]
        _check(
            first,
            *((x, (*first.shape, x.shape[2] if x.shape[2] == 1 else heads[0], *keys)) for x in (query, key)),
            (value, (*first.shape, *heads, *values)),
            *((x, (*first.shape, *heads)) for x in (beta, decay) if x is not None),
            (state, (first.shape[1], *heads, *keys, *values)),
        )
        query, key, value = _rows(query), _rows(key), _rows(value)
        beta = None if beta is None else beta.contiguous()
        decay, first, state = decay.contiguous(), first.contiguous(), state.contiguous()
        output, end = value.new_empty(value.shape), state.new_empty(state.shape)
        saved = query, key, value, beta, decay, first, state
        ctx.save_for_backward(*saved)
        ctx.is_delta = is_delta
        _run_matrix("matrix_forward", saved, is_delta, output=output, end=end)
        return output, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_output: Tensor, by_end: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, beta, decay, _, state = ctx.saved_tensors
        inputs = {"query": query, "key": key, "value": value, "beta": beta, "decay": decay, "start": state}
        by = {f"by_{name}": x.new_empty(x.shape) for name, x in inputs.items() if x is not None}
        gradients = {"by_output": by_output.contiguous(), "by_end": by_end.contiguous()}
        _run_matrix("matrix_backward", ctx.saved_tensors, ctx.is_delta, **gradients, **by)
        *first_ones, by_start = (by.get(f"by_{name}") for name in inputs)
        return *first_ones, None, by_start, None


def _run_matrix(function: str, saved: tuple[Tensor | None, ...], is_delta: bool, **results: Tensor) -> None:
    """Call the kernel with the saved inputs of `_Matrix`, into some results."""
    names = "query", "key", "value", "beta", "decay", "first", "start"
    tensors = {name: x for name, x in zip(names, saved, strict=True) if x is not None} | results
    query, value = tensors["query"], tensors["value"]
    matrix = c.Matrix(
        *value.shape[:3],
        query.shape[3],
        value.shape[3],
        is_delta,
        **{f"{name}_row": _row_stride(tensors[name]) for name in names[:3]},
        # A single one of keys or queries is that of all heads.
        **{f"{name}_head": x.stride(2) if (x := tensors[name]).shape[2] > 1 else 0 for name in names[:3]},
        output_row=value.shape[2] * value.shape[3],
        **{f"by_{name}_row": tensors[name].shape[2] * tensors[name].shape[3] for name in names[:3]},
        **{name: x.data_ptr() for name, x in tensors.items()},
    )
    kernels = library()
    scratch = query.new_empty(kernels.matrix_scratch(byref(matrix)))
    matrix.scratch = scratch.data_ptr()
    getattr(kernels, function)(byref(matrix))


class _Gated(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, first: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor
    ) -> tuple[Tensor, ...]:
        heads, units = h.shape[1:]
        _check(
            first,
            (x, (*first.shape, heads, 4 * units)),
            (weight, (heads, units, 4 * units)),
            *((s, (first.shape[1], heads, units)) for s in (h, c, n, m)),
        )
        inputs = [s.contiguous() for s in (x, weight, first, h, c, n, m)]
        output = x.new_empty(*first.shape, heads, units)
        ends = [s.new_empty(s.shape) for s in (c, n, m)]
        kept = _run_gated("gated_forward", inputs, output, None, **dict(zip(_ENDS, ends, strict=True)))
        ctx.save_for_backward(*inputs, output, kept)
        ctx.mark_non_differentiable(ends[2])
        return output, *ends

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by_ends: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, output, kept = ctx.saved_tensors
        x, weight, _, *states = inputs
        names = "by_output", "by_end_c", "by_end_n"
        by = {name: g.contiguous() for name, g in zip(names, by_ends[:3], strict=True)}
        targets = x, weight, *states
        gradients = [t.new_empty(t.shape) for t in targets]
        by |= {f"by_{name}": g for name, g in zip(_GATED_INPUTS, gradients, strict=True)}
        _run_gated("gated_backward", inputs, output, kept, **by)
        by_x, by_weight, *by_start = gradients
        return by_x, by_weight, None, *by_start


_ENDS = "end_c", "end_n", "end_m"
_GATED_INPUTS = "x", "weight", "start_h", "start_c", "start_n", "start_m"


def _run_gated(
    function: str, inputs: list[Tensor], output: Tensor, kept: Tensor | None, **others: Tensor
) -> Tensor:
    """Call the kernel; what the forward pass keeps for the backward pass."""
    x, weight, first, *states = inputs
    tensors = dict(zip(_GATED_INPUTS, (x, weight, *states), strict=True))
    tensors |= {"first": first, "output": output, **others}
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    gated = c.Gated(*output.shape, **pointers)
    kernels = library()
    kept = x.new_empty(kernels.gated_saved(byref(gated))) if kept is None else kept
    scratch = x.new_empty(kernels.gated_scratch(byref(gated)))
    gated.saved, gated.scratch = kept.data_ptr(), scratch.data_ptr()
    getattr(kernels, function)(byref(gated))
    return kept


class _GatedNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        if gate.shape != x.shape or weight.shape != x.shape[2:]:
            shapes = ", ".join(str(tuple(part.shape)) for part in (x, gate, weight))
            raise ValueError(f"x, gate and weight have the shapes {shapes}")
        x, gate, weight = x.contiguous(), _rows(gate), weight.contiguous()
        y, scale = torch.empty_like(x), x.new_empty(x.shape[:2])
        ctx.save_for_backward(x, gate, weight, scale)
        ctx.eps = eps
        _run_gated_norm("gated_norm_forward", (x, gate, weight, scale), eps, y=y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_y: Tensor) -> tuple[Tensor | None, ...]:
        x, _, weight, _ = ctx.saved_tensors
        by = [x.new_empty(x.shape), x.new_empty(x.shape), weight.new_zeros(weight.shape)]
        names = "by_x", "by_gate", "by_weight"
        gradients = dict(zip(names, by, strict=True)) | {"by_y": by_y.contiguous()}
        _run_gated_norm("gated_norm_backward", ctx.saved_tensors, ctx.eps, **gradients)
        return *by, None


def _run_gated_norm(function: str, saved: tuple[Tensor, ...], eps: float, **results: Tensor) -> None:
    """Call the kernel with the saved tensors of `_GatedNorm`, into some results."""
    tensors = dict(zip(("x", "gate", "weight", "scale"), saved, strict=True)) | results
    x, gate = tensors["x"], tensors["gate"]
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    width = x.shape[2]
    strides = width, _row_stride(gate), width, width
    norm = c.GatedNorm(x.shape[0] * x.shape[1], width, *strides, eps, **pointers)
    kernels = library()
    scratch = x.new_empty(kernels.gated_norm_scratch(byref(norm)))
    norm.scratch = scratch.data_ptr()
    getattr(kernels, function)(byref(norm))


def stabilisers(log_input: Tensor, log_forget: Tensor, first: Tensor, start: Tensor) -> Tensor:
    """m (T, B, N), without gradients: h is the same for every m."""
    shape = tuple(log_input.shape)
    _check(first, (log_input, shape), (log_forget, shape), (start, shape[1:]))
    tensors = [x.detach().contiguous() for x in (log_input, log_forget, first, start)]
    m = log_input.new_empty(shape)
    library().stabilise(*shape, *_addresses(*tensors, m))
    return m


def _addresses(*tensors: Tensor) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _rows(x: Tensor) -> Tensor:
    """x (T, B, ...) with one stride from row to row, as parts of a product have; a copy if need be."""
    steps, batch = x.shape[:2]
    even = steps == 1 or batch == 1 or x.stride(0) == batch * x.stride(1)
    # Expanded heads have one place in memory, and each has a gradient of its own.
    apart = x.ndim == 3 or x.shape[2] == 1 or x.stride(2) != 0
    if even and apart and (x.stride(-1) == 1 or x.shape[-1] == 1):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _row_stride(x: Tensor) -> int:
    return x.stride(1) if x.shape[1] > 1 else x.stride(0)


scan: Callable[[str, Tensor, Tensor, Tensor, Tensor], Tensor] = _Scan.apply
convolution: Callable[[Tensor, Tensor, Tensor, Tensor], Pair] = _Convolution.apply
matrix: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor, bool], Pair] = _Matrix.apply
gated: Callable[..., tuple[Tensor, ...]] = _Gated.apply
gated_norm: Callable[[Tensor, Tensor, Tensor, float], Tensor] = _GatedNorm.apply
