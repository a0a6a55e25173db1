"""CartPole as Gymnasium vectorises it."""

from typing import Literal

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from .base import EnvState, Step, VecEnv
from .rendering import images_per_second, rendered
from .spaces import Array


class CartPole(VecEnv):
    """Gymnasium's vectorised CartPole: numpy steps all environments at once."""

    tier: Literal["native", "barrier"] = "native"

    def __init__(self, num_envs: int, time_limit: int) -> None:
        self.num_envs = num_envs
        self.time_limit = time_limit
        self.backend = "gymnasium"
        self._vec = CartPoleVectorEnv(num_envs, max_episode_steps=time_limit)
        self.fps = images_per_second(self._vec.metadata)
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
        return rendered(self._vec.render)[0]

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
