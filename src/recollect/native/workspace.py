"""The memory of a program: activations, gradients and packed weights, for a number of rows.

Pointers to parameters and to their gradients are those of the optimiser; nothing is copied in Python.
"""

import ctypes
from typing import Any

import numpy as np
from torch import Tensor

from ..envs import Array
from . import structures as c
from .nodes import Linear, Node
from .program import Network

ALIGNMENT = 64  # bytes, a cache line and the widest vector


class Workspace:
    """A network bound to memory for `rows` rows of `batch` sequences, as the kernels take it.

    program    the structure of program.h
    gradients  whether there is memory for a backward pass
    """

    def __init__(self, network: Network, rows: int, batch: int, vector: int, gradients: bool = True) -> None:
        self.network, self.rows, self.batch = network, rows, batch
        self._steps = rows // batch
        self._vector, self._gradients = vector, gradients
        self._arrays: list[Any] = []  # memory that only C points to
        nodes = network.nodes
        linears = [linear for node in nodes for linear in node.weights]
        self._weights = (c.Weights * len(linears))(*map(self._bind_weights, linears))
        self.operations = (c.Operation * len(nodes))()
        stages = 1 + max(node.stage for node in nodes)
        trained = _trained(nodes) if gradients else [False] * len(nodes)
        used = 0
        for i, node in enumerate(nodes):
            op = self.operations[i]
            op.kind, op.stage, op.width, op.count = node.kind, node.stage, node.units, node.count
            op.keys, op.activation, op.scale = node.keys, node.activation, node.scale
            op.input, op.other, op.steps = (*node.inputs, 0, 0, 0)[:3]
            op.tokens, op.heads, op.offset, op.stops = node.tokens, node.heads, node.offset, node.stops
            op.full = node.is_sequence or node.stage < stages - 1
            op.columns = node.blocks * self._padded(node.width)
            for k in range(len(node.weights)):
                op.weights[k] = ctypes.pointer(self._weights[used + k])
            used += len(node.weights)
            self._bind_values(op, node, trained[i])
        self._mark_additions(nodes, trained)
        self.program = c.Program(self.operations, self._weights, None, len(nodes), len(linears), stages)
        carried = [(i, k) for i, node in enumerate(nodes) for k in range(node.carried)]
        self._carried = sorted(carried, key=lambda place: _order(nodes[place[0]], *place))

    def holds(self, rows: int, batch: int) -> bool:
        """Whether a minibatch of this size fits."""
        return rows <= self.rows and batch <= self.batch and rows // batch <= self._steps

    def set_inputs(self, features: Tensor, *states: Tensor) -> None:
        """Take features (L, B, F), and the states (B, ...) before them, from where they are."""
        self.operations[0].state[0] = features.data_ptr()
        for (operation, k), state in zip(self._carried, states, strict=True):
            self._bind_state(self.operations[operation], "state", k, state)

    def set_ends(self, *states: Tensor) -> None:
        """Write the states (B, ...) after the last step there; they may be those before the first one."""
        for (operation, k), state in zip(self._carried, states, strict=True):
            self._bind_state(self.operations[operation], "end", k, state)

    def _bind_state(self, op: c.Operation, name: str, k: int, state: Tensor) -> None:
        addresses = getattr(op, name)
        addresses[k] = state.data_ptr()
        if op.kind == c.ATTENTION:
            op.state_stride = state.stride(0)
            if state.ndim == 4:  # keys and values are one tensor (B, 2, P, W)
                addresses[1] = state.data_ptr() + state.stride(1) * state.element_size()

    def _padded(self, width: int) -> int:
        return -(-width // self._vector) * self._vector

    def _take(self, size: int) -> int:
        """The address of so many zeros."""
        array = aligned(size)
        self._arrays.append(array)
        return array.ctypes.data

    def _bind_weights(self, linear: Linear) -> c.Weights:
        columns, in_columns = linear.blocks * self._padded(linear.width), self._padded(linear.in_dim)
        # The orientation of the gradient that has less padding.
        normal, transposed = len(linear.weight) * in_columns, linear.in_dim * columns
        gradients = (linear.weight_gradient, linear.bias_gradient) if self._gradients else (None, None)
        return c.Weights(
            *(_address(x) for x in (linear.weight, linear.bias, *gradients)),
            *map(self._take, (linear.in_dim * columns, columns * in_columns, columns * in_columns)),
            *map(self._take, (columns, columns)),
            linear.in_dim,
            linear.blocks,
            linear.width,
            transposed < normal,
        )

    def _bind_values(self, op: c.Operation, node: Node, trained: bool) -> None:
        rows = (self.rows if op.full else c.BLOCK) * node.tokens
        op.value = self._take(rows * op.columns)
        if trained:
            # The gradients of gates take their place.
            op.gradient = op.value if node.blocks > 1 else self._take(rows * op.columns)
        self._bind_vectors(op, node)
        if node.kind == c.ATTENTION:
            self._bind_attention(op, node, trained)
        else:
            self._bind_saved(op, node)
        if node.kind in (c.DELTA, c.SELECTIVE):
            self._bind_matrix(op, node)
        if node.kind in (c.CATEGORICAL, c.GAUSSIAN, c.VALUE):
            op.carry[0] = self._take((2 * node.units + 2 * node.count + 1) * c.BLOCK)
        if node.log_std is not None:
            op.carry[1] = self._take(node.units * c.LANES)
            op.log_std, op.log_std_gradient = _address(node.log_std), _address(node.log_std.grad)
        if node.sizes:
            sizes = np.array(node.sizes, np.int32)
            self._arrays.append(sizes)
            op.sizes = sizes.ctypes.data

    def _bind_vectors(self, op: c.Operation, node: Node) -> None:
        if node.vectors:
            op.packed, op.vector_sums = (self._take(k * op.columns) for k in (c.PACKED, c.VECTORS))
        for k, vector in enumerate(node.vectors):
            op.vector[k], op.vector_gradient[k] = vector.data_ptr(), self._gradient_of(vector)
        if node.table is not None:
            op.table, op.table_gradient = node.table.data_ptr(), self._gradient_of(node.table)

    def _gradient_of(self, parameter: Tensor) -> int | None:
        return _address(parameter.grad) if self._gradients and parameter.requires_grad else None

    def _bind_saved(self, op: c.Operation, node: Node) -> None:
        size = self.batch if node.is_sequence else 3 * c.BLOCK * node.tokens
        columns = op.columns
        if node.kind == c.LMU:  # there may be more coefficients than units
            columns = max(columns, self._padded(node.count))
            size = 2 * self.batch
        for k in range(2 if node.saved else 0):
            op.carry[k] = self._take(size * columns)
        for k in range(node.saved):
            op.saved[k] = self._take(self.rows * node.tokens * columns)

    def _bind_attention(self, op: c.Operation, node: Node, trained: bool) -> None:
        """Memory for one head of one sequence, and for the weights of all of them if there is a gradient."""
        tokens = self.network.nodes[node.inputs[1]].tokens
        n, rows = self._padded(node.units // node.heads), self.rows * tokens
        keys = node.count * tokens + c.QUERIES * tokens // node.tokens + tokens  # of a block of queries
        # Of any number of steps: fewer sequences may be longer.
        op.carry[0] = self._take(4 * rows * n)
        op.carry[1] = self._take(6 * c.QUERIES * n + c.QUERIES * (keys + node.count + 1))
        # Each head of each sequence has whole blocks.
        queries = node.heads * (rows + c.QUERIES * self.batch) if trained else c.QUERIES
        op.saved[0] = self._take(queries * keys)
        if node.table is not None:
            distances, width = node.table.shape
            table = aligned(distances * op.columns)
            table.reshape(distances, op.columns)[:, :width] = node.table
            self._arrays.append(table)
            op.table = table.ctypes.data
            op.saved[1], op.saved[2] = (self._take(distances * node.heads * n) for _ in range(2))

    def _bind_matrix(self, op: c.Operation, node: Node) -> None:
        """Memory for one head of one sequence: outer.h has the sizes."""
        rows, keys = -(-node.keys // c.ROWS) * c.ROWS, -(-node.keys // c.LANES) * c.LANES
        columns, steps = -(-node.count // c.LANES) * c.LANES, self._steps if self._gradients else 0
        op.carry[0] = self._take((steps + 2) * rows * columns + (2 * steps + 3) * columns + 5 * keys)

    def _mark_additions(self, nodes: list[Node], trained: list[bool]) -> None:
        """The backward pass goes from the end: the first to write the gradient of a value sets it."""
        written: set[int] = set()
        for i in reversed(range(len(nodes))):
            if not trained[i] and nodes[i].kind not in (c.CATEGORICAL, c.GAUSSIAN, c.VALUE):
                continue
            if nodes[i].inputs:
                self.operations[i].adds = nodes[i].inputs[0] in written
            if not nodes[i].stops:
                written.update(nodes[i].inputs)


def _order(node: Node, i: int, k: int) -> tuple[float, bool, int]:
    """The place of the k-th state of operation i among all states."""
    after = node.state_after
    return (i, False, k) if after is None else (after, True, k)


def _trained(nodes: list[Node]) -> list[bool]:
    """Whether each value depends on weights that are trained."""
    trained: list[bool] = []
    for node in nodes:
        # Heads have a loss and no value.
        below = node.width > 0 and any(trained[i] for i in node.inputs)
        trained.append(below or node.trained)
    return trained


def aligned(size: int) -> Array:
    """Zeros at the start of a cache line."""
    memory = np.zeros(4 * size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + 4 * size].view(np.float32)


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
