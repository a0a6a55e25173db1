"""The quantities of an agent in an episode: values, policies, attention weights, memory states, influences.

The networks of the agent compute them from the recorded inputs: values, policies and attention weights in
one call over the whole episode, as in training; memory states step by step, as in acting.

Shapes.  T steps of one episode (N = 1), recorded with row T, the final observation, which has no action.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from ..agent.agent import Agent, Branch
from ..agent.nets import Rows
from ..agent.normalize import RewardScale
from ..common.intervals import Floats
from ..learn.rollout import slice_rows
from ..learn.settings import PPOConfig
from ..run.recording import Record, float_leaves, memory_states, name_states
from .influence import Influence, measure_on_actions, measure_on_values

Names: TypeAlias = tuple[str | None, str | None]


@dataclass(frozen=True)
class MemoryTrace:
    """The memory of a branch over an episode.

    name       actor, critic, or both if they share one memory
    kind       name of the memory; None: there is none, and all other fields are empty
    attention  for each layer, the weight of step t on the step k before it (T, heads, P + 1)
    states     the memory state after each step, by the name of its tensor (T, units)
    path       the two principal components of all states (T, 2)
    share      share of the variance of the states in these two
    influence  influence of remembered steps on the action, on the value, or on both
    """

    name: str
    kind: str | None
    attention: list[Floats]
    states: dict[str, Floats]
    path: Floats | None
    share: float
    influence: dict[str, Influence]


@dataclass(frozen=True)
class Internals:
    """The quantities of an agent in an episode.

    value      (T + 1,), and advantage (T,), in units of the task's rewards. If the scale of rewards is not
               known, values are in that of the critic, and there is no advantage
    entropy    (T,)
    policy     probabilities of the choices of each component (T, K, most), or means and deviations of
               real actions as the environment takes them (T, 2, K)
    """

    value: Floats
    advantage: Floats | None
    entropy: Floats
    policy: Floats
    memories: list[MemoryTrace]


@torch.no_grad()
def compute_internals(
    agent: Agent,
    record: Record,
    ppo: PPOConfig,
    scale: RewardScale | None,
    names: Names,
) -> Internals:
    """All quantities of an episode.

    scale  of the rewards that the critic was trained with; None: not known
    names  of the memories of actor and critic
    """
    rows = record.rows.to(agent.device)
    steps = slice_rows(rows, slice(0, len(record.reward)))  # without row T
    values, _ = agent.value(rows, agent.initial_state(1))
    value = values[:, 0].cpu().double().numpy()
    params, _ = agent.actor(steps, agent.initial_state(1).actor)
    _, entropy = agent.policy.evaluate(params, rows.prev_action[1:])
    divisor = 1.0 if scale is None else scale.divisor
    return Internals(
        value * divisor,
        None if scale is None else divisor * compute_advantages(record, value, ppo, scale),
        entropy[:, 0].cpu().double().numpy(),
        describe_policy(agent, params[:, 0].cpu().double()),
        trace_memories(agent, rows, names, divisor),
    )


def compute_advantages(record: Record, value: Floats, ppo: PPOConfig, scale: RewardScale) -> Floats:
    """Generalised advantages of an episode, as PPO has them, in the scale of the critic."""
    reward = scale.scaled(torch.from_numpy(record.reward[:, 0])).numpy()
    # value[T] is that of the final observation, from which a truncated episode bootstraps.
    after = value[1:] * ~record.terminated[:, 0]
    out = reward + ppo.gamma * after - value[:-1]
    for t in reversed(range(len(out) - 1)):
        out[t] += ppo.gamma * ppo.gae_lambda * out[t + 1]
    return np.asarray(out)


def describe_policy(agent: Agent, params: torch.Tensor) -> Floats:
    """Parameters of the policy (T, P) as probabilities, or as means and deviations."""
    spec = agent.action_spec
    if spec.kind == "categorical":
        probabilities = np.zeros((len(params), spec.width, max(spec.sizes)))
        for component, logits in enumerate(params.split(spec.sizes, -1)):
            probabilities[:, component, : logits.shape[1]] = logits.softmax(-1)
        return probabilities
    mean, deviation = params[:, : spec.width].numpy(), params[:, spec.width :].exp().numpy()
    low, high = np.array(spec.low), np.array(spec.high)
    width = np.where(np.isfinite(high - low), (high - low) / 2, 1.0)
    taken = spec.to_env(mean).reshape(len(mean), -1).astype(np.float64)
    return np.stack([taken, deviation * width], 1)


# Memories -------------------------------------------------------------------------------------


def trace_memories(agent: Agent, rows: Rows, names: Names, divisor: float) -> list[MemoryTrace]:
    """The memories of both branches, or the one that both share.

    divisor  of the rewards that the critic was trained with
    """

    def on_action() -> dict[str, Influence]:
        return {"action": measure_on_actions(agent, rows)}

    def on_value() -> dict[str, Influence]:
        return {"value": measure_on_values(agent, rows).scaled(divisor)}

    if agent.critic.trunk is agent.actor:
        name = "actor and critic"
        return [trace_memory(name, agent.actor, rows, names[0], lambda: on_action() | on_value())]
    return [
        trace_memory("actor", agent.actor, rows, names[0], on_action),
        trace_memory("critic", agent.critic.trunk, rows, names[1], on_value),
    ]


def trace_memory(
    name: str, branch: Branch, rows: Rows, kind: str | None, influence: Callable[[], dict[str, Influence]]
) -> MemoryTrace:
    """Attention weights or states of one branch over an episode, and the influence of each step."""
    if kind is None:
        return MemoryTrace(name, None, [], {}, None, 0.0, {})
    steps = slice_rows(rows, slice(0, len(rows.first) - 1))  # without row T
    weights = branch.inspect(steps, branch.memory.initial_state(1)).attention  # (T, 1, H, P + 1) each
    if weights:
        attention = [layer[:, 0].cpu().double().numpy() for layer in weights]
        return MemoryTrace(name, kind, attention, {}, None, 0.0, influence())
    states = [list(float_leaves(state).values()) for state in memory_states(branch, steps)]
    tensors = [
        np.stack([x.cpu().double().numpy().ravel() for x in tensor]) for tensor in zip(*states, strict=True)
    ]
    path, share = compute_components(np.concatenate(tensors, 1))
    by_name = dict(zip(name_states(branch.memory.state_names, len(tensors)), tensors, strict=True))
    return MemoryTrace(name, kind, [], by_name, path, share, influence())


def compute_components(x: Floats) -> tuple[Floats, float]:
    """The two principal components of x (T, D), and the share of the variance that they explain."""
    centred = x - x.mean(0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    path = np.zeros((len(x), 2))
    path[:, : len(size[:2])] = (left * size)[:, :2]
    whole = float(np.square(size).sum())
    return path, float(np.square(size[:2]).sum()) / whole if whole else 1.0
