"""Scores of an agent whose memory is reset, frozen, replaced or perturbed.

Shapes.  E episodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.intervals import Floats, Interval, mean_weights, paired_interval, share_interval
from ..envs import Envs
from ..reporting.scores import UNBOUNDED, weighted_mean_interval
from ..run.recording import EpisodeScores, play_deterministic
from .interventions import (
    Alter,
    Averaged,
    Cleared,
    Frozen,
    Noisy,
    Sequences,
    Spread,
    Swapped,
    altered,
)
from .limited import limit, most_steps
from .memory_length import NEARLY, MemoryLength, measure_length, search_fewest

Source: TypeAlias = Literal["success", "return"]
Direction: TypeAlias = Literal["better", "equal", "not better", "worse", "unclear"]

NO_LOSS: tuple[Direction, ...] = ("equal", "not better", "worse")
MUCH = 0.2  # share of a score: a difference that "equal" excludes
SWAPPED = "that of another episode"
NOISE = (0.1, 1.0)  # in standard deviations


@dataclass(frozen=True)
class Score:
    """The mean score of episodes."""

    scores: Floats
    """One score per episode (E,)."""
    mean: float
    interval: Interval
    length: float
    """Mean number of steps of an episode."""


@dataclass(frozen=True)
class Difference:
    """The difference of two mean scores, with its 95 % interval."""

    by: float
    interval: Interval
    direction: Direction
    """better, worse: by more than NEARLY, and the interval excludes 0; equal: by at most NEARLY, and it
    excludes MUCH, in both directions; not better: this in one direction alone; else unclear."""


@dataclass(frozen=True)
class Ablation:
    """The score with an altered memory, and the loss."""

    name: str
    every: int | None
    """Steps between two resets."""
    last: int | None
    """Number of steps that the memory is limited to."""
    score: Score
    lost: Difference
    """The score with the unchanged memory minus this score."""
    unmatched: float | None
    """Share of steps later than any other unchanged episode lasts; None if no states are swapped."""


def choose_source(*all_played: EpisodeScores) -> Source:
    """The score to compare: success if every episode reports it, else the return."""
    # Over all plays together, because scores of different kinds cannot be paired.
    reported = all(np.isfinite(one.successes).all() for one in all_played)
    return "success" if reported else "return"


def average(one: EpisodeScores, by: Source) -> Score:
    """The mean of successes or returns over episodes, with its interval."""
    scores = one.successes if by == "success" else one.returns
    mean = float(scores.mean())
    if is_share(by, scores):
        interval = Interval(*(float(x) for x in share_interval(np.array(mean), len(scores))))
    else:
        interval = _mean_interval(scores, (0.0, 1.0) if by == "success" else UNBOUNDED)
    return Score(scores, mean, interval, float(one.lengths.mean()))


def compare(one: Score, other: Score, by: Source) -> Difference:
    """The difference of two scores over the same episodes, pair by pair.

    Where successes are 0 or 1, the usual interval has width 0 if no pair differs; theirs is the interval of
    the shares of pairs that are lost and won. Some environments report parts of a success.
    """
    # Paired, because both played the same episodes: how hard an episode is cancels out of the difference.
    pairs = one.scores - other.scores
    if is_share(by, pairs):
        interval = paired_interval(float((pairs > 0).mean()), float((pairs < 0).mean()), len(pairs))
    else:
        interval = _mean_interval(pairs, (-1.0, 1.0) if by == "success" else UNBOUNDED)
    return classify(float(pairs.mean()), interval, max(abs(one.mean), abs(other.mean)))


def _mean_interval(scores: Floats, ends: tuple[float, float]) -> Interval:
    """The interval of a mean over episodes, of which there are always more than one, within the ends."""
    interval = weighted_mean_interval(scores, mean_weights(len(scores)), ends)
    assert interval is not None
    return interval


def is_share(by: Source, scores: Floats) -> bool:
    """Whether scores or their differences are successes that are 0 or 1, and not parts of a success."""
    return by == "success" and bool(np.isin(scores, (-1, 0, 1)).all())


def classify(by: float, ends: Interval, size: float) -> Difference:
    """A difference in words.

    ends  its interval
    size  the larger of the two scores, to which it is compared
    """
    if abs(by) > NEARLY * size and not ends.low <= 0 <= ends.high:
        return Difference(by, ends, "better" if by > 0 else "worse")
    if by > NEARLY * size or ends.high > MUCH * size:
        return Difference(by, ends, "unclear")
    equal = by >= -NEARLY * size and ends.low >= -MUCH * size
    return Difference(by, ends, "equal" if equal else "not better")


# Altered memories ---------------------------------------------------------------------


class Alteration(NamedTuple):
    """A way to alter the actor's memory; probe.json has its name."""

    name: str
    every: int | None
    """Steps between two resets."""
    alter: Alter


class AlteredPlay(NamedTuple):
    """The episodes of an agent with an altered memory; fields as of Ablation."""

    name: str
    every: int | None
    last: int | None
    scores: EpisodeScores
    unmatched: float | None = None


def play_altered(
    agent: Agent,
    envs: Envs,
    episodes: int,
    seed: int,
    whole: EpisodeScores,
    alterations: Sequence[Alteration],
) -> list[AlteredPlay]:
    """The same episodes with each alteration of the actor's memory.

    whole  the episodes with the unchanged memory
    """
    plays = []
    for name, every, alter in alterations:
        with altered(agent.actor, alter):
            scores = play_deterministic(agent, envs, episodes, seed)
        unmatched = None
        if name == SWAPPED and agent.actor.resets:
            unmatched = measure_unmatched(scores.lengths, whole.lengths)
        plays.append(AlteredPlay(name, every, None, scores, unmatched))
    resets = [play for play in plays if play.every]
    return [*resets, *_play_limited(agent, envs, seed, whole, resets), *plays[len(resets) :]]


def measure_unmatched(lengths: Floats, unchanged: Floats) -> float:
    """The share of steps that are later than any other unchanged episode lasts; lengths (E,) of episodes."""
    longest, second = np.sort(unchanged)[[-1, -2]]
    others = np.where(unchanged == longest, second, longest)
    # An episode of n steps has n + 1 states: that before its first step, and one after each.
    return float(np.maximum(lengths - others - 1, 0).sum() / lengths.sum())


def measure_loss(play: AlteredPlay, whole: Score, by: Source) -> Ablation:
    """The score with an altered memory beside that with the unchanged one."""
    score = average(play.scores, by)
    return Ablation(play.name, play.every, play.last, score, compare(whole, score, by), play.unmatched)


def list_alterations(visited: Spread, recorded: Sequences, longest: int, seed: int) -> list[Alteration]:
    """All alterations, those with resets first.

    visited, recorded  the states and the inputs of the unchanged memory
    longest            steps of the longest episode
    """
    # Each is below the longest episode: a longer one would never reset.
    resets = [2**power for power in range(max(1, (longest - 1).bit_length()))]
    # A stream for each scale, so that the noise of one does not depend on how much another drew.
    noises = [(scale, rng.generator(seed, rng.Purpose.PROBE, i)) for i, scale in enumerate(NOISE)]
    return [
        *(
            Alteration(
                f"cleared every {k} steps" if k > 1 else "cleared at every step", k, partial(Cleared, every=k)
            )
            for k in resets
        ),
        Alteration("the mean state at every step", None, partial(Averaged, spread=visited)),
        Alteration("frozen after the first step", None, Frozen),
        Alteration(SWAPPED, None, partial(Swapped, recorded=recorded)),
        *(
            Alteration(
                f"noise of {scale:g} deviation{'s' * (scale != 1)}",
                None,
                partial(Noisy, spread=visited, scale=scale, random=random),
            )
            for scale, random in noises
        ),
    ]


def _play_limited(
    agent: Agent, envs: Envs, seed: int, whole: EpisodeScores, resets: Sequence[AlteredPlay]
) -> list[AlteredPlay]:
    """The same episodes with a memory of the last k steps, to find the fewest that keep nearly all score.

    A memory that is reset every k steps mostly holds fewer than k, so resets do not show how many are needed.
    """
    by = choose_source(whole, *(play.scores for play in resets))
    unchanged = average(whole, by)
    lost = measure_loss(resets[0], unchanged, by).lost
    if lost.direction in NO_LOSS:
        return []
    plays: dict[int, AlteredPlay] = {}

    def is_enough(steps: int) -> bool:
        with altered(agent.actor, limit(agent.actor.memory, envs.num_envs, steps)):
            scores = play_deterministic(agent, envs, len(whole.returns), seed)
        plays[steps] = AlteredPlay(f"only the last {steps} steps", None, steps, scores)
        return measure_loss(plays[steps], unchanged, by).lost.by <= NEARLY * lost.by

    longest = int(whole.lengths.max())
    largest = min(most_steps(agent.actor.memory, envs.num_envs), longest - 1)
    search_fewest(is_enough, longest if agent.actor.resets else None, largest)
    return [plays[steps] for steps in sorted(plays)]


def measure_memory_length(
    whole: Score, ablations: Sequence[Ablation], longest: int | None
) -> MemoryLength | None:
    """The fewest last steps that keep nearly all of the score; None if a reset at every step loses none.

    longest  the steps of the longest episode; None if the memory is not reset with episodes
    """
    if not any(one.every == 1 and one.lost.direction == "better" for one in ablations):
        return None
    steps = {one.last or one.every: one for one in ablations if one.last or one.every == 1}
    return measure_length({k: whole.scores - one.score.scores for k, one in steps.items() if k}, longest)
