"""A rollout cut into chunks: the segments that gradients flow through (truncated back-propagation).

Shapes.  T steps, N environments, L steps a chunk, C = N T / L chunks.

Chunk k N + n holds steps k L to (k + 1) L of environment n, and begins from the memory states that
collecting and valuing stored there.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..agent.agent import AgentState
from ..agent.nets import Rows
from ..common import tree
from ..common.tree import Tree
from .rollout import Outcome, Rollout, slice_rows


class Estimates(NamedTuple):
    """What an algorithm learns from (T, N); computed from the outcome of all ranks."""

    advantage: Tensor
    surplus: Tensor  # value targets minus values
    mask: Tensor | None = None  # steps that enter means; None: all valid ones


class Scores(NamedTuple):
    """Estimates as chunks (L, C)."""

    mask: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor

    @property
    def weight(self) -> Tensor:
        """The weight of each step in a mean over the mask; they sum to 1, or are 0 where it is empty."""
        return self.mask / self.mask.sum().clamp(min=1)


class Batch(NamedTuple):
    """Chunks side by side: tensors (L, C, ...), states (C, ...)."""

    rows: Rows
    state: AgentState
    targets: Mapping[str, Tensor]  # of prediction heads (auxiliary.py)
    action: Tensor
    log_prob: Tensor
    valid: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    weight: Tensor  # of each step in a mean over the steps of all ranks
    inputs: tuple[Tensor, ...] = ()  # of the networks, if the engine has prepared them

    def map(self, steps: Callable[[Tensor], Tensor], states: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch with a function applied to every tensor (L, C, ...), and another to every state."""
        state = AgentState(*(tree.map_leaves(states, part) for part in self.state))
        targets = {name: steps(x) for name, x in self.targets.items()}
        action, log_prob, valid, value, advantage, target, weight = map(steps, self[3:-1])
        of_steps = action, log_prob, valid, value, advantage, target, weight
        return Batch(self.rows.map(steps), state, targets, *of_steps, tuple(map(steps, self.inputs)))

    @property
    def nbytes(self) -> int:
        """The size of all tensors."""
        sizes: list[int] = []

        def measure(x: Tensor) -> Tensor:
            sizes.append(x.nbytes)
            return x

        self.map(measure, measure)
        return sum(sizes)


def scores(rollout: Rollout | Outcome, length: int, estimates: Estimates) -> Scores:
    """Values, advantages and targets as chunks; 0 on tail rows, so that nothing they hold is learned."""
    valid, value = rollout.valid[:-1], rollout.value[:-1]
    mask = valid if estimates.mask is None else estimates.mask
    target = value + estimates.surplus
    live = (x.masked_fill(~valid, 0.0) for x in (value, estimates.advantage, target))
    return Scores(*(cut(x, length) for x in (mask, *live)))


def chunk(rollout: Rollout, length: int, scores: Scores) -> Batch:
    """A rollout with the scores of its steps as chunks, on the device; observations are not normalised."""
    steps, cut_steps = rollout.num_steps, partial(cut, length=length)
    rows, valid, action = rollout.sent
    valid = valid[:steps]
    return Batch(
        slice_rows(rows, slice(0, steps)).map(cut_steps),
        AgentState(join(rollout.starts), join(rollout.critic_starts)),
        {},
        cut_steps(action[:steps]),
        # The action of a tail row was ignored; its log-probability must not enter a ratio.
        cut_steps(rollout.log_prob.masked_fill(~valid, 0.0)),
        cut_steps(valid),
        # By position: value, advantage and target have the same order in both tuples.
        *scores[1:],
        scores.weight,
    )


def cut(x: Tensor, length: int) -> Tensor:
    """(T, N, ...) -> (L, C, ...)."""
    # Chunk k N + n, time before environment: `join` and the minibatches of several ranks rely on this order.
    # One copy for the update; without it, drawing minibatches from rows of a buffer copies all for each.
    return x.unflatten(0, (-1, length)).transpose(0, 1).flatten(1, 2).contiguous()


def join(states: list[Tree]) -> Tree:
    """States (N, ...) where chunks begin, as one (C, ...) in the order of `chunk`."""
    return tree.map_leaves(lambda x: x.flatten(0, 1), tree.stack(states))


def select_chunks(x: Tensor, index: Tensor) -> Tensor:
    """The chunks of each row of an index (M, B), from all chunks (L, C, ...): (M, L, B, ...)."""
    length, chunks = x.shape[:2]
    # As rows in the order of the result: one call for all, and each row of the index is contiguous there.
    starts = torch.arange(0, length * chunks, chunks, device=x.device)
    rows = (starts[:, None] + index[:, None]).flatten()
    return x.flatten(0, 1).index_select(0, rows).unflatten(0, (len(index), length, -1))


def parts(batch: Batch, index: Tensor) -> Iterator[Batch]:
    """The chunks of each row of an index (M, B), as M batches."""
    columns: list[tuple[Tensor, ...]] = []

    def select(x: Tensor) -> Tensor:
        columns.append(select_chunks(x, index).unbind())
        return x

    def select_states(x: Tensor) -> Tensor:
        columns.append(x.index_select(0, index.flatten()).unflatten(0, index.shape).unbind())
        return x

    batch.map(select, select_states)
    for row in zip(*columns, strict=True):
        column = iter(row)

        def following(_: Tensor, column: Iterator[Tensor] = column) -> Tensor:
            return next(column)

        yield batch.map(following, following)


def take(batch: Batch, index: Tensor) -> Batch:
    """The chunks of an index (B,)."""
    return next(parts(batch, index[None]))
