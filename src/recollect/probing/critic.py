"""How much of what is still to come the critic knows, with its memory and without.

A return to go is the discounted sum of the rewards that follow in the episode. Where an episode was
cut it goes on with the critic's own value, its memory as it is, as in training. Rewards are scaled as
the critic was trained:

- Files keep the scale, and a config that does not normalise rewards says it. Then V is held against
  the returns as it stands, by explained variance.
- An agent that an earlier version saved does not know by what its rewards were divided. No scale is
  fitted. Instead of explained variance there is the squared correlation of V with the
  returns, which no scale or shift changes, and which is 0 where they go against each other. Rows so
  near to a cut that more than a twentieth of the return is beyond it are left out.

Shapes.  T rows of N environments.
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
from .interventions import Alter, Cleared, Frozen, Swapped, altered

Measure: TypeAlias = Literal["explained variance", "squared correlation"]

CHUNK = 64  # rows of one call
BEYOND = 0.05  # of a return that may be unknown
FEWEST = 20  # rows that say anything


@dataclass(frozen=True)
class Critic:
    """What the critic knows of the returns to go."""

    shared: bool
    """Whether its memory is the actor's."""
    measure: Measure
    rows: int
    """That were asked."""
    found: dict[str, float | None]
    """What was done to its memory -> the measure; None where too few returns are known, or all are alike."""


CHANGES: dict[str, Alter | None] = {
    "as it is": None,
    "cleared at every step": partial(Cleared, every=1),
    "frozen after the first step": Frozen,
    "that of another episode": Swapped,
}


@torch.no_grad()
def ask(agent: Agent, config: RunConfig, path: Path, record: Record) -> Critic:
    """The critic's values over rows that the actor played with its memory whole."""
    branch = agent.critic.trunk
    changes = CHANGES if has_memory(branch) else {"as it is": None}
    values = {name: _values(agent, branch, record, alter) for name, alter in changes.items()}
    scale = load_rewards(path, config, len(record.reward[0]))
    reward = record.reward if scale is None else scale.scaled(torch.from_numpy(record.reward)).numpy()
    returns, known = returns_to_go(reward, record, values["as it is"], config.ppo.gamma, scale is not None)
    measure: Measure = "squared correlation" if scale is None else "explained variance"
    # What is beyond a cut varies too, and is nothing that V could be held against.
    least = 1e-6 if scale else BEYOND
    enough = bool(known.sum() >= FEWEST and returns[known].std() > least * np.abs(returns[known]).max())
    found = {
        name: _measured(v[:-1][known], returns[known], measure) if enough else None
        for name, v in values.items()
    }
    return Critic(agent.shared, measure, int(known.sum()), found)


def _values(agent: Agent, branch: Branch, record: Record, alter: Alter | None) -> Floats:
    """V of every row (T + 1, N)."""
    rows, said = record.rows, []
    with altered(branch, alter):
        state = branch.memory.initial_state(rows.first.shape[1])
        for t in range(0, len(rows.first), CHUNK):
            out, state = agent.critic(slice_rows(rows, slice(t, t + CHUNK)), state)
            said.append(out.double().numpy())
    return np.concatenate(said)


def returns_to_go(
    reward: Floats, record: Record, values: Floats, gamma: float, bootstrap: bool
) -> tuple[Floats, Array]:
    """G[t] = r[t] + gamma G[t+1] within an episode (T, N), and which of them are known.

    values     (T + 1, N): what an episode that was cut goes on with
    bootstrap  whether it does; else a return is known where little of it lies beyond the cut
    """
    returns, missing = np.zeros_like(reward), np.ones_like(reward)
    after, beyond = np.zeros(reward.shape[1]), np.ones(reward.shape[1])
    for t in reversed(range(len(reward))):
        ended, cut = record.terminated[t], record.truncated[t]
        after = np.where(ended, 0.0, np.where(cut, values[t + 1] if bootstrap else 0.0, after))
        beyond = np.where(ended | (cut & bootstrap), 0.0, np.where(cut, 1.0, beyond))
        after, beyond = reward[t] + gamma * after, gamma * beyond
        returns[t], missing[t] = after, beyond
    return returns, record.valid & (missing <= BEYOND)


def _measured(values: Floats, returns: Floats, measure: Measure) -> float:
    if measure == "explained variance":
        weight = torch.full((len(values),), 1 / len(values), dtype=torch.float64)
        return explained_variance(torch.from_numpy(values), torch.from_numpy(returns), weight)
    if values.std() == 0:
        return 0.0
    return max(0.0, float(np.corrcoef(values, returns)[0, 1])) ** 2
