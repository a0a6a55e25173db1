"""Validation: a few episodes in environments of its own, between two rollouts of training."""

from dataclasses import replace

import numpy as np
import torch

from ..agent.agent import Agent
from ..common import rng
from ..config.config import RunConfig
from ..envs import Envs, make_for_evaluation
from .build import Factory
from .evaluate import as_actor_sees
from .playing import play_episodes

# Steps after which an episode is truncated where the environment has no time limit. Ten times the length that
# `config.resolve` assumes of such episodes to choose the interval of validations.
VALIDATION_LIMIT = 10_000


class Validation:
    """The episodes of all validations of a run.

    They have seeds of their own and draw from no generator of training, so they change no result.
    """

    def __init__(self, config: RunConfig, agent: Agent, factory: Factory | None) -> None:
        self.config, self.agent, self.factory = config, agent, factory
        # Built by the first validation and kept: building them is expensive, and each validation resets them
        # with its seeds.
        self._envs: Envs | None = None

    def is_due(self, iteration: int) -> bool:
        """Whether this iteration ends with a validation."""
        interval = self.config.val_check_interval or 0  # None: no validation
        return interval > 0 and iteration % interval == 0

    def play(self, iteration: int) -> float:
        """The mean return."""
        config, episodes = self.config, self.config.val_episodes
        torch.set_num_threads(1)  # as when collecting: batches are small; `update` sets it again
        if self._envs is None:
            env = replace(as_actor_sees(config.env, self.agent), num_envs=episodes)
            self._envs = make_for_evaluation(env, self.factory, VALIDATION_LIMIT)
        num = self._envs.num_envs
        seeds = rng.env_seeds(config.seed, rng.Purpose.VALIDATE, iteration, num)
        return float(np.mean(play_episodes(self._envs, self.agent.player(num), episodes, seeds).returns))

    def close(self) -> None:
        """Close the environments."""
        if self._envs is not None:
            self._envs.adapter.close()
