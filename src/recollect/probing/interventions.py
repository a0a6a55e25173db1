"""Memories that reset, freeze, swap or perturb the state of another memory.

Each wraps a memory and decides which state enters a step and which state is carried on. Averaging and noise
change only the floats of a state, so the time steps that transformers count stay right. Freezing and swapping
exchange whole states; swapped ones have the right time step.

Shapes.  T steps, B sequences.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Branch
from ..agent.normalize import merge, moments
from ..common.tree import Tree, leaves, unflatten
from ..memory import Memory
from ..run.recording import Record, float_leaves, memory_states

CHUNK = 64  # steps of one call


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
            x = leaf.cpu()[valid].double()
            if path not in mean:
                mean[path], var[path] = torch.zeros_like(x[0]), torch.zeros_like(x[0])
            merge(mean[path], var[path], count, valid.sum(), moments(x))
        count += valid.sum()
    like = next(branch.parameters())
    return Spread(
        # To the dtype before the device: not every device has float64.
        {path: x.to(like.dtype).to(like.device)[None] for path, x in mean.items()},
        {path: x.sqrt().to(like.dtype).to(like.device)[None] for path, x in var.items()},
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


# (number of the episode in its environment, column of the record, which of the agents of one environment) ->
# recorded rows, as inputs of the memory (rows, in)
Sequences: TypeAlias = dict[tuple[int, int, int], Tensor]


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


class _InputRecorder(Altered):
    """Stores the inputs of the memory, without computing it."""

    def __init__(self, memory: Memory, resets: bool) -> None:
        super().__init__(memory, resets)
        self.inputs: list[Tensor] = []

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        self.inputs.append(x)
        return x.new_zeros(*x.shape[:2], self.out_dim), state


def record_sequences(branch: Branch, record: Record) -> Sequences:
    """The inputs of a memory over recorded episodes, or over environments if it is never reset.

    They are ordered by number, so that the next one is of another environment.
    """
    return split_sequences(record_inputs(branch, record), record, branch.resets)


@torch.no_grad()
def record_inputs(branch: Branch, record: Record) -> Tensor:
    """The inputs of a memory (T + 1, N, F)."""
    recorder = _InputRecorder(branch.memory, branch.resets)
    with altered(branch, lambda memory, resets: recorder):
        for _ in memory_states(branch, record.rows):
            pass
    return torch.cat(recorder.inputs)


def split_sequences(x: Tensor, record: Record, resets: bool) -> Sequences:
    """Rows (T + 1, N, ...) of a record by episodes, or by environments if the memory is never reset."""
    first, sequences = record.rows.first.numpy(), {}
    for env in range(first.shape[1]):
        starts = np.flatnonzero(first[1:, env] & resets) + 1
        for number, rows in enumerate(x[:, env].tensor_split(starts.tolist())):
            sequences[number, env, env % record.agents] = rows
    return dict(sorted(sequences.items()))


def no_steps(state: Tree, batch: int) -> Tensor:
    """A count (B,) of 0 on the device of a state."""
    return torch.zeros(batch, dtype=torch.long, device=next(iter(leaves(state).values())).device)


def _where(chosen: Tensor, one: Tree, other: Tree) -> Tree:
    """The state of each sequence: of `one` where chosen (B,), else of `other`."""
    others = leaves(other)
    return unflatten(
        one,
        {
            path: torch.where(chosen.view(-1, *[1] * (leaf.ndim - 1)), leaf, others[path])
            for path, leaf in leaves(one).items()
        },
    )


def _insert(states: Tree, state: Tree, place: int) -> Tree:
    """The states of a batch with that of one sequence replaced."""
    replacements = leaves(state)
    copies = {path: leaf.clone() for path, leaf in leaves(states).items()}
    for path, leaf in copies.items():
        leaf[place] = replacements[path][0]
    return unflatten(states, copies)


class Cleared(Altered):
    """Resets the memory every k steps of an episode, exactly as at the start of an episode."""

    def __init__(self, memory: Memory, resets: bool, every: int) -> None:
        super().__init__(memory, resets)
        self.every = every

    def initial_state(self, batch: int) -> Tree:
        """The wrapped state, and the steps (B,) since the start of the episode."""
        inside = self.memory.initial_state(batch)
        return inside, no_steps(inside, batch)

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, age = cast(tuple[Tree, Tensor], state)
        if self.resets:  # else the state is carried from episode to episode, and its steps are counted on
            age = age.masked_fill(first[0], 0)
        y, inside = self.memory(x, inside, (age % self.every == 0)[None])
        return y, (inside, age + 1)


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
        return y, _where(first[0], after, state)


class Swapped(Altered):
    """Computes each output from the state that another recorded episode had after as many steps.

    The states are recomputed from the recorded inputs. The donor of an episode is the recorded episode with
    the same number in the next environment; after its end, the next one that lasts longer. If no other
    episode lasts as long, the last state of the donor stays. The agents of one environment may have different
    parts to play, so donors are of the same agent.

    origins  gets the donor of each state and its step, (2, B) per step
    """

    def __init__(
        self, memory: Memory, resets: bool, recorded: Sequences, origins: list[Tensor] | None = None
    ) -> None:
        super().__init__(memory, resets)
        self.origins = origins
        self.inputs, self.lengths = list(recorded.values()), np.array([len(x) for x in recorded.values()])
        self.places = {(number, env): place for place, (number, env, _) in enumerate(recorded)}
        self.counts = Counter(env for _, env, _ in recorded)
        self.agents = np.array([agent for *_, agent in recorded])

    def initial_state(self, batch: int) -> Tree:
        """The state of the donors; steps since the start, number of the episode, and donor (B,)."""
        # The counts stay on the CPU, where donors are chosen.
        steps, number = torch.zeros(2, batch, dtype=torch.long)
        return self.memory.initial_state(batch), steps, number - int(self.resets), torch.zeros_like(steps)

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        inside, steps, number, donor = cast(tuple[Tree, Tensor, Tensor, Tensor], state)
        opens = first[0].cpu() & self.resets
        steps, number, donor = steps.masked_fill(opens, 0), number + opens, donor.clone()
        # If the memory is never reset, an environment is one sequence, and steps 0 is its start.
        ended = (steps == 0) | (steps >= torch.from_numpy(self.lengths)[donor])
        for env in ended.nonzero().flatten().tolist():
            count = int(steps[env])
            place = self._choose(int(number[env]), env, count)
            if place is not None:
                donor[env] = place
                inside = _insert(inside, self._replay(place, count), env)
        if self.origins is not None:
            self.origins.append(torch.stack([donor, steps]))
        y, _ = self.call(x, inside, first)
        lasts = steps < torch.from_numpy(self.lengths)[donor]
        pairs = zip(donor.tolist(), steps.tolist(), strict=True)
        rows = [self.inputs[place][min(count, len(self.inputs[place]) - 1)] for place, count in pairs]
        after = self.call(torch.stack(rows)[None], inside, first)[1]
        return y, (_where(lasts.to(x.device), after, inside), steps + 1, number, donor)

    def _choose(self, number: int, env: int, steps: int) -> int | None:
        """The place of the next other episode with more than so many rows; None if there is none."""
        # Altered episodes may be shorter, so that an environment plays more of them than were recorded.
        place = self.places[number % self.counts[env], env]
        others = np.roll(np.arange(len(self.inputs)), -place)[1:]
        longer = others[(self.lengths[others] > steps) & (self.agents[others] == self.agents[place])]
        return int(longer[0]) if len(longer) else None

    def _replay(self, place: int, steps: int) -> Tree:
        """The state of a recorded episode after so many steps."""
        state, inputs = self.memory.initial_state(1), self.inputs[place]
        first = torch.zeros(steps, 1, dtype=torch.bool, device=inputs.device)
        first[:1] = True
        for span in (slice(t, min(t + CHUNK, steps)) for t in range(0, steps, CHUNK)):
            state = self.call(inputs[span, None], state, first[span])[1]
        return state


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
            noisy[path] = noisy[path] + self.scale * deviation * noise.to(deviation.device)
        return self.call(x, unflatten(state, noisy), first)
