"""Tasks whose episodes depend on the actions and end at different times, vectorised.

A file of a task defines its step in numpy, for all environments at once. Episode starts and everything
random come from streams: each environment draws a block of values with its own generator, so its episodes
depend on its seed alone, and a step of N environments needs no call per environment.

Shapes.  N environments, M of them that start an episode, B values of a block.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces

from ...base import EnvConfig, EnvState, Step, VecEnv
from ...spaces import Array
from .family import Wrappers, length_of


class Stream:
    """Random values of N environments, which are drawn in blocks.

    A saved stream is the state of each generator before its present block, and the number of values used:
    the block itself is drawn again.
    """

    def __init__(self, draw: Callable[[np.random.Generator], Array], seeds: list[int], key: int) -> None:
        self._draw = draw
        self._random = [np.random.default_rng((seed, key)) for seed in seeds]
        self.before = [generator.bit_generator.state for generator in self._random]
        self._values = np.stack([draw(generator) for generator in self._random])  # (N, B, ...)
        self.used = np.zeros(len(seeds), dtype=np.int64)

    def take(self, envs: Array) -> Array:
        """The next value of each of these environments, (M, ...)."""
        values = self._values[envs, self.used[envs]]
        self.used[envs] += 1
        for i in envs[self.used[envs] == self._values.shape[1]]:
            self._refill(int(i), self._random[i].bit_generator.state)
        return values

    def _refill(self, env: int, state: Mapping[str, Any]) -> None:
        generator = self._random[env]
        generator.bit_generator.state = state
        self.before[env] = generator.bit_generator.state
        self._values[env] = self._draw(generator)
        self.used[env] = 0

    def restore(self, before: list[Any], used: Array) -> None:
        for env, state in enumerate(before):
            self._refill(env, state)
        self.used = used.copy()


class Task(VecEnv):
    """N copies of a task. A subclass has the arrays of its episodes, streams, a start, a move and a view.

    arrays  names of the attributes (N, ...) that hold the state of the episodes
    """

    tier: Literal["native", "barrier"] = "native"
    arrays: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        config: EnvConfig,
        wrappers: tuple[str, ...],
        length: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
    ) -> None:
        self.num_envs = config.num_envs
        self.backend = "own"
        self.time_limit, self._last = length_of(config, length)
        self.action_space = action_space
        self._wrappers = Wrappers(wrappers, observation_space, action_space)
        self.observation_space = self._wrappers.observation_space
        self._everyone = np.arange(self.num_envs)

    @abstractmethod
    def draws(self) -> dict[str, Callable[[np.random.Generator], Array]]:
        """Name of a stream -> its next block (B, ...) from a generator; `stream` has the streams."""

    @abstractmethod
    def allocate(self) -> None:
        """Create the arrays."""

    @abstractmethod
    def start(self, envs: Array) -> None:
        """Start an episode in the environments of these indices (M,)."""

    @abstractmethod
    def move(self, action: Array) -> tuple[Array, Array]:
        """Take a step in all environments: reward (N,) and terminated (N,).

        Environments whose episode has ended are moved too, and started anew afterwards: a move may do
        anything to them but fail.
        """

    @abstractmethod
    def view(self) -> Any:
        """The observation, by the arrays alone; a new array each time."""

    def reset(self, seeds: list[int]) -> Any:
        self.stream = {
            name: Stream(draw, seeds, key) for key, (name, draw) in enumerate(self.draws().items())
        }
        self.steps = np.zeros(self.num_envs, dtype=np.int64)
        self.ended = np.zeros(self.num_envs, dtype=bool)
        shape, dtype = self.action_space.shape or (), self.action_space.dtype
        self.action = np.zeros((self.num_envs, *shape), dtype=dtype)
        self.allocate()
        self.start(self._everyone)
        return self._observe()

    def _observe(self) -> Any:
        return self._wrappers.wrap(self.view(), self.action.copy(), self.steps == 0)

    def step(self, action: Array) -> Step:
        live, starting = ~self.ended, self.ended.nonzero()[0]
        reward, terminated = self.move(action)
        self.steps += 1
        self.action[...] = action
        if len(starting):
            self.steps[starting] = 0
            self.action[starting] = 0
            self.start(starting)
            reward, terminated = np.where(live, reward, 0.0), terminated & live
        truncated = (self.steps == self._last) & ~terminated
        self.ended = terminated | truncated
        return Step(self._observe(), reward, terminated, truncated)

    @property
    def _saved(self) -> tuple[str, ...]:
        return ("steps", "ended", "action", *self.arrays)

    def get_state(self) -> EnvState:
        arrays = {name: getattr(self, name).copy() for name in self._saved}
        arrays |= {f"used_{name}": stream.used.copy() for name, stream in self.stream.items()}
        # One entry for each environment, as in the arrays.
        random = list(zip(*(stream.before for stream in self.stream.values()), strict=True))
        return EnvState(arrays, {"random": [list(states) for states in random]})

    def set_state(self, state: EnvState) -> None:
        self.reset([0] * self.num_envs)
        for name in self._saved:
            setattr(self, name, state.arrays[name].copy())
        for place, (name, stream) in enumerate(self.stream.items()):
            before = [states[place] for states in state.data["random"]]
            stream.restore(before, state.arrays[f"used_{name}"])
