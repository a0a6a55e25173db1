"""CartPole as Gymnasium vectorises it, and how environments of Gymnasium are rendered."""

from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from ..common.errors import UsageError
from .base import EnvState, Step, VecEnv
from .spaces import Array


class CartPole(VecEnv):
    """Gymnasium's vectorised CartPole: numpy steps all environments at once."""

    tier: Literal["native", "barrier"] = "native"

    def __init__(self, num_envs: int, time_limit: int) -> None:
        self.num_envs = num_envs
        self.time_limit = time_limit
        self.backend = "gymnasium"
        self._vec = CartPoleVectorEnv(num_envs, max_episode_steps=time_limit)
        self.fps = frames_per_second(self._vec.metadata)
        self.observation_space = self._vec.single_observation_space
        self.action_space = self._vec.single_action_space

    def reset(self, seeds: list[int]) -> Array:
        # All environments share one generator, so its seed is derived from all of their seeds.
        entropy = np.random.SeedSequence(seeds).generate_state(2, np.uint64)
        return self._vec.reset(seed=int(entropy[0]))[0]

    def step(self, action: Array) -> Step:
        obs, reward, terminated, truncated, _ = self._vec.step(action)
        return Step(obs, reward, terminated, truncated & ~terminated)

    def render(self) -> Array:
        self._vec.render_mode = "rgb_array"
        return render_or_refuse(self._vec.render)[0]

    def get_state(self) -> EnvState:
        # Gymnasium keeps the state as (4, N); the first axis of a saved array is the environment.
        arrays = {"state": self._vec.state.T, "steps": self._vec.steps, "resets": self._vec.prev_done}
        copies = {key: np.array(value) for key, value in arrays.items()}
        return EnvState(copies, {"random": self._vec.np_random.bit_generator.state})

    def set_state(self, state: EnvState) -> None:
        self._vec.reset(seed=0)
        self._vec.state = state.arrays["state"].T.copy()
        self._vec.steps = state.arrays["steps"].copy()
        self._vec.prev_done = state.arrays["resets"].copy()
        self._vec.np_random.bit_generator.state = state.data["random"]


def render_or_refuse(render: Callable[[], Any]) -> Any:
    """The result of a renderer; UsageError if it lacks a package."""
    try:
        return render()
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise UsageError(f"the environment cannot be rendered: {error}") from error


def frames_per_second(metadata: dict[str, Any]) -> int:
    """Images per second, at least 1; third-party metadata may hold anything, so 30 if it is no number."""
    fps = metadata.get("renderframes_per_second")
    return max(1, round(fps)) if isinstance(fps, int | float) else 30
