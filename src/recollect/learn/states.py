"""Memory states at the start of chunks.

The states stored while acting become outdated while the weights change. The other rules: the initial
state (zero), a state computed from a few steps before the chunk (burn-in), or all states recomputed
before each epoch (refresh). Under these rules chunks do not begin from the states that the actor had,
so the old log-probabilities are recomputed by the same rule before the first gradient step.

Shapes.  T steps, N environments, L steps a chunk, C = N T / L chunks.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from ..agent.agent import Agent, AgentState
from ..agent.nets import Rows
from ..common.tree import Tree
from .chunks import Batch, join, take
from .maths import agreement
from .rollout import Rollout, slice_rows
from .settings import PPOConfig

Advance: TypeAlias = Callable[[Rows, Tree], Tree]


@torch.no_grad()
def restate(
    agent: Agent, rollout: Rollout, batch: Batch, cfg: PPOConfig, size: int
) -> tuple[Batch, dict[str, float]]:
    """The batch with states, old log-probabilities and values by the configured rule; and the errors.

    Acting and learning are always compared from the stored states. `state_error` is the largest
    distance of a ratio from 1 that the rule alone causes.
    """
    stored = cfg.chunk_state == "stored"
    if stored and not agent.dropout:  # then the first gradient step compares them
        return batch, {"state_error": 0.0}
    log_prob, values = _evaluate(agent, batch, size)
    ratio = (log_prob - batch.log_prob).exp()
    precision = agent.bf16, agent.value_head.resolution
    errors = agreement(ratio, values, batch.value, batch.valid, *precision)
    if stored:
        # Only dropout leads here. The evaluation above had none, because it ran without gradients.
        return batch, errors | {"state_error": 0.0}
    batch = batch._replace(state=chunk_states(agent, rollout, cfg))
    stored_log_prob = batch.log_prob
    log_prob, values = _evaluate(agent, batch, size)
    # On tail rows both are 0, so their ratio is 1.
    errors["state_error"] = float(((log_prob - stored_log_prob).exp() - 1).abs().max())
    return batch._replace(log_prob=log_prob, value=values), errors


@torch.no_grad()
def chunk_states(agent: Agent, rollout: Rollout, cfg: PPOConfig) -> AgentState:
    """The states (C, ...) at the start of chunks, with the current weights."""
    chunks = len(rollout.starts)
    if cfg.chunk_state == "zero":
        return agent.initial_state(chunks * rollout.num_envs)
    length = rollout.num_steps // chunks
    rows = _steps(agent, rollout)
    initial, begins = agent.initial_state(rollout.num_envs), range(0, rollout.num_steps, length)

    def states(advance: Advance, start: Tree, initial: Tree) -> Tree:
        if cfg.chunk_state == "refresh":
            return join(_states_before(advance, rows, start, begins))
        return join([_burn_in(advance, rows, start, initial, (t - cfg.burn_in, t)) for t in begins])

    # Only the state before step 0 is taken as stored, because earlier steps are gone.
    actor = states(agent.actor.advance, rollout.starts[0], initial.actor)
    return AgentState(actor, states(agent.critic.advance, rollout.critic_starts[0], initial.critic))


@torch.no_grad()
def refreshed(agent: Agent, rollout: Rollout) -> AgentState:
    """The states after step T-1, with the current weights."""
    rows = _steps(agent, rollout)
    return AgentState(
        agent.actor.advance(rows, rollout.starts[0]), agent.critic.advance(rows, rollout.critic_starts[0])
    )


def _steps(agent: Agent, rollout: Rollout) -> Rows:
    """Rows 0..T-1 with normalised observations."""
    return slice_rows(rollout.normalized(agent), slice(0, rollout.num_steps))


def _states_before(advance: Advance, rows: Rows, state: Tree, begins: range) -> list[Tree]:
    """The states before rows 0, L, 2L, ..."""
    states = [state]
    for t, later in pairwise(begins):
        states.append(advance(slice_rows(rows, slice(t, later)), states[-1]))
    return states


def _burn_in(advance: Advance, rows: Rows, start: Tree, initial: Tree, span: tuple[int, int]) -> Tree:
    """The state after the steps of a span, from the initial state; a span that reaches before the rollout
    begins from the state stored at its start.
    """
    begin, end = max(span[0], 0), span[1]
    state = initial if begin else start
    return advance(slice_rows(rows, slice(begin, end)), state) if end > begin else state


def _evaluate(agent: Agent, batch: Batch, size: int) -> tuple[Tensor, Tensor]:
    """log pi(action), 0 on tail rows, and V, each (L, C), `size` chunks at a time."""
    log_probs, values = [], []
    for index in torch.arange(batch.valid.shape[1], device=batch.valid.device).split(size):
        part = take(batch, index)
        params, value = agent(part.rows, part.state)
        log_probs.append(agent.policy.evaluate(params, part.action)[0].masked_fill(~part.valid, 0.0))
        values.append(value)
    return torch.cat(log_probs, 1), torch.cat(values, 1)
