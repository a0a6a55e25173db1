"""How well values predict the discounted return to go, with the critic's memory and without.

The return to go is the discounted sum of the rewards that follow in the episode. Truncated episodes
bootstrap from the value with the unchanged memory, as in training. Rewards are scaled as in training:

- If the scale is known (from the file, or because the config does not normalise rewards), the measure is
  the explained variance of the returns by the values.
- Agents saved by earlier versions lack the scale of their rewards. None is fitted: the measure is the
  squared correlation of values and returns, which does not depend on scale or shift, and is 0 where the
  correlation is negative. Steps with more than a twentieth of their return after a truncation are left out.

Shapes.  T steps of N environments, R of them with known returns, E episodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch

from ..agent.agent import Agent, Branch
from ..common.intervals import (
    Floats,
    Interval,
    mean_weights,
    one_factor,
    quantiles,
    resamples,
    stretched,
)
from ..config.config import RunConfig
from ..envs import Array
from ..learn.rollout import slice_rows
from ..run.recording import Record, has_memory
from ..run.weights import load_rewards
from .interventions import CHUNK, Alter, Cleared, Frozen, Swapped, altered, record_sequences
from .linear import FEWEST_EPISODES
from .open_loop import Estimate

Measure: TypeAlias = Literal["explained variance", "squared correlation"]

BEYOND = 0.05  # share of a return that may be unknown
FEWEST = 20  # steps, below which nothing is measured
SMALLEST = 1 / 16  # of the variance of all steps: the least of a resample
ROUNDING = 1e-6  # share of the largest value, by which equal ones may differ


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
    intervals: dict[str, Interval | None]
    """Alteration -> 95 % interval of the measure over episodes; None: too few have known returns."""
    losses: dict[str, Estimate | None]
    """Alteration -> the measure with the unchanged memory minus this one, over the same episodes; None for
    the unchanged memory, and where the measure has no interval."""


class ValueScore(NamedTuple):
    """The measure with one alteration; fields as of CriticProbe."""

    name: str
    value: float
    interval: Interval | None
    loss: Estimate | None


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
    names, scores = dict.fromkeys(values), list[ValueScore]()
    if enough:
        chosen = {name: v[:-1][known] for name, v in values.items()}
        scores = score_values(chosen, returns[known], record.episode[known], measure)
    return CriticProbe(
        branch is agent.actor,
        measure,
        int(known.sum()),
        names | {one.name: one.value for one in scores},
        names | {one.name: one.interval for one in scores},
        names | {one.name: one.loss for one in scores},
    )


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


# The measure with its interval ----------------------------------------------------------------


def score_values(
    values: Mapping[str, Floats], returns: Floats, episode: Array, measure: Measure
) -> list[ValueScore]:
    """The measure for each alteration of the memory.

    values   alteration -> V of each step (R,), the first with the unchanged memory
    returns  to go (R,)
    episode  its number (R,)
    """
    names, which = np.unique(episode, return_inverse=True)
    sums = [_sum_moments(v, returns, which, measure) for v in values.values()]
    points = [_explain(x.sum(0), x.sum(0), measure) for x in sums]
    if len(names) < FEWEST_EPISODES:
        return [ValueScore(name, float(x), None, None) for name, x in zip(values, points, strict=True)]
    drawn, _ = resamples(tuple(mean_weights(len(names))))
    resampled = [_explain(drawn @ x, x.sum(0), measure) for x in sums]
    lowest = -np.inf if measure == "explained variance" else 0.0
    most = 1.0 - lowest
    scores = list[ValueScore]()
    for name, point, x in zip(values, points, resampled, strict=True):
        loss = None
        if scores:
            # Each resample has the same episodes for both memories: some are hard for both.
            lost = points[0] - point
            loss = Estimate(float(lost), _over_episodes(resampled[0] - x, lost, len(names), (-most, most)))
        interval = _over_episodes(x, point, len(names), (lowest, 1.0))
        scores.append(ValueScore(name, float(point), interval, loss))
    return scores


def _over_episodes(resampled: Floats, point: Floats, episodes: int, limits: tuple[float, float]) -> Interval:
    """The interval, within limits, of an estimate (0-dimensional) from its resamples."""
    _, times = resamples(tuple(mean_weights(episodes)))
    low, high = stretched(point, *quantiles(resampled, times), one_factor(episodes))
    return Interval(max(float(low), limits[0]), min(float(high), limits[1]))


def _sum_moments(values: Floats, returns: Floats, which: Array, measure: Measure) -> Floats:
    """Sums over the steps of each episode (E, 6): of 1, x, y, x x, y y and x y.

    y is the return; x the error of the value if the measure is of errors, else the value.
    """
    y = returns - returns.mean()
    x = returns - values if measure == "explained variance" else values
    # Values that differ by rounding only would correlate with something by chance.
    x = x - x.mean() if np.ptp(x) > ROUNDING * np.abs(x).max() else np.zeros_like(x)
    return np.stack([np.bincount(which, z) for z in (np.ones_like(x), x, y, x * x, y * y, x * y)], 1)


def _explain(sums: Floats, whole: Floats, measure: Measure) -> Floats:
    """The measure (...) from sums of moments (..., 6); whole: those of all episodes (6,)."""
    (of_x, of_y, together), (all_x, all_y, _) = _covariances(sums), _covariances(whole)
    if measure == "explained variance":
        # Episodes with equal returns leave nothing to explain: such a resample has the value of the sample.
        enough = of_y >= SMALLEST * all_y
        return np.asarray(1 - np.where(enough, of_x, all_x) / np.where(enough, of_y, all_y))
    of_x, of_y = np.maximum(of_x, SMALLEST * all_x), np.maximum(of_y, SMALLEST * all_y)
    return np.minimum(np.maximum(together, 0) ** 2 / np.maximum(of_x * of_y, 1e-300), 1.0)


def _covariances(sums: Floats) -> Floats:
    """The variances of x and y and their covariance (3, ...) from sums of moments (..., 6)."""
    x, y, xx, yy, xy = np.moveaxis(sums[..., 1:] / sums[..., :1], -1, 0)
    return np.stack([np.maximum(xx - x * x, 0), np.maximum(yy - y * y, 0), xy - x * y])
