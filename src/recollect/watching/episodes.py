"""Episodes to show: many are played, and the best, the worst and a typical one are played again.

Shapes.  T steps of one episode, recorded as T + 1 rows; in row T nobody acted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.errors import UsageError
from ..envs import Array, Envs
from ..run.evaluate import check_spaces
from ..run.film import make_single_env, unrenderable_reason
from ..run.recording import EpisodeScores, KeepPicture, Record, record
from ..run.run import Trained


@dataclass(frozen=True)
class Episode:
    """An episode with its pictures.

    name      best, typical, worst, or its number
    seed      of its environment
    pictures  what was kept of the rendered pictures, or of the observations where the environment cannot
              be rendered and they are pictures (T + 1); or none
    """

    name: str
    seed: int
    score: float
    length: int
    success: float
    record: Record
    pictures: list[Any]


@dataclass(frozen=True)
class Watched:
    """The episodes to show.

    note   why there are no pictures; empty where there are
    alike  whether the replayed episodes have the returns that they were chosen by
    """

    episodes: list[Episode]
    played: int
    fps: int
    note: str
    alike: bool


def watch(
    trained: Trained, episodes: int, shown: int, seed: int, sample: bool, keep: KeepPicture | None
) -> Watched:
    """Play, choose, and replay the chosen episodes with pictures; keep: what of each; None: no pictures."""
    for name, count in (("--episodes", episodes), ("--shown", shown)):
        if count < 1:
            raise UsageError(f"{name} {count}: at least 1 is needed")
    agent = trained.agent
    envs = make_single_env(trained.config.env, trained.factory)
    try:
        check_spaces(agent, envs, trained.config.env.id)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        scores = [_play(agent, envs, one, sample)[0].returns[0] for one in seeds]
        note = unrenderable_reason(envs, seeds[0])
        names = chosen(scores, shown)
        replayed = [
            _episode(agent, envs, name, seeds[number], sample, None if note else keep, keep)
            for number, name in names
        ]
        alike = all(one.score == scores[number] for one, (number, _) in zip(replayed, names, strict=True))
        note = "" if replayed[0].pictures or keep is None else note
        return Watched(replayed, episodes, envs.adapter.fps, note, alike)
    finally:
        envs.adapter.close()


def chosen(scores: Sequence[float], shown: int) -> list[tuple[int, str]]:
    """Numbers of episodes and their names: best, typical and worst first, none of them twice."""
    order = np.argsort(-np.array(scores), kind="stable")
    ends = {int(order[-1]): "worst", int(order[0]): "best"}
    names = {int(order[0]): "best"} | {int(order[len(order) // 2]): "typical"} | ends
    for number in range(len(scores)):
        names.setdefault(number, f"number {number + 1}")
    return list(names.items())[:shown]


def _play(
    agent: Agent, envs: Envs, seed: int, sample: bool, keep: KeepPicture | None = None
) -> tuple[EpisodeScores, Record]:
    return record(agent.player(1, not sample, seed), envs, 1, [seed], keep)


def _episode(
    agent: Agent,
    envs: Envs,
    name: str,
    seed: int,
    sample: bool,
    drawn: KeepPicture | None,
    keep: KeepPicture | None,
) -> Episode:
    """One to show; drawn: what to keep of rendered pictures, keep: of observations that are pictures."""
    played, recorded = _play(agent, envs, seed, sample, drawn)
    score, length, success = (float(column[0]) for column in played)
    pictures = recorded.pictures or (
        [keep(picture) for picture in _observed(agent, recorded)] if keep else []
    )
    return Episode(name, seed, score, int(length), success, recorded, pictures)


def _observed(agent: Agent, recorded: Record) -> Iterable[Array]:
    """The first observation that is a picture, and the last of a stack; nothing where none is."""
    for name, leaf in agent.obs_spec.leaves.items():
        if leaf.kind == "picture":
            x = recorded.rows.obs[name][:, 0]
            x = x[:, -1] if x.ndim > 4 else x
            if x.ndim == 4 and not leaf.channels_last:
                x = x.movedim(1, -1)
            return map(_coloured, x.numpy())
    return ()


def _coloured(picture: Array) -> Array:
    """(H, W) or (H, W, C) -> (H, W, 3): of many channels the last."""
    if picture.ndim == 3 and picture.shape[2] == 3:
        return picture
    grey = picture if picture.ndim == 2 else picture[..., -1]
    return np.repeat(grey[..., None], 3, axis=2)
