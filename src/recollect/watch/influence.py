"""Occlusion: how the action taken at a step, or its value, changes when one observation is hidden.

    change[t, k] = f_t(episode) - f_t(episode with the observation of step t - k hidden)

f_t is, for the action taken at step t,

    categorical actions   its log-odds log(p / (1 - p)), p its probability, all components together
    real actions          its mean in standard deviations; the change is the length of the difference
    values                the value

A hidden step repeats the observation and the reward of the step before it; the first step repeats the
observation of the step after it. Everything else stays as recorded, the actions taken included. So
nothing is approximated: a change is the difference of two outputs of the network.

Shapes.  T steps of one episode, recorded as T + 1 rows; K steps of a window that begins at the hidden
one, or B windows side by side; P outputs of the actor, or 1 value.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..agent import Agent, Branch
from ..nets import Rows
from ..record import states
from ..report.intervals import Floats
from ..rollout import slice_rows
from ..tree import Tree, map_leaves, stack

REACH = 64  # steps of a window: the hidden one and those after it
AT_ONCE = 64  # windows
LEAST_CHOICE = 0.1  # of log-odds, or of a standard deviation: smaller changes are not shown
LEAST_VALUE = 0.01  # the same for values, as a share of their range in the episode

Network: TypeAlias = Callable[[Rows, Tree], Tensor]  # rows (K, B, ...), state -> (K, B, P)
Change: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # steps (B,), their outputs (B, P) -> (B,)


@dataclass(frozen=True)
class Influence:
    """What hiding each step changes.

    changes  change[t, k] (T, K); positive where the hidden step supported the action, or raised the value
    unit     of the changes
    level    f_t, what the changes are of (T,); None: real actions, of which they are lengths
    least    no measurable influence on step t, if no |change[t, k]| reaches it
    """

    changes: Floats
    unit: str
    level: Floats | None
    least: float

    def shown(self) -> Floats:
        """The changes, with 0 at steps where none reaches the least that is shown."""
        measurable = np.abs(self.changes).max(1, keepdims=True) >= self.least
        return np.where(measurable, self.changes, 0.0)

    def scaled(self, factor: float) -> "Influence":
        """The same in another unit of rewards."""
        level = None if self.level is None else self.level * factor
        return replace(self, changes=self.changes * factor, level=level, least=self.least * factor)


@torch.no_grad()
def on_actions(agent: Agent, rows: Rows) -> Influence:
    """Of each step on the actions taken at it and after it."""

    def network(windows: Rows, state: Tree) -> Tensor:
        return agent.actor(windows, state)[0].double()

    recorded = _recorded(agent.actor, rows, network)
    if not agent.policy.discrete:
        changes = _occlude(agent.actor, rows, network, lambda t, hidden: _mean_change(recorded[t], hidden))
        return Influence(changes, "mean of the action, in standard deviations,", None, LEAST_CHOICE)
    sizes, taken = agent.action_spec.sizes, rows.prev_action[1:, 0]
    level = log_odds(recorded, taken, sizes)
    changes = _occlude(
        agent.actor, rows, network, lambda t, hidden: level[t] - log_odds(hidden, taken[t], sizes)
    )
    return Influence(changes, "log-odds of the action", level.numpy(), LEAST_CHOICE)


@torch.no_grad()
def on_values(agent: Agent, rows: Rows) -> Influence:
    """Of each step on the values of it and of those after it, in the scale of the critic."""

    def network(windows: Rows, state: Tree) -> Tensor:
        return agent.value(windows, state)[0].double()[..., None]

    branch = agent.critic if isinstance(agent.critic, Branch) else agent.actor
    level = _recorded(branch, rows, network)[:, 0]
    changes = _occlude(branch, rows, network, lambda t, hidden: level[t] - hidden[:, 0])
    return Influence(changes, "value", level.numpy(), LEAST_VALUE * float(level.max() - level.min()))


def log_odds(params: Tensor, action: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """log(p / (1 - p)) of actions (B, C), C components, by logits (B, sum of sizes): (B,).

    From logits, because a probability of 1 - 1e-12 is 1 in 32 bits.
    """
    misses = params.new_zeros(len(params))  # -log p
    for logits, taken in zip(params.split(sizes, -1), action.long().unbind(-1), strict=True):
        others = logits.scatter(-1, taken[:, None], -torch.inf).logsumexp(-1)
        misses += F.softplus(others - logits.gather(-1, taken[:, None])[:, 0])
    misses = misses.clamp(min=torch.finfo(misses.dtype).tiny)  # where there is one choice, p is 1
    return -misses - torch.log(-torch.expm1(-misses))


def _mean_change(recorded: Tensor, hidden: Tensor) -> Tensor:
    """The lengths (B,) of differences of means, in deviations, by parameters (B, P)."""
    mean, log_deviation = recorded.chunk(2, -1)
    return ((mean - hidden.chunk(2, -1)[0]) * (-log_deviation).exp()).norm(dim=-1)


# Windows --------------------------------------------------------------------------------------


def _recorded(branch: Branch, rows: Rows, network: Network) -> Tensor:
    """The outputs of the steps of the episode as it was (T, P)."""
    return network(slice_rows(rows, slice(0, len(rows.first) - 1)), branch.memory.initial_state(1))[:, 0]


def _occlude(branch: Branch, rows: Rows, network: Network, change: Change) -> Floats:
    """change[t, k] (T, K) for rows (T + 1, 1, ...).

    One window for each hidden step: it begins with that step, in the memory state of the step, and one
    pass over it gives the outputs of all later steps.
    """
    length = len(rows.first) - 1
    reach = min(REACH, length)
    before, after = _states_before(branch, rows), torch.arange(reach)[:, None]
    changes = np.zeros((length, reach))
    for begin in range(0, length, AT_ONCE):
        hidden = torch.arange(begin, min(begin + AT_ONCE, length))
        state = _side_by_side(islice(before, len(hidden)))
        outputs = network(_windows(rows, hidden, reach), state)  # (K, B, P)
        step = hidden + after
        inside = step < length
        t, k = step[inside], after.expand_as(step)[inside]
        changes[t.numpy(), k.numpy()] = change(t, outputs[inside]).numpy()
    return changes


def _windows(rows: Rows, hidden: Tensor, reach: int) -> Rows:
    """Rows (T + 1, 1, ...) -> windows (K, B, ...), each with its first row hidden."""
    place = (hidden + torch.arange(reach)[:, None]).clamp(max=len(rows.first) - 1)
    obs = {name: x[place, 0] for name, x in rows.obs.items()}
    windows = Rows(obs, *(x[place, 0] for x in rows[1:]))
    shown = torch.where(hidden > 0, hidden - 1, 1)
    for name, x in rows.obs.items():
        obs[name][0] = x[shown, 0]
    windows.prev_reward[0] = rows.prev_reward[(hidden - 1).clamp(min=0), 0]
    return windows


def _states_before(branch: Branch, rows: Rows) -> Iterator[Tree]:
    """The memory state before row 0, row 1, ..."""
    yield branch.memory.initial_state(1)
    yield from states(branch, rows)


def _side_by_side(trees: Iterable[Tree]) -> Tree:
    """States of batch 1 as one of batch B."""
    return map_leaves(lambda x: x.flatten(0, 1), stack(list(trees)))
