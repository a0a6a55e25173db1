"""Episodes to look at: many are played, and the best, the worst and a typical one are played again.

Shapes.  T rows of one episode; row T was seen and nobody acted in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import rng
from ..agent import Agent
from ..envs import Array, Envs
from ..errors import UsageError
from ..evaluate import check_spaces
from ..film import alone
from ..record import Keep, Played, Record, record
from ..run import Trained


@dataclass(frozen=True)
class Episode:
    """One that was played, with what it looked like.

    name      best, typical, worst, or its number
    seed      of its environment
    pictures  what was kept of what people see, or of what the agent saw where that is a picture (T + 1);
              or none
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
    alike  whether the episodes came out as when they were chosen
    """

    episodes: list[Episode]
    played: int
    fps: int
    note: str
    alike: bool


def watch(trained: Trained, episodes: int, shown: int, seed: int, sample: bool, keep: Keep | None) -> Watched:
    """Play, choose, and play what was chosen again with pictures; keep: what of each; None: no pictures."""
    for name, count in (("--episodes", episodes), ("--shown", shown)):
        if count < 1:
            raise UsageError(f"{name} {count}: at least 1 is needed")
    agent = trained.agent
    envs = alone(trained.config.env, trained.factory)
    try:
        check_spaces(agent, envs, trained.config.env.id)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        scores = [_play(agent, envs, one, sample)[0].returns[0] for one in seeds]
        note = _why_no_pictures(envs, seeds[0])
        names = chosen(scores, shown)
        found = [
            _episode(agent, envs, name, seeds[number], sample, None if note else keep, keep)
            for number, name in names
        ]
        alike = all(one.score == scores[number] for one, (number, _) in zip(found, names, strict=True))
        note = "" if found[0].pictures or keep is None else note
        return Watched(found, episodes, envs.adapter.fps, note, alike)
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
    agent: Agent, envs: Envs, seed: int, sample: bool, keep: Keep | None = None
) -> tuple[Played, Record]:
    return record(agent.player(1, not sample, seed), envs, 1, [seed], keep)


def _episode(
    agent: Agent, envs: Envs, name: str, seed: int, sample: bool, drawn: Keep | None, keep: Keep | None
) -> Episode:
    """One to show; drawn: what to keep of pictures of the environment, keep: of those that the agent saw."""
    played, found = _play(agent, envs, seed, sample, drawn)
    score, length, success = (float(column[0]) for column in played)
    pictures = found.pictures or ([keep(picture) for picture in _seen(agent, found)] if keep else [])
    return Episode(name, seed, score, int(length), success, found, pictures)


def _seen(agent: Agent, found: Record) -> Iterable[Array]:
    """What the agent saw, where it saw pictures: the first of them, and of a stack the last."""
    for name, leaf in agent.obs_spec.leaves.items():
        if leaf.kind == "picture":
            x = found.rows.obs[name][:, 0]
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


def _why_no_pictures(envs: Envs, seed: int) -> str:
    """What to say where nothing can be drawn; nothing where it can."""
    try:
        envs.adapter.reset([seed])
        drawn = envs.adapter.picture()
    except UsageError as error:
        return str(error)
    return "" if drawn is not None else "nobody draws this environment"
