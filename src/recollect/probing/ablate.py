"""What an agent reaches when its memory is taken away, in parts and as a whole.

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
from ..common.tree import leaves
from ..envs import Envs
from ..reporting.scores import weighted_mean_interval
from ..run.recording import EpisodeScores, play_deterministic
from .interventions import Alter, Averaged, Cleared, Frozen, Noisy, Recent, Spread, Swapped, altered

Source: TypeAlias = Literal["success", "return"]
Told: TypeAlias = Literal["better", "equal", "worse", "unclear"]

NEARLY, MUCH = 0.05, 0.2  # of a score, which is little, and what must not be lost where it is called equal
NOISE = (0.1, 1.0)  # in deviations
LARGEST = 2**23  # numbers of all memories that know only the last steps


@dataclass(frozen=True)
class Score:
    """What episodes came to."""

    scores: Floats
    """One number an episode (E,)."""
    mean: float
    interval: Interval
    length: float
    """Mean steps of an episode."""


@dataclass(frozen=True)
class Difference:
    """By how much one score is above another, with its 95 % interval."""

    by: float
    interval: Interval
    told: Told
    """better or worse: by more than little, and not by chance; equal: by no more than little, and surely not
    by much; or unclear."""


@dataclass(frozen=True)
class Ablation:
    """One thing done to the memory, and what was lost by it."""

    name: str
    every: int | None
    """Steps between two clearings."""
    last: int | None
    """Last steps that alone are known."""
    score: Score
    lost: Difference
    """By how much the whole memory is above this."""


def source(*all_played: EpisodeScores) -> Source:
    """What is compared: successes where every episode reports one, else returns."""
    reported = all(np.isfinite(one.successes).all() for one in all_played)
    return "success" if reported else "return"


def score(one: EpisodeScores, by: Source) -> Score:
    """The mean of successes or returns over episodes, with its interval."""
    scores = one.successes if by == "success" else one.returns
    mean = float(scores.mean())
    if by == "success":
        found = Interval(*(float(x) for x in share_interval(np.array(mean), len(scores))))
    else:
        found = _interval(scores)
    return Score(scores, mean, found, float(one.lengths.mean()))


def difference(one: Score, other: Score, by: Source) -> Difference:
    """Of two scores over the same episodes, pair by pair.

    Successes are 0 or 1, and pairs that never differ would say that there is no doubt at all; so their
    interval is that of the shares that were lost and won.
    """
    pairs = one.scores - other.scores
    if by == "success":
        found = paired_interval(float((pairs > 0).mean()), float((pairs < 0).mean()), len(pairs))
    else:
        found = _interval(pairs)
    return _told(float(pairs.mean()), found, max(abs(one.mean), abs(other.mean)))


def _interval(scores: Floats) -> Interval:
    """Of a mean over episodes, of which there are always more than one."""
    found = weighted_mean_interval(scores, mean_weights(len(scores)))
    assert found is not None
    return found


def _told(by: float, ends: Interval, size: float) -> Difference:
    if abs(by) > NEARLY * size and not ends.low <= 0 <= ends.high:
        return Difference(by, ends, "better" if by > 0 else "worse")
    equal = by <= NEARLY * size and ends.high <= MUCH * size
    return Difference(by, ends, "equal" if equal else "unclear")


# What is done to a memory ---------------------------------------------------------------------


class Tried(NamedTuple):
    """One thing that was done, and the episodes that came of it."""

    name: str
    every: int | None
    last: int | None
    played: EpisodeScores


def tries(
    agent: Agent, envs: Envs, episodes: int, seed: int, whole: EpisodeScores, seen: Spread
) -> list[Tried]:
    """Each thing that is done to the actor's memory, over the same episodes."""
    made = []
    for name, every, alter in _changes(seen, int(whole.lengths.max()), seed):
        with altered(agent.actor, alter):
            made.append(Tried(name, every, None, play_deterministic(agent, envs, episodes, seed)))
    cleared = [one for one in made if one.every]
    return [*cleared, *recents(agent, envs, seed, whole, cleared), *made[len(cleared) :]]


def ablation(tried: Tried, whole: Score, by: Source) -> Ablation:
    """What a try came to, beside the whole memory."""
    reached = score(tried.played, by)
    return Ablation(tried.name, tried.every, tried.last, reached, difference(whole, reached, by))


def _changes(seen: Spread, longest: int, seed: int) -> list[tuple[str, int | None, Alter]]:
    """Name, steps between two clearings, and the memory that does it."""
    clearings = [2**power for power in range(max(1, (longest - 1).bit_length()))]
    noises = [(scale, rng.generator(seed, rng.Purpose.PROBE, i)) for i, scale in enumerate(NOISE)]
    return [
        *(
            (f"cleared every {k} steps" if k > 1 else "cleared at every step", k, partial(Cleared, every=k))
            for k in clearings
        ),
        ("the mean state at every step", None, partial(Averaged, spread=seen)),
        ("frozen after the first step", None, Frozen),
        ("that of another episode", None, Swapped),
        *(
            (
                f"noise of {scale:g} deviation{'s' * (scale != 1)}",
                None,
                partial(Noisy, spread=seen, scale=scale, random=random),
            )
            for scale, random in noises
        ),
    ]


def recents(
    agent: Agent, envs: Envs, seed: int, whole: EpisodeScores, cleared: Sequence[Tried]
) -> list[Tried]:
    """Only the last k steps known, for more and more of them, until nearly all of the score is kept.

    Clearing every k steps leaves less than k steps to most rows, so what is needed is found here.
    """
    by = source(whole, *(one.played for one in cleared))
    best = score(whole, by)
    lost = ablation(cleared[0], best, by).lost
    made: list[Tried] = []
    if lost.told in ("equal", "worse"):
        return made
    floats = sum(leaf.numel() for leaf in leaves(agent.actor.memory.initial_state(envs.num_envs)).values())
    for steps in (one.every for one in cleared[1:] if one.every):
        if steps * floats > LARGEST:
            break
        with altered(agent.actor, partial(Recent, rows=steps)):
            reached = play_deterministic(agent, envs, len(whole.returns), seed)
        made.append(Tried(f"only the last {steps} steps", None, steps, reached))
        if ablation(made[-1], best, by).lost.by <= NEARLY * lost.by:
            break
    return made


def recall(found: Sequence[Ablation]) -> tuple[int, bool]:
    """The fewest last steps with which nearly all of the score is kept, and whether they were found.

    What is lost must be at most a twentieth of what is lost when the memory is cleared at every step.
    Else the most steps that were tried.
    """
    lost = next(one.lost.by for one in found if one.every == 1)
    tried = {one.last: one.lost.by for one in found if one.last is not None}
    kept = [steps for steps in tried if tried[steps] <= NEARLY * lost]
    return (min(kept), True) if kept else (max(tried, default=1), False)
