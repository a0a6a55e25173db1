"""The policy at the steps of an episode whose first inputs are replaced by those of another episode.

Each episode is computed again: its first n inputs are those that another episode had at the same steps, and
all later ones are as recorded. The memory state before the episode stays. So a change of the policy at a
later step is an effect of the first inputs that the memory carries through the inputs in between. An agent
that acts by its memory of the first inputs then takes the action of the other episode. It takes its own if
it acts by the present observation, or if its later inputs repeat or overwrite the first ones.

Shapes.  L steps of S episodes, P parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..common import rng
from ..envs import Array
from ..run.recording import Record
from .interventions import CHUNK
from .open_loop import Estimate, Patching, are_enough, average_steps, compare_choices, differ_in_action
from .samples import Sample, affordable, find_donors, follow_episodes, take_sample

MOST = 1000  # episodes
NUMBER = 7  # of the generator: occlusion.py has 6


@dataclass(frozen=True)
class Replay:
    """The policy at an episode's own steps, after first inputs of another episode."""

    exchanged: int
    """Number of first inputs that are those of the other episode."""
    steps: int
    """Later steps, over which the divergence is a mean."""
    divergence: Estimate
    """KL(unchanged || replayed) of the policy, in nats per step."""
    choices: Patching | None
    """At the later steps where the two episodes acted differently; None for Box actions, and where these are
    fewer than 20 steps or of fewer than 5 episodes."""
    last: Patching | None
    """At the last such step of each episode (of each agent of it)."""


@torch.no_grad()
def measure_replays(agent: Agent, record: Record, episode: Array, seed: int) -> list[Replay]:
    """The policy after 1, 2, 4, ... first inputs of another episode, as far as episodes go.

    episode  number of the episode of each step (T, N); -1: it does not count
    """
    random = rng.generator(seed, rng.Purpose.PROBE, NUMBER)
    starts = random.permutation(np.argwhere((episode >= 0) & (record.step == 0)))
    weight = np.zeros(episode.shape)
    weight[tuple(starts[: affordable(agent, MOST)].T)] = 1.0
    sample = take_sample(agent, record, episode, weight)
    if sample is None:
        return []
    longest = int(record.step[episode >= 0].max()) + 1
    place, inside = follow_episodes(record, episode, sample, longest)
    return list(_replay(agent, record, sample, place, inside))


def _replay(agent: Agent, record: Record, sample: Sample, place: Array, inside: Array) -> Iterator[Replay]:
    """A replay for each number of first inputs with enough later steps.

    place, inside  rows of the record from the start of each episode, and which are of it (L, S)
    """
    donors, policy, step = find_donors(sample), agent.policy, np.arange(len(place))[:, None]
    unchanged = compute_policy(agent, record, sample, *exchange_inputs(sample, place, donors, 0))
    episode = np.broadcast_to(sample.episode, place.shape)
    if policy.discrete:
        other = policy.mode(unchanged)[:, donors]
        differ = differ_in_action(policy, unchanged, other) & inside & inside[:, donors]
    for exchanged in (2**power for power in range((len(place) - 1).bit_length())):
        # The other episode has as many inputs, and this one has later steps.
        counted = inside & inside[exchanged - 1, donors] & (step >= exchanged)
        if not are_enough(counted, episode):
            return
        replaced = exchange_inputs(sample, place, donors, exchanged)
        params = compute_policy(agent, record, sample, *replaced)
        divergence = policy.kl(unchanged, params).clamp(min=0).double().numpy()
        choices = last = None
        if policy.discrete:
            masks = differ & counted, find_last(differ & counted)
            choices, last = (
                compare_choices(policy, unchanged, params, other, mask, episode) for mask in masks
            )
        average = average_steps(divergence, counted, episode)
        yield Replay(exchanged, int(counted.sum()), average, choices, last)


def exchange_inputs(sample: Sample, place: Array, donors: Array, count: int) -> tuple[Array, Array]:
    """Rows and environments of the record (L, S), of which the first inputs are those of the donors (S,)."""
    theirs = np.arange(len(place))[:, None] < count
    return np.where(theirs, place[:, donors], place), np.where(theirs, sample.env[donors], sample.env)


def compute_policy(agent: Agent, record: Record, sample: Sample, row: Array, env: Array) -> Tensor:
    """Parameters of the policy (L, S, P) over these rows and environments of the record (L, S), on the CPU.

    sample  the first step of each episode, with the memory state before it
    """
    params, state = [], sample.state
    for t in range(0, len(row), CHUNK):
        rows = record.rows.map(itemgetter((row[t : t + CHUNK], env[t : t + CHUNK]))).to(agent.device)
        chunk, state = agent.actor(rows, state)
        params.append(chunk.cpu())
    return torch.cat(params)


def find_last(mask: Array) -> Array:
    """The last step of each episode in a mask (L, S)."""
    later = mask[::-1].cumsum(0)[::-1]
    return np.asarray(mask & (later == 1))
