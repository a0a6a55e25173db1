"""Episodes to show: many are played, and the best, the worst and a typical one are replayed and recorded.

Shapes.  T steps of one episode, recorded with row T, the final observation, which has no action.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.errors import UsageError
from ..envs import Array, Envs
from ..envs.spaces import NEW_EPISODE
from ..run.evaluate import check_spaces
from ..run.film import make_single_env, unrenderable_reason
from ..run.recording import EpisodeScores, KeepPicture, Record, record
from ..run.run import Trained


@dataclass(frozen=True)
class Episode:
    """A recorded episode with its pictures.

    name      best, typical, worst, or its number
    seed      of its environment
    pictures  one per row (T + 1), as `keep` returns them: rendered, or the observation if the environment
              cannot be rendered and the observation is a picture; else empty
    """

    name: str
    seed: int
    score: float
    length: int
    success: float
    record: Record
    pictures: list[Any]

    @property
    def trial(self) -> list[tuple[int, float]]:
        """The episodes of a trial: first step and return of each; none if it is no trial."""
        if NEW_EPISODE not in self.record.rows.obs:
            return []
        starts = np.flatnonzero(self.record.rows.obs[NEW_EPISODE][:, 0, 0].numpy()).tolist()
        returns = np.add.reduceat(self.record.reward[:, 0], starts).tolist()
        return list(zip(starts, returns, strict=True))


@dataclass(frozen=True)
class Watched:
    """The episodes to show.

    note        why there are no pictures; empty if there are
    reproduced  whether the replayed episodes have the returns that they were selected by
    names       of actions and observations, if the environment has some
    """

    episodes: list[Episode]
    played: int
    fps: int
    note: str
    reproduced: bool
    names: Mapping[str, Sequence[str]]


def watch(
    trained: Trained,
    episodes: int,
    shown: int,
    seed: int,
    sample: bool,
    keep: KeepPicture | None,
    film: bool = False,
) -> Watched:
    """Play episodes, select some, and replay those with pictures.

    keep  maps a picture to what is stored of it; None: no pictures
    film  whether there must be pictures: without any, a UsageError before an episode is played
    """
    for name, count in (("--episodes", episodes), ("--shown", shown)):
        if count < 1:
            raise UsageError(f"{name} {count}: at least 1 is needed")
    agent = trained.agent
    envs = make_single_env(trained.config.env, trained.factory)
    try:
        check_spaces(agent, envs, trained.config.env.id)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        note = unrenderable_reason(envs, seeds[0])
        if film and note and not any(leaf.kind == "picture" for leaf in agent.obs_spec.leaves.values()):
            env = trained.config.env.id
            raise UsageError(f"{env} has no pictures for a film ({note}); -o FILE.html shows its numbers")
        # Without pictures: rendering all episodes would take longer than replaying those that are shown.
        scores = [_play(agent, envs, one, sample)[0].returns[0] for one in seeds]
        names = select(scores, shown)
        replayed = [
            _episode(agent, envs, name, seeds[number], sample, None if note else keep, keep)
            for number, name in names
        ]
        # Exactly equal, because a replay from the same seed repeats every operation.
        reproduced = all(
            one.score == scores[number] for one, (number, _) in zip(replayed, names, strict=True)
        )
        note = "" if replayed[0].pictures or keep is None else note
        return Watched(replayed, episodes, envs.adapter.fps, note, reproduced, envs.adapter.names())
    finally:
        envs.adapter.close()


def select(scores: Sequence[float], shown: int) -> list[tuple[int, str]]:
    """Numbers and names of episodes: the best, a typical one and the worst first, none of them twice."""
    order = np.argsort(-np.array(scores), kind="stable")
    # A dict keeps the first place and the last value of a key. So with few episodes an end is named as such
    # and not as typical, and a single episode is the best.
    ends = {int(order[-1]): "worst", int(order[0]): "best"}
    names = {int(order[0]): "best"} | {int(order[len(order) // 2]): "typical"} | ends
    for number in range(len(scores)):
        names.setdefault(number, f"number {number + 1}")
    return list(names.items())[:shown]


def _play(
    agent: Agent, envs: Envs, seed: int, sample: bool, keep: KeepPicture | None = None
) -> tuple[EpisodeScores, Record]:
    """Play one episode. Of several agents, the first one that takes part from the start is shown."""
    player = agent.player(envs.num_envs, not sample, seed)
    scores, recorded = record(player, envs, 1, [seed] * envs.num_envs, keep)
    start = int(np.argmax(recorded.valid.any(1)))  # behind episodes that a failure ended
    shown = recorded.alone(int(np.argmax(recorded.valid[start])))
    if not envs.agents:
        return scores, shown
    returns, lengths = np.array([shown.reward.sum()]), np.array([float(len(shown.reward))])
    return EpisodeScores(returns, lengths, scores.successes), shown


def _episode(
    agent: Agent,
    envs: Envs,
    name: str,
    seed: int,
    sample: bool,
    render: KeepPicture | None,
    keep: KeepPicture | None,
) -> Episode:
    """Replay an episode.

    render  maps a rendered picture to what is stored of it; None: do not render
    keep    the same for observations that are pictures, if nothing is rendered
    """
    played, recorded = _play(agent, envs, seed, sample, render)
    score, length, success = (float(column[0]) for column in played)
    pictures = recorded.pictures or (
        [keep(picture) for picture in _observed_pictures(agent, recorded)] if keep else []
    )
    return Episode(name, seed, score, int(length), success, recorded, pictures)


def _observed_pictures(agent: Agent, recorded: Record) -> Iterable[Array]:
    """The first observation that is a picture, of a stack the last frame; empty if none is."""
    for name, leaf in agent.obs_spec.leaves.items():
        if leaf.kind == "picture":
            x = recorded.rows.obs[name][:, 0]
            x = x[:, -1] if x.ndim > 4 else x
            if x.ndim == 4 and not leaf.channels_last:
                x = x.movedim(1, -1)
            return map(_to_rgb, x.numpy())
    return ()


def _to_rgb(picture: Array) -> Array:
    """(H, W) or (H, W, C) -> (H, W, 3); of C channels other than 3 the last one."""
    if picture.ndim == 3 and picture.shape[2] == 3:
        return picture
    grey = picture if picture.ndim == 2 else picture[..., -1]
    return np.repeat(grey[..., None], 3, axis=2)
