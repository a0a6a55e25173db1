"""The operations of a program, before they are bound to memory."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from . import structures as c


class UnsupportedError(Exception):
    """The kernels cannot compute this agent; the message says which part of it."""


@dataclass
class Linear:
    """Weights (blocks * width, in) and bias, some rows of a parameter: y = W x + b."""

    weight: Tensor
    bias: Tensor | None
    weight_gradient: Tensor | None
    bias_gradient: Tensor | None
    blocks: int = 1

    @property
    def width(self) -> int:
        return len(self.weight) // self.blocks

    @property
    def in_dim(self) -> int:
        return self.weight.shape[1]

    @property
    def trained(self) -> bool:
        return self.weight_gradient is not None


def linear(weight: Tensor, bias: Tensor | None, blocks: int = 1, rows: slice = slice(None)) -> Linear:
    """Some rows of a weight, and of the bias unless it has no others."""
    if weight.dtype != torch.float32 or not weight.is_cpu:
        raise UnsupportedError(f"weights are {weight.dtype} on {weight.device.type}, not float32 on the CPU")
    by_weight = weight.grad[rows] if weight.requires_grad and weight.grad is not None else None
    if bias is None:
        return Linear(weight.detach()[rows], None, by_weight, None, blocks)
    of_bias = rows if len(bias) == len(weight) else slice(None)
    by_bias = bias.grad[of_bias] if bias.requires_grad and bias.grad is not None else None
    return Linear(weight.detach()[rows], bias.detach()[of_bias], by_weight, by_bias, blocks)


@dataclass
class Node:
    """An operation; `inputs` are positions in the program."""

    kind: int
    width: int  # of each block of the value
    inputs: tuple[int, ...] = ()
    weights: list[Linear] = field(default_factory=list)
    activation: int = c.IDENTITY
    blocks: int = 1
    units: int = 0
    count: int = 0
    keys: int = 0
    scale: float = 0.0
    tokens: int = 1  # rows of the value for each step
    heads: int = 1
    offset: int = 0  # the first column of the input
    stops: bool = False  # whether no gradient goes to the input
    vectors: list[Tensor] = field(default_factory=list)
    table: Tensor | None = None
    saved: int = 0  # buffers of a recurrence
    carried: int = 0  # tensors of its state
    state_after: float | None = None  # the operation whose state is before its own; None: in the order of all
    log_std: nn.Parameter | None = None
    sizes: tuple[int, ...] = ()
    stage: int = 0

    @property
    def trained(self) -> bool:
        """Whether parameters of its own are trained."""
        parameters = [*self.vectors, *([] if self.table is None else [self.table])]
        return any(x.trained for x in self.weights) or any(x.requires_grad for x in parameters)

    @property
    def is_sequence(self) -> bool:
        return c.STEPS <= self.kind <= c.ATTENTION
