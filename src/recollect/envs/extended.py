"""Leaves beside the observation of an environment: the action mask.

Shapes.  N environments, P choices of all action components.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from ..common.errors import EnvDataError, UsageError
from .base import EnvConfig, EnvState, Step, VecEnv
from .spaces import ACTION_MASK, ActionSpec, Array, Extended, ExtendedObs, read_spaces


class ExtendedEnv(VecEnv):
    """An adapter whose observations also have the action mask.

    It is the entry `action_mask` of a Dict observation, which is taken out of it, or else
    `VecEnv.action_mask`. On a tail row no action is taken, so a mask that allows none allows all there.
    """

    def __init__(self, inner: VecEnv, config: EnvConfig) -> None:
        self.inner, self._config = inner, config
        self.num_envs, self.action_space = inner.num_envs, inner.action_space
        self.tier, self.backend, self.time_limit = inner.tier, inner.backend, inner.time_limit
        self.note, self.fps = inner.note, inner.fps
        self._steps = 0
        seen = inner.observation_space
        self._in_obs = isinstance(seen, spaces.Dict) and ACTION_MASK in seen.spaces
        if self._in_obs:
            seen = spaces.Dict({key: part for key, part in seen.items() if key != ACTION_MASK})
        self._action_spec: ActionSpec = read_spaces(seen, inner.action_space)[1]
        mask = spaces.MultiBinary(sum(self._action_spec.sizes))
        self.observation_space = Extended({"obs": seen, ACTION_MASK: mask})

    def reset(self, seeds: list[int]) -> ExtendedObs:
        self._steps = 0
        return self._extend(self.inner.reset(seeds), np.zeros(self.num_envs, dtype=bool))

    def step(self, action: Array) -> Step:
        step = self.inner.step(action)
        self._steps += 1
        return step._replace(obs=self._extend(step.obs, step.terminated | step.truncated))

    def _extend(self, obs: Any, tail: Array) -> ExtendedObs:
        if self._in_obs:
            mask = obs[ACTION_MASK]
            obs = {key: part for key, part in obs.items() if key != ACTION_MASK}
        else:
            mask = self.inner.action_mask()
        if mask is None:
            raise UsageError(
                f"{self._config.id} gives no action mask: no entry {ACTION_MASK} in a Dict observation "
                "or info, and no method action_masks(); use --env.action-mask False"
            )
        return ExtendedObs({"obs": obs, ACTION_MASK: self._check_mask(mask, tail)})

    def _check_mask(self, mask: Any, tail: Array) -> Array:
        allowed = self._read_mask(mask)
        blocked = self._action_spec.find_blocked(allowed)
        if len(blocked):
            wrong = blocked[~tail[blocked]]
            if len(wrong):
                env = int(wrong[0])
                raise EnvDataError(
                    f"the action mask of environment {env} allows no action at step {self._steps}: "
                    f"{allowed[env].astype(int)}; at least one choice of each component must be allowed"
                )
            allowed[blocked] = True
        return allowed

    def _read_mask(self, mask: Any) -> Array:
        """What `VecEnv.action_mask` returned -> (N, P) bool."""
        if isinstance(mask, np.ndarray) and mask.dtype != object:
            return self._action_spec.read_mask(mask, self.num_envs)
        allowed = np.zeros((self.num_envs, sum(self._action_spec.sizes)), dtype=bool)
        for row, one in zip(allowed, mask, strict=True):
            if one is not None:
                row[:] = self._action_spec.read_mask(one, 1)
        return allowed

    def hidden(self) -> dict[str, Array]:
        return self.inner.hidden()

    def render(self) -> Array | None:
        return self.inner.render()

    def get_state(self) -> EnvState:
        return self.inner.get_state()

    def set_state(self, state: EnvState) -> None:
        self.inner.set_state(state)

    def close(self) -> None:
        self.inner.close()
