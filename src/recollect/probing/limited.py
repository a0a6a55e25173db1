"""A memory of the last k steps, in two ways with equal outputs.

Shapes.  B sequences, n steps, at most k.
"""

from functools import partial
from typing import cast

import torch
from torch import Tensor

from ..common.tree import Tree, leaves
from ..memory import Memory
from .interventions import Alter, Altered, no_steps

LARGEST = 2**23  # floats of the states of all copies of a memory
WINDOW = 128  # steps that are computed anew at each step, whatever the size of states


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
        inside = self.memory.initial_state(batch * self.steps)
        return inside, no_steps(inside, batch)

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, age = cast(tuple[Tree, Tensor], state)
        opens = first[0] & self.resets
        age = age.masked_fill(opens, 0)
        copies = torch.arange(self.steps, device=age.device)
        turns = (age[:, None] % self.steps == copies) | opens[:, None]  # (B, k)
        y, inside = self.memory(x.repeat_interleave(self.steps, 1), inside, turns.reshape(1, -1))
        # Copy i was reset at age i, i + k, ...: copy (age + 1) mod k, k - 1 steps ago, depends on exactly k
        # steps.
        oldest = torch.arange(len(age), device=age.device) * self.steps + (age + 1) % self.steps
        return y[:, oldest], (inside, age + 1)


class Windowed(Altered):
    """As Recent, but computes the last k inputs anew at each step, and keeps these instead of states."""

    def __init__(self, memory: Memory, resets: bool, steps: int) -> None:
        super().__init__(memory, resets)
        self.steps = steps

    def initial_state(self, batch: int) -> Tree:
        """The last inputs (B, n, in), n at most k, and where episodes start among them (B, n)."""
        nothing = no_steps(self.memory.initial_state(1), batch).new_zeros(batch, 0)
        return nothing[..., None].float(), nothing.bool()

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        seen, starts = cast(tuple[Tensor, Tensor], state)
        present, begins = x[0, :, None], (first[0] & self.resets)[:, None]
        seen = torch.cat([seen, present], 1) if seen.numel() else present
        starts = torch.cat([starts, begins], 1)
        seen, starts = seen[:, -self.steps :], starts[:, -self.steps :]
        resets = starts.T.clone()
        resets[0] = True
        y, _ = self.memory(seen.transpose(0, 1), self.memory.initial_state(len(seen)), resets)
        return y[-1:], (seen, starts)


def limit(memory: Memory, batch: int, steps: int) -> Alter:
    """A memory of the last k steps: as copies, which is faster, or else, if their states are too large, with
    the last inputs computed anew."""
    kind = Recent if steps <= LARGEST // _count_floats(memory, batch) else Windowed
    return partial(kind, steps=steps)


def most_steps(memory: Memory, batch: int) -> int:
    """How many last steps a memory can be limited to."""
    return max(LARGEST // _count_floats(memory, batch), WINDOW)


def _count_floats(memory: Memory, batch: int) -> int:
    return max(1, sum(leaf.numel() for leaf in leaves(memory.initial_state(batch)).values()))
