"""CUDA graphs for acting: the operations of a step are captured once, and replayed by one call.

On a GPU a step of a small network takes the time of starting its operations one by one, not of their
arithmetic.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..common.errors import UsageError
from ..common.tree import Tree, leaves, map_leaves
from .nets import Rows

Step: TypeAlias = Callable[[Rows, Tree], tuple[Tensor, Tree]]


def check_graphs(device: str) -> None:
    """Raise UsageError unless a device has graphs."""
    if not has_graphs(torch.device(device)):
        raise UsageError(
            f"cuda_graphs needs a CUDA device, and the networks are on {device}; add --device cuda, or leave "
            "it out"
        )


def has_graphs(device: torch.device) -> bool:
    """Whether a device can capture its operations as a graph."""
    return hasattr(torch.get_device_module(device), "CUDAGraph")


def _inputs(rows: Rows, state: Tree) -> dict[str, Tensor]:
    """The tensors of a call, by their places."""
    return leaves((*rows.obs.values(), *rows[1:4], state))


class GraphedStep:
    """A branch called for single steps without gradients; every other call goes to the branch itself.

    A graph reads and writes fixed memory. So inputs are copied into that of the graph, and outputs out of it:
    the caller may keep them. There is one graph for each shape of the inputs and each precision. Weights are
    read where they are, so the optimiser may change them, but nothing may replace their memory.
    """

    def __init__(self, step: Step, precision: Callable[[], Any] = lambda: None) -> None:
        """precision: what, beside shapes, the operations of a step depend on."""
        self._step, self._precision = step, precision
        self._graphs: dict[Any, _Graph] = {}

    def __call__(self, rows: Rows, state: Tree) -> tuple[Tensor, Tree]:
        if torch.is_grad_enabled() or len(rows.first) > 1:
            return self._step(rows, state)
        inputs = _inputs(rows, state)
        key = (self._precision(), *((name, x.shape, x.dtype) for name, x in inputs.items()))
        if key not in self._graphs:
            self._graphs[key] = _Graph(self._step, rows, state)
        return self._graphs[key].replay(inputs)


class _Graph:
    """One captured step, with the memory of its inputs and outputs."""

    def __init__(self, step: Step, rows: Rows, state: Tree) -> None:
        rows, state = rows.map(Tensor.clone), map_leaves(Tensor.clone, state)
        self._inputs = _inputs(rows, state)
        # Once before: what libraries set up at their first call must not be part of the graph.
        step(rows, state)
        device = torch.get_device_module(rows.first.device)
        self._graph = device.CUDAGraph()
        with device.graph(self._graph):
            self._outputs = step(rows, state)

    def replay(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tree]:
        """The outputs of the step for these inputs."""
        for name, x in inputs.items():
            self._inputs[name].copy_(x)
        self._graph.replay()
        y, state = self._outputs
        return y.clone(), map_leaves(Tensor.clone, state)
