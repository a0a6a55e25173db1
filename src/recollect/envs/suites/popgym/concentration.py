"""Concentration: find pairs of cards that lie face down.

C = 52 num_decks cards lie face down, and each action turns one of them. Two turned cards that match stay
face up and have reward 2 / C. Two cards that do not match have reward -2 / L. Turning a card that is face up
has reward -1 / L as the first of two and -2 / L as the second. The episode terminates when all cards are face
up and is truncated after L = ceil(2 C - C / (2 C - 1)) steps.

    level        cards   to match
    Easy         52      colour
    Medium       104     colour
    Hard         52      rank

An observation has one entry for each card: its colour or rank if it is shown, else the number of colours or
ranks. The second card is shown beside the first one, and both are face down in the next step.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig
from ...spaces import Array
from .cards import DECK, DISTINCT
from .family import Family
from .task import Task

BLOCK = 16  # deals that an environment shuffles at once


class Concentration(Task):
    """cards (N, C) symbols; up (N, C) face up; turned (N,) the first card of two, or -1; seen (N, C)."""

    arrays = ("cards", "up", "turned", "seen")

    def __init__(
        self, config: EnvConfig, wrappers: tuple[str, ...], *, num_decks: int, deck_type: str
    ) -> None:
        self._count, self._hidden = DECK * num_decks, DISTINCT[deck_type]
        self._ordered = np.tile(np.arange(self._hidden), (BLOCK, self._count // self._hidden))
        length = math.ceil(2 * self._count - self._count / (2 * self._count - 1))
        self._success, self._failure = 1 / (self._count // 2), -1 / length
        observation = spaces.MultiDiscrete(np.full(self._count, self._hidden + 1))
        super().__init__(config, wrappers, length, observation, spaces.Discrete(self._count))

    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        return {"deal": lambda random: random.permuted(self._ordered, axis=1)}

    def allocate(self) -> None:
        self.cards, self.seen = np.zeros((2, self.num_envs, self._count), dtype=np.int64)
        self.up = np.zeros((self.num_envs, self._count), dtype=bool)
        self.turned = np.zeros(self.num_envs, dtype=np.int64)

    def start(self, envs: Array) -> None:
        self.cards[envs] = self.stream["deal"].take(envs)
        self.up[envs], self.turned[envs], self.seen[envs] = False, -1, self._hidden

    def move(self, action: Array) -> tuple[Array, Array]:
        n, pair = self._everyone, self.turned >= 0
        first = np.where(pair, self.turned, action)
        card, known = self.cards[n, action], self.up[n, action]
        match = pair & ~known & (action != first) & (card == self.cards[n, first])
        self.seen = np.where(self.up, self.cards, self._hidden)
        self.seen[n, action], self.seen[n, first] = card, self.cards[n, first]
        self.up[n, action] |= match
        self.up[n, first] |= match
        closed = pair | known
        self.turned = np.where(closed, -1, action)
        reward = np.where(match, self._success, closed * (1 + pair) * self._failure)
        return reward, np.all(self.up, axis=1)

    def view(self) -> Any:
        return self.seen.copy()


FAMILIES = {
    "Concentration": Family(
        about="find pairs of cards that lie face down",
        build=Concentration,
        levels=(
            {"num_decks": 1, "deck_type": "colors"},
            {"num_decks": 2, "deck_type": "colors"},
            {"num_decks": 1, "deck_type": "ranks"},
        ),
    )
}
