"""One game whose agents act in turn, as its learner sees it, and what games report."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.errors import EnvDataError
from .failures import close_quietly
from .info import as_success, reported_success
from .spaces import ACTION_MASK, Array


class Game:
    """One game, as its learner sees it."""

    def __init__(self, env: Any, index: int, names: list[Any]) -> None:
        self.env, self.index, self._names = env, index, names
        self.random = np.random.default_rng()
        self.seat = 0
        self.steps = 0  # turns that the learner has taken in this episode
        self._early: dict[int, float] = {}  # rewards of seats before their first turns

    def begin(self, seed: int | None = None) -> None:
        """Begin an episode with the learner in a random seat."""
        if seed is not None:
            # Not of the seed alone: that is the generator of most games, whose draws these would repeat.
            self.random = np.random.default_rng((seed, 1))
        self.env.reset(seed=seed)
        if not self.env.agents:
            raise EnvDataError(f"{self.env}: no agent takes part in the game: `agents` is empty after reset")
        playing = [i for i, name in enumerate(self._names) if name in self.env.agents]
        self.seat, self.steps, self._early = int(self.random.choice(playing)), 0, {}

    def count_reward(self, seat: int, reward: float) -> float:
        """The reward at a turn of a seat; at the second one with that before the first, which had none."""
        early = self._early.get(seat)
        self._early[seat] = reward if early is None else 0.0
        return reward + (early or 0.0)

    def find_turn(self) -> int | None:
        """The seat of an opponent whose turn it is; None: it is the learner's."""
        while self.env.agents:
            name = self.env.agent_selection
            if name == self._names[self.seat]:
                return None
            if not (self.env.terminations[name] or self.env.truncations[name]):
                return self._names.index(name)
            self.env.step(None)  # as PettingZoo removes agents whose episode has ended
        raise EnvDataError(
            f"{self.env}: the game ended without a last turn of agent {self._names[self.seat]}, in which it "
            "would get its reward"
        )

    @property
    def has_ended(self) -> bool:
        """Whether the episode of the learner has ended, at its turn."""
        name = self._names[self.seat]
        return bool(self.env.terminations[name] or self.env.truncations[name])


def mask_of(obs: Any, info: dict[str, Any]) -> Any:
    """The action mask of a turn: an entry of a Dict observation, or of info."""
    in_obs = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
    return info.get(ACTION_MASK) if in_obs is None else in_obs


def build_drawn(factory: Callable[..., Any]) -> Any:
    """A game that can be drawn, if it has pictures: many prepare them in their constructor or in `reset`."""
    env = factory()
    if "rgb_array" not in env.metadata.get("render_modes", ()) or render_mode(env) is not None:
        return env
    try:
        drawn = factory(render_mode="rgb_array")
    except TypeError:  # a function without this argument
        return env
    close_quietly(env)
    return drawn


def render_mode(env: Any) -> Any:
    """The render mode of a game; None if it has none."""
    return getattr(env.unwrapped, "render_mode", None)


def read_success(infos: Any, ended: Array, name: str) -> Array | None:
    """`success` or `is_success` of the infos (N,) where the episode has ended; None if no game reports it.

    name  of the games in messages
    """
    known = [reported_success(info) for info in infos]
    if all(value is None for _, value in known):
        return None
    return np.array(
        [
            as_success(value, key, f"environment {i} ({name})") if end else np.nan
            for i, ((key, value), end) in enumerate(zip(known, ended, strict=True))
        ]
    )
