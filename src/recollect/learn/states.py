"""Where memories stand when a chunk is learned from.

While the weights move, the states that were kept while acting grow old. What else can be done is
here: begin from nothing, read a few rows before the chunk, or compute all states anew for each pass.
Then learning does not begin where acting was, so the probabilities that ratios are measured against
are computed once more, by the same rule, before the first gradient step.

Shapes.  T rows, N environments, L rows a chunk, C = N T / L chunks.
"""

from collections.abc import Callable
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
    """The batch as this rule has it before the first gradient step, and what that changes.

    Whether acting and learning agree is always asked of the stored states. `state_error` is how far
    the rule moves a ratio of probabilities away from 1.
    """
    stored = cfg.chunk_state == "stored"
    if stored and not agent.dropout:  # then the first gradient step shows whether they agree
        return batch, {"state_error": 0.0}
    log_prob, values = _evaluate(agent, batch, size)
    errors = agreement((log_prob - batch.log_prob).exp(), values, batch.value, batch.valid)
    if stored:
        return batch, errors | {"state_error": 0.0}
    batch = batch._replace(state=chunk_states(agent, rollout, cfg))
    acted = batch.log_prob
    log_prob, values = _evaluate(agent, batch, size)
    errors["state_error"] = float(((log_prob - acted).exp() - 1).abs().max())
    return batch._replace(log_prob=log_prob, value=values), errors


@torch.no_grad()
def chunk_states(agent: Agent, rollout: Rollout, cfg: PPOConfig) -> AgentState:
    """The states (C, ...) from which chunks are learned, by the weights of this moment."""
    chunks = len(rollout.starts)
    if cfg.chunk_state == "zero":
        return agent.initial_state(chunks * rollout.num_envs)
    length = rollout.num_steps // chunks
    rows = _acted(agent, rollout)
    fresh = agent.initial_state(rollout.num_envs)

    def states(advance: Advance, start: Tree, nothing: Tree) -> Tree:
        if cfg.chunk_state == "refresh":
            return join(_walk(advance, rows, start, length)[0])
        return join([_burn_in(advance, rows, start, nothing, (t - cfg.burn_in, t)) for t in places])

    places = range(0, rollout.num_steps, length)
    actor = states(agent.actor.advance, rollout.starts[0], fresh.actor)
    return AgentState(actor, states(agent.critic.advance, rollout.critic_starts[0], fresh.critic))


@torch.no_grad()
def refreshed(agent: Agent, rollout: Rollout) -> AgentState:
    """The states after row T-1, as the weights of this moment make them."""
    rows = _acted(agent, rollout)
    return AgentState(
        agent.actor.advance(rows, rollout.starts[0]), agent.critic.advance(rows, rollout.critic_starts[0])
    )


def _acted(agent: Agent, rollout: Rollout) -> Rows:
    """Rows 0..T-1 as the networks see them."""
    return slice_rows(rollout.normalized(agent), slice(0, rollout.num_steps))


def _walk(advance: Advance, rows: Rows, state: Tree, length: int) -> tuple[list[Tree], Tree]:
    """The states before rows 0, L, 2L, ... and after the last row."""
    starts = []
    for t in range(0, len(rows.first), length):
        starts.append(state)
        state = advance(slice_rows(rows, slice(t, t + length)), state)
    return starts, state


def _burn_in(advance: Advance, rows: Rows, start: Tree, nothing: Tree, span: tuple[int, int]) -> Tree:
    """The state after a span of rows; from nothing, or from the rollout's own start where it is near."""
    begin, end = max(span[0], 0), span[1]
    state = nothing if begin else start
    return advance(slice_rows(rows, slice(begin, end)), state) if end > begin else state


def _evaluate(agent: Agent, batch: Batch, size: int) -> tuple[Tensor, Tensor]:
    """log pi(action), 0 on tail rows, and V, each (L, C), `size` chunks at a time."""
    scores, values = [], []
    for index in torch.arange(batch.valid.shape[1]).split(size):
        part = take(batch, index)
        params, value = agent(part.rows, part.state)
        scores.append(agent.policy.evaluate(params, part.action)[0].masked_fill(~part.valid, 0.0))
        values.append(value)
    return torch.cat(scores, 1), torch.cat(values, 1)
