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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import tree
from .agent import Agent, AgentState
from .envs import Array, Obs, Step
from .nets import Rows
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
        self.cut_short = np.zeros(self.num_envs, dtype=bool)  # whose last row a barrier truncated
        self.log_prob = torch.zeros(num_steps, self.num_envs, dtype=dtype)
        self.value = torch.zeros(num_steps + 1, self.num_envs, dtype=dtype)
        self.starts: list[Tree] = []  # the actor's state where a chunk starts
        self.critic_starts: list[Tree] = []
        # Slicing a row costs more than reading it, so it is done once.
        self.at = [slice_rows(self.rows, slice(t, t + 1)) for t in range(num_steps + 1)]
        self._views = {
            name: getattr(self, name).numpy()
            for name in ("valid", "action", "reward", "terminated", "truncated", "success")
        }
        self._obs = {name: x.numpy() for name, x in self.rows.obs.items()}
        self._first, self._prev_action, self._prev_reward = (x.numpy() for x in self.rows[1:])

    def open(self, row: Row) -> None:
        """Begin with the carried row."""
        self.starts, self.critic_starts = [], []
        self.cut_short[:] = False
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
        self.cut_short[:] = view["valid"][last] & ~ended
        view["truncated"][last] |= self.cut_short
        view["valid"][last + 1] &= ~self.cut_short

    def seen(self, agent: Agent) -> Rows:
        """Rows 0..T as the networks see them: observations normalised."""
        return self.rows._replace(obs=agent.normalizer(self.rows.obs))

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

    @classmethod
    def begin(cls, num_envs: int) -> "Episodes":
        """No episode has finished."""
        return cls(np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64), [])

    def read(self, rollout: Rollout) -> None:
        """Take in a rollout; episodes that a barrier cut short count for nothing."""
        valid = rollout.valid[:-1].numpy()
        rewards = np.cumsum(np.where(valid, rollout.reward.numpy().astype(np.float64), 0.0), axis=0)
        lengths = np.cumsum(valid, axis=0)
        ended = (rollout.terminated | rollout.truncated).numpy()
        # What the sums were when the episode at hand began.
        reward_base, length_base = -self.running_return, -self.running_length
        for t, n in np.argwhere(ended):
            if t < len(valid) - 1 or not rollout.cut_short[n]:
                success = float(rollout.success[t, n])
                result = float(rewards[t, n] - reward_base[n]), int(lengths[t, n] - length_base[n])
                self.recent.append((*result, success))
                self.finished += 1
            reward_base[n], length_base[n] = rewards[t, n], lengths[t, n]
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


class Batch(NamedTuple):
    """Chunks side by side: tensors (L, C, ...), states (C, ...)."""

    rows: Rows
    state: AgentState
    valid: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor


def chunk(rollout: Rollout, length: int, advantage: Tensor) -> Batch:
    """A rollout as chunks of L rows; chunk k N + n holds rows k L to (k + 1) L of environment n."""
    steps = rollout.num_steps
    valid = rollout.valid[:steps]

    def cut(x: Tensor) -> Tensor:
        return x[:steps].unflatten(0, (-1, length)).transpose(0, 1).flatten(1, 2)

    def live(x: Tensor) -> Tensor:
        return cut(x[:steps].masked_fill(~valid, 0.0))  # whatever a tail row holds, nobody reads it

    state = join(rollout.starts), join(rollout.critic_starts)
    rows = Rows({k: cut(x) for k, x in rollout.rows.obs.items()}, *map(cut, rollout.rows[1:]))
    scores = live(rollout.log_prob), live(rollout.value), live(advantage)
    target = live(advantage + rollout.value[:steps])
    return Batch(rows, AgentState(*state), cut(valid), cut(rollout.action), *scores, target)


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


def minibatches(batch: Batch, num_envs: int, size: int, random: np.random.Generator) -> Iterator[Batch]:
    """The chunks in random order, `size` at a time.

    Each minibatch takes the same share from each of up to 8 blocks of environments, so that a run
    split over processes draws what the whole run draws.
    """
    chunks = batch.valid.shape[1]
    blocks = math.gcd(num_envs, size, 8)
    ids = np.arange(chunks).reshape(-1, blocks, num_envs // blocks)
    order = random.permuted(ids.swapaxes(0, 1).reshape(blocks, -1), axis=1)
    share = size // blocks
    for start in range(0, chunks // blocks, share):
        yield take(batch, torch.from_numpy(order[:, start : start + share].ravel()))


def slice_rows(rows: Rows, span: slice) -> Rows:
    """The rows of a span of time."""
    return Rows({k: x[span] for k, x in rows.obs.items()}, *(x[span] for x in rows[1:]))
