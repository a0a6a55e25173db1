"""The contract of environments: one convention of steps, fixed at the border.

Every adapter resets itself on the step after an episode ended ("next-step" autoreset): the step that ends
an episode returns its final observation, and the next one ignores its action and returns the first
observation of a new episode. So the row after an end is a tail row, which holds the final observation and
in which no action is taken.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from ..common.errors import EnvDataError, UsageError
from .spaces import Array, Obs, read_spaces

Backend: TypeAlias = Literal["auto", "gymnasium", "workers", "envpool", "own"]
Scalar: TypeAlias = bool | int | float | str | None
LARGEST_REWARD = 1e12


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Which environments, how many, and what is done at their border."""

    id: str = "CartPole-v1"
    """An id of Gymnasium or EnvPool, suite:id, or package.module:Id."""
    num_envs: int = 16
    """N: environments stepped together."""
    backend: Backend = "auto"
    """auto: EnvPool where it has the id, else gymnasium, in this process; workers: one process each."""
    kwargs: Mapping[str, Scalar] = field(default_factory=dict)
    """Keyword arguments of the environment: --env.kwargs.continuous true."""
    mask: tuple[int, ...] = ()
    """Entries of a vector observation that are hidden (read 0)."""
    normalize_obs: bool = False
    """Shift and scale vector observations by their running mean and deviation."""
    normalize_reward: bool = False
    """Divide rewards by the running deviation of the discounted return."""
    reward_scale: float = 1.0
    """What rewards are multiplied with before they are learned from; metrics stay as they are."""
    time_limit: int | None = None
    """Steps after which an episode is cut; None keeps the environment's own."""
    threads: int = 0
    """Threads of EnvPool; 0 takes one a core."""

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise UsageError(f"env.num_envs is {self.num_envs}, at least 1 is needed")
        if not self.reward_scale > 0:
            raise UsageError(f"env.reward_scale is {self.reward_scale}, it must be above 0")
        if self.reward_scale != 1 and self.normalize_reward:
            raise UsageError(
                f"env.reward_scale is {self.reward_scale}, but rewards are normalised: "
                "--env.normalize-reward False, or leave it at 1"
            )
        if self.time_limit is not None and self.time_limit < 1:
            raise UsageError(f"env.time_limit is {self.time_limit}, at least 1 is needed")


class Step(NamedTuple):
    """What N environments answer to an action.

    obs is the adapter's own nesting before the border and named leaves behind it; the other fields
    are (N,). `success` is NaN where nothing is reported.
    """

    obs: Any
    reward: Array
    terminated: Array
    truncated: Array
    success: Array | None = None


class EnvState(NamedTuple):
    """All of a native adapter: arrays (N, ...), and plain data for JSON."""

    arrays: dict[str, Array]
    data: dict[str, Any]


class VecEnv(ABC):
    """N environments of one suite with next-step reset, in the suite's own spaces.

    tier    "native": get_state and set_state carry everything, to the last bit;
            "barrier": only a reset from seeds makes a run repeatable
    """

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    tier: Literal["native", "barrier"]
    backend: Backend
    time_limit: int | None
    note: str = ""  # what a user should know of the choice that was made
    fps: int = 30  # pictures a second at which it looks as it should

    @abstractmethod
    def reset(self, seeds: list[int]) -> Any:
        """Begin anew, each environment from its seed, as if just made; the first observations."""

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Act; where the last step ended an episode, ignore the action and begin the next one."""

    def hidden(self) -> dict[str, Array]:
        """Numbers (N,) by name that the present observation does not tell; NaN where it does."""
        return {}

    def picture(self) -> Array | None:
        """Environment 0 as people see it now, (H, W, 3) bytes; None where nobody draws it.

        Where what draws it is not installed, a UsageError says what to install.
        """
        return None

    def get_state(self) -> EnvState:
        """Everything, for native adapters."""
        raise NotImplementedError(f"{type(self).__name__} is of tier {self.tier}")

    def set_state(self, state: EnvState) -> None:
        """Undoes get_state."""
        raise NotImplementedError(f"{type(self).__name__} is of tier {self.tier}")

    def close(self) -> None:  # noqa: B027 (most have nothing to give back)
        """Give back processes and memory."""


class Envs:
    """The border: leaves out, policy actions in, and no data passes that is not finite."""

    def __init__(self, adapter: VecEnv, mask: tuple[int, ...] = ()) -> None:
        self.adapter = adapter
        self.num_envs = adapter.num_envs
        self.obs_spec, self.action_spec = read_spaces(adapter.observation_space, adapter.action_space, mask)
        self._steps = 0

    def reset(self, seeds: list[int]) -> Obs:
        """The first observations, as leaves (N, *shape)."""
        obs = self.obs_spec.split(self.adapter.reset(seeds))
        self._check_obs(obs)
        return obs

    def step(self, action: Array) -> Step:
        """One step with an action (N, K) of the policy; the arrays may be written to by the next."""
        step = self.adapter.step(self.action_spec.to_env(action))
        self._steps += 1
        obs = self.obs_spec.split(step.obs)
        self._check_obs(obs)
        # One dot product finds every NaN, infinity and number beyond 1e12, at 1 us a step.
        if not _squared(step.reward) < LARGEST_REWARD**2:
            self._check_reward(step.reward)
        return step._replace(obs=obs)

    def _check_obs(self, obs: Obs) -> None:
        for name, array in obs.items():
            if array.dtype.kind != "f":
                continue
            if math.isfinite(_squared(array.reshape(-1))):
                continue
            bad = np.argwhere(~np.isfinite(array))
            if len(bad):
                env, *place = (int(i) for i in bad[0])
                self._refuse(env, f"{name}{place if place else ''}", array[tuple(bad[0])])

    def _check_reward(self, reward: Array) -> None:
        bad = np.flatnonzero(~(np.abs(reward) <= LARGEST_REWARD))
        if len(bad):
            self._refuse(int(bad[0]), "reward", reward[bad[0]])

    def _refuse(self, env: int, key: str, value: Any) -> None:
        raise EnvDataError(
            f"environment {env} gave {key} = {value} at step {self._steps}: not a finite number to "
            "learn from. Nothing was learned from it; the last checkpoint stands."
        )


def _squared(x: Array) -> float:
    """Its squared length; infinite where a square overflows, not a number where x holds one."""
    with np.errstate(over="ignore"):
        return float(np.dot(x, x))
