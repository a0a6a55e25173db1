"""How well values predict the discounted return to go, with the critic's memory and without.

The return to go is the discounted sum of the rewards that follow in the episode. Truncated episodes
bootstrap from the value with the unchanged memory, as in training. Rewards are scaled as in training:

- If the scale is known (from the file, or because the config does not normalise rewards), the measure is
  the explained variance of the returns by the values.
- Agents saved by earlier versions lack the scale of their rewards. None is fitted: the measure is the
  squared correlation of values and returns, which does not depend on scale or shift, and is 0 where the
  correlation is negative. Steps with more than a twentieth of their return after a truncation are left out.

Shapes.  T steps of N environments.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch

from ..agent.agent import Agent, Branch
from ..common.intervals import Floats
from ..config.config import RunConfig
from ..envs import Array
from ..learn.maths import explained_variance
from ..learn.rollout import slice_rows
from ..run.recording import Record, has_memory
from ..run.weights import load_rewards
from .interventions import CHUNK, Alter, Cleared, Frozen, Swapped, altered, record_sequences

Measure: TypeAlias = Literal["explained variance", "squared correlation"]

BEYOND = 0.05  # share of a return that may be unknown
FEWEST = 20  # steps, below which nothing is measured


@dataclass(frozen=True)
class CriticProbe:
    """How well values predict the returns to go."""

    shared: bool
    """Whether values depend on the actor's memory."""
    measure: Measure
    rows: int
    """Number of steps."""
    by_alteration: dict[str, float | None]
    """Alteration of the memory -> the measure; None: too few returns are known, or all are equal."""


@torch.no_grad()
def probe_critic(agent: Agent, config: RunConfig, path: Path, record: Record) -> CriticProbe:
    """Measure values over steps that the actor played with its memory unchanged."""
    branch = agent.critic.trunk
    alterations: dict[str, Alter | None] = {"as it is": None}
    if has_memory(branch):
        alterations |= _alterations(branch, record)
    # The same recorded steps each time: only the memory that the values depend on differs.
    values = {name: _values(agent, branch, record, alter) for name, alter in alterations.items()}
    scale = load_rewards(path, config)
    reward = record.reward if scale is None else scale.scaled(torch.from_numpy(record.reward)).numpy()
    returns, known = compute_returns_to_go(
        reward, record, values["as it is"], config.ppo.gamma, scale is not None
    )
    measure: Measure = "squared correlation" if scale is None else "explained variance"
    # Unknown returns after a truncation vary too, so the known ones must vary by more than those.
    least = 1e-6 if scale else BEYOND
    enough = bool(known.sum() >= FEWEST and returns[known].std() > least * np.abs(returns[known]).max())
    by_alteration = {
        name: _measure(v[:-1][known], returns[known], measure) if enough else None
        for name, v in values.items()
    }
    return CriticProbe(branch is agent.actor, measure, int(known.sum()), by_alteration)


def _alterations(branch: Branch, record: Record) -> dict[str, Alter]:
    """Name -> altered memory; probe.json has these names."""
    return {
        "cleared at every step": partial(Cleared, every=1),
        "frozen after the first step": Frozen,
        "that of another episode": partial(Swapped, recorded=record_sequences(branch, record)),
    }


def _values(agent: Agent, branch: Branch, record: Record, alter: Alter | None) -> Floats:
    """V of every step (T + 1, N)."""
    rows, values = record.rows.to(agent.device), []
    with altered(branch, alter):
        state = branch.memory.initial_state(rows.first.shape[1])
        for t in range(0, len(rows.first), CHUNK):
            chunk, state = agent.critic(slice_rows(rows, slice(t, t + CHUNK)), state)
            values.append(chunk.cpu().double().numpy())
    return np.concatenate(values)


def compute_returns_to_go(
    reward: Floats, record: Record, values: Floats, gamma: float, bootstrap: bool
) -> tuple[Floats, Array]:
    """G[t] = r[t] + gamma G[t+1] within an episode (T, N), and which of them are known.

    values     (T + 1, N): V, from which truncated episodes bootstrap
    bootstrap  whether they do; else a return is known if little of it lies after a truncation
    """
    returns, missing = np.zeros_like(reward), np.ones_like(reward)
    after, beyond = np.zeros(reward.shape[1]), np.ones(reward.shape[1])
    for t in reversed(range(len(reward))):
        terminated, truncated = record.terminated[t], record.truncated[t]
        # Row t + 1 of a truncated episode is the tail row, with the final observation. Sums never cross an
        # end, so what tail rows themselves get is not used: they are not valid.
        after = np.where(terminated, 0.0, np.where(truncated, values[t + 1] if bootstrap else 0.0, after))
        beyond = np.where(terminated | (truncated & bootstrap), 0.0, np.where(truncated, 1.0, beyond))
        after, beyond = reward[t] + gamma * after, gamma * beyond
        returns[t], missing[t] = after, beyond
    return returns, record.valid & (missing <= BEYOND)


def _measure(values: Floats, returns: Floats, measure: Measure) -> float:
    if measure == "explained variance":
        weight = torch.full((len(values),), 1 / len(values), dtype=torch.float64)
        return explained_variance(torch.from_numpy(values), torch.from_numpy(returns), weight)
    # A correlation would divide by 0; constant values explain nothing.
    if values.std() == 0:
        return 0.0
    return max(0.0, float(np.corrcoef(values, returns)[0, 1])) ** 2
