"""Minibatches of chunks, epoch by epoch, with the same contents however many ranks share the environments.

Shapes.  T steps, N environments of all ranks, L steps a chunk, C = N T / L chunks.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from ..common import rng
from ..common.devices import send
from ..common.distributed import ALONE, Ranks
from ..envs import Array
from .auxiliary import targets
from .chunks import Batch, Estimates, Scores, chunk, cut, parts, scores, select_chunks
from .learner import Learner
from .maths import Loss, Losses, agreement, explained_variance, standardize
from .rollout import Rollout
from .settings import Coefficients, Draw, Plan
from .states import chunk_states, restate

GROUP_BYTES = 2**20  # of minibatches that are drawn at once


class Minibatches:
    """The minibatches of one update: iterating yields epochs, and each epoch yields batches.

    batch   all chunks of this rank
    errors  how far learning is from acting before the first gradient step: metrics
    stale   whether the weights have moved since the states of chunks were computed
    """

    def __init__(
        self, learner: Learner, rollout: Rollout, plan: Plan, length: int, draw: Draw, estimates: Estimates
    ) -> None:
        self.learner, self.rollout, self.plan, self.draw = learner, rollout, plan, draw
        # Of all ranks, so that every process normalises with the same numbers, summed in the same order.
        host_scores = learner.follow_targets(scores(rollout.outcome(learner.ranks), length, estimates))
        # Kept on the CPU: how many steps of a minibatch count must be known without waiting for the device.
        self.counts = host_scores.mask.sum(0).numpy()
        self.scores = Scores(*(send(x, rollout.device) for x in host_scores))
        if draw.normalize == "rollout" and self.counts.sum() > 1:
            advantage = standardize(self.scores.advantage, self.scores.weight)
            self.scores = self.scores._replace(advantage=advantage)
        self.num_envs = rollout.num_envs * learner.ranks.size
        batch = chunk(rollout, length, Scores(*map(self._local, self.scores)))
        # `chunk` has made weights that sum to 1 over this rank. They must do so over all ranks: then the sum
        # of gradients over ranks is the gradient of the mean.
        batch = batch._replace(
            rows=batch.rows._replace(obs=learner.agent.normalizer(batch.rows.obs)),
            weight=self._local(self.scores.weight),
            targets={name: cut(x, length) for name, x in targets(learner, rollout).items()},
        )
        self.size = plan.ppo.chunks_per_minibatch(self.num_envs, length, draw.whole)
        batch, self.errors = restate(learner.agent, rollout, batch, plan.ppo, self.size)
        self.batch = learner.engine.prepare(batch)
        self.stale = False
        # With dropout a gradient step computes another function; restate has compared the whole rollout.
        self._compared = learner.agent.dropout
        # Of each minibatch: those of Losses, then the predictions; on the device until the metrics.
        self._losses: list[Tensor] = []
        self._predicted: tuple[str, ...] = ()
        learner.seed_dropout(plan.seed)

    def __iter__(self) -> Iterator[Iterator[Batch]]:
        for number in range(self.draw.epochs):
            if self.stale and self.plan.ppo.recomputes_states:
                state = chunk_states(self.learner.agent, self.rollout, self.plan.ppo)
                self.batch = self.batch._replace(state=state)
            self.stale, steps = True, len(self._losses)
            yield self.epoch(number)
            if self.draw.target_kl is not None and self._mean_kl(steps) > self.draw.target_kl:
                return

    def epoch(self, number: int) -> Iterator[Batch]:
        """The minibatches of one epoch, in an order that only the seed, iteration and epoch decide."""
        if self.draw.whole:
            return iter([self.batch])
        seed, ranks = self.plan.seed, self.learner.ranks
        random = rng.generator(seed, rng.Purpose.SHUFFLE, self.learner.iteration, number)
        return minibatches(
            self.batch, self.scores, self.counts, self.num_envs, self.size, random, self.draw, ranks
        )

    def compare(self, ratio: Tensor, values: Tensor, batch: Batch) -> None:
        """Raise unless acting and learning agree on the first minibatch; later calls do nothing."""
        if not self._compared:
            agent = self.learner.agent
            precision = agent.bf16, agent.value_head.resolution
            self.errors = agreement(ratio, values, batch.value, batch.valid, *precision) | self.errors
            self._compared = True

    def record(self, loss: Loss, batch: Batch) -> None:
        """Keep the losses of a minibatch for the metrics; of the first, compare acting and learning."""
        self.compare(loss.ratio, loss.values, batch)
        self._predicted = tuple(loss.predictions)
        self._losses.append(torch.stack([*loss.means, *loss.predictions.values()]).detach())

    def metrics(self, now: Coefficients) -> dict[str, float]:
        """The metrics of the update with these coefficients, over all minibatches of all ranks."""
        # Each rank has its share of a weighted mean, so shares are summed and not averaged.
        means = self.learner.ranks.all_reduce_sum(torch.stack(self._losses).mean(0))
        count = len(Losses._fields)
        predictions = dict(zip(self._predicted, means[count:].tolist(), strict=True))
        metrics = self.learner.update_metrics(Losses(*means[:count]), self.explained_variance, now)
        return self.errors | metrics | predictions

    @property
    def explained_variance(self) -> float:
        """Of the value targets by the values of the rollout, over all ranks."""
        return explained_variance(self.scores.value, self.scores.target, self.scores.weight)

    def _mean_kl(self, steps: int) -> Tensor:
        """The mean KL of all minibatches after so many."""
        # All ranks get the same number and stop after the same epoch. One that stopped alone would leave the
        # others waiting for its gradients.
        kl = torch.stack(self._losses[steps:])[:, Losses._fields.index("kl")]
        return self.learner.ranks.all_reduce_sum(kl.mean())

    def _local(self, x: Tensor) -> Tensor:
        """Chunks (L, C) of all ranks -> those of this rank's environments."""
        local_envs = self.learner.ranks.block(self.rollout.num_envs)
        return x.unflatten(1, (-1, self.num_envs))[:, :, local_envs].flatten(1)


def blocks_of(num_envs: int, size: int, ranks: Ranks) -> int:
    """Blocks of environments of which each minibatch of `size` chunks takes the same share."""
    # 8 also with fewer ranks: a run draws the same minibatches alone and split over 2, 4 or 8.
    return math.gcd(num_envs, size, max(8, ranks.size))


def orders(
    chunks: int, num_envs: int, blocks: int, random: np.random.Generator | None, ranks: Ranks
) -> tuple[Array, Array]:
    """All chunks in the order of learning, and those of this rank by its own numbers (blocks, C / blocks)."""
    order = np.arange(chunks).reshape(-1, blocks, num_envs // blocks).swapaxes(0, 1).reshape(blocks, -1)
    # Every rank draws the order of all blocks and then takes its own.
    order = random.permuted(order, axis=1) if random else order
    local_blocks, local_envs = ranks.block(blocks // ranks.size), ranks.block(num_envs // ranks.size)
    # Chunk k N + n of all ranks is chunk k (N / ranks) + n - (first environment of this rank) of its own.
    time, env = np.divmod(order[local_blocks], num_envs)
    return order, time * (num_envs // ranks.size) + env - local_envs.start


def grouped(
    order: Array, share: int, groups: Sequence[tuple[int, int]], device: torch.device
) -> Iterator[Tensor]:
    """The chunks of the minibatches of each group (M, B), block by block; copied to the device once.

    groups  minibatches, and chunks that each takes of a block
    """
    starts = range(0, order.shape[1], share)
    flat = np.concatenate([order[:, start : start + share].ravel() for start in starts])
    split = send(torch.from_numpy(flat), device).split(
        [number * len(order) * part for number, part in groups]
    )
    return (x.unflatten(0, (number, -1)) for x, (number, _) in zip(split, groups, strict=True))


def minibatches(
    batch: Batch,
    scores: Scores,
    counts: Array,
    num_envs: int,
    size: int,
    random: np.random.Generator,
    draw: Draw,
    ranks: Ranks = ALONE,
) -> Iterator[Batch]:
    """This rank's part of all chunks, `size` at a time, in random order or in the order of time.

    Each minibatch takes the same share from each block of environments, so that a run split over
    ranks draws what the whole run draws. The weights of its steps in a mean and its normalised
    advantages follow from the whole minibatch. One in which no step counts is left out.

    batch     the chunks of this rank
    scores    of the chunks of all ranks
    counts    steps of each chunk of all ranks (C,) that count
    num_envs  of all ranks
    """
    blocks = blocks_of(num_envs, size, ranks)
    order, local_order = orders(
        scores.mask.shape[1], num_envs, blocks, random if draw.shuffle else None, ranks
    )
    share, each = size // blocks, order.shape[1]
    # Minibatches of equal size are drawn together, as many as are in the cache when they are learned from.
    together = max(1, GROUP_BYTES * each // (batch.nbytes * share))
    equal = range(0, each // share, together)
    groups = [(min(together, equal.stop - number), share) for number in equal]
    groups += [(1, each % share)] if each % share else []

    counted = iter([counts[order[:, start : start + share]].sum() for start in range(0, each, share)])
    indices, local_indices = (grouped(x, share, groups, batch.valid.device) for x in (order, local_order))
    for index, local_index in zip(indices, local_indices, strict=True):
        mask, raw = (select_chunks(x, index) for x in (scores.mask, scores.advantage))
        weights = mask / mask.sum((1, 2), keepdim=True).clamp(min=1)
        advantages = standardize(raw, weights) if draw.normalize == "minibatch" else raw
        # `index` goes block by block, so the chunks of this rank are one slice of it.
        local = ranks.block(local_index.shape[1])
        of_all = (x[..., local].unbind() for x in (weights, advantages, raw))
        for part, weight, advantage, plain in zip(parts(batch, local_index), *of_all, strict=True):
            # By the chunks of all ranks, so that none of them leaves out a minibatch alone.
            if steps := next(counted):
                # One step has no deviation to divide by.
                learned = part._replace(weight=weight, advantage=advantage if steps > 1 else plain)
                yield from repeat(learned, draw.repeats)
