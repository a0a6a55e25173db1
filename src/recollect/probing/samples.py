"""Recorded steps with the memory state before each, and the policy with other states in its place.

A state before a step is altered for this step only; the states before all earlier steps were unchanged. All
steps of a sample are computed in one call, so that many alterations cost little.

Shapes.  S steps of a sample, W floats of a state, T steps of N environments, P parameters of the policy.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.nets import Rows
from ..common.intervals import Floats
from ..common.tree import Tree, leaves, unflatten
from ..envs import Array
from ..run.recording import Record, float_leaves, memory_states
from .open_loop import (
    Effect,
    Estimate,
    are_enough,
    average_steps,
    compare_policies,
    differ_in_action,
    measure_divergence,
)

LARGEST = 2**21  # floats of all states of a sample


class Sample(NamedTuple):
    """Steps of a record.

    row, env   where they are in the record (S,)
    agent      which of the agents of one environment acted (S,)
    episode    its number (S,)
    step       since the start of the episode (S,)
    rows       inputs of the actor (1, S, ...)
    state      of its memory before each step (S, ...)
    params     of the policy (S, P)
    weight     of each step in means over all steps (S,)
    """

    row: Array
    env: Array
    agent: Array
    episode: Array
    step: Array
    rows: Rows
    state: Tree
    params: Tensor
    weight: Floats


@torch.no_grad()
def draw_sample(
    agent: Agent, record: Record, chosen: Array, episode: Array, random: np.random.Generator, most: int
) -> Sample | None:
    """The chosen steps (T, N); if there are more than `most`, those at random numbers of steps.

    Without steps at which the memory is reset, which leaves nothing of an altered state.

    episode  number of the episode of each step (T, N); -1: it does not count
    """
    chosen = chosen & (episode >= 0)
    chosen[0] = False
    chosen &= ~(record.rows.first[:-1].numpy() & agent.actor.resets)
    # Whole numbers of steps, so that a step finds the same step of other episodes.
    numbers = random.permutation(np.unique(record.step[chosen]))
    counts = np.bincount(record.step[chosen], minlength=1)[numbers].cumsum()
    drawn = max(1, int((counts <= affordable(agent, most)).sum()))
    chosen &= np.isin(record.step, numbers[:drawn])
    return take_sample(agent, record, episode, chosen.astype(np.float64))


def affordable(agent: Agent, most: int) -> int:
    """At most this many steps, fewer if the states of the actor are large."""
    return min(most, LARGEST // max(1, _count_floats(agent)))


@torch.no_grad()
def take_sample(agent: Agent, record: Record, episode: Array, weight: Floats) -> Sample | None:
    """The steps whose weight (T, N) is above 0; None if there are none."""
    chosen = weight > 0
    row, env = np.nonzero(chosen)
    if not len(row):
        return None
    states = [
        {path: leaf[np.flatnonzero(chosen[t])] for path, leaf in leaves(state).items()}
        for t, state in enumerate(_states_before(agent, record))
        if t < len(chosen) and chosen[t].any()
    ]
    state = unflatten(
        agent.actor.memory.initial_state(1), {k: torch.cat([x[k] for x in states]) for k in states[0]}
    )
    rows = record.rows.map(lambda x: x[row, env][None]).to(agent.device)
    params = agent.actor(rows, state)[0][0].cpu()
    return Sample(
        row,
        env,
        env % record.agents,
        episode[row, env],
        record.step[row, env],
        rows,
        state,
        params,
        weight[row, env],
    )


def follow_episodes(record: Record, episode: Array, sample: Sample, steps: int) -> tuple[Array, Array]:
    """The rows of the record from each step on, and whether they are of its episode (steps, S).

    After the end of the episode are the rows of the next one, after that of the record its last row.
    """
    place = sample.row + np.arange(steps)[:, None]
    last = len(record.valid) - 1
    number = np.where(place <= last, episode[place.clip(max=last), sample.env], -1)
    return place.clip(max=last), np.logical_and.accumulate(number == sample.episode)


def _states_before(agent: Agent, record: Record) -> Iterator[Tree]:
    """The memory state before each row."""
    yield agent.actor.memory.initial_state(record.valid.shape[1])
    yield from memory_states(agent.actor, record.rows)


def _count_floats(agent: Agent) -> int:
    return sum(leaf[0].numel() for leaf in float_leaves(agent.actor.memory.initial_state(1)).values())


@torch.no_grad()
def measure_effect(agent: Agent, sample: Sample, state: Tree, counted: Array | None = None) -> Effect | None:
    """The policy with another state before each step; None if it is not finite at some step.

    counted  steps (S,) of the means; None: all
    """
    counted = np.ones(len(sample.row), dtype=bool) if counted is None else counted
    params = agent.actor(sample.rows, state)[0][0].cpu()
    compared = compare_policies(agent.policy, sample.params, params, counted, sample.episode)
    return None if compared is None else compared[0]


@torch.no_grad()
def measure_adopted(agent: Agent, sample: Sample, state: Tree, donors: Array) -> Estimate | None:
    """Share of steps at which another state makes the action that of the donors (S,); -1: there is none.

    Of the steps at which the donors took another action, which is allowed there. None for Box actions, and
    where these are too few.
    """
    policy = agent.policy
    if not policy.discrete:
        return None
    altered = policy.mode(agent.actor(sample.rows, state)[0][0].cpu())
    theirs = policy.mode(sample.params)[torch.from_numpy(np.maximum(donors, 0))]
    differ = (donors >= 0) & differ_in_action(policy, sample.params, theirs)
    if not are_enough(differ, sample.episode):
        return None
    return average_steps((altered == theirs).all(-1).numpy(), differ, sample.episode, is_share=True)


@torch.no_grad()
def mean_divergence(agent: Agent, sample: Sample, state: Tree, counted: Array) -> float | None:
    """The divergence of `measure_effect` without its interval, which takes several times as long."""
    params = agent.actor(sample.rows, state)[0][0].cpu()
    divergence = measure_divergence(agent.policy, sample.params, params, counted)
    mean = math.nan if divergence is None else float(divergence[counted].mean())
    return mean if math.isfinite(mean) else None


def replace_floats(state: Tree, flat: Tensor) -> Tree:
    """The state with other floats (S, W)."""
    floats = float_leaves(state)
    parts = flat.split([leaf[0].numel() for leaf in floats.values()], 1)
    pairs = zip(floats.items(), parts, strict=True)
    return unflatten(
        state, leaves(state) | {path: x.view_as(leaf).to(leaf.dtype) for (path, leaf), x in pairs}
    )


def take(state: Tree, places: Array) -> Tree:
    """The states at these places of a batch (S,)."""
    index = torch.from_numpy(places)
    return unflatten(state, {path: leaf[index] for path, leaf in leaves(state).items()})


def find_donors(sample: Sample, values: Floats | None = None, equal: bool = True) -> Array:
    """For each step the place (S,) of the same step of another episode, the next one in turn; -1: none.

    It is of the same agent, because agents of one environment may have different parts to play.

    values  of a quantity (S,), which must be equal, or differ; NaN: not known
    """
    donors = np.full(len(sample.row), -1)
    for step in np.unique(sample.step):
        here = np.flatnonzero(sample.step == step)
        possible = sample.episode[here][:, None] != sample.episode[here]
        possible &= sample.agent[here][:, None] == sample.agent[here]
        if values is not None:
            known = np.isfinite(values[here])
            possible &= ((values[here][:, None] == values[here]) == equal) & known[:, None] & known
        turn = (np.arange(len(here)) - np.arange(len(here))[:, None]) % len(here)
        chosen = np.where(possible, turn, len(here)).argmin(1)
        donors[here] = np.where(possible.any(1), here[chosen], -1)
    return donors


def exchange(agent: Agent, sample: Sample, donors: Array) -> Effect | None:
    """The policy with the states of donors (S,); -1: there is none."""
    exists = donors >= 0
    if not are_enough(exists, sample.episode):
        return None
    return measure_effect(agent, sample, take(sample.state, np.where(exists, donors, 0)), exists)


def count_donors(sample: Sample, donors: Array) -> int:
    """The number of episodes that the states of donors (S,) are from."""
    return len(np.unique(sample.episode[donors]))


def find_by_progress(sample: Sample, record: Record) -> Array:
    """For each step the place (S,) of the step of the next episode that is as far from its end, in shares;
    -1: that episode has none of the same agent in the sample."""
    numbers = record.episode
    present = numbers[sample.row, sample.env]
    lengths = (record.valid[:, sample.env] & (numbers[:, sample.env] == present)).sum(0)
    progress, names = sample.step / lengths, np.unique(sample.episode)
    donors = np.full(len(sample.row), -1)
    if len(names) < 2:
        return donors
    for name, donor in zip(names, np.roll(names, -1), strict=True):
        here, there = (np.flatnonzero(sample.episode == x) for x in (name, donor))
        apart = np.abs(progress[here][:, None] - progress[there])
        apart[sample.agent[here][:, None] != sample.agent[there]] = np.inf
        # No step of that episode is nearer than half of one; the sample may lack the nearest.
        near = apart.min(1) <= 0.5 / lengths[there[0]] + 1e-9
        donors[here] = np.where(near, there[apart.argmin(1)], -1)
    return donors
