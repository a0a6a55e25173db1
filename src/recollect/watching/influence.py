"""How the action of a step, or its value, depends on the memory of earlier steps.

m_t(j) is the output of step t if the memory is reset at step j, with all inputs from step j on as recorded.
So m_t(0) is the output itself, and m_t(t) the output without memory.

    change[t, k] = m_t(t - k) - m_t(t - k + 1)        k = 1, 2, ...

is the effect of remembering step t - k beside the steps after it. The changes of a step sum to the
output minus the output without memory. The output is, for the action taken at step t,

    categorical actions   its log-odds log(p / (1 - p)), p its probability, all components together
    real actions          its mean in standard deviations; a change is the length of the difference
    values                the value

Shapes.  T steps of one episode, recorded with row T, the final observation; K steps of a window, B windows
in a batch; P parameters of the policy, or 1 value; Q numbers of the output.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent, Branch
from ..agent.nets import Rows
from ..agent.policies import compute_log_odds
from ..common.intervals import Floats
from ..common.tree import Tree
from ..learn.rollout import slice_rows

REACH = 64  # K: the present step and those before it; the last stands for all earlier ones
AT_ONCE = 64  # windows of one call
LEAST_CHOICE = 0.1  # log-odds or standard deviations: smaller changes are not shown
LEAST_VALUE = 0.01  # the same for values, as a share of their range in the episode

Network: TypeAlias = Callable[[Rows, Tree], Tensor]  # rows (K, B, ...), state -> (K, B, P)
Output: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (B, P) at steps (B,) -> (B, Q)


@dataclass(frozen=True)
class Influence:
    """The effect of remembering each step.

    changes  change[t, k] (T, K), 0 for k = 0; positive where remembering the step supports the action, or
             raises the value
    unit     of the changes
    level    the output (T,); None: real actions, whose changes are lengths
    alone    the output without memory (T,)
    least    step t has no measurable influence if no |change[t, k]| reaches it
    """

    changes: Floats
    unit: str
    level: Floats | None
    alone: Floats | None
    least: float

    def measurable(self) -> Floats:
        """The changes, with 0 at steps without measurable influence."""
        reached = np.abs(self.changes).max(1, keepdims=True) >= self.least
        return np.where(reached, self.changes, 0.0)

    def scaled(self, factor: float) -> "Influence":
        """The same with rewards in another unit."""
        level, alone = (None if x is None else x * factor for x in (self.level, self.alone))
        return replace(
            self, changes=self.changes * factor, level=level, alone=alone, least=self.least * factor
        )


@torch.no_grad()
def measure_on_actions(agent: Agent, rows: Rows) -> Influence:
    """The influence of each step on later actions."""
    sizes, taken = agent.action_spec.sizes, rows.prev_action[1:, 0].cpu()

    def network(windows: Rows, state: Tree) -> Tensor:
        return agent.actor(windows, state)[0].cpu().double()

    def odds(params: Tensor, t: Tensor) -> Tensor:
        return compute_log_odds(params, taken[t], sizes)[:, None]

    def mean(params: Tensor, _t: Tensor) -> Tensor:
        mean, log_deviation = params.chunk(2, -1)
        return mean * (-log_deviation).exp()

    if not agent.policy.discrete:
        changes = np.linalg.norm(_difference(_compute_outputs(agent.actor, rows, network, mean)), axis=-1)
        return Influence(changes, "mean of the action, in standard deviations,", None, None, LEAST_CHOICE)
    outputs = _compute_outputs(agent.actor, rows, network, odds)
    return _measure_signed(outputs, "log-odds of the action", LEAST_CHOICE)


@torch.no_grad()
def measure_on_values(agent: Agent, rows: Rows) -> Influence:
    """The influence of each step on later values, in the scale of the critic."""

    def network(windows: Rows, state: Tree) -> Tensor:
        return agent.critic(windows, state)[0].cpu().double()[..., None]

    outputs = _compute_outputs(agent.critic.trunk, rows, network, lambda values, _: values)
    return _measure_signed(outputs, "value", LEAST_VALUE * float(np.ptp(_with_memory(outputs))))


def _measure_signed(outputs: Floats, unit: str, least: float) -> Influence:
    """The influence on outputs of one number each (T, K, 1)."""
    return Influence(_difference(outputs)[..., 0], unit, _with_memory(outputs), outputs[:, 0, 0], least)


def _with_memory(outputs: Floats) -> Floats:
    """The outputs of one number with the unchanged memory (T,)."""
    t = np.arange(len(outputs))
    return np.asarray(outputs[t, t.clip(max=outputs.shape[1] - 1), 0])


def _difference(outputs: Floats) -> Floats:
    """The change by each step back (T, K, Q); 0 for the present step and before the episode."""
    return np.diff(outputs, axis=1, prepend=outputs[:, :1])


# Windows --------------------------------------------------------------------------------------


def _compute_outputs(branch: Branch, rows: Rows, network: Network, output: Output) -> Floats:
    """m_t(t - k) (T, K, Q) for rows (T + 1, 1, ...); with the unchanged memory at the last k and for k > t.

    One window for each step at which the memory is reset; one pass over it gives all later steps.
    """
    length = len(rows.first) - 1
    reach, every = min(REACH, length), torch.arange(length)
    whole = network(slice_rows(rows, slice(0, length)), branch.memory.initial_state(1))[:, 0]
    outputs = output(whole, every)[:, None].repeat(1, reach, 1)
    after = torch.arange(reach - 1)[:, None]
    for begin in range(1, length, AT_ONCE):
        starts = every[begin : begin + AT_ONCE]
        step = starts + after  # (K - 1, B)
        params = network(_cut_windows(rows, step), branch.memory.initial_state(len(starts)))
        inside = step < length
        t, k = step[inside], after.expand_as(step)[inside]
        outputs[t, k] = output(params[inside], t)
    return outputs.numpy()


def _cut_windows(rows: Rows, step: Tensor) -> Rows:
    """Rows (T + 1, 1, ...) at steps (K, B) -> (K, B, ...); steps after the end repeat the last row."""
    # Windows near the end are padded, so that all have one length; the padded steps are dropped by the
    # caller.
    place = step.clamp(max=len(rows.first) - 1)
    return rows.map(lambda x: x[place, 0])
