"""Rows, chunks and minibatches.

Shapes.  T rows, N environments, L rows a chunk, C = N T / L chunks.

A rollout has T rows and one more observation row, row T, which is row 0 of the next rollout. What
belongs to which row:

    obs, first               the observation; true where it opens an episode
    prev_action, prev_reward of row t-1; zero where first
    valid                    false on a tail row: the final observation, in which nobody acts
    action, log_prob         what the actor did there
    reward, terminated, truncated   what came after the action; terminated wins over truncated
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import tree
from .agent import Agent, AgentState
from .envs import Array, Obs, Step
from .episode_log import Episode
from .maths import standardize
from .nets import Rows
from .ranks import ALONE, Ranks
from .settings import SHUFFLED, Draw
from .tree import Tree


class Row(NamedTuple):
    """One row of N environments as numpy arrays: what is carried from rollout to rollout."""

    obs: Obs
    first: Array
    valid: Array
    prev_action: Array
    prev_reward: Array


def opening_row(obs: Obs, action_width: int, dtype: np.dtype[np.generic]) -> Row:
    """The row with which every environment begins an episode."""
    num_envs = len(next(iter(obs.values())))
    yes = np.ones(num_envs, dtype=bool)
    action = np.zeros((num_envs, action_width), dtype=dtype)
    return Row(obs, yes, yes, action, np.zeros(num_envs, dtype=np.float32))


class Outcome(NamedTuple):
    """What came of a rollout in the environments of all processes: (T, N), but for two with row T too."""

    valid: Tensor  # (T + 1, N)
    value: Tensor  # (T + 1, N)
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    success: Tensor
    cut_short: Tensor  # (1, N)


class Rollout:
    """Buffers for T rows of N environments, filled anew in every iteration.

    Each tensor has a numpy view, through which rows are written without a call into torch.
    """

    def __init__(self, agent: Agent, row: Row, num_steps: int, dtype: torch.dtype = torch.float32) -> None:
        self.num_steps, self.num_envs = num_steps, len(row.first)
        self._spec = agent.action_spec
        float_type = torch.zeros(0, dtype=dtype).numpy().dtype

        def rows(example: Array, extra: int = 0) -> Tensor:
            kind = float_type if example.dtype.kind == "f" else example.dtype
            shape = (num_steps + extra, *example.shape)
            return torch.from_numpy(np.zeros(shape, dtype=kind))

        self.rows = Rows(
            {name: rows(x, 1) for name, x in row.obs.items()},
            rows(row.first, 1),
            rows(row.prev_action, 1),
            rows(row.prev_reward, 1),
        )
        self.valid = rows(row.valid, 1)
        self.action = rows(row.prev_action)
        self.reward = rows(row.prev_reward)
        self.terminated, self.truncated = rows(row.first), rows(row.first)
        self.success = rows(np.zeros(self.num_envs, dtype=np.float32))
        self.cut_short = torch.zeros(1, self.num_envs, dtype=torch.bool)  # whose last row a barrier truncated
        self.log_prob = torch.zeros(num_steps, self.num_envs, dtype=dtype)
        self.value = torch.zeros(num_steps + 1, self.num_envs, dtype=dtype)
        self.starts: list[Tree] = []  # the actor's state where a chunk starts
        self.critic_starts: list[Tree] = []
        self._outcome: Outcome | None = None
        # Slicing a row costs more than reading it, so it is done once.
        self.at = [slice_rows(self.rows, slice(t, t + 1)) for t in range(num_steps + 1)]
        self._views = {
            name: getattr(self, name).numpy()
            for name in ("valid", "action", "reward", "terminated", "truncated", "success", "cut_short")
        }
        self._obs = {name: x.numpy() for name, x in self.rows.obs.items()}
        self._first, self._prev_action, self._prev_reward = (x.numpy() for x in self.rows[1:])

    def open(self, row: Row) -> None:
        """Begin with the carried row."""
        self.starts, self.critic_starts, self._outcome = [], [], None
        self._views["cut_short"][:] = False
        self._write_obs(0, row.obs)
        self._first[0], self._views["valid"][0] = row.first, row.valid
        self._prev_action[0], self._prev_reward[0] = row.prev_action, row.prev_reward

    def write(self, t: int, action: Array, step: Step) -> None:
        """What was done in row t and what came of it, which is row t+1."""
        view = self._views
        view["action"][t], view["reward"][t] = action, step.reward
        view["terminated"][t], view["truncated"][t] = step.terminated, step.truncated
        view["success"][t] = np.nan if step.success is None else step.success
        # Next-step reset: an end makes row t+1 a tail row, and after a tail row an episode opens.
        first = ~view["valid"][t]
        self._first[t + 1] = first
        np.logical_or(step.terminated, step.truncated, out=view["valid"][t + 1])
        np.logical_not(view["valid"][t + 1], out=view["valid"][t + 1])
        self._write_obs(t + 1, step.obs)
        np.multiply(self._spec.seen(action), ~first[:, None], out=self._prev_action[t + 1])
        np.multiply(step.reward, ~first, out=self._prev_reward[t + 1], casting="same_kind")

    def cut(self) -> None:
        """A barrier: every episode that goes on is truncated after row T-1."""
        view, last = self._views, self.num_steps - 1
        ended = view["terminated"][last] | view["truncated"][last]
        cut_short = view["cut_short"][0] = view["valid"][last] & ~ended
        view["truncated"][last] |= cut_short
        view["valid"][last + 1] &= ~cut_short

    def seen(self, agent: Agent) -> Rows:
        """Rows 0..T as the networks see them: observations normalised."""
        return self.rows._replace(obs=agent.normalizer(self.rows.obs))

    def outcome(self, ranks: Ranks) -> Outcome:
        """What came of it everywhere; the other processes are asked once."""
        if self._outcome is None:
            own = (getattr(self, name) for name in Outcome._fields)
            self._outcome = Outcome(*ranks.everywhere(list(own)))
        return self._outcome

    def last_row(self) -> Row:
        """Row T, to carry."""
        obs = {name: x[-1].copy() for name, x in self._obs.items()}
        parts = self._first, self._views["valid"], self._prev_action, self._prev_reward
        return Row(obs, *(x[-1].copy() for x in parts))

    def _write_obs(self, t: int, obs: Obs) -> None:
        for name, x in obs.items():
            self._obs[name][t] = x


@dataclass
class Episodes:
    """Returns and lengths of the episodes of training, raw rewards; the last 100 make the means."""

    running_return: Array  # (N,) float64
    running_length: Array  # (N,) int64
    recent: list[tuple[float, int, float]]  # return, length, success of the last 100 to finish
    finished: int = 0
    latest: list[Episode] = field(default_factory=list)  # those that finished in the last rollout

    @classmethod
    def begin(cls, num_envs: int) -> "Episodes":
        """No episode has finished."""
        return cls(np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64), [])

    def read(self, rollout: Rollout | Outcome, step: int = 0) -> None:
        """Take in a rollout that began at this step; episodes that a barrier cut short count for nothing."""
        valid = rollout.valid[:-1].numpy()
        rewards = np.cumsum(np.where(valid, rollout.reward.numpy().astype(np.float64), 0.0), axis=0)
        lengths, steps = np.cumsum(valid, axis=0), step + np.cumsum(valid.sum(1))
        terminated, success = rollout.terminated.numpy(), rollout.success.numpy()
        ended, cut_short = terminated | rollout.truncated.numpy(), rollout.cut_short[0].numpy()
        # What the sums were when the episode at hand began.
        reward_base, length_base = -self.running_return, -self.running_length
        self.latest = []
        for t, n in np.argwhere(ended):
            if t < len(valid) - 1 or not cut_short[n]:
                total, length = float(rewards[t, n] - reward_base[n]), int(lengths[t, n] - length_base[n])
                outcome = float(success[t, n]), bool(terminated[t, n])
                self.latest.append(Episode(int(steps[t]), int(n), total, length, *outcome))
            reward_base[n], length_base[n] = rewards[t, n], lengths[t, n]
        self.finished += len(self.latest)
        self.recent += [(x.return_, x.length, x.success) for x in self.latest]
        del self.recent[:-100]
        self.running_return, self.running_length = (
            rewards[-1] - reward_base,
            lengths[-1] - length_base,
        )

    def means(self) -> dict[str, float | None]:
        """return, length and success over the last 100 episodes; None until 100 have finished."""
        names = "return", "length", "success"
        if len(self.recent) < 100:
            return dict.fromkeys(names)
        means = (float(np.mean(column)) for column in zip(*self.recent, strict=True))
        return {name: x if np.isfinite(x) else None for name, x in zip(names, means, strict=True)}


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


def slice_rows(rows: Rows, span: slice) -> Rows:
    """The rows of a span of time."""
    return Rows({k: x[span] for k, x in rows.obs.items()}, *(x[span] for x in rows[1:]))
