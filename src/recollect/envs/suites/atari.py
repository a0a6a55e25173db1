"""Atari 2600 games with the usual preprocessing, stepped in C++ threads by ALE (extra `atari`).

Each step repeats its action for four frames. The observation is the last four of such steps, each the
maximum of its last two frames, grey, 84 x 84: (4, 84, 84) bytes. As Machado et al. (2018) recommend, the
environment repeats the previous action with a probability of 0.25, episodes end with the game, not with a
life, and there are no random first actions. Rewards are those of the game, not clipped. An episode is
truncated after 108,000 frames.

Keyword arguments are those of ALE's AtariVectorEnv: --env.kwargs.stack_num 1 shows a memory single frames.
"""

import importlib.util
from typing import Any, Literal

import numpy as np

from ...common.errors import UsageError, install_hint, nearest
from ..base import EnvConfig, Step, VecEnv
from ..spaces import Array

FRAMES_PER_SECOND = 60
DEFAULTS: dict[str, int | float] = {
    "stack_num": 4,
    "frameskip": 4,
    "img_height": 84,
    "img_width": 84,
    "repeat_action_probability": 0.25,
    "noop_max": 0,
    "maxpool": True,
    "use_fire_reset": False,
    "episodic_life": False,
    "reward_clipping": False,
    "full_action_space": False,
}
LARGEST = 1000  # of any number: images of this size still fit into memory
FRAMES = 108_000


class Atari(VecEnv):
    """N copies of one game. Each has the random generator of its seed, so it depends on no other one."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, config: EnvConfig, game: str, options: dict[str, Any]) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self.num_envs = config.num_envs
        self.backend = "gymnasium"
        self._game = game
        skip = options["frameskip"]
        self.time_limit = config.time_limit or FRAMES // skip
        self._vec = AtariVectorEnv(
            game,
            config.num_envs,
            num_threads=config.threads,
            max_num_frames_per_episode=self.time_limit * skip,
            **options,
        )
        self.observation_space = self._vec.single_observation_space
        self.action_space = self._vec.single_action_space
        self.fps = max(1, FRAMES_PER_SECOND // skip)

    def reset(self, seeds: list[int]) -> Array:
        # ALE's seeds have 31 bits.
        obs, _ = self._vec.reset(seed=np.array(seeds, dtype=np.int64) >> 32)
        self._shown = obs[0]
        return np.asarray(obs)

    def step(self, action: Array) -> Step:
        obs, reward, terminated, truncated, _ = self._vec.step(action)
        self._shown = obs[0]
        return Step(obs, reward.astype(np.float64), terminated, truncated & ~terminated)

    def names(self) -> dict[str, list[str]]:
        from ale_py import ALEInterface, LoggerMode, roms

        ALEInterface.setLoggerMode(LoggerMode.Error)
        game = ALEInterface()
        path = roms.get_rom_path(self._game)
        assert path, "the game is one of its list"
        game.loadROM(path)
        full = int(self.action_space.n) > len(game.getMinimalActionSet())
        actions = game.getLegalActionSet() if full else game.getMinimalActionSet()
        return {"actions": [action.name.lower() for action in actions]}

    def render(self) -> Array:
        """The newest image that the agent of environment 0 sees."""
        return np.repeat(self._shown[-1, ..., None], 3, axis=2)

    def close(self) -> None:
        self._vec.close()


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of a game, as ALE names it: Pong, MsPacman."""
    if config.backend not in ("auto", "gymnasium"):
        raise UsageError(f"env.backend {config.backend} does not have atari:{name}; use auto")
    if importlib.util.find_spec("ale_py") is None:
        raise UsageError(f"atari:{name}: ALE is not installed; {install_hint('atari')}")
    games = _games()
    if name not in games:
        raise UsageError(f"environment atari:{name} is unknown; {nearest(name, sorted(games))}")
    if config.trial > 1:
        raise UsageError(f"env.trial is {config.trial}; atari:{name} has no tasks to keep over episodes")
    return Atari(config, games[name], _options(name, dict(config.kwargs)))


def _options(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments, complete and checked: ALE takes any number."""
    for key, value in given.items():
        if key not in DEFAULTS:
            raise UsageError(f"atari:{name} has no keyword argument {key}; {nearest(key, sorted(DEFAULTS))}")
        default = DEFAULTS[key]
        if isinstance(default, bool):
            valid, expected = isinstance(value, bool), "true or false"
        elif isinstance(default, float):
            valid = type(value) in (int, float) and 0 <= value <= 1
            expected = "a probability"
        else:
            least = 0 if default == 0 else 1
            valid = type(value) is int and least <= value <= LARGEST
            expected = f"a whole number from {least} to {LARGEST}"
        if not valid:
            raise UsageError(f"atari:{name}: {key} is {value!r}; it must be {expected}")
    return {**DEFAULTS, **given}


def _games() -> dict[str, str]:
    """Name -> name of the file."""
    from ale_py import roms

    return {"".join(part.capitalize() for part in rom.split("_")): rom for rom in roms.get_all_rom_ids()}


def listing() -> dict[str, str]:
    """Id -> one-line description."""
    if importlib.util.find_spec("ale_py") is None:
        return {}
    about = "Atari 2600: the last four grey images of 84 x 84, an action for four frames, sticky actions"
    return dict.fromkeys(sorted(_games()), about)
