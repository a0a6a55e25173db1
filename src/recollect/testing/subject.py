"""What rules are tested on: a memory, random rows for it, and who of them sees whom.

Shapes.  T rows, B rows of a batch, in_dim features, with those of an action that comes apart.
"""

import torch
from torch import Tensor

from ..common import tree
from ..common.tree import Tree
from ..memory import MemoryConfig
from .compare import close

BATCH = 3
LENGTH = 9
ACTION = 2  # features of an action that comes apart
LONGEST_WINDOW = 128  # rows with which a bounded memory is filled


class Subject:
    """A memory under test, and random rows for it."""

    def __init__(self, config: MemoryConfig, in_dim: int) -> None:
        # Without dropout, as in acting.
        apart = (ACTION,) if config.action_apart else ()
        self.in_dim = in_dim + sum(apart)
        self.memory = config.build(self.in_dim, *apart).double().eval()
        with torch.no_grad():
            for p in self.memory.parameters():
                p.add_(0.05 * torch.randn_like(p))  # weights that begin at 0 would hide a leak

    def inputs(self, length: int, batch: int = BATCH) -> Tensor:
        """(T, B, in_dim)."""
        return torch.randn(length, batch, self.in_dim, dtype=torch.float64)

    def flags(self, length: int, batch: int = BATCH) -> Tensor:
        """`first` (T, B): every fourth row opens an episode, by chance."""
        return torch.rand(length, batch) < 0.25

    @property
    def window(self) -> int:
        """Rows that fill a bounded memory, unless it is very long."""
        return min(self.memory.reach or 0, LONGEST_WINDOW)

    def past(self, batch: int = BATCH) -> Tree:
        """The state of rows that remember as much as they can."""
        length = LENGTH + self.window
        x = self.inputs(length, batch)
        return self.run(x, self.memory.initial_state(batch), no_flags(length, batch))[1]

    @torch.no_grad()
    def run(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """One call, without gradients."""
        y, state = self.memory(x, state, first)
        return y, state


def no_flags(length: int, batch: int = BATCH) -> Tensor:
    """`first` (T, B) of one episode that goes on."""
    return torch.zeros(length, batch, dtype=torch.bool)


def in_parts(
    subject: Subject, x: Tensor, state: Tree, first: Tensor, lengths: list[int]
) -> tuple[Tensor, Tree]:
    """Calls of these lengths, one after another."""
    parts = []
    for part, flags in zip(torch.split(x, lengths), torch.split(first, lengths), strict=True):
        y, state = subject.run(part, state, flags)
        parts.append(y)
    return torch.cat(parts), state


def go_on_alike(subject: Subject, a: Tree, b: Tree) -> bool:
    """Whether two states remember the same, told by what follows: their layout may differ."""
    found = list(tree.leaves(a).values())
    if not found:
        return True
    x, first = subject.inputs(LENGTH, len(found[0])), no_flags(LENGTH, len(found[0]))
    return close(subject.run(x, a, first)[0], subject.run(x, b, first)[0])


def dependence(subject: Subject, state: Tree, first: Tensor) -> Tensor:
    """Whether y[t, b] depends on x[u, c], by the gradient of a random mixture: (T, B, T, B)."""
    length, batch = first.shape
    x = subject.inputs(length, batch).requires_grad_()
    y, _ = subject.memory(x, state, first)
    mixture = y @ torch.randn(y.shape[-1], dtype=y.dtype)
    seen = torch.zeros(length, batch, length, batch, dtype=torch.bool)
    for t in range(length):
        for b in range(batch):
            seen[t, b] = rows_with_gradient(mixture[t, b], x)
    return seen


def rows_seen_by_last(subject: Subject, length: int) -> Tensor:
    """Whether the last y of one episode depends on x[u]: bool (T,)."""
    x = subject.inputs(length, 1).requires_grad_()
    y, _ = subject.memory(x, subject.past(1), no_flags(length, 1))
    mixture = y[-1, 0] @ torch.randn(y.shape[-1], dtype=y.dtype)
    return rows_with_gradient(mixture, x)[:, 0]


def rows_with_gradient(scalar: Tensor, x: Tensor) -> Tensor:
    """Where the gradient of a scalar by x (T, B, in_dim) is not exactly 0: bool (T, B)."""
    if not scalar.requires_grad:
        return torch.zeros(x.shape[:2], dtype=torch.bool)
    (gradient,) = torch.autograd.grad(scalar, x, retain_graph=True, allow_unused=True)
    if gradient is None:
        return torch.zeros(x.shape[:2], dtype=torch.bool)
    return (gradient != 0).any(-1)
