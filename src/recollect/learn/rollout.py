"""The rollout: T steps of N environments, time-major (T, N, ...).

Row T, the carried row, is one more observation after the last step. It is row 0 of the next rollout. A
tail row holds the final observation of an episode; the environment ignores the action it gets there. Waiting
rows may follow it, of an agent that has no episode (envs/base.py).

    obs, first                      the observation; true where it begins an episode
    prev_action, prev_reward        of step t-1; zero where first
    valid                           false on a tail row and while waiting; the only mask in the program
    action, log_prob                of the actor
    reward, terminated, truncated   that the action led to; terminated wins over truncated
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.nets import Rows
from ..common.distributed import Ranks
from ..common.tree import Tree
from ..encoder.gallery import Galleries
from ..envs import Array, Obs, Step
from .buffer import Buffer

OBS = "obs."  # prefix of observations among the fields of a buffer


class Row(NamedTuple):
    """The row of N environments that is carried from rollout to rollout, as numpy arrays."""

    obs: Obs
    first: Array
    valid: Array
    prev_action: Array
    prev_reward: Array


def opening_row(
    obs: Obs, action_width: int, dtype: np.dtype[np.generic], waiting: Array | None = None
) -> Row:
    """A row in which every environment begins an episode, but those that wait for one."""
    num_envs = len(next(iter(obs.values())))
    first = np.ones(num_envs, dtype=bool) if waiting is None else ~waiting
    action = np.zeros((num_envs, action_width), dtype=dtype)
    return Row(obs, first, first, action, np.zeros(num_envs, dtype=np.float32))


class Outcome(NamedTuple):
    """The part of a rollout that every rank needs, for the environments of all ranks (T, N)."""

    valid: Tensor  # (T + 1, N), with row T
    value: Tensor  # (T + 1, N), with row T
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    success: Tensor
    cut_short: Tensor  # truncated by a barrier or a failure: in no statistic of episodes


class Sent(NamedTuple):
    """Steps of a rollout on the device of the networks."""

    rows: Rows
    valid: Tensor
    action: Tensor


class Rollout:
    """Buffers for T steps of N environments, overwritten in every iteration.

    They are in the memory of the CPU, where environments run; `log_prob`, `starts` and `critic_starts` are on
    the device of the networks. Each tensor has a numpy view of the same memory. Steps are written through the
    views, because a call into torch costs several times as much as the assignment.
    """

    def __init__(self, agent: Agent, row: Row, num_steps: int, dtype: torch.dtype = torch.float32) -> None:
        self.num_steps, self.num_envs = num_steps, len(row.first)
        self.device = agent.device
        self._spec = agent.action_spec
        float_type = torch.zeros(0, dtype=dtype).numpy().dtype

        def empty(example: Array) -> Array:
            # Pictures stay bytes until the encoder; as float32 they would take four times the memory.
            return np.zeros(example.shape, float_type if example.dtype.kind == "f" else example.dtype)

        def steps(example: Array, extra: int = 0) -> Tensor:
            kind = empty(example).dtype
            return torch.from_numpy(np.zeros((num_steps + extra, *example.shape), kind))

        names = "first", "prev_action", "prev_reward", "valid"
        examples = {name: empty(getattr(row, name)) for name in names} | {"action": empty(row.prev_action)}
        examples |= {OBS + name: empty(x) for name, x in row.obs.items()}
        self._on_cpu = self.device.type == "cpu"
        self._buffer = Buffer(num_steps + 1, examples, self.device)
        self.rows, self.valid, self.action = _sent(self._buffer.fields)
        self.action = self.action[:num_steps]
        self.reward = steps(row.prev_reward)
        self.terminated, self.truncated = steps(row.first), steps(row.first)
        self.success = steps(np.zeros(self.num_envs, dtype=np.float32))
        self.cut_short = torch.zeros(num_steps, self.num_envs, dtype=torch.bool)
        self.value = torch.zeros(num_steps + 1, self.num_envs, dtype=dtype)
        self.log_prob = torch.zeros(num_steps, self.num_envs, dtype=dtype, device=self.device)
        # Equal pictures are found once, here, and encoded once.
        shown = self._on_cpu and agent.takes_shown
        pictures = [name for name in row.obs if shown and agent.obs_spec.leaves[name].kind == "picture"]
        shapes = {name: row.obs[name].shape[1:] for name in pictures}
        self._galleries = Galleries(shapes, num_steps + 1, self.num_envs)
        self.starts: list[Tree] = []  # the actor's memory state where each chunk begins
        self.critic_starts: list[Tree] = []
        self._outcome: Outcome | None = None
        self._sent: Sent | None = None
        # Views of each row, sliced once: slicing costs more than acting reads.
        acting = self._with_galleries(self.rows, in_order=True)
        self._at = [slice_rows(acting, slice(t, t + 1)) for t in range(num_steps + 1)]
        self._views = {
            name: getattr(self, name).numpy()
            for name in ("valid", "action", "reward", "terminated", "truncated", "success", "cut_short")
        }
        self._obs = {name: x.numpy() for name, x in self.rows.obs.items()}
        self._first, self._prev_action, self._prev_reward = (x.numpy() for x in self.rows[1:4])

    def open(self, row: Row) -> None:
        """Begin a rollout with the carried row."""
        self.starts, self.critic_starts, self._outcome, self._sent = [], [], None, None
        self._galleries.clear()
        # In place, here and below: a new array would not be the memory of the tensor.
        self._views["cut_short"][:] = False
        self._write_obs(0, row.obs)
        self._first[0], self._views["valid"][0] = row.first, row.valid
        self._prev_action[0], self._prev_reward[0] = row.prev_action, row.prev_reward

    def write(self, t: int, action: Array, step: Step) -> None:
        """Store the actions of step t and the step of the environments, whose observation is row t+1."""
        view = self._views
        view["action"][t], view["reward"][t] = action, step.reward
        view["terminated"][t], view["truncated"][t] = step.terminated, step.truncated
        view["success"][t] = np.nan if step.success is None else step.success
        if step.aborted is not None:
            view["cut_short"][t] = step.aborted
        # Next-step reset: the end of an episode makes row t+1 a tail row, and the row after a tail row
        # begins an episode.
        first = ~view["valid"][t]
        self._first[t + 1] = first
        np.logical_or(step.terminated, step.truncated, out=view["valid"][t + 1])
        np.logical_not(view["valid"][t + 1], out=view["valid"][t + 1])
        if step.waiting is not None:
            first &= ~step.waiting
            self._first[t + 1] = first
            view["valid"][t + 1] &= ~step.waiting
        self._write_obs(t + 1, step.obs)
        # `first` is that of row t+1: an observation that opens an episode has no previous action.
        np.multiply(self._spec.to_prev_action(action), ~first[:, None], out=self._prev_action[t + 1])
        np.multiply(step.reward, ~first, out=self._prev_reward[t + 1], casting="same_kind")

    def relabel(self, action: Tensor) -> None:
        """Replace the actions (T, N, K) by those of another agent; previous actions stay what they were."""
        self.action.copy_(action)
        self._sent = None  # outdated on a GPU

    def fill(self, rows: Mapping[str, Array]) -> None:
        """Take recorded steps by the names of the fields, those of observations with the prefix OBS.

        Outcomes and actions are (T, N, ...), inputs and `valid` (T + 1, N, ...). From then on pictures are
        given as they are: the galleries have only those that were written.
        """
        self._galleries = Galleries({}, 0, 0)
        for name, x in self._buffer.fields.items():
            x[: len(rows[name])].copy_(torch.from_numpy(rows[name]))
        for name in ("reward", "terminated", "truncated"):
            getattr(self, name).copy_(torch.from_numpy(rows[name]))
        self._sent = self._outcome = None

    def truncate(self) -> None:
        """At a barrier: truncate every unfinished episode after step T-1."""
        view, last = self._views, self.num_steps - 1
        ended = view["terminated"][last] | view["truncated"][last]
        cut_short = view["valid"][last] & ~ended
        view["cut_short"][last] |= cut_short
        view["truncated"][last] |= cut_short
        # Row T becomes a tail row: V[T] is the value of a final observation and bootstraps.
        view["valid"][last + 1] &= ~cut_short

    def send_row(self, t: int) -> Rows:
        """Row t on the device of the networks, by one copy."""
        if self._on_cpu:
            return self._at[t]
        return _sent(self._buffer.send(slice(t, t + 1))).rows

    @property
    def sent(self) -> Sent:
        """Rows 0..T on the device of the networks; copied once per rollout, when all rows are written."""
        if self._sent is None:
            sent = _sent(self._buffer.send(slice(None)))
            self._sent = sent._replace(rows=self._with_galleries(sent.rows, in_order=False))
        return self._sent

    def normalized(self, agent: Agent) -> Rows:
        """Rows 0..T with normalised observations: the input of the networks."""
        rows = self.sent.rows
        return rows._replace(obs=agent.normalizer(rows.obs))

    def outcome(self, ranks: Ranks) -> Outcome:
        """The outcome of all ranks; gathered once per rollout."""
        if self._outcome is None:
            local = [getattr(self, name) for name in Outcome._fields]
            self._outcome = Outcome(*ranks.all_gather_envs(local))
        return self._outcome

    def last_row(self) -> Row:
        """Row T, as a copy: the buffers are overwritten by the next rollout."""
        obs = {name: x[-1].copy() for name, x in self._obs.items()}
        parts = self._first, self._views["valid"], self._prev_action, self._prev_reward
        return Row(obs, *(x[-1].copy() for x in parts))

    def _write_obs(self, t: int, obs: Obs) -> None:
        for name, x in obs.items():
            # A copy into the buffer: x may belong to the environments, which overwrite it in the next step.
            self._obs[name][t] = x
        self._galleries.write(t, obs)

    def _with_galleries(self, rows: Rows, in_order: bool) -> Rows:
        """Rows 0..T with pictures given by their places in galleries."""
        galleries = self._galleries
        return rows._replace(obs={**rows.obs, **galleries.places}, galleries=galleries.lookups(in_order))


def _sent(fields: Mapping[str, Tensor]) -> Sent:
    """The fields of a buffer as rows, valid and action."""
    obs = {name.removeprefix(OBS): x for name, x in fields.items() if name.startswith(OBS)}
    rows = Rows(obs, fields["first"], fields["prev_action"], fields["prev_reward"])
    return Sent(rows, fields["valid"], fields["action"])


def slice_rows(rows: Rows, span: slice) -> Rows:
    """The rows of a range of time steps, as views."""
    return rows.map(lambda x: x[span])
