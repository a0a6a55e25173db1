"""POPGym: small tasks that need memory, each in three difficulties (extra `popgym`).

RepeatPrevious, RepeatFirst and Autoencode are also here as our own, N at a time, and need no package;
the backend gymnasium takes popgym's, which they equal step by step. All three deal C = 52 num_decks
cards, of which only the suits count, a quarter of the cards each. t counts steps from 0.

    game             num_decks   k           steps    right action of step t           earns
    RepeatPrevious   1  2  3     4  32  64   C - 1    card t + 1 - k, from k - 1 on    1 / (C - k)
    RepeatFirst      1  8  16                C - 1    card 0                           1 / (C - 1)
    Autoencode       1  2  3                 2C - 1   card 2C - 2 - t, from C - 1 on   1 / C

A wrong action costs what a right one earns. After t steps card t is seen. Autoencode also shows a flag,
1 while cards are dealt and 0 from the last one on; then the cards are asked for backwards, and suit 0
is seen. So the best return is always 1.

The experiments of POPGym's paper added to what is seen the last action, and a flag that marks the first
step: Antialias(PreviousAction(env)). Here both are off. A branch can have the previous action as an
input, and a memory is told where an episode begins. The keyword arguments `prev_action` and `antialias`
switch them on. Other keyword arguments go to the environment.

Ends are popgym's. Where the cards, tiles or mines run out, it terminates; where its count of steps runs
out (CartPole, Pendulum, MultiarmedBandit, Battleship, Concentration, MineSweeper), it truncates. Every
one of its environments has such a bound, and `time_limit` is that bound.

Shapes.  N environments, C cards of an episode, B decks drawn at once.
"""

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ..common.errors import UsageError, nearest
from .base import EnvConfig, EnvState, Step, VecEnv
from .gym import GymEnv
from .spaces import Array

DECK, SUITS = 52, 4
BLOCK = 1024  # cards an environment draws at once, about
WRAPPERS = ("prev_action", "antialias")


@dataclass(frozen=True, kw_only=True)
class Game:
    """What a card game shows and asks for, by the steps t since an episode began.

    cards    C, the cards of an episode
    length   steps of an episode
    asked    t -> the card whose suit is the right action of step t, or None
    dealing  t -> whether cards are still dealt after t steps; None: the game does not show it
    scale    what a right action earns and a wrong one costs
    """

    cards: int
    length: int
    asked: Callable[[int], int | None]
    scale: float
    dealing: Callable[[int], bool] | None = None


class CardGame(VecEnv):
    """N copies of one game, always at the same step; environment i draws from its own generator."""

    tier: Literal["native", "barrier"] = "native"

    def __init__(self, game: Game, config: EnvConfig, wrappers: tuple[str, ...]) -> None:
        self.num_envs, self.backend = config.num_envs, "own"
        self.time_limit = config.time_limit or game.length
        self.action_space = spaces.Discrete(SUITS)
        parts = [spaces.Discrete(2)] if game.dealing else []
        parts += [spaces.Discrete(SUITS)]
        parts += [self.action_space] if "prev_action" in wrappers else []
        parts += [spaces.Discrete(2)] if "antialias" in wrappers else []
        self.observation_space = spaces.Tuple(parts) if len(parts) > 1 else parts[0]
        self._game, self._wrappers = game, wrappers
        self._last = min(game.length, self.time_limit)
        self._ordered = np.tile(np.arange(SUITS), (max(1, BLOCK // game.cards), game.cards // SUITS))

    def reset(self, seeds: list[int]) -> Any:
        self._random = [np.random.default_rng(seed) for seed in seeds]
        self._decks = np.zeros((*self._ordered.shape, self.num_envs), dtype=np.int64)  # (B, C, N)
        self._deck = len(self._decks) - 1
        self._open()
        return self._show()

    def _open(self) -> None:
        """Begin an episode with the next decks, drawing more where they run out."""
        self._t, self._action = 0, np.zeros(self.num_envs, dtype=np.int64)
        self._deck = (self._deck + 1) % len(self._decks)
        if self._deck == 0:
            for i, random in enumerate(self._random):
                self._decks[:, :, i] = random.permuted(self._ordered, axis=1)

    def _show(self) -> Any:
        game, t, nothing = self._game, self._t, np.zeros(self.num_envs, dtype=np.int64)
        parts = [nothing + game.dealing(t)] if game.dealing else []
        parts += [self._decks[self._deck, t] if t < game.cards else nothing]
        parts += [self._action] if "prev_action" in self._wrappers else []
        parts += [nothing + (t == 0)] if "antialias" in self._wrappers else []
        return tuple(parts) if len(parts) > 1 else parts[0]

    def step(self, action: Array) -> Step:
        game, t = self._game, self._t
        reward, terminated, truncated = np.zeros(self.num_envs), False, False
        if t == self._last:
            self._open()
        else:
            asked = game.asked(t)
            if asked is not None:
                right = action == self._decks[self._deck, asked]
                reward = np.where(right, game.scale, -game.scale)
            self._t, self._action = t + 1, action.copy()
            terminated = self._t == game.length
            truncated = self._t == self._last and not terminated
        ends = np.full((2, self.num_envs), [[terminated], [truncated]])
        return Step(self._show(), reward, *ends)

    def get_state(self) -> EnvState:
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


def repeat_previous(num_decks: int = 1, k: int = 4) -> Game:
    """The suit of the card seen k - 1 steps ago."""
    cards = DECK * num_decks
    if k >= cards:
        raise UsageError(f"popgym:RepeatPrevious: k is {k}, it must be less than {cards} cards")
    return Game(
        cards=cards,
        length=cards - 1,
        asked=lambda t: t + 1 - k if t + 1 >= k else None,
        scale=1 / (cards - k),
    )


def repeat_first(num_decks: int = 1) -> Game:
    """The suit of the first card, at every step."""
    cards = DECK * num_decks
    return Game(cards=cards, length=cards - 1, asked=lambda t: 0, scale=1 / (cards - 1))


def autoencode(num_decks: int = 1) -> Game:
    """All suits backwards, after the last card."""
    cards = DECK * num_decks
    return Game(
        cards=cards,
        length=2 * cards - 1,
        asked=lambda t: 2 * cards - 2 - t if t >= cards - 1 else None,
        scale=1 / cards,
        dealing=lambda t: t < cards - 1,
    )


_GAMES: dict[str, Callable[..., Game]] = {
    "RepeatPreviousEasy": repeat_previous,
    "RepeatPreviousMedium": partial(repeat_previous, num_decks=2, k=32),
    "RepeatPreviousHard": partial(repeat_previous, num_decks=3, k=64),
    "RepeatFirstEasy": repeat_first,
    "RepeatFirstMedium": partial(repeat_first, num_decks=8),
    "RepeatFirstHard": partial(repeat_first, num_decks=16),
    "AutoencodeEasy": autoencode,
    "AutoencodeMedium": partial(autoencode, num_decks=2),
    "AutoencodeHard": partial(autoencode, num_decks=3),
}

_FAMILIES = {
    "Autoencode": "repeat a sequence of cards backwards",
    "Battleship": "sink ships, remembering where shots fell",
    "Concentration": "find pairs of cards that lie face down",
    "CountRecall": "how often was this card dealt so far",
    "HigherLower": "is the next card higher or lower; counting cards helps",
    "LabyrinthEscape": "find the exit of a maze seen from nearby",
    "LabyrinthExplore": "visit all of a maze seen from nearby",
    "MineSweeper": "uncover a field, remembering the numbers",
    "MultiarmedBandit": "find out which arm pays and keep to it",
    "NoisyPositionOnlyCartPole": "balance a pole from noisy positions without velocities",
    "NoisyPositionOnlyPendulum": "swing up a pendulum from a noisy angle without its velocity",
    "PositionOnlyCartPole": "balance a pole from positions without velocities",
    "PositionOnlyPendulum": "swing up a pendulum from its angle without its velocity",
    "RepeatFirst": "name the first card again and again",
    "RepeatPrevious": "name the card of some steps ago",
    "VelocityOnlyCartpole": "balance a pole from velocities without positions",
}


# Making ---------------------------------------------------------------------------------------


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of this id, as popgym registers it or without popgym- and -v0."""
    name = _short(name)
    if config.backend == "envpool":
        raise UsageError(f"env.backend envpool: EnvPool has no popgym:{name}")
    options = dict(config.kwargs)
    wrappers = tuple(key for key in WRAPPERS if _flag(options.pop(key, False), f"popgym:{name}: {key}"))
    if name in _GAMES and config.backend in ("auto", "own"):
        return CardGame(_game(name, options), config, wrappers)
    if config.backend == "own":
        raise UsageError(f"env.backend own: popgym:{name} is not among ours; {nearest(name, list(_GAMES))}")
    return _theirs(config, name, options, wrappers)


def _flag(value: Any, name: str) -> bool:
    if type(value) is not bool:
        raise UsageError(f"{name} is {value!r}, true or false is needed")
    return value


def _game(name: str, options: dict[str, Any]) -> Game:
    known = [*inspect.signature(_GAMES[name]).parameters, *WRAPPERS]
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"popgym:{name} has no keyword argument {key}; {nearest(key, known)}")
        if type(value) is not int or value < 1:
            raise UsageError(f"popgym:{name}: {key} is {value!r}, a whole number above 0 is needed")
    return _GAMES[name](**options)


def _theirs(config: EnvConfig, name: str, options: dict[str, Any], wrappers: tuple[str, ...]) -> GymEnv:
    """popgym's own environments."""
    classes = _classes(name)
    if name not in classes:
        raise UsageError(f"environment popgym:{name} is unknown; {nearest(name, sorted(classes))}")
    kind = classes[name]
    # Difficulties with a constructor of their own fix everything, and some of them swallow the rest.
    if options and "__init__" in vars(kind):
        known = " and ".join(WRAPPERS)
        raise UsageError(f"popgym:{name} has no keyword argument {next(iter(options))}; it takes {known}")
    factory = partial(_wrapped, partial(kind, **options), wrappers, config.time_limit)
    try:
        one = factory().unwrapped
    # Its constructors assert, raise NotImplementedError, or fail on an argument they do not know.
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        raise UsageError(f"popgym:{name} cannot be made with {options}: {error}") from error
    envs = GymEnv(factory, config)
    envs.time_limit = config.time_limit or _length(one)
    return envs


def _wrapped(
    make_one: Callable[[], gym.Env[Any, Any]], wrappers: tuple[str, ...], limit: int | None
) -> gym.Env[Any, Any]:
    from popgym.wrappers import Antialias, PreviousAction

    env = make_one()
    if "prev_action" in wrappers:
        env = PreviousAction(env)
    if "antialias" in wrappers:
        env = Antialias(env)
    return gym.wrappers.TimeLimit(env, limit) if limit else env


def _length(env: Any) -> int:
    """The most steps an episode has, which popgym keeps under three names."""
    for name in ("max_episode_length", "episode_length"):
        if hasattr(env, name):
            return int(getattr(env, name))
    return int(env.deck_size) - 1


def _classes(name: str) -> dict[str, Any]:
    """Id and class name -> class, of all that popgym registers."""
    try:
        from popgym.envs import ALL
    except ImportError as error:
        raise UsageError(f"popgym:{name} needs popgym: pip install 'recollect[popgym]'") from error
    # Ids and classes are spelt alike but for one letter in one family.
    named = {kind.__name__: kind for kind in ALL}
    return named | {_short(spec["id"]): kind for kind, spec in ALL.items()}


def _short(name: str) -> str:
    return name.removeprefix("popgym-").removesuffix("-v0")


def listing() -> dict[str, str]:
    """What runs here: our own games, and with popgym all that it registers."""
    names = _GAMES if importlib.util.find_spec("popgym") is None else _classes("")
    lines = {}
    for family, about in _FAMILIES.items():
        for level in ("Easy", "Medium", "Hard"):
            if family + level in names:
                lines[family + level] = f"{about} ({level.lower()})"
    return lines
