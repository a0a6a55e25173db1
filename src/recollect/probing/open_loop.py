"""The policy at recorded steps with the actor's memory altered: an open loop.

The steps are those that the agent played with its memory unchanged. Observations, previous actions and
rewards are the same for every alteration, so the policy differs by the memory state alone. Where the altered
agent plays (ablate.py), a closed loop, its actions lead to other observations as well.

Shapes.  T steps of N environments, E episodes, K action components.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.policies import Policy
from ..common.intervals import (
    Floats,
    Interval,
    mean_weights,
    one_factor,
    quantiles,
    ratio_interval,
    resamples,
    share_interval,
    stretched,
)
from ..envs import Array
from ..learn.rollout import slice_rows
from ..run.recording import Record
from .ablate import Alteration
from .interventions import CHUNK, Alter, Sequences, Swapped, altered, split_sequences
from .limited import limit, most_steps
from .linear import FEWEST_EPISODES
from .memory_length import NEARLY, MemoryLength, measure_length, search_fewest

FEWEST = 20  # steps, below which nothing is measured
EQUAL = 1e-9  # difference of shares that are equal but for rounding
FORBIDDEN = -1e20  # log-probabilities of choices that an action mask forbids are below


@dataclass(frozen=True)
class Estimate:
    """A mean over steps, with its 95 % interval over episodes."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Effect:
    """How far the policy is from that with the unchanged state."""

    divergence: Estimate
    """KL(unchanged || altered), in nats per step."""
    changed: Estimate | None
    """Share of steps at which the most likely action is another; None for Box actions."""


@dataclass(frozen=True)
class PolicyChange:
    """How far the policy is from that with the unchanged memory, at the same steps."""

    name: str
    last: int | None
    """Number of steps that the memory is limited to."""
    divergence: Estimate | None
    """KL(unchanged || altered) of the two policies, in nats per step; None if the altered one is not finite
    at some step, because the memory cannot have such a state."""
    changed: Estimate | None
    """Share of steps at which the most likely action is another; None for Box actions as well."""
    sums: Floats | None
    """The divergence summed over the steps of each episode (E,)."""


@dataclass(frozen=True)
class Patching:
    """The choices with a state, or with first inputs, of another episode, where the two acted differently."""

    steps: int
    """Steps at which the other episode took another action, which is allowed at this one."""
    other: Estimate
    """Share of them at which the action of the other episode is taken: the choice follows the memory."""
    same: Estimate
    """Share of them at which the action stays: the choice follows the inputs that were not exchanged."""


@dataclass(frozen=True)
class OpenLoop:
    """The policy at recorded steps."""

    steps: int
    changes: list[PolicyChange]
    length: MemoryLength | None
    """The steps of memory that keep nearly all of the policy; None if a reset at every step changes none."""
    patching: Patching | None
    """None for Box actions, and where the episodes took different actions at fewer than 20 steps or in fewer
    than 5 of them."""


@torch.no_grad()
def measure_open_loop(
    agent: Agent, record: Record, alterations: Sequence[Alteration], recorded: Sequences, episode: Array
) -> OpenLoop:
    """The policy at the steps of a record, with each alteration of the actor's memory.

    recorded  the inputs of the memory in the record
    episode   of every step that counts (T, N), by number_episodes
    """
    policy, unchanged = agent.policy, _params(agent, record, None)
    counted = episode >= 0
    _, of = np.unique(episode[counted], return_inverse=True)

    def change(name: str, last: int | None, alter: Alter) -> PolicyChange:
        params = _params(agent, record, alter)
        compared = compare_policies(policy, unchanged, params, counted, episode)
        if compared is None:
            return PolicyChange(name, last, None, None, None)
        effect, divergence = compared
        sums = np.bincount(of, divergence[counted]).astype(np.float64)
        return PolicyChange(name, last, effect.divergence, effect.changed, sums)

    resets = [change(one.name, None, one.alter) for one in alterations if one.every]
    others = [change(one.name, None, one.alter) for one in alterations if not one.every]
    limited, length = _measure_limited(agent, record, resets[0], change)
    patching = _measure_patching(agent, record, unchanged, recorded, episode) if policy.discrete else None
    return OpenLoop(int(counted.sum()), [*resets, *limited, *others], length, patching)


def measure_divergence(policy: Policy, unchanged: Tensor, altered: Tensor, counted: Array) -> Floats | None:
    """KL(unchanged || altered) at each step (...); None if `altered` is not finite at a step that counts."""
    if not altered[torch.from_numpy(counted)].isfinite().all():
        return None
    divergence: Floats = policy.kl(unchanged, altered).clamp(min=0).double().numpy()
    return divergence


def compare_policies(
    policy: Policy, unchanged: Tensor, altered: Tensor, counted: Array, episode: Array
) -> tuple[Effect, Floats] | None:
    """How far two policies are apart, on average and at each step; None if one is not finite at some step.

    unchanged, altered  parameters of the policy at each step (..., P)
    counted             steps of the means (...)
    episode             number of the episode of each step (...)
    """
    divergence = measure_divergence(policy, unchanged, altered, counted)
    if divergence is None:
        return None
    changed = None
    if policy.discrete:
        differs = (policy.mode(altered) != policy.mode(unchanged)).any(-1).numpy()
        changed = average_steps(differs, counted, episode, is_share=True)
    return Effect(average_steps(divergence, counted, episode), changed), divergence


def _params(agent: Agent, record: Record, alter: Alter | None) -> Tensor:
    """Parameters of the policy (T, N, P), on the CPU."""
    rows, steps = record.rows.to(agent.device), len(record.valid)
    params = []
    with altered(agent.actor, alter):
        state = agent.actor.initial_state(rows.first.shape[1])
        for t in range(0, steps, CHUNK):
            chunk, state = agent.actor(slice_rows(rows, slice(t, min(t + CHUNK, steps))), state)
            params.append(chunk.cpu())
    return torch.cat(params)


def _measure_limited(
    agent: Agent,
    record: Record,
    reset: PolicyChange,
    change: Callable[[str, int | None, Alter], PolicyChange],
) -> tuple[list[PolicyChange], MemoryLength | None]:
    """The policy with a memory of the last k steps, to find the fewest that keep nearly all of it.

    reset  the policy with a reset at every step
    """
    if reset.sums is None or reset.sums.sum() == 0:
        return [], None
    changes, losses = dict[int, PolicyChange](), {1: reset.sums}
    num_envs = record.valid.shape[1]

    def is_enough(steps: int) -> bool:
        one = change(f"only the last {steps} steps", steps, limit(agent.actor.memory, num_envs, steps))
        changes[steps] = one
        if one.sums is None:
            return False
        losses[steps] = one.sums
        return bool(one.sums.sum() <= NEARLY * losses[1].sum())

    longest = int(record.step[record.valid].max()) + 1
    largest = min(most_steps(agent.actor.memory, num_envs), longest - 1)
    ends = longest if agent.actor.resets else None
    search_fewest(is_enough, ends, largest)
    length = measure_length(dict(sorted(losses.items())), ends)
    return [changes[steps] for steps in sorted(changes)], length


# Patching -------------------------------------------------------------------------------------


def _measure_patching(
    agent: Agent, record: Record, unchanged: Tensor, recorded: Sequences, episode: Array
) -> Patching | None:
    """Whether choices follow the state of another episode where it took another action.

    unchanged  parameters of the policy with the unchanged memory (T, N, P)
    """
    chosen = agent.policy.mode(unchanged)
    origins: list[Tensor] = []
    swapped = partial(Swapped, recorded=recorded, origins=origins)
    patched = _params(agent, record, swapped)
    donors, steps = torch.stack(origins).unbind(1)  # (T, N) each
    # With a row for the final observations, as the recorded sequences have it; it is no step.
    last = torch.zeros_like(chosen[:1])
    valid = torch.from_numpy(np.concatenate([record.valid, np.zeros_like(record.valid[:1])]))
    choices, acted = (
        list(split_sequences(x, record, agent.actor.resets).values())
        for x in (torch.cat([chosen, last]), valid)
    )
    lengths = torch.tensor([len(x) for x in acted])
    # Place of the donor's step among the rows of all sequences.
    rows = lengths.cumsum(0)[donors] - lengths[donors] + torch.minimum(steps, lengths[donors] - 1)
    other = torch.cat(choices)[rows]
    lasts = (steps < lengths[donors]) & torch.cat(acted)[rows]
    differ = lasts.numpy() & differ_in_action(agent.policy, unchanged, other) & (episode >= 0)
    return compare_choices(agent.policy, unchanged, patched, other, differ, episode)


def differ_in_action(policy: Policy, params: Tensor, other: Tensor) -> Array:
    """At which steps (...) another action (..., K) is not the most likely one of parameters (..., P).

    Without those at which the action mask forbids it, where it could not be followed.
    """
    allowed = policy.evaluate(params, other)[0] > FORBIDDEN
    return np.asarray((allowed & (policy.mode(params) != other).any(-1)).numpy())


def compare_choices(
    policy: Policy, unchanged: Tensor, altered: Tensor, other: Tensor, differ: Array, episode: Array
) -> Patching | None:
    """Whose action is taken with altered parameters (..., P), at the steps (...) where they differ.

    other    actions of the other episode (..., K)
    episode  number of the episode of each step (...)
    """
    if not are_enough(differ, episode):
        return None
    chosen = policy.mode(altered)
    follows, stays = ((chosen == x).all(-1).numpy() for x in (other, policy.mode(unchanged)))
    return Patching(
        int(differ.sum()),
        average_steps(follows, differ, episode, is_share=True),
        average_steps(stays, differ, episode, is_share=True),
    )


# Estimates ------------------------------------------------------------------------------------


def number_episodes(record: Record, episodes: int) -> Array:
    """The number of the episode of each step (T, N); -1: a tail or waiting row, or played by an environment
    after its share."""
    number, envs = record.episode, record.valid.shape[1] // record.agents
    share = episodes // envs + (np.arange(envs) < episodes % envs)
    # The n-th episode of environment e has the number n envs + e.
    scored = number // envs <= share.repeat(record.agents)
    return np.where(record.valid & scored, number, -1)


def are_enough(mask: Array, episode: Array) -> bool:
    """Whether a mask (...) has enough steps, of enough episodes, for a mean with an interval.

    episode  number of the episode (...)
    """
    return bool(mask.sum() >= FEWEST and len(np.unique(episode[mask])) >= FEWEST_EPISODES)


def average_steps(x: Array, mask: Array, episode: Array, is_share: bool = False) -> Estimate:
    """The mean of x (T, N) over the steps of a mask, with an interval that resamples whole episodes.

    A divergence may be large in few episodes, which needs a bootstrap-t; a share is bounded.

    mask     whether a step counts, or its weight (T, N)
    episode  number of the episode (T, N); -1: of none
    """
    # An episode without such a step says nothing about the mean, so it does not count as one of many.
    counted = (episode >= 0) & (mask > 0)
    _, index = np.unique(episode[counted], return_inverse=True)
    chosen = mask[counted].astype(np.float64)
    counts, sums = (np.bincount(index, of).astype(np.float64) for of in (chosen, chosen * x[counted]))
    value, count = float(sums.sum() / counts.sum()), len(counts)
    if is_share and np.ptp(sums / counts) < EQUAL:
        # Resamples of equal episodes would give an interval of width 0.
        low, high = share_interval(np.array(value), count)
    elif is_share:
        drawn, times = resamples(tuple(mean_weights(count)))
        means = (drawn @ sums) / (drawn @ counts)
        low, high = stretched(np.array(value), *quantiles(means, times), one_factor(count))
    else:
        low, high = map(np.array, ratio_interval(sums, counts))
    return Estimate(value, Interval(max(float(low), 0.0), min(float(high), 1.0 if is_share else np.inf)))
