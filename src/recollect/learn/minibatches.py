"""A rollout as chunks, and chunks as minibatches.

Shapes.  T steps, N environments, L steps a chunk, C = N T / L chunks.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import AgentState
from ..agent.nets import Rows
from ..common import tree
from ..common.distributed import ALONE, Ranks
from ..common.tree import Tree
from .maths import standardize
from .rollout import Outcome, Rollout, slice_rows
from .settings import SHUFFLED, Draw


class Scores(NamedTuple):
    """What means are made of, as chunks (L, C)."""

    valid: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor

    @property
    def weight(self) -> Tensor:
        """The share of each row in a mean over valid rows."""
        return self.valid / self.valid.sum()


class Batch(NamedTuple):
    """Chunks side by side: tensors (L, C, ...), states (C, ...)."""

    rows: Rows
    state: AgentState
    action: Tensor
    log_prob: Tensor
    valid: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    weight: Tensor  # of each row in a mean over the valid rows of all processes


def chunk(rollout: Rollout, length: int, advantage: Tensor, surplus: Tensor | None = None) -> Batch:
    """A rollout as chunks of L rows; chunk k N + n holds rows k L to (k + 1) L of environment n."""
    steps = rollout.num_steps
    state = join(rollout.starts), join(rollout.critic_starts)
    cut = partial(cut_rows, length=length)
    rows = slice_rows(rollout.rows, slice(0, steps))
    rows = Rows({k: cut(x) for k, x in rows.obs.items()}, *map(cut, rows[1:]))
    log_prob = cut(rollout.log_prob.masked_fill(~rollout.valid[:steps], 0.0))
    own = scores(rollout, length, advantage, surplus)
    return Batch(rows, AgentState(*state), cut(rollout.action), log_prob, *own, own.weight)


def scores(
    rollout: Rollout | Outcome, length: int, advantage: Tensor, surplus: Tensor | None = None
) -> Scores:
    """The scores of its rows as chunks; whatever a tail row holds, nobody reads it.

    surplus  targets minus values; None: the advantage
    """
    valid, value = rollout.valid[:-1], rollout.value[:-1]
    target = value + (advantage if surplus is None else surplus)
    live = (x.masked_fill(~valid, 0.0) for x in (value, advantage, target))
    return Scores(*(cut_rows(x, length) for x in (valid, *live)))


def cut_rows(x: Tensor, length: int) -> Tensor:
    """(T, N, ...) -> (L, C, ...)."""
    return x.unflatten(0, (-1, length)).transpose(0, 1).flatten(1, 2)


def join(states: list[Tree]) -> Tree:
    """States (N, ...) where chunks start, as one (C, ...) in the order of `chunk`."""
    return tree.map_leaves(lambda x: x.flatten(0, 1), tree.stack(states))


def take(batch: Batch, index: Tensor) -> Batch:
    """Some of the chunks."""

    def pick(x: Tensor) -> Tensor:
        return x.index_select(1, index)

    rows = Rows({k: pick(x) for k, x in batch.rows.obs.items()}, *map(pick, batch.rows[1:]))
    state = (tree.map_leaves(lambda x: x.index_select(0, index), part) for part in batch.state)
    return Batch(rows, AgentState(*state), *map(pick, batch[2:]))


def blocks_of(num_envs: int, size: int, ranks: Ranks) -> int:
    """Blocks of environments of which each minibatch of `size` chunks takes the same share."""
    return math.gcd(num_envs, size, max(8, ranks.size))


def minibatches(
    batch: Batch,
    num_envs: int,
    size: int,
    random: np.random.Generator,
    draw: Draw = SHUFFLED,
    everyone: Scores | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[Batch]:
    """This process's part of all chunks, `size` at a time, in random order or in that of time; those
    without a valid row not.

    Each minibatch takes the same share from each block of environments, so that a run split over
    processes draws what the whole run draws. What its rows weigh in a mean, and what their
    advantages are worth, follows from the whole minibatch.

    num_envs   of all processes
    everyone   the chunks of all processes; alone, the batch itself
    """
    whole = everyone or batch
    chunks, blocks = whole.valid.shape[1], blocks_of(num_envs, size, ranks)
    ids = np.arange(chunks).reshape(-1, blocks, num_envs // blocks)
    order = ids.swapaxes(0, 1).reshape(blocks, -1)
    order = random.permuted(order, axis=1) if draw.shuffle else order
    share, own = size // blocks, blocks // ranks.size
    for start in range(0, chunks // blocks, share):
        drawn = order[:, start : start + share]
        index = torch.from_numpy(drawn.ravel())
        valid = whole.valid.index_select(1, index)
        if not valid.any():
            continue
        weight, advantage = valid / valid.sum(), whole.advantage.index_select(1, index)
        if draw.normalize:
            advantage = standardize(advantage, weight)
        mine = ranks.block(own * drawn.shape[1])
        time, env = np.divmod(drawn.ravel()[mine], num_envs)
        local = time * (num_envs // ranks.size) + env - ranks.block(num_envs // ranks.size).start
        part = take(batch, torch.from_numpy(local))
        part = part._replace(weight=weight[:, mine], advantage=advantage[:, mine])
        yield from repeat(part, draw.repeats)
