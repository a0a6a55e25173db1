"""Leaves beside the observation of an environment: the action mask, variables that it does not show, and
where an episode of a trial begins.

Shapes.  N environments, P choices of all action components, H hidden variables.
"""

import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from ..common.errors import EnvDataError, NoHiddenError, UsageError
from .action_masks import find_blocked, read_mask
from .base import EnvConfig, Step, VecEnv
from .info import SUCCESS_KEYS
from .spaces import (
    ACTION_MASK,
    HIDDEN,
    NEW_EPISODE,
    ActionSpec,
    Array,
    Extended,
    ExtendedObs,
    flatten,
    read_spaces,
)
from .wrapper import EnvWrapper


class ExtendedEnv(EnvWrapper):
    """An adapter whose observations also have leaves beside them, as the config says.

    action_mask  the entry of a Dict observation, which is taken out of it, or else `VecEnv.action_mask`. On
                 a tail row no action is taken, so a mask that allows none allows all there
    hidden       the variables of `VecEnv.hidden` and the entries that env.mask hides; 0 where a variable is
                 not reported, as where the observation shows it
    new_episode  1 where an episode of a trial begins. The time limit is that of a trial
    """

    def __init__(self, inner: VecEnv, config: EnvConfig) -> None:
        super().__init__(inner)
        self._config = config
        self._steps = 0
        seen = inner.observation_space
        self._mask_in_obs = (
            config.action_mask and isinstance(seen, spaces.Dict) and ACTION_MASK in seen.spaces
        )
        if self._mask_in_obs:
            seen = spaces.Dict({key: part for key, part in seen.items() if key != ACTION_MASK})
        parts: dict[str, spaces.Space[Any]] = {"obs": seen}
        self._action_spec: ActionSpec = read_spaces(seen, inner.action_space, config.mask)[1]
        if config.action_mask:
            parts[ACTION_MASK] = spaces.MultiBinary(sum(self._action_spec.sizes))
        self._names, self._warned = self._name_hidden() if config.hidden else [], False
        self._hidden: Array = np.zeros((self.num_envs, len(self._names)), np.float32)
        if config.hidden:
            parts[HIDDEN] = spaces.Box(-np.inf, np.inf, (len(self._names),), np.float32)
        if config.trial > 1:
            self._check_trials()
            parts[NEW_EPISODE] = spaces.MultiBinary(1)
            self.time_limit = inner.time_limit and inner.time_limit * config.trial
        self.observation_space = Extended(parts)

    def reset(self, seeds: list[int]) -> ExtendedObs:
        self._steps = 0
        return self._extend(self.inner.reset(seeds), np.zeros(self.num_envs, dtype=bool))

    def step(self, action: Array) -> Step:
        step = self.inner.step(action)
        self._steps += 1
        return step._replace(obs=self._extend(step.obs, step.terminated | step.truncated, step.aborted))

    def _extend(self, obs: Any, tail: Array, aborted: Array | None = None) -> ExtendedObs:
        parts: dict[str, Any] = {}
        waiting = self.inner.waiting()
        tail = tail if waiting is None else tail | waiting
        if self._config.action_mask:
            mask = obs[ACTION_MASK] if self._mask_in_obs else self.inner.action_mask()
            parts[ACTION_MASK] = self._check_mask(mask, tail)
        if self._config.hidden:
            hidden = self._stack_hidden(obs)
            if aborted is not None:  # the observation is the last one that was given, and so are they
                hidden[aborted] = self._hidden[aborted]
            parts[HIDDEN] = self._hidden = hidden
        if self._config.trial > 1:
            parts[NEW_EPISODE] = self._new_episode()
        if self._mask_in_obs:
            obs = {key: part for key, part in obs.items() if key != ACTION_MASK}
        return ExtendedObs({"obs": obs, **parts})

    # Action masks ---------------------------------------------------------------------------------

    def _check_mask(self, mask: Any, tail: Array) -> Array:
        """A mask of the environments -> (N, P) bool that allows a choice of each component."""
        if mask is None and self._steps:
            raise EnvDataError(f"{self._config.id} gave no action mask at step {self._steps}, and did before")
        if mask is None:
            raise UsageError(
                f"{self._config.id} gives no action mask: no entry {ACTION_MASK} in a Dict observation "
                "or info, and no method action_masks(); use --env.action-mask False"
            )
        allowed = self._read_mask(mask)
        blocked = find_blocked(allowed, self._action_spec.sizes)
        if len(blocked):
            wrong = blocked[~tail[blocked]]
            if len(wrong):
                env = int(wrong[0])
                raise EnvDataError(
                    f"the action mask of environment {env} allows no action at step {self._steps}: "
                    f"{allowed[env].astype(int)} (or it gave none); at least one choice of each component "
                    "must be allowed"
                )
            allowed[blocked] = True
        return allowed

    def _read_mask(self, mask: Any) -> Array:
        """What `VecEnv.action_mask` returned, or the entry of a Dict observation -> (N, P) bool."""
        is_joined = isinstance(mask, tuple) and self._mask_in_obs  # one array (N, choices) per component
        if is_joined or (isinstance(mask, np.ndarray) and mask.dtype != object):
            return read_mask(mask, self._action_spec.sizes, self.num_envs)
        allowed = np.zeros((self.num_envs, sum(self._action_spec.sizes)), dtype=bool)
        for row, one in zip(allowed, mask, strict=True):
            if one is not None:
                row[:] = read_mask(one, self._action_spec.sizes, 1)
        return allowed

    # Hidden variables -----------------------------------------------------------------------------

    def _name_hidden(self) -> list[str]:
        """The names of the hidden variables, which are known after a reset."""
        names = list(self._variables(self.inner.reset([0] * self.num_envs)))
        if not names:
            raise NoHiddenError(
                f"{self._config.id} ({self.backend}) has no hidden variables, but `sees` or `predict` "
                "names hidden; it needs numbers in info, entries that env.mask hides, or a hidden() of its "
                "adapter"
            )
        return names

    def _variables(self, obs: Any) -> dict[str, Array]:
        vector = next(iter(flatten(obs).values()))  # the only part, if env.mask hides entries
        masked = {f"masked entry {i}": vector[:, i] for i in self._config.mask}
        return masked | self.inner.hidden()

    def _stack_hidden(self, obs: Any) -> Array:
        """The hidden variables (N, H), in the order of the first reset."""
        variables, unknown = self._variables(obs), np.zeros(self.num_envs)
        late = [name for name in variables if name not in (*self._names, *SUCCESS_KEYS)]
        if late and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._config.id} reports {', '.join(late)} in steps and not at its first reset: as "
                "a hidden variable it is left out; report it in the info of reset as well",
                stacklevel=2,
            )
        columns = [variables.get(name, unknown) for name in self._names]
        return np.nan_to_num(np.stack(columns, 1), nan=0.0).astype(np.float32)

    # Trials ---------------------------------------------------------------------------------------

    def _check_trials(self) -> None:
        if self.inner.new_episode() is None:
            given = self._config.backend == "gymnasium"
            advice = "take" if given else "try --env.backend gymnasium, or"
            raise UsageError(
                f"env.trial {self._config.trial}: {self._config.id} ({self.backend}) cannot keep a task for "
                f"several episodes; {advice} an environment of Gymnasium (docs/trials.md)"
            )

    def _new_episode(self) -> Array:
        """(N, 1) of 0 and 1."""
        begins = self.inner.new_episode()
        assert begins is not None, "checked at the start"
        return begins[:, None].astype(np.int8)

    def names(self) -> dict[str, list[str]]:
        names = self.inner.names()
        if "observations" in names:
            begins = ["new episode"] if self._config.trial > 1 else []
            names["observations"] = [*names["observations"], *self._names, *begins]
        return names
