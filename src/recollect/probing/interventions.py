"""Memories that reset, freeze, swap or perturb the state of another memory.

Each wraps a memory and decides which state enters a step and which state is carried on. Averaging and noise
change only the floats of a state, so the time steps that transformers count stay right. Freezing and swapping
exchange whole states, time steps included.

Shapes.  T steps, B sequences.
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
    """Mean and standard deviation of every float of a state, by the path of its leaf (1, ...)."""

    mean: dict[str, Tensor]
    deviation: dict[str, Tensor]


@torch.no_grad()
def measure_spread(branch: Branch, record: Record) -> Spread:
    """Mean and standard deviation of the memory states over all valid steps of a record."""
    mean, var, count = dict[str, Tensor](), dict[str, Tensor](), torch.zeros((), dtype=torch.float64)
    # strict=False: there is a state after row T as well, which is no step.
    for valid, state in zip(torch.from_numpy(record.valid), memory_states(branch, record.rows), strict=False):
        for path, leaf in float_leaves(state).items():
            # 64 bits, because thousands of steps are summed.
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
    """A memory that is called step by step, with altered states.

    resets  whether the wrapped memory is reset where an episode starts
    """

    def __init__(self, memory: Memory, resets: bool) -> None:
        super().__init__()
        self.memory, self.resets = memory, resets
        self.out_dim, self.reach = memory.out_dim, None

    def initial_state(self, batch: int) -> Tree:
        return self.memory.initial_state(batch)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        outputs = []
        for t in range(len(x)):
            y, state = self.step(x[t : t + 1], state, first[t : t + 1])
            outputs.append(y)
        return torch.cat(outputs), state

    @abstractmethod
    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """x (1, B, in), first (1, B) -> y (1, B, out), state."""

    def call(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """The wrapped memory as it is."""
        return self.memory(x, state, first if self.resets else torch.zeros_like(first))


Alter: TypeAlias = Callable[[Memory, bool], Altered]


@contextmanager
def altered(branch: Branch, alter: Alter | None) -> Iterator[None]:
    """Alter the memory of a branch within the block; None: leave it."""
    memory, resets = branch.memory, branch.resets
    if alter is not None:
        # The wrapper needs the starts of episodes even if the wrapped memory is never reset.
        branch.memory, branch.resets = alter(memory, resets), True
    try:
        yield
    finally:
        # Also after an error: the agent is the caller's, and must not stay altered.
        branch.memory, branch.resets = memory, resets


class Cleared(Altered):
    """Resets the memory every k steps of an episode, exactly as at the start of an episode."""

    def __init__(self, memory: Memory, resets: bool, every: int) -> None:
        super().__init__(memory, resets)
        self.every = every

    def initial_state(self, batch: int) -> Tree:
        """The wrapped state, and the steps (B,) since the start of the episode."""
        return self.memory.initial_state(batch), torch.zeros(batch, dtype=torch.long)

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, age = cast(tuple[Tree, Tensor], state)
        if self.resets:  # else the state is carried from episode to episode, and its steps are counted on
            age = age.masked_fill(first[0], 0)
        y, inside = self.memory(x, inside, (age % self.every == 0)[None])
        return y, (inside, age + 1)


class Recent(Altered):
    """Depends on the last k steps of an episode only: k copies that are reset every k steps, in turn.

    The output of a step is that of the copy with the longest time since its reset. The batch axis of the
    wrapped state has all copies of sequence 0, then of sequence 1, and so on.
    """

    def __init__(self, memory: Memory, resets: bool, steps: int) -> None:
        super().__init__(memory, resets)
        self.steps = steps

    def initial_state(self, batch: int) -> Tree:
        """The wrapped states (B k, ...), and the steps (B,) since the start of the episode."""
        return self.memory.initial_state(batch * self.steps), torch.zeros(batch, dtype=torch.long)

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, age = cast(tuple[Tree, Tensor], state)
        opens = first[0] & self.resets
        age = age.masked_fill(opens, 0)
        turns = (age[:, None] % self.steps == torch.arange(self.steps)) | opens[:, None]  # (B, k)
        y, inside = self.memory(x.repeat_interleave(self.steps, 1), inside, turns.reshape(1, -1))
        # Copy i was reset at age i, i + k, ...: copy (age + 1) mod k, k - 1 steps ago, depends on exactly k
        # steps.
        oldest = torch.arange(len(age)) * self.steps + (age + 1) % self.steps
        return y[:, oldest], (inside, age + 1)


class Averaged(Altered):
    """Replaces the floats of every state by the mean over the visited states."""

    def __init__(self, memory: Memory, resets: bool, spread: Spread) -> None:
        super().__init__(memory, resets)
        self.spread = spread

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        mean = {path: value.expand_as(leaves(state)[path]) for path, value in self.spread.mean.items()}
        return self.call(x, unflatten(state, leaves(state) | mean), first)


class Frozen(Altered):
    """Keeps the state after the first step of an episode."""

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        y, after = self.call(x, state, first)
        before, opens = leaves(state), first[0]
        kept = {
            path: torch.where(opens.view(-1, *[1] * (leaf.ndim - 1)), leaf, before[path])
            for path, leaf in leaves(after).items()
        }
        return y, unflatten(after, kept)


class Swapped(Altered):
    """Computes each output from the state of the next sequence of the batch; its own state is carried on."""

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        # Two calls: if the swapped state were carried on, each episode would merely continue another one.
        y, _ = self.call(x, map_leaves(lambda leaf: leaf.roll(1, 0), state), first)
        return y, self.call(x, state, first)[1]


class Noisy(Altered):
    """Adds noise to every float of the state before each step; the noise stays in the state.

    scale  of the noise, in standard deviations of each float over the visited states
    """

    def __init__(
        self, memory: Memory, resets: bool, spread: Spread, scale: float, random: np.random.Generator
    ) -> None:
        super().__init__(memory, resets)
        self.spread, self.scale, self.random = spread, scale, random

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        noisy = leaves(state)
        for path, deviation in self.spread.deviation.items():
            noise = torch.from_numpy(self.random.standard_normal(noisy[path].shape, dtype=np.float32))
            # Not in place: `noisy` is a new dict, but its tensors are those of the caller's state.
            noisy[path] = noisy[path] + self.scale * deviation * noise
        return self.call(x, unflatten(state, noisy), first)
