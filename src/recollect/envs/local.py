"""Gymnasium environments in this process, stepped one after the other."""

import copy
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import iterate

from ..common.errors import EnvDataError, EnvFailedError, UsageError
from .failures import ABORTED, FAILURES, Restarts, close_quietly, describe, join_info
from .returned import is_writable, join, outline, read_reset, read_step, wraps
from .spaces import Array

# Errors that say all that is needed, and those that a restart cannot mend.
OURS = (UsageError, EnvFailedError, gym.error.DependencyNotInstalled)


class LocalEnvs(SyncVectorEnv):  # type: ignore[misc] # its base is Any to mypy
    """Gymnasium's vector environment with next-step autoreset, whose errors name the environment.

    A failed environment is built anew. Its episode is truncated after the last observation that it gave.
    """

    def __init__(self, factories: list[Any], restarts: Restarts) -> None:
        # copy=False: observations are one buffer, which every step overwrites in place. A rollout copies
        # each row as it is written, so the copy of each step is not needed.
        super().__init__(factories, copy=False)
        self._autoreset_envs: Array
        self._observations: Any
        self._restarts = restarts
        self._wraps = wraps(self.single_observation_space)
        self._steps = 0
        # Failed in the last step: the next one restarts them. Until then the old ones stay, because their
        # rows may be rendered, and one that was never reset cannot be.
        self._lost: set[int] = set()

    def reset(self, *, seed: list[int], options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._restarts.begin(seed)
        self._lost = set()
        for flags in (self._terminations, self._truncations, self._autoreset_envs):
            flags[:] = False
        infos: dict[str, Any] = {}
        for i, one in enumerate(seed):
            infos = join_info(self, infos, self._reset_one(i, one), i, self._restarts.name)
        return self._joined(), infos

    def _reset_one(self, i: int, seed: int | None, lost: bool = False) -> Any:
        """Reset an environment, a new one if it was lost or as long as that fails; its info."""
        while True:
            try:
                if lost:
                    seed = self._rebuild(i)
                result = self.envs[i].reset(seed=seed)
            except OURS:
                raise
            except FAILURES as error:
                self._restarts.add(i, describe("reset", error), error)
                lost = True
            else:
                self._env_obs[i], info = read_reset(result, i, self.envs[i])
                self._restarts.note_reset(i)
                return info

    def _rebuild(self, i: int) -> int:
        """Replace a failed environment by a new one; the seed to reset it with."""
        close_quietly(self.envs[i])
        self.envs[i] = self.env_fns[i]()
        return self._restarts.next_seed(i)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self._steps += 1
        infos: dict[str, Any] = {}
        # A copy, because an environment may change or keep its action, and the rollout stores these.
        for i, action in enumerate(iterate(self.action_space, actions.copy())):
            if self._autoreset_envs[i]:
                info = self._reset_one(i, None, lost=i in self._lost)
                self._lost.discard(i)
                self._rewards[i] = 0.0
                self._terminations[i] = self._truncations[i] = False
            else:
                try:
                    result = self.envs[i].step(action)
                except OURS:
                    raise
                except FAILURES as error:
                    info = self._abort(i, action, error)
                else:
                    (
                        self._env_obs[i],
                        self._rewards[i],
                        self._terminations[i],
                        self._truncations[i],
                        info,
                    ) = read_step(result, i, self.envs[i])
            infos = join_info(self, infos, info, i, self._restarts.name)
        self._autoreset_envs = np.logical_or(self._terminations, self._truncations)
        ended = self._autoreset_envs.copy()
        ended[list(self._lost)] = False
        self._restarts.note_ends(ended)
        rewards, terminated, truncated = (
            np.copy(x) for x in (self._rewards, self._terminations, self._truncations)
        )
        return self._joined(), rewards, terminated, truncated, infos

    def _abort(self, i: int, action: Any, error: BaseException) -> dict[str, Any]:
        """End the episode of a failed environment after its last observation; info that says so."""
        self._restarts.add(i, describe(f"step {self._steps} with action {action}", error), error)
        self._lost.add(i)
        self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, True
        # As it was given: the environment may have begun to write the next one into the same array.
        given = islice(iterate(self.observation_space, self._observations), i, None)
        self._env_obs[i] = copy.deepcopy(next(given))
        return {ABORTED: True}

    def _joined(self) -> Any:
        """The observations of all environments in the buffer."""
        space = self.single_observation_space
        try:
            self._observations = join(space, self._env_obs, self._observations, self._wraps)
        except Exception as error:
            check_shapes(space, self._env_obs, self._restarts.name, self._steps)
            raise EnvDataError(
                f"observations of {self._restarts.name} do not fit its space {space}: {error}"
            ) from error
        return self._observations

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            close_quietly(env)


def check_shapes(space: gym.Space[Any], all_obs: Any, name: str, step: int, first: int = 0) -> None:
    """Raise EnvDataError for the observation that cannot be written, or else is not in the space.

    first  the number of the environment of the first observation
    """
    for is_right in (is_writable, lambda space, obs: space.contains(obs)):
        for i, obs in enumerate(all_obs, first):
            if is_right(space, obs):
                continue
            raise EnvDataError(
                f"environment {i} ({name}) returned an observation of {outline(space, obs)} at step {step}; "
                f"its space is {space}. Correct the environment, or its observation_space"
            )
