"""Trials: K episodes of one task as one episode, through which an agent keeps its memory (RL squared)."""

from typing import Any

import gymnasium
import numpy as np

from .spaces import NEW_EPISODE

NEW_TASK, KEEPS_TASK = "new_task", "keeps_task"


class Trial(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc] # its base is Any to mypy
    """K episodes of one task, one after the other, as one episode; a reset begins a trial with a new task.

    The step that ends an episode inside a trial returns the first observation of the next one, as in RL
    squared; its final observation is not returned. info["new_episode"] is true where an episode begins.
    The trial terminates, or is truncated, as its last episode does.

    How a task is kept for the episodes of a trial:

    - With metadata["keeps_task"], by the environment. `reset` draws a new task, but keeps the present one
      if options["new_task"] is false.
    - Otherwise by the seed: all episodes of a trial are reset with the same one. They repeat all that the
      environment draws, noise included, if they repeat the actions.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodes: int) -> None:
        super().__init__(env)
        self.episodes = episodes
        self._keeps_task = bool(env.metadata.get(KEEPS_TASK))
        self._seeds = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin a trial."""
        self._finished = 0
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        if self._keeps_task:
            obs, info = self.env.reset(seed=seed, options={**(options or {}), NEW_TASK: True})
        else:
            self._seed = int(self._seeds.integers(2**63 - 1))
            obs, info = self.env.reset(seed=self._seed, options=options)
        return obs, {**info, NEW_EPISODE: True}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the present episode."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            return obs, reward, terminated, truncated, info
        self._finished += 1
        if self._finished == self.episodes:
            return obs, reward, terminated, truncated, info
        again = {"options": {NEW_TASK: False}} if self._keeps_task else {"seed": self._seed}
        obs, info = self.env.reset(**again)
        return obs, reward, False, False, {**info, NEW_EPISODE: True}
