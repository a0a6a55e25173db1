"""POPGym: small tasks that need memory, each in three difficulties (extra `popgym`).

RepeatPrevious, RepeatFirst and Autoencode are implemented here, vectorised, and need no package. They equal
popgym's implementations step by step, which the backend gymnasium runs. All three deal C = 52 num_decks
cards, of which only the suits matter, a quarter of the cards each. t counts steps from 0.

    game             num_decks   k           steps    correct action of step t         reward
    RepeatPrevious   1  2  3     4  32  64   C - 1    card t + 1 - k, from k - 1 on    1 / (C - k)
    RepeatFirst      1  8  16                C - 1    card 0                           1 / (C - 1)
    Autoencode       1  2  3                 2C - 1   card 2C - 2 - t, from C - 1 on   1 / C

A wrong action has the negative reward of a correct one, so the best return is 1. The observation after t
steps is card t. Autoencode also shows a flag: 1 while cards are dealt, 0 from the last one on. Then the
cards must be repeated backwards, and the observed suit is 0.

The experiments of POPGym's paper add two entries to the observation: the last action, and a flag that marks
the first step: Antialias(PreviousAction(env)). Here both are off, because a branch can take the previous
action as an input, and a memory is reset at episode starts. The keyword arguments `prev_action` and
`antialias` switch them on. Other keyword arguments go to the environment.

Terminations and truncations are popgym's. It terminates where the cards, tiles or mines run out, and
truncates where the number of steps does (CartPole, Pendulum, MultiarmedBandit, Battleship, Concentration,
MineSweeper). Every environment has a largest number of steps, and `time_limit` is that number.

Shapes.  N environments, C cards of an episode, B decks shuffled at once.
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

from ..common.errors import UsageError, install_hint, nearest
from .base import EnvConfig, EnvState, Step, VecEnv
from .gym import GymEnv
from .spaces import Array

DECK, SUITS = 52, 4
BLOCK = 1024  # about how many cards an environment shuffles at once; one call for many decks is faster
WRAPPERS = ("prev_action", "antialias")


@dataclass(frozen=True, kw_only=True)
class Game:
    """The rules of a card game, by the number t of steps since the episode began.

    cards    C, the cards of an episode
    length   steps of an episode
    answer   t -> the index of the card whose suit is the correct action of step t; None: no reward
    scale    reward of a correct action; a wrong one has its negative
    dealing  t -> whether cards are still dealt after t steps; None: the game does not show it
    """

    cards: int
    length: int
    answer: Callable[[int], int | None]
    scale: float
    dealing: Callable[[int], bool] | None = None


class CardGame(VecEnv):
    """N copies of one game. Environment i has its own random generator.

    All episodes of a game have the same length, so one counter of steps serves all environments.
    """

    tier: Literal["native", "barrier"] = "native"

    def __init__(self, game: Game, config: EnvConfig, wrappers: tuple[str, ...]) -> None:
        self.num_envs = config.num_envs
        self.backend = "own"
        self.time_limit = config.time_limit or game.length
        self.action_space = spaces.Discrete(SUITS)
        parts = [spaces.Discrete(2)] if game.dealing else []
        parts += [spaces.Discrete(SUITS)]
        parts += [self.action_space] if "prev_action" in wrappers else []
        parts += [spaces.Discrete(2)] if "antialias" in wrappers else []
        self.observation_space = spaces.Tuple(parts) if len(parts) > 1 else parts[0]
        self._game = game
        self._wrappers = wrappers
        self._last = min(game.length, self.time_limit)
        self._ordered = np.tile(np.arange(SUITS), (max(1, BLOCK // game.cards), game.cards // SUITS))

    def reset(self, seeds: list[int]) -> Any:
        self._random = [np.random.default_rng(seed) for seed in seeds]
        # (B, C, N): the cards that all environments show in one step are contiguous.
        self._decks = np.zeros((*self._ordered.shape, self.num_envs), dtype=np.int64)
        self._deck = len(self._decks) - 1  # the last one, so that `_start_episodes` shuffles new decks
        self._start_episodes()
        return self._observe()

    def _start_episodes(self) -> None:
        """Start an episode in every environment with its next deck; shuffle new decks when all are used."""
        self._t, self._action = 0, np.zeros(self.num_envs, dtype=np.int64)
        self._deck = (self._deck + 1) % len(self._decks)
        if self._deck == 0:
            for i, random in enumerate(self._random):
                self._decks[:, :, i] = random.permuted(self._ordered, axis=1)

    def _observe(self) -> Any:
        game, t = self._game, self._t
        zeros = np.zeros(self.num_envs, dtype=np.int64)
        parts = [zeros + game.dealing(t)] if game.dealing else []
        parts += [self._decks[self._deck, t] if t < game.cards else zeros]
        parts += [self._action] if "prev_action" in self._wrappers else []
        parts += [zeros + (t == 0)] if "antialias" in self._wrappers else []
        return tuple(parts) if len(parts) > 1 else parts[0]

    def step(self, action: Array) -> Step:
        game, t = self._game, self._t
        reward, terminated, truncated = np.zeros(self.num_envs), False, False
        if t == self._last:  # the last step ended all episodes: ignore the action and start new ones
            self._start_episodes()
        else:
            answer = game.answer(t)
            if answer is not None:
                correct = action == self._decks[self._deck, answer]
                reward = np.where(correct, game.scale, -game.scale)
            # A copy, because the policy may reuse its buffer before the observation is made.
            self._t, self._action = t + 1, action.copy()
            terminated = self._t == game.length
            truncated = self._t == self._last and not terminated
        ends = np.full((2, self.num_envs), [[terminated], [truncated]])
        return Step(self._observe(), reward, *ends)

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


def repeat_previous(num_decks: int = 1, k: int = 4) -> Game:
    """The answer is the suit of the card observed k - 1 steps ago."""
    cards = DECK * num_decks
    if k >= cards:
        raise UsageError(f"popgym:RepeatPrevious: k is {k}; it must be below {cards}, the number of cards")
    return Game(
        cards=cards,
        length=cards - 1,
        answer=lambda t: t + 1 - k if t + 1 >= k else None,
        scale=1 / (cards - k),
    )


def repeat_first(num_decks: int = 1) -> Game:
    """The answer is the suit of the first card, at every step."""
    cards = DECK * num_decks
    return Game(cards=cards, length=cards - 1, answer=lambda t: 0, scale=1 / (cards - 1))


def autoencode(num_decks: int = 1) -> Game:
    """The answers are the suits of all cards backwards, after the last card."""
    cards = DECK * num_decks
    return Game(
        cards=cards,
        length=2 * cards - 1,
        answer=lambda t: 2 * cards - 2 - t if t >= cards - 1 else None,
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
    "Battleship": "sink ships by remembering earlier shots",
    "Concentration": "find pairs of cards that lie face down",
    "CountRecall": "count how often a card was dealt",
    "HigherLower": "predict whether the next card is higher; counting cards helps",
    "LabyrinthEscape": "find the exit of a maze from local observations",
    "LabyrinthExplore": "visit all cells of a maze from local observations",
    "MineSweeper": "uncover a field by remembering the numbers",
    "MultiarmedBandit": "find the arm with the highest reward",
    "NoisyPositionOnlyCartPole": "balance a pole from noisy positions, with velocities hidden",
    "NoisyPositionOnlyPendulum": "swing up a pendulum from a noisy angle, with the velocity hidden",
    "PositionOnlyCartPole": "balance a pole from positions, with velocities hidden",
    "PositionOnlyPendulum": "swing up a pendulum from its angle, with the velocity hidden",
    "RepeatFirst": "repeat the first card at every step",
    "RepeatPrevious": "repeat the card of k - 1 steps ago",
    "VelocityOnlyCartpole": "balance a pole from velocities, with positions hidden",
}


# Construction ---------------------------------------------------------------------------------------


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of an id, as popgym registers it or without popgym- and -v0."""
    name = _short(name)
    if config.backend == "envpool":
        raise UsageError(f"env.backend envpool: EnvPool has no popgym:{name}; use auto")
    options = dict(config.kwargs)
    wrappers = []
    for key in WRAPPERS:
        value = options.pop(key, False)
        if type(value) is not bool:
            raise UsageError(f"popgym:{name}: {key} is {value!r}; it must be true or false")
        if value:
            wrappers.append(key)
    if name in _GAMES and config.backend in ("auto", "own"):
        return CardGame(_build_game(name, options), config, tuple(wrappers))
    if config.backend == "own":
        raise UsageError(f"env.backend own does not have popgym:{name}; {nearest(name, list(_GAMES))}")
    return _make_popgym(config, name, options, tuple(wrappers))


def _build_game(name: str, options: dict[str, Any]) -> Game:
    """The rules of a game with these keyword arguments."""
    known = [*inspect.signature(_GAMES[name]).parameters, *WRAPPERS]
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"popgym:{name} has no keyword argument {key}; {nearest(key, known)}")
        if type(value) is not int or value < 1:
            raise UsageError(f"popgym:{name}: {key} is {value!r}; it must be an integer above 0")
    return _GAMES[name](**options)


def _make_popgym(config: EnvConfig, name: str, options: dict[str, Any], wrappers: tuple[str, ...]) -> GymEnv:
    """Environments of the package popgym."""
    classes = _classes(name)
    if name not in classes:
        raise UsageError(f"environment popgym:{name} is unknown; {nearest(name, sorted(classes))}")
    env_class = classes[name]
    # A difficulty with its own constructor fixes all arguments, and some of them ignore others silently.
    if options and "__init__" in vars(env_class):
        known = " and ".join(WRAPPERS)
        raise UsageError(f"popgym:{name} has no keyword argument {next(iter(options))}; it takes {known}")
    factory = partial(_wrapped, partial(env_class, **options), wrappers, config.time_limit)
    try:
        one = factory().unwrapped
    # popgym checks arguments by assertions, NotImplementedError, or not at all.
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        raise UsageError(f"popgym:{name} cannot be built with {options}: {error}") from error
    envs = GymEnv(factory, config)
    envs.time_limit = config.time_limit or _length(one)
    return envs


def _wrapped(
    factory: Callable[[], gym.Env[Any, Any]], wrappers: tuple[str, ...], limit: int | None
) -> gym.Env[Any, Any]:
    """One environment of popgym with the chosen wrappers and time limit."""
    from popgym.wrappers import Antialias, PreviousAction

    env = factory()
    if "prev_action" in wrappers:
        env = PreviousAction(env)
    if "antialias" in wrappers:
        env = Antialias(env)
    return gym.wrappers.TimeLimit(env, limit) if limit else env


def _length(env: Any) -> int:
    """The largest number of steps of an episode, which popgym stores under three names."""
    for name in ("max_episode_length", "episode_length"):
        if hasattr(env, name):
            return int(getattr(env, name))
    return int(env.deck_size) - 1


def _classes(name: str) -> dict[str, Any]:
    """Id or class name -> class, for all registered environments of popgym."""
    try:
        from popgym.envs import ALL
    except ImportError as error:
        raise UsageError(f"popgym:{name} needs popgym: {install_hint('popgym')}") from error
    # Both, because the ids and classes of one family differ by a letter.
    by_class = {env_class.__name__: env_class for env_class in ALL}
    return by_class | {_short(spec["id"]): env_class for env_class, spec in ALL.items()}


def _short(name: str) -> str:
    return name.removeprefix("popgym-").removesuffix("-v0")


def listing() -> dict[str, str]:
    """Id -> one-line description: the games implemented here and, if popgym is installed, all others."""
    names = _GAMES if importlib.util.find_spec("popgym") is None else _classes("")
    lines = {}
    for family, about in _FAMILIES.items():
        for level in ("Easy", "Medium", "Hard"):
            if family + level in names:
                lines[family + level] = f"{about} ({level.lower()})"
    return lines
