"""Opponents: whoever plays the seats of a game that the learner does not have."""

from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium.vector.utils import create_empty_array

from ..common.errors import UsageError
from .action_masks import find_blocked, read_mask
from .random_actions import draw_allowed
from .returned import join, wraps
from .spaces import ActionSpec


class Turn(NamedTuple):
    """An opponent's turn.

    game, seat  where it is
    space, obs  the observation, without a batch axis
    reward      sum since the turn of this seat before
    mask        the allowed actions, if the game says so
    random      the generator of the game
    """

    game: int
    seat: int
    space: gymnasium.Space[Any]
    obs: Any
    reward: float
    mask: Any
    random: np.random.Generator


def join_observations(turns: list[Turn]) -> Any:
    """The observations of n turns with an axis of n before every array."""
    space = turns[0].space
    return join(space, [turn.obs for turn in turns], create_empty_array(space, len(turns)), wraps(space))


class Opponents(Protocol):
    """Plays seats of several games at once."""

    def begin(self, game: int, random: np.random.Generator) -> None:
        """A game begins an episode."""

    def act(self, turns: list[Turn]) -> list[Any]:
        """Actions as the environments take them, of seats in different games."""


class RandomOpponents:
    """Act uniformly at random among the allowed actions."""

    def __init__(self, action_spec: ActionSpec) -> None:
        self._spec = action_spec

    def begin(self, game: int, random: np.random.Generator) -> None:
        """Nothing to prepare."""

    def act(self, turns: list[Turn]) -> list[Any]:
        """One random action for each turn."""
        return [self._draw(turn) for turn in turns]

    def _draw(self, turn: Turn) -> Any:
        spec = self._spec
        if spec.kind == "gaussian":
            return spec.to_env(turn.random.uniform(-1, 1, (1, spec.width)))[0]
        allowed = np.ones(sum(spec.sizes), dtype=bool)
        if turn.mask is not None:
            allowed = read_mask(turn.mask, spec.sizes, 1)[0]
            if len(find_blocked(allowed[None], spec.sizes)):
                raise UsageError(f"the action mask {turn.mask} allows no action")  # the game is named there
        return spec.to_env(draw_allowed(spec, allowed[None], turn.random))[0]
