"""The memory under test: random inputs for it, and which outputs depend on which inputs.

Shapes.  T steps, B sequences of a batch, in_dim features including those of a separate previous action.
"""

import torch
from torch import Tensor

from ..common import tree
from ..common.tree import Tree
from ..memory import Memory, MemoryConfig
from .compare import close, require, require_fields

BATCH = 3
LENGTH = 9
ACTION = 2  # features of a previous action that is a separate input (action_apart)
ATTRIBUTES = {
    "out_dim": "set self.out_dim in __init__ to the width of y",
    "reach": "set self.reach in __init__ to the number of steps that y depends on, or None if unbounded",
}
LONGEST_WINDOW = 128  # steps; a bounded memory is filled with at most so many


class Subject:
    """A memory under test, in float64, with random inputs for it."""

    def __init__(self, config: MemoryConfig, in_dim: int) -> None:
        require(
            isinstance(config, MemoryConfig),
            "build",
            f"{config!r:.80} is no MemoryConfig",
            "give an instance of a config, as check_memory(MyConfig(width=8))",
        )
        require_fields(config)
        action_dim = (ACTION,) if config.action_apart else ()
        self.in_dim = in_dim + sum(action_dim)
        # eval: without dropout, as in acting.
        memory = config.build(self.in_dim, *action_dim)
        require(
            isinstance(memory, Memory),
            "build",
            f"build returns a {type(memory).__name__}",
            "return a subclass of recollect.memory.Memory",
        )
        for name, fix in ATTRIBUTES.items():
            require(hasattr(memory, name), "build", f"the memory has no {name}", fix)
        self.memory = memory.double().eval()
        with torch.no_grad():
            for p in self.memory.parameters():
                p.add_(0.05 * torch.randn_like(p))  # zero-initialised weights would hide dependences

    def inputs(self, length: int, batch: int = BATCH) -> Tensor:
        """Random inputs (T, B, in_dim)."""
        return torch.randn(length, batch, self.in_dim, dtype=torch.float64)

    def flags(self, length: int, batch: int = BATCH) -> Tensor:
        """Random `first` (T, B): each step opens an episode with probability 1/4."""
        return torch.rand(length, batch) < 0.25

    @property
    def window(self) -> int:
        """Steps that fill a bounded memory, at most LONGEST_WINDOW; 0 if it is unbounded."""
        return min(self.memory.reach or 0, LONGEST_WINDOW)

    def past(self, batch: int = BATCH) -> Tree:
        """A state after so many steps that a bounded memory is full."""
        length = LENGTH + self.window
        x = self.inputs(length, batch)
        return self.run(x, self.memory.initial_state(batch), no_flags(length, batch))[1]

    @torch.no_grad()
    def run(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """One call, without gradients."""
        result = self.memory(x, state, first)
        require(
            isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor),
            "shapes",
            f"forward returns a {type(result).__name__}, not a tensor y and a state",
            "return y and the state after the last step",
        )
        return result


def no_flags(length: int, batch: int = BATCH) -> Tensor:
    """`first` (T, B) without an episode start."""
    return torch.zeros(length, batch, dtype=torch.bool)


def in_parts(
    subject: Subject, x: Tensor, state: Tree, first: Tensor, lengths: list[int]
) -> tuple[Tensor, Tree]:
    """Outputs and final state of consecutive calls of these lengths."""
    parts = []
    for part, flags in zip(torch.split(x, lengths), torch.split(first, lengths), strict=True):
        y, state = subject.run(part, state, flags)
        parts.append(y)
    return torch.cat(parts), state


def continue_equally(subject: Subject, a: Tree, b: Tree) -> bool:
    """Whether two states give the same outputs from here on. Their own numbers may differ in layout."""
    tensors = list(tree.leaves(a).values())
    if not tensors:
        return True
    batch = len(tensors[0])
    x, first = subject.inputs(LENGTH, batch), no_flags(LENGTH, batch)
    return close(subject.run(x, a, first)[0], subject.run(x, b, first)[0])


def dependence(subject: Subject, state: Tree, first: Tensor) -> Tensor:
    """Whether y[t, b] depends on x[u, c], by the gradient of a random projection of y: (T, B, T, B)."""
    length, batch = first.shape
    x = subject.inputs(length, batch).requires_grad_()
    y, _ = subject.memory(x, state, first)
    # Random, because the plain sum of a y that ends in a layer normalisation hardly depends on x.
    projection = y @ torch.randn(y.shape[-1], dtype=y.dtype)
    depends = torch.zeros(length, batch, length, batch, dtype=torch.bool)
    for t in range(length):
        for b in range(batch):
            depends[t, b] = steps_with_gradient(projection[t, b], x)
    return depends


def inputs_of_last(subject: Subject, length: int) -> Tensor:
    """Whether the last y of one episode depends on x[u]: bool (T,)."""
    x = subject.inputs(length, 1).requires_grad_()
    y, _ = subject.memory(x, subject.past(1), no_flags(length, 1))
    projection = y[-1, 0] @ torch.randn(y.shape[-1], dtype=y.dtype)
    return steps_with_gradient(projection, x)[:, 0]


def steps_with_gradient(scalar: Tensor, x: Tensor) -> Tensor:
    """Where the gradient of a scalar with respect to x (T, B, in_dim) is not exactly 0: bool (T, B)."""
    if not scalar.requires_grad:
        return torch.zeros(x.shape[:2], dtype=torch.bool)
    (gradient,) = torch.autograd.grad(scalar, x, retain_graph=True, allow_unused=True)
    if gradient is None:
        return torch.zeros(x.shape[:2], dtype=torch.bool)
    # Exactly 0: a mask that only makes weights small lets other episodes through.
    return (gradient != 0).any(-1)
