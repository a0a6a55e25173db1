"""Games whose agents act in turn (PettingZoo's AEC), as environments of one agent: the learner.

In each game the learner has one seat, drawn at random for each episode. An opponent has the others, and plays
until it is the learner's turn again. So a step is a turn of the learner, and its reward is the sum since its
turn before.

Shapes.  N games, A seats.
"""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import create_empty_array

from ..common.errors import EnvDataError, UsageError
from .action_masks import find_blocked, read_mask
from .base import EnvConfig, Step, VecEnv
from .failures import FAILURES, cannot_build, close_quietly, has_failed
from .game import Game, build_drawn, mask_of, read_success, render_mode
from .gym import check_distinct
from .local import check_shapes
from .opponents import Opponents, RandomOpponents, Turn
from .rendering import as_rgb, images_per_second, rendered
from .returned import is_writable, join, wraps
from .spaces import Array, read_spaces
from .team import IDENTITY, possible_agents, read_state, shared_space, with_identity

MAX_TURNS = 10_000  # of opponents between two of the learner, and games in a row that end before its first


class TurnsEnv(VecEnv):
    """N games. Others play the seats of opponents after `play_against`; until then actions are random."""

    tier: Literal["native", "barrier"] = "barrier"
    backend: Literal["gymnasium"] = "gymnasium"

    def __init__(self, factory: Callable[[], Any], config: EnvConfig) -> None:
        _check(config)
        self._factory, self._config = factory, config
        self.num_envs, self.time_limit = config.num_envs, config.time_limit
        self._build()
        env = self._games[0].env
        self._names = possible_agents(env)
        self.seats = tuple(map(str, self._names))
        observed, self.action_space = (
            shared_space(env, kind, self._names) for kind in ("observation", "action")
        )
        self._action_spec = read_spaces(observed, self.action_space)[1]
        self.observation_space = with_identity(observed, len(self.seats)) if config.agent_id else observed
        self._buffer = create_empty_array(self.observation_space, self.num_envs)
        self._wraps = wraps(self.observation_space)
        self.fps = images_per_second(env.metadata)
        self.note = f"episodes are games of {len(self.seats)} seats, of which the learner has one"
        self._opponents: Opponents = RandomOpponents(self._action_spec)
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._masks: list[Any] = []
        self._with_masks = False
        self._steps = 0

    def play_against(self, opponents: Opponents) -> None:
        """From the next reset on, these play the other seats."""
        self._opponents = opponents

    def _build(self) -> None:
        others = [self._factory] * (self.num_envs - 1)
        self._games = _new_games([partial(build_drawn, self._factory), *others])
        self._fresh = True

    # Steps ----------------------------------------------------------------------------------------

    def reset(self, seeds: list[int]) -> Any:
        if not self._fresh:  # a reset may leave state behind
            self.close()
            self._build()
        self._fresh, self._steps = False, 0
        self._ended = np.zeros(self.num_envs, dtype=bool)
        for game, seed in zip(self._games, seeds, strict=True):
            self._begin(game, seed)
        self._let_opponents_play()
        obs = self._observe().obs
        # Decided once, where every game goes on: a later row may have no mask, because its game has ended.
        self._with_masks = any(mask is not None for mask in self._masks)
        return obs

    def step(self, action: Array) -> Step:
        self._steps += 1
        for game, ended, chosen in zip(self._games, self._ended, action, strict=True):
            if ended:
                self._begin(game)
            else:
                game.steps += 1
                # A copy, because a policy overwrites its actions, and an environment may keep them.
                self._play(game, copy.copy(chosen))
        self._let_opponents_play()
        return self._observe()

    def _begin(self, game: Game, seed: int | None = None) -> None:
        self._reset_game(game, seed)
        self._opponents.begin(game.index, game.random)

    def _reset_game(self, game: Game, seed: int | None) -> None:
        try:
            game.begin(seed)
        except FAILURES as error:
            self._fail(game, "reset", error)

    def _play(self, game: Game, action: Any) -> None:
        """The agent whose turn it is acts."""
        try:
            game.env.step(action)
        except FAILURES as error:
            self._fail(game, f"step {self._steps} with action {action}", error)

    def _let_opponents_play(self) -> None:
        """Play on until it is the learner's turn in every game."""
        games = self._games
        for _ in range(MAX_TURNS):
            turns = [turn for game in games if (turn := self._next_turn(game)) is not None]
            if not turns:
                return
            games = [self._games[turn.game] for turn in turns]
            try:
                actions = self._opponents.act(turns)
            except Exception as error:
                self._check_turns(turns, error)
                raise
            for game, action in zip(games, actions, strict=True):
                self._play(game, action)
        raise EnvDataError(
            f"environment {games[0].index} ({self._config.id}): {MAX_TURNS:,} turns without one of agent "
            f"{self.seats[games[0].seat]}, which learns"
        )

    def _next_turn(self, game: Game) -> Turn | None:
        """The next turn of an opponent; None: it is the learner's."""
        for _ in range(MAX_TURNS):
            try:
                seat = game.find_turn()
            except FAILURES as error:
                self._fail(game, f"the turn after step {self._steps}", error)
            if seat is not None:
                obs, reward, _, _, info = self._last(game)
                mask, obs = mask_of(obs, info), self._identified(obs, seat)
                reward = game.count_reward(seat, float(reward))
                return Turn(game.index, seat, self.observation_space, obs, reward, mask, game.random)
            if game.steps or not game.has_ended:
                return None
            # The game was over before the learner's first turn: there is nothing to learn from it.
            self._begin(game)
        raise EnvDataError(
            f"environment {game.index} ({self._config.id}): {MAX_TURNS:,} games in a row ended before the "
            "first turn of the agent that learns"
        )

    def _observe(self) -> Step:
        """The present rows, which are turns of the learner, and the outcomes of its turns before."""
        first = np.array([not game.steps for game in self._games])
        last = [self._last(game) for game in self._games]
        observed, rewards, terminated, truncated, infos = zip(*last, strict=True)
        ended = np.array([terminated, truncated], dtype=bool)
        ended[1] |= [game.steps == self.time_limit for game in self._games]
        ended[1] &= ~ended[0]  # terminated takes precedence: no bootstrap
        ended &= ~first
        self._ended = ended[0] | ended[1]
        self._masks = [mask_of(obs, info) for obs, info in zip(observed, infos, strict=True)]
        pairs = zip(self._games, rewards, strict=True)
        counted = [game.count_reward(game.seat, float(reward)) for game, reward in pairs]
        reward = np.where(first, 0.0, counted)
        seats = [game.seat for game in self._games]
        rows = [self._identified(obs, seat) for obs, seat in zip(observed, seats, strict=True)]
        try:
            joined = join(self.observation_space, rows, self._buffer, self._wraps)
        except Exception:
            check_shapes(self.observation_space, rows, self._config.id, self._steps)
            raise
        success = read_success(infos, self._ended, self._config.id)
        return Step(joined, reward, ended[0], ended[1], success)

    def _check_turns(self, turns: list[Turn], error: Exception) -> None:
        """Raise EnvDataError if a turn of an opponent is the cause of an error."""
        space = self.observation_space
        for turn in turns:
            where = f"environment {turn.game} ({self._config.id}) gave agent {self.seats[turn.seat]}"
            rule = "correct the environment, then resume the run, or train again if it has no checkpoint yet"
            if not is_writable(space, turn.obs) or not space.contains(turn.obs):
                raise EnvDataError(
                    f"{where} the observation {turn.obs!r:.80} at step {self._steps}, which is not in its "
                    f"space {space}; {rule}"
                ) from error
            if turn.mask is not None and len(
                find_blocked(read_mask(turn.mask, self._action_spec.sizes, 1), self._action_spec.sizes)
            ):
                raise EnvDataError(
                    f"{where} an action mask that allows no action at step {self._steps}: {turn.mask}; {rule}"
                ) from error

    def _last(self, game: Game) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            last: tuple[Any, float, bool, bool, dict[str, Any]] = game.env.last()
            return last
        except FAILURES as error:
            self._fail(game, f"last() after step {self._steps}", error)

    def _fail(self, game: Game, call: str, error: BaseException) -> NoReturn:
        if isinstance(error, UsageError | EnvDataError):
            raise error
        raise has_failed(game.index, self._config.id, call, error) from error

    def _identified(self, obs: Any, seat: int) -> Any:
        if not self._config.agent_id:
            return obs
        return {**(obs if isinstance(obs, dict) else {"observation": obs}), IDENTITY: seat}

    # The rest of the interface --------------------------------------------------------------------

    def action_mask(self) -> Any:
        """The entry `action_mask` of info, where the observation has none."""
        return self._masks if self._with_masks else None

    def hidden(self) -> dict[str, Array]:
        """The state of the game, as PettingZoo's `state()` returns it, if the config asks for it."""
        if not self._config.hidden:
            return {}
        states = np.stack([self._state(game) for game in self._games])
        return {f"state[{i}]": column for i, column in enumerate(states.T)}

    def _state(self, game: Game) -> Array:
        try:
            return read_state(game.env)
        except FAILURES as error:
            self._fail(game, f"state() after step {self._steps}", error)

    def check_seed(self, seed: int) -> None:
        games = _new_games([self._factory] * 2)
        try:
            for game in games:
                self._reset_game(game, seed)
            one, other = (self._last(game)[0] for game in games)
            if not data_equivalence(one, other, exact=True):
                warnings.warn(
                    f"{games[0].env} does not repeat from its seed, so this run cannot be resumed or "
                    "repeated: draw every random number from a generator that `reset` seeds",
                    stacklevel=2,
                )
        finally:
            for game in games:
                close_quietly(game.env)

    def render(self) -> Array | None:
        env = self._games[0].env
        if "rgb_array" not in env.metadata.get("render_modes", ()):
            return None
        if render_mode(env) is None:  # it could not be built with one
            env.unwrapped.render_mode = "rgb_array"
        return as_rgb(rendered(env.render))

    def close(self) -> None:
        for game in self._games:
            close_quietly(game.env)


def _new_games(factories: list[Callable[[], Any]]) -> list[Game]:
    """Games of functions that build one each."""
    try:
        envs = [factory() for factory in factories]
    except UsageError:
        raise
    except FAILURES as error:
        raise cannot_build(error) from error
    check_distinct(envs)
    names = possible_agents(envs[0])
    return [Game(env, i, names) for i, env in enumerate(envs)]


def _check(config: EnvConfig) -> None:
    """Raise UsageError for options that games do not have."""
    if config.backend not in ("auto", "gymnasium"):
        raise UsageError(
            f"env.backend {config.backend} does not have games of self-play, as {config.id} is: they run in "
            "this process; use auto"
        )
    if config.step_timeout is not None or config.on_error == "restart":
        name = "env.step_timeout" if config.step_timeout is not None else "env.on_error restart"
        raise UsageError(f"{name} is for worker processes, and games of self-play run in this process")
