"""What an agent computed in an episode: values, policies, attention weights, memory states, influences.

Everything is computed from the recorded rows by the agent's own networks: values, policies and attention
weights in one call over the whole episode, as in learning; memory states step by step, as in acting.

Shapes.  T steps of one episode (N = 1), recorded as T + 1 rows; in row T nobody acted.
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
from ..run.recording import Record, float_leaves, memory_states
from .influence import Influence, on_actions, on_values

Kinds: TypeAlias = tuple[str | None, str | None]


@dataclass(frozen=True)
class Memory:
    """The memory of a branch over an episode.

    name       actor, critic, or both where they share one memory
    kind       of memory; None: there is none, and all that follows is empty
    attention  one array a layer: the attention weight of row t for the row k before it (T, heads, P + 1)
    states     the memory state after each row, by its path (T, units)
    path       the two main components of all states (T, 2)
    share      of the variance of the states that the path shows
    influence  how remembering a step changes the action or the value, by which of the two
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
    """What an agent computed in an episode.

    value      (T + 1,); advantage (T,), None where the scale of rewards is not known: both in rewards of
               the task, where it is
    entropy    (T,)
    policy     probabilities of the choices of each component (T, K, most), or means and deviations of
               real actions as the environment takes them (T, 2, K)
    """

    value: Floats
    advantage: Floats | None
    entropy: Floats
    policy: Floats
    memories: list[Memory]


@torch.no_grad()
def internals(
    agent: Agent,
    record: Record,
    ppo: PPOConfig,
    scale: RewardScale | None,
    kinds: Kinds,
) -> Internals:
    """Everything that is shown of an episode.

    scale  of the rewards that the critic learned from; None: not known
    kinds  names of the memories of actor and critic
    """
    rows = record.rows
    acted = slice_rows(rows, slice(0, len(record.reward)))
    values, _ = agent.value(rows, agent.initial_state(1))
    value = values[:, 0].double().numpy()
    params, _ = agent.actor(acted, agent.initial_state(1).actor)
    _, entropy = agent.policy.evaluate(params, rows.prev_action[1:])
    divisor = 1.0 if scale is None else scale.divisor
    return Internals(
        value * divisor,
        None if scale is None else divisor * advantages(record, value, ppo, scale),
        entropy[:, 0].double().numpy(),
        policy(agent, params[:, 0].double()),
        memories(agent, rows, kinds, divisor),
    )


def advantages(record: Record, value: Floats, ppo: PPOConfig, scale: RewardScale) -> Floats:
    """Generalised advantages of an episode, as PPO has them, in the scale of the critic."""
    reward = scale.scaled(torch.from_numpy(record.reward[:, 0])).numpy()
    after = value[1:] * ~record.terminated[:, 0]
    out = reward + ppo.gamma * after - value[:-1]
    for t in reversed(range(len(out) - 1)):
        out[t] += ppo.gamma * ppo.gae_lambda * out[t + 1]
    return np.asarray(out)


def policy(agent: Agent, params: torch.Tensor) -> Floats:
    """The outputs of the actor (T, P) as probabilities, or as means and deviations."""
    spec = agent.action_spec
    if spec.kind == "categorical":
        shown = np.zeros((len(params), spec.width, max(spec.sizes)))
        for component, part in enumerate(params.split(spec.sizes, -1)):
            shown[:, component, : part.shape[1]] = part.softmax(-1)
        return shown
    mean, deviation = params[:, : spec.width].numpy(), params[:, spec.width :].exp().numpy()
    low, high = np.array(spec.low), np.array(spec.high)
    width = np.where(np.isfinite(high - low), (high - low) / 2, 1.0)
    taken = spec.to_env(mean).reshape(len(mean), -1).astype(np.float64)
    return np.stack([taken, deviation * width], 1)


# Memories -------------------------------------------------------------------------------------


def memories(agent: Agent, rows: Rows, kinds: Kinds, divisor: float) -> list[Memory]:
    """Of both branches, or of the one that both share; divisor: of the rewards that values are of."""

    def of_action() -> dict[str, Influence]:
        return {"action": on_actions(agent, rows)}

    def of_value() -> dict[str, Influence]:
        return {"value": on_values(agent, rows).scaled(divisor)}

    if agent.shared:
        return [memory("actor and critic", agent.actor, rows, kinds[0], lambda: of_action() | of_value())]
    assert isinstance(agent.critic, Branch)
    return [
        memory("actor", agent.actor, rows, kinds[0], of_action),
        memory("critic", agent.critic, rows, kinds[1], of_value),
    ]


def memory(
    name: str, branch: Branch, rows: Rows, kind: str | None, influence: Callable[[], dict[str, Influence]]
) -> Memory:
    """Attention weights or states of one branch over an episode, and the influence of each step."""
    if kind is None:
        return Memory(name, None, [], {}, None, 0.0, {})
    acted = slice_rows(rows, slice(0, len(rows.first) - 1))
    weights = branch.inspect(acted, branch.memory.initial_state(1)).attention  # (T, 1, H, P + 1) each
    if weights:
        attention = [layer[:, 0].double().numpy() for layer in weights]
        return Memory(name, kind, attention, {}, None, 0.0, influence())
    kept = [float_leaves(state) for state in memory_states(branch, acted)]
    by_path = {path: np.stack([one[path].double().numpy().ravel() for one in kept]) for path in kept[0]}
    path, share = components(np.concatenate(list(by_path.values()), 1))
    return Memory(name, kind, [], by_path, path, share, influence())


def components(x: Floats) -> tuple[Floats, float]:
    """The two main components of rows (T, D), and the share of the variance that they explain."""
    centred = x - x.mean(0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    path = np.zeros((len(x), 2))
    path[:, : len(size[:2])] = (left * size)[:, :2]
    whole = float(np.square(size).sum())
    return path, float(np.square(size[:2]).sum()) / whole if whole else 1.0
