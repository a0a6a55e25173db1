"""The card games whose cards are dealt whatever the agent does, vectorised.

All episodes of such a game have the same length, and the observations do not depend on the actions. They
deal C = 52 num_decks cards, of which the agent sees one symbol: the suit, the rank or the colour. t counts
steps from 0.

    game             num_decks   symbol                  steps    correct action of step t         reward
    RepeatPrevious   1  2  3     suit                    C - 1    card t + 1 - k, from k - 1 on    1 / (C - k)
    RepeatFirst      1  8  16    suit                    C - 1    card 0                           1 / (C - 1)
    Autoencode       1  2  3     suit                    2C - 1   card 2C - 2 - t, from C - 1 on   1 / C
    CountRecall      1  2  4     colour, suit, rank      C - 1    number of cards 0 to t that      1 / (C - 1)
                                                                  equal query t
    HigherLower      1  2  3     rank                    C - 1    0 if card t + 1 is higher than   1 / C
                                                                  card t, 1 if it is lower

k of RepeatPrevious is 4, 32 and 64. A wrong action has the negative reward of a correct one, so the best
return is 1; where two cards of HigherLower are equal, every action has reward 0, and it is lower.

The observation after t steps is card t. Autoencode also shows a flag: 1 while cards are dealt, 0 from the
last one on. Then the cards must be repeated backwards, and the observed suit is 0. CountRecall deals two
piles of C cards, and shows card t of both: the card, and the query.

Shapes.  N environments, C cards of a pile, P piles, B deals shuffled at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from ....common.errors import UsageError
from ...base import EnvConfig, EnvState, Step, VecEnv
from ...spaces import Array
from .family import Family, Wrappers, length_of, one_of, positive

DECK, SUITS, RANKS = 52, 4, 13
DISTINCT = {"colors": 2, "suits": SUITS, "ranks": RANKS}
BLOCK = 1024  # about how many cards an environment shuffles at once; one call for many decks is faster


@dataclass(frozen=True, kw_only=True)
class Game:
    """The rules of a card game, by the number t of steps since the episode began.

    pile         (C,) the symbols of a pile before it is shuffled
    piles        P
    length       steps of an episode
    observation  the space of an observation
    show         cards (P C, N), t -> the observation after t steps
    actions      number of actions
    score        cards (P C, N), t, action (N,) -> reward (N,) of step t; None: no reward in this step
    """

    pile: Array
    piles: int = 1
    length: int
    observation: spaces.Space[Any]
    show: Callable[[Array, int], Any]
    actions: int
    score: Callable[[Array, int, Array], Array | None]


class CardGame(VecEnv):
    """N copies of one game. Environment i has its own random generator.

    All episodes of a game have the same length, so one counter of steps serves all environments.
    """

    tier: Literal["native", "barrier"] = "native"

    def __init__(self, game: Game, config: EnvConfig, wrappers: tuple[str, ...]) -> None:
        self.num_envs = config.num_envs
        self.backend = "own"
        self.time_limit, self._last = length_of(config, game.length)
        self.action_space = spaces.Discrete(game.actions)
        self._wrappers = Wrappers(wrappers, game.observation, self.action_space)
        self.observation_space = self._wrappers.observation_space
        self._game = game
        self._ordered = np.tile(game.pile, (max(1, BLOCK // len(game.pile)), 1))

    def reset(self, seeds: list[int]) -> Any:
        self._random = [np.random.default_rng(seed) for seed in seeds]
        # (B, P C, N): the cards that all environments show in one step are contiguous.
        blocks, cards = self._ordered.shape
        self._decks = np.zeros((blocks, self._game.piles * cards, self.num_envs), dtype=np.int64)
        self._deck = len(self._decks) - 1  # the last one, so that `_start_episodes` shuffles new decks
        self._start_episodes()
        return self._observe()

    def _start_episodes(self) -> None:
        """Start an episode in every environment with its next deal; shuffle new ones when all are used."""
        self._t, self._action = 0, np.zeros(self.num_envs, dtype=np.int64)
        self._deck = (self._deck + 1) % len(self._decks)
        if self._deck == 0:
            for i, random in enumerate(self._random):
                piles = [random.permuted(self._ordered, axis=1) for _ in range(self._game.piles)]
                self._decks[:, :, i] = np.concatenate(piles, axis=1)

    def _observe(self) -> Any:
        obs = self._game.show(self._decks[self._deck], self._t)
        return self._wrappers.wrap(obs, self._action, np.full(self.num_envs, self._t == 0))

    def step(self, action: Array) -> Step:
        game, t = self._game, self._t
        reward, terminated, truncated = None, False, False
        if t == self._last:  # the last step ended all episodes: ignore the action and start new ones
            self._start_episodes()
        else:
            reward = game.score(self._decks[self._deck], t, action)
            # A copy, because the policy may reuse its buffer before the observation is made.
            self._t, self._action = t + 1, action.copy()
            terminated = self._t == game.length
            truncated = self._t == self._last and not terminated
        ends = np.full((2, self.num_envs), [[terminated], [truncated]])
        return Step(self._observe(), np.zeros(self.num_envs) if reward is None else reward, *ends)

    def get_state(self) -> EnvState:
        # The first axis of a saved array must be N. int8 keeps checkpoints small.
        random = [generator.bit_generator.state for generator in self._random]
        decks = np.moveaxis(self._decks, -1, 0).astype(np.int8, "C")
        arrays: dict[str, Array] = {"decks": decks, "action": self._action.copy()}
        return EnvState(arrays, {"t": self._t, "deck": self._deck, "random": random})

    def set_state(self, state: EnvState) -> None:
        self.reset([0] * self.num_envs)
        self._decks = np.moveaxis(state.arrays["decks"], 0, -1).astype(np.int64, "C")
        self._action = state.arrays["action"].copy()
        self._t, self._deck = state.data["t"], state.data["deck"]
        for generator, stored in zip(self._random, state.data["random"], strict=True):
            generator.bit_generator.state = stored


# Games ----------------------------------------------------------------------------------------


def _pile(num_decks: int, distinct: int) -> Array:
    """(C,): each of the symbols equally often."""
    return np.tile(np.arange(distinct), DECK * num_decks // distinct)


def _card(cards: Array, t: int) -> Array:
    return cards[t]


def _correct(correct: Array, scale: float) -> Array:
    return np.where(correct, scale, -scale)


def repeat_previous(num_decks: int = 1, k: int = 4) -> Game:
    """The answer is the suit of the card observed k - 1 steps ago."""
    cards = DECK * num_decks
    if k >= cards:
        raise UsageError(f"popgym:RepeatPrevious: k is {k}; it must be below {cards}, the number of cards")
    return Game(
        pile=_pile(num_decks, SUITS),
        length=cards - 1,
        observation=spaces.Discrete(SUITS),
        show=_card,
        actions=SUITS,
        score=lambda deck, t, action: (
            _correct(action == deck[t + 1 - k], 1 / (cards - k)) if t + 1 >= k else None
        ),
    )


def repeat_first(num_decks: int = 1) -> Game:
    """The answer is the suit of the first card, at every step."""
    cards = DECK * num_decks
    return Game(
        pile=_pile(num_decks, SUITS),
        length=cards - 1,
        observation=spaces.Discrete(SUITS),
        show=_card,
        actions=SUITS,
        score=lambda deck, t, action: _correct(action == deck[0], 1 / (cards - 1)),
    )


def autoencode(num_decks: int = 1) -> Game:
    """The answers are the suits of all cards backwards, after the last card."""
    cards = DECK * num_decks

    def show(deck: Array, t: int) -> tuple[Array, Array]:
        zeros = np.zeros(deck.shape[1], dtype=np.int64)
        return zeros + (t < cards - 1), deck[t] if t < cards else zeros

    return Game(
        pile=_pile(num_decks, SUITS),
        length=2 * cards - 1,
        observation=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(SUITS)]),
        show=show,
        actions=SUITS,
        score=lambda deck, t, action: (
            _correct(action == deck[2 * cards - 2 - t], 1 / cards) if t >= cards - 1 else None
        ),
    )


def count_recall(num_decks: int = 1, deck_type: str = "colors") -> Game:
    """The answer is the number of cards so far, present one included, that equal the query."""
    cards, distinct = DECK * num_decks, DISTINCT[deck_type]
    return Game(
        pile=_pile(num_decks, distinct),
        piles=2,
        length=cards - 1,
        observation=spaces.MultiDiscrete([distinct] * 2),
        show=lambda deck, t: np.stack([deck[t], deck[cards + t]], axis=-1),
        actions=cards // distinct + 1,
        score=lambda deck, t, action: _correct(
            action == (deck[: t + 1] == deck[cards + t]).sum(0), 1 / (cards - 1)
        ),
    )


def higher_lower(num_decks: int = 1) -> Game:
    """Action 0 predicts that the next card is higher, action 1 that it is lower."""
    cards = DECK * num_decks
    return Game(
        pile=_pile(num_decks, RANKS),
        length=cards - 1,
        observation=spaces.Discrete(RANKS),
        show=_card,
        actions=2,
        score=lambda deck, t, action: np.sign(deck[t + 1] - deck[t]) * (1 - 2 * action) * (1 / cards),
    )


def _builder(rules: Callable[..., Game]) -> Callable[..., VecEnv]:
    return lambda config, wrappers, **arguments: CardGame(rules(**arguments), config, wrappers)


DECKS = {"num_decks": positive}
FAMILIES = {
    "RepeatPrevious": Family(
        about="repeat the card of k - 1 steps ago",
        build=_builder(repeat_previous),
        levels=({}, {"num_decks": 2, "k": 32}, {"num_decks": 3, "k": 64}),
        options=DECKS | {"k": positive},
    ),
    "RepeatFirst": Family(
        about="repeat the first card at every step",
        build=_builder(repeat_first),
        levels=({}, {"num_decks": 8}, {"num_decks": 16}),
        options=DECKS,
    ),
    "Autoencode": Family(
        about="repeat a sequence of cards backwards",
        build=_builder(autoencode),
        levels=({}, {"num_decks": 2}, {"num_decks": 3}),
        options=DECKS,
    ),
    "CountRecall": Family(
        about="count how often a card was dealt",
        build=_builder(count_recall),
        levels=({}, {"num_decks": 2, "deck_type": "suits"}, {"num_decks": 4, "deck_type": "ranks"}),
        options=DECKS | {"deck_type": one_of(*DISTINCT)},
    ),
    "HigherLower": Family(
        about="predict whether the next card is higher; counting cards helps",
        build=_builder(higher_lower),
        levels=({}, {"num_decks": 2}, {"num_decks": 3}),
        options=DECKS,
    ),
}
