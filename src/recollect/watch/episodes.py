"""Episodes to look at: many are played, and the best, the worst and a typical one are played again.

Shapes.  T rows of one episode; row T was seen and nobody acted in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import rng
from ..agent import Agent
from ..envs import Array, Envs
from ..errors import UsageError
from ..evaluate import check_spaces
from ..film import alone
from ..record import Played, Record, record
from ..run import Trained


@dataclass(frozen=True)
class Episode:
    """One that was played, with what it looked like.

    name      best, typical, worst, or its number
    seed      of its environment
    pictures  as people see it, or what the agent saw where that is a picture (T + 1); or none
    """

    name: str
    seed: int
    score: float
    length: int
    success: float
    record: Record
    pictures: list[Array]


@dataclass(frozen=True)
class Watched:
    """The episodes to show, and what was said of drawing them."""

    episodes: list[Episode]
    played: int
    fps: int
    note: str


def watch(trained: Trained, episodes: int, shown: int, seed: int, sample: bool) -> Watched:
    """Play, choose, and play what was chosen again with pictures."""
    if episodes < 1 or shown < 1:
        raise UsageError(f"{min(episodes, shown)} episodes: at least 1 is needed")
    agent = trained.agent
    envs = alone(trained.config.env, trained.factory)
    try:
        check_spaces(agent, envs, trained.config.env.id)
        seeds = rng.env_seeds(seed, rng.Purpose.EVALUATE, 1, episodes)
        scores = [_play(agent, envs, one, sample)[0].returns[0] for one in seeds]
        note = _why_no_pictures(envs, seeds[0])
        found = [
            _episode(agent, envs, name, seeds[number], sample, not note)
            for number, name in chosen(scores, shown)
        ]
        return Watched(found, episodes, envs.adapter.fps, "" if found[0].pictures else note)
    finally:
        envs.adapter.close()


def chosen(scores: Sequence[float], shown: int) -> list[tuple[int, str]]:
    """Numbers of episodes and their names: best, typical and worst first, none of them twice."""
    order = np.argsort(-np.array(scores), kind="stable")
    first = {"best": order[0], "typical": order[len(order) // 2], "worst": order[-1]}
    names: dict[int, str] = {}
    for name, number in first.items():
        names.setdefault(int(number), name)
    for number in range(len(scores)):
        names.setdefault(number, f"number {number + 1}")
    return list(names.items())[:shown]


def _play(agent: Agent, envs: Envs, seed: int, sample: bool, draws: bool = False) -> tuple[Played, Record]:
    return record(agent.player(1, not sample, seed), envs, 1, [seed], draws)


def _episode(agent: Agent, envs: Envs, name: str, seed: int, sample: bool, draws: bool) -> Episode:
    played, found = _play(agent, envs, seed, sample, draws)
    score, length, success = (float(column[0]) for column in played)
    return Episode(name, seed, score, int(length), success, found, found.pictures or _seen(agent, found))


def _seen(agent: Agent, found: Record) -> list[Array]:
    """What the agent saw, where it saw pictures: the first of them, and of a stack the last."""
    for name, leaf in agent.obs_spec.leaves.items():
        if leaf.kind == "picture":
            x = found.rows.obs[name][:, 0]
            x = x[:, -1] if x.ndim > 4 else x
            if x.ndim == 4 and not leaf.channels_last:
                x = x.movedim(1, -1)
            return [_coloured(picture) for picture in x.numpy()]
    return []


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
