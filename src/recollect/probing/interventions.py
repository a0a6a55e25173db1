"""Memories that forget, freeze, mix or blur what another memory remembers, to see who misses it.

Each is a memory around a memory: it decides which state a row is read with and which state goes on.
The state stays what the memory inside made of it; only its floats are ever changed, so that counters
of steps stay true.

Shapes.  T rows, B rows of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Branch
from ..agent.normalize import merge, moments
from ..common.tree import Tree, leaves, map_leaves, unflatten
from ..memory import Memory
from ..run.recording import Record, float_leaves, memory_states


class Spread(NamedTuple):
    """The mean and the deviation of every float of a state, by the path of its leaf (1, ...)."""

    mean: dict[str, Tensor]
    deviation: dict[str, Tensor]


@torch.no_grad()
def spread(branch: Branch, record: Record) -> Spread:
    """The mean and the deviation of what is remembered, over all rows in which somebody acted."""
    mean, var, count = dict[str, Tensor](), dict[str, Tensor](), torch.zeros((), dtype=torch.float64)
    for valid, state in zip(torch.from_numpy(record.valid), memory_states(branch, record.rows), strict=False):
        for path, leaf in float_leaves(state).items():
            x = leaf[valid].double()
            if path not in mean:
                mean[path], var[path] = torch.zeros_like(x[0]), torch.zeros_like(x[0])
            merge(mean[path], var[path], count, valid.sum(), moments(x))
        count += valid.sum()
    dtype = next(branch.parameters()).dtype
    return Spread(
        {path: x.to(dtype)[None] for path, x in mean.items()},
        {path: x.sqrt().to(dtype)[None] for path, x in var.items()},
    )


class Altered(Memory, ABC):
    """A memory read row by row, with states that somebody else decides.

    resets  whether the memory inside is cleared where an episode opens
    """

    def __init__(self, memory: Memory, resets: bool) -> None:
        super().__init__()
        self.memory, self.resets = memory, resets
        self.out_dim, self.reach = memory.out_dim, None

    def initial_state(self, batch: int) -> Tree:
        return self.memory.initial_state(batch)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        said = []
        for t in range(len(x)):
            y, state = self.row(x[t : t + 1], state, first[t : t + 1])
            said.append(y)
        return torch.cat(said), state

    @abstractmethod
    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """x (1, B, in), first (1, B) -> y (1, B, out), state."""

    def read(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """A row as the memory inside reads it."""
        return self.memory(x, state, first if self.resets else torch.zeros_like(first))


Alter: TypeAlias = Callable[[Memory, bool], Altered]


@contextmanager
def altered(branch: Branch, alter: Alter | None) -> Iterator[None]:
    """A branch with an altered memory, for a while; None: as it is."""
    memory, resets = branch.memory, branch.resets
    if alter is not None:
        # The memory around it must know where episodes open, also where the one inside never hears of it.
        branch.memory, branch.resets = alter(memory, resets), True
    try:
        yield
    finally:
        branch.memory, branch.resets = memory, resets


class Cleared(Altered):
    """Forgets everything every k steps of an episode, in the way in which it is cleared where one opens."""

    def __init__(self, memory: Memory, resets: bool, every: int) -> None:
        super().__init__(memory, resets)
        self.every = every

    def initial_state(self, batch: int) -> Tree:
        """The state inside, and the steps (B,) since the episode opened."""
        return self.memory.initial_state(batch), torch.zeros(batch, dtype=torch.long)

    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, age = cast(tuple[Tree, Tensor], state)
        if self.resets:  # else what is remembered goes on from episode to episode, and so do its steps
            age = age.masked_fill(first[0], 0)
        y, inside = self.memory(x, inside, (age % self.every == 0)[None])
        return y, (inside, age + 1)


class Recent(Altered):
    """Knows only the last k rows of an episode: k memories that are cleared every k steps, in turn.

    Each row is answered by the one that was cleared longest ago. `initial_state` has a row for each.
    """

    def __init__(self, memory: Memory, resets: bool, rows: int) -> None:
        super().__init__(memory, resets)
        self.rows = rows

    def initial_state(self, batch: int) -> Tree:
        """The states inside (B k, ...), and the steps (B,) since the episode opened."""
        return self.memory.initial_state(batch * self.rows), torch.zeros(batch, dtype=torch.long)

    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, age = cast(tuple[Tree, Tensor], state)
        opens = first[0] & self.resets
        age = age.masked_fill(opens, 0)
        turns = (age[:, None] % self.rows == torch.arange(self.rows)) | opens[:, None]  # (B, k)
        y, inside = self.memory(x.repeat_interleave(self.rows, 1), inside, turns.reshape(1, -1))
        oldest = torch.arange(len(age)) * self.rows + (age + 1) % self.rows
        return y[:, oldest], (inside, age + 1)


class Averaged(Altered):
    """Reads every row with the mean of the states that were visited, and a counter of its own."""

    def __init__(self, memory: Memory, resets: bool, spread: Spread) -> None:
        super().__init__(memory, resets)
        self.spread = spread

    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        mean = {path: value.expand_as(leaves(state)[path]) for path, value in self.spread.mean.items()}
        return self.read(x, unflatten(state, leaves(state) | mean), first)


class Frozen(Altered):
    """Keeps what it remembers after the first row of an episode."""

    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        y, after = self.read(x, state, first)
        before, opens = leaves(state), first[0]
        kept = {
            path: torch.where(opens.view(-1, *[1] * (leaf.ndim - 1)), leaf, before[path])
            for path, leaf in leaves(after).items()
        }
        return y, unflatten(after, kept)


class Swapped(Altered):
    """Reads every row with the state of the episode beside it, while its own goes on untouched."""

    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        y, _ = self.read(x, map_leaves(lambda leaf: leaf.roll(1, 0), state), first)
        return y, self.read(x, state, first)[1]


class Noisy(Altered):
    """Adds noise to every float before each row; what was added stays in what is remembered.

    scale  of the noise, in deviations of each number over the states that were visited
    """

    def __init__(
        self, memory: Memory, resets: bool, spread: Spread, scale: float, random: np.random.Generator
    ) -> None:
        super().__init__(memory, resets)
        self.spread, self.scale, self.random = spread, scale, random

    def row(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        found = leaves(state)
        for path, deviation in self.spread.deviation.items():
            noise = torch.from_numpy(self.random.standard_normal(found[path].shape, dtype=np.float32))
            found[path] = found[path] + self.scale * deviation * noise
        return self.read(x, unflatten(state, found), first)
