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

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.nets import Rows
from ..common.distributed import Ranks
from ..common.tree import Tree
from ..envs import Array, Obs, Step


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
        np.multiply(self._spec.to_prev_action(action), ~first[:, None], out=self._prev_action[t + 1])
        np.multiply(step.reward, ~first, out=self._prev_reward[t + 1], casting="same_kind")

    def cut(self) -> None:
        """A barrier: every episode that goes on is truncated after row T-1."""
        view, last = self._views, self.num_steps - 1
        ended = view["terminated"][last] | view["truncated"][last]
        cut_short = view["cut_short"][0] = view["valid"][last] & ~ended
        view["truncated"][last] |= cut_short
        view["valid"][last + 1] &= ~cut_short

    def normalized(self, agent: Agent) -> Rows:
        """Rows 0..T as the networks see them: observations normalised."""
        return self.rows._replace(obs=agent.normalizer(self.rows.obs))

    def outcome(self, ranks: Ranks) -> Outcome:
        """What came of it everywhere; the other processes are asked once."""
        if self._outcome is None:
            own = (getattr(self, name) for name in Outcome._fields)
            self._outcome = Outcome(*ranks.all_gather_envs(list(own)))
        return self._outcome

    def last_row(self) -> Row:
        """Row T, to carry."""
        obs = {name: x[-1].copy() for name, x in self._obs.items()}
        parts = self._first, self._views["valid"], self._prev_action, self._prev_reward
        return Row(obs, *(x[-1].copy() for x in parts))

    def _write_obs(self, t: int, obs: Obs) -> None:
        for name, x in obs.items():
            self._obs[name][t] = x


def slice_rows(rows: Rows, span: slice) -> Rows:
    """The rows of a span of time."""
    return rows.map(lambda x: x[span])
