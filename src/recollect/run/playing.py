"""Play whole episodes, of agents alone in their environments and of several in each."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..common.errors import EnvDataError
from ..envs import Array, Envs, Step
from ..envs.spaces import NEW_EPISODE, ExtendedObs


class PlayerLike(Protocol):
    """Anything that acts for N environments at once, such as `agent.player.Player`."""

    def act(self, obs: Any, reward: Any = None, first: Array | None = None) -> Any:
        """Actions for a batch of observations, as the environments take them."""


class Played(NamedTuple):
    """Finished episodes; of trials the returns of the episodes of each, and of several agents the returns of
    each (NaN where it took no part).
    """

    returns: list[float]
    lengths: list[int]
    successes: list[float]
    by_episode: list[list[float]]
    by_agent: list[list[float]]


class Score(NamedTuple):
    """The episode of one agent."""

    agent: int
    total: float
    length: int
    success: float
    parts: list[float]


class Ends(NamedTuple):
    """What follows a step, for each entry (N,) of the batch.

    ended  the step ended its episode
    first  the next row begins an episode
    idle   no action is taken in the next row: it is a tail row, or waits
    """

    ended: Array
    first: Array
    idle: Array


def read_ends(step: Step, idle: Array, waiting: Array | None) -> Ends:
    """The rule of envs/base.py: tail rows follow ends, and what follows an idle row begins or waits."""
    ended = (step.terminated | step.truncated) & ~idle
    waiting = np.zeros_like(ended) if waiting is None else waiting
    return Ends(ended, idle & ~waiting, ended | waiting)


def aborted_by(step: Step, agents: int) -> Array:
    """The environments (N / agents,) whose episode a failure ended in this step; it is not counted."""
    aborted = np.zeros(len(step.reward), dtype=bool) if step.aborted is None else step.aborted
    return np.asarray(aborted.reshape(-1, agents).any(1))


def idle_at_reset(envs: Envs) -> Array:
    """Where the first row after a reset waits (N,)."""
    waiting = envs.adapter.waiting()
    return np.zeros(envs.num_envs, dtype=bool) if waiting is None else waiting.copy()


class Running:
    """The episodes in progress, one for each entry of the batch (N,)."""

    def __init__(self, num: int) -> None:
        self._returns, self._lengths = np.zeros(num), np.zeros(num, dtype=np.int64)
        # Returns of the running trials before each of their episodes but the first.
        self._before: list[list[float]] = [[] for _ in range(num)]

    def add(self, step: Step, idle: Array) -> None:
        """Count a step where the row before it was not idle."""
        self._returns += np.where(idle, 0.0, step.reward)
        self._lengths += ~idle
        for i in np.flatnonzero(begins_episode(step.obs, len(idle)) & ~idle):
            self._before[i].append(float(self._returns[i]))

    def end(self, i: int, agent: int, success: float) -> Score:
        """The score of the episode of an entry, which is over."""
        total, length = float(self._returns[i]), int(self._lengths[i])
        if not math.isfinite(total):
            raise EnvDataError(
                f"the return of an episode is {total} in environment {i}: one of its rewards is not finite; "
                "correct the environment"
            )
        score = Score(agent, total, length, success, split_return(self._before[i], total))
        self._returns[i], self._lengths[i], self._before[i] = 0.0, 0, []
        return score


def play_episodes(
    envs: Envs,
    player: PlayerLike,
    episodes: int,
    seeds: list[int],
    on_episode: Callable[[float], None] | None = None,
) -> Played:
    """Play episodes, which are ordered by environment; a trial counts as one.

    Environment j plays a fixed share of the episodes, and all of them count. Counting the first episodes
    to finish, as is common, would be biased towards short episodes. An episode of several agents is over when
    those of all its agents are. An episode that a failure of the environment ended does not count: the
    environment plays another one, and raises EnvFailedError if it fails again and again (envs/failures.py).

    seeds  one for each of the N entries of the batch
    """
    agents = max(1, len(envs.agents))
    num = envs.num_envs // agents
    share = np.array([episodes // num + (j < episodes % num) for j in range(num)])
    finished: list[list[list[Score]]] = [[] for _ in range(num)]
    scored: list[list[Score]] = [[] for _ in range(num)]  # agents whose environment goes on
    running = Running(envs.num_envs)
    obs = envs.adapter.reset(seeds)
    reward = np.zeros(envs.num_envs)
    idle = idle_at_reset(envs)
    first = ~idle
    while any(len(played) < n for played, n in zip(finished, share, strict=True)):
        step = envs.adapter.step(player.act(obs, reward, first))
        running.add(step, idle)
        ended, first, idle = read_ends(step, idle, envs.adapter.waiting())
        for i in np.flatnonzero(ended):
            success = np.nan if step.success is None else float(step.success[i])
            scored[i // agents].append(running.end(int(i), int(i) % agents, success))
        over = idle.reshape(num, agents).all(1) & ended.reshape(num, agents).any(1)
        aborted = aborted_by(step, agents)
        for j in np.flatnonzero(over):
            # All environments step together, so one that has played its share goes on; its extra episodes are
            # dropped.
            if len(finished[j]) < share[j] and not aborted[j]:
                finished[j].append(scored[j])
                if on_episode:
                    on_episode(_mean([score.total for score in scored[j]]))
            scored[j] = []
        obs, reward = step.obs, step.reward
    played = _as_columns([scores for one in finished for scores in one], len(envs.agents))
    warn_of_limit(envs.imposed_limit, played.lengths)
    return played


def _as_columns(episodes: list[list[Score]], agents: int) -> Played:
    """Episodes as the scores of those who took part: mean return and success, and the longest length."""
    return Played(
        [_mean([score.total for score in scores]) for scores in episodes],
        [max(score.length for score in scores) for scores in episodes],
        [_mean([score.success for score in scores]) for scores in episodes],
        [scores[0].parts for scores in episodes],
        [
            [_mean([score.total for score in scores if score.agent == agent]) for agent in range(agents)]
            for scores in episodes
        ],
    )


def _mean(values: Sequence[float]) -> float:
    """The mean of the known values; NaN if there are none. One value stays what it is, to the last bit."""
    known = [x for x in values if np.isfinite(x)]
    return float(np.mean(known)) if known else np.nan


def begins_episode(obs: Any, num_envs: int) -> Array:
    """Where an observation is the first of an episode of a trial (N,)."""
    if isinstance(obs, ExtendedObs) and NEW_EPISODE in obs:
        return np.asarray(obs[NEW_EPISODE][:, 0] > 0)
    return np.zeros(num_envs, dtype=bool)


def split_return(before: list[float], whole: float) -> list[float]:
    """The returns of the episodes of a trial, from that of the trial before each but the first."""
    return [float(x) for x in np.diff([0.0, *before, whole])] if before else []


def warn_of_limit(limit: int | None, lengths: Sequence[int]) -> None:
    """Warn of episodes that only the time limit of the evaluation ended."""
    cut = 0 if limit is None else sum(length >= limit for length in lengths)
    if cut:
        warnings.warn(
            f"{cut} of {len(lengths)} episodes were truncated after {limit:,} steps: the environment has no "
            "time limit; train with --env.time-limit N, which is kept with the agent, to set one",
            stacklevel=3,
        )
