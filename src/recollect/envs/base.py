"""The interface of environments: `VecEnv`, which each suite implements, and `Envs`, which checks its data.

Every adapter uses next-step autoreset. The step that ends an episode returns its final observation. The
next step ignores its action and returns the first observation of a new episode. The row between the two is
the tail row: it holds the final observation, and no action is taken in it.

Of an environment with several agents, each agent is one of the N environments of the interface. An agent
whose episode ended before those of the others waits: after its tail row come waiting rows, without an action
and without an episode, until the environment is reset.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from ..common.distributed import check_threads
from ..common.errors import EnvDataError, UsageError
from ..common.finite import find_not_finite, squared
from ..common.options import Options
from .opponents import Opponents
from .ranges import Ranges
from .spaces import ACTION_MASK, Array, Obs, read_spaces

Backend: TypeAlias = Literal["auto", "gymnasium", "workers", "envpool", "own"]
Scalar: TypeAlias = bool | int | float | str | None
LARGEST_REWARD = 1e12


@dataclass(frozen=True, kw_only=True)
class EnvConfig(Options):
    """The environments of a run: id, number, backend and preprocessing."""

    id: str = "CartPole-v1"
    """Environment id: an id of Gymnasium or EnvPool, suite:id, or package.module:Id."""
    num_envs: int = 16
    """N, the number of environments stepped together; at least 1."""
    backend: Backend = "auto"
    """auto: EnvPool if it has the id, else gymnasium (in this process); workers: one process each; own: the
    implementation in recollect (poc, probe, tmaze and popgym)."""
    kwargs: Mapping[str, Scalar] = field(default_factory=dict)
    """Keyword arguments of the environment, e.g. --env.kwargs.continuous true."""
    mask: tuple[int, ...] = ()
    """Indices of vector observation entries to hide; hidden entries are set to 0."""
    action_mask: bool = False
    """Forbid actions by the action mask of the environment: the entry `action_mask` of its Dict observation
    or of info, or its method action_masks()."""
    hidden: bool = False
    """Add the hidden variables of the environment to its observations, for branches whose `sees` or
    `predict` names `hidden`; others do not get them. Such a branch sets it."""
    agent_id: bool = False
    """Add the index of the agent to its observation, one-hot encoded, in environments of several agents
    (PettingZoo); off: agents that see the same act the same."""
    self_play: int = 0
    """K, the number of earlier versions of the agent that are kept as opponents, in games of PettingZoo whose
    agents act in turn. Half of the games are against the latest version, half against an earlier one.
    0: off."""
    trial: int = 1
    """K, the number of episodes of a trial. Memories are kept through the K episodes of one task; previous
    action, previous reward and the start of an episode become inputs. 1: no trials."""
    normalize_obs: bool = False
    """Normalise vector observations by their running mean and standard deviation."""
    normalize_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    reward_scale: float = 1.0
    """Constant factor on the rewards used for training, above 0; metrics stay unscaled."""
    time_limit: int | None = None
    """Steps after which an episode is truncated, at least 1; None: the limit of the environment."""
    threads: int = 0
    """Number of EnvPool threads; 0: one per core."""
    on_error: Literal["restart", "stop"] | None = None
    """What follows an error, a crash or a hang of an environment. restart: a new environment, whose lost
    episode is truncated and not counted; stop: the run ends; None: restart in worker processes, else stop."""
    step_timeout: float | None = None
    """Seconds for a step or a reset in a worker process, after which it counts as hung; None: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_envs < 1:
            raise UsageError(f"env.num_envs is {self.num_envs}; it must be at least 1")
        if self.threads < 0:
            raise UsageError(f"env.threads is {self.threads}; it must be at least 1, or 0 for one per core")
        check_threads("env.threads", self.threads)
        if self.self_play < 0:
            raise UsageError(f"env.self_play is {self.self_play}; it must be at least 1, or 0 for none")
        if self.trial < 1:
            raise UsageError(f"env.trial is {self.trial}; it must be at least 1, the episodes of a trial")
        if not self.reward_scale > 0:
            raise UsageError(f"env.reward_scale is {self.reward_scale}; it must be above 0")
        if self.reward_scale != 1 and self.normalize_reward:
            raise UsageError(
                f"env.reward_scale is {self.reward_scale} and env.normalize_reward is on; use one of them: "
                "--env.normalize-reward False, or --env.reward-scale 1"
            )
        if self.time_limit is not None and self.time_limit < 1:
            raise UsageError(f"env.time_limit is {self.time_limit}; it must be at least 1, or None")
        if self.step_timeout is not None and not self.step_timeout > 0:
            raise UsageError(f"env.step_timeout is {self.step_timeout}; it must be above 0, or None")


class Step(NamedTuple):
    """The result of one step of N environments.

    obs      from a VecEnv: as its observation space nests it; from Envs: named leaves (N, *shape)
    success  (N,), NaN where nothing is reported; None if the suite reports none
    aborted  where a failure of the environment ended the episode, which is then truncated; None: nowhere
    waiting  from Envs: `VecEnv.waiting` of the observation; None: nowhere

    The other fields are (N,). On the step after an end, reward is 0 and both flags are False; so are they in
    waiting rows and the steps into them.
    """

    obs: Any
    reward: Array
    terminated: Array
    truncated: Array
    success: Array | None = None
    aborted: Array | None = None
    waiting: Array | None = None


class EnvState(NamedTuple):
    """The whole state of a native adapter: arrays (N, ...), and plain data for JSON.

    The first axis of every array is N, because a checkpoint of several processes joins their arrays.
    """

    arrays: dict[str, Array]
    data: dict[str, Any]


class VecEnv(ABC):
    """N environments of one suite with next-step autoreset, in the spaces of the suite.

    tier        "native": get_state and set_state save and restore the whole state, bit for bit;
                "barrier": a run can only be repeated from a reset
    time_limit  steps after which episodes are truncated; None: there is no limit
    note        one line for the user about a choice that the adapter made; empty if there is none
    fps         images per second at which a film has its natural speed
    agents      names of the A agents of each environment, of which agent a of environment e is entry e A + a
                of N; empty: the environments have one agent
    seats       names of the seats of each game, one of which the learner has; empty: it is no such game
    """

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    tier: Literal["native", "barrier"]
    backend: Backend
    time_limit: int | None
    note: str = ""
    fps: int = 30
    agents: tuple[str, ...] = ()
    seats: tuple[str, ...] = ()

    @abstractmethod
    def reset(self, seeds: list[int]) -> Any:
        """Reset each environment from its seed, as if it were newly constructed; return observations.

        Nothing of earlier episodes may remain: resuming and barriers rely on it.
        """

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Take one step. Where the last step ended an episode, ignore the action and start the next one."""

    def play_against(self, opponents: Opponents) -> None:
        """From the next reset on, opponents play the other seats of the games; before, random ones do."""
        # A mistake in the program: env.self_play is refused before for environments without seats (make.py).
        raise NotImplementedError(f"{type(self).__name__} has no seats")

    def action_mask(self) -> Any:
        """The allowed choices of the present row: one array (N, P), or for each environment a mask as
        action_masks.read_mask takes it, or None on a tail row. None: the suite gives no masks.
        """
        return None

    def reports_mask(self) -> bool:
        """Whether the environments themselves report action masks, known after a reset.

        Masks that recollect computes, as those of MiniGrid, do not count: there all actions can be taken.
        """
        space = self.observation_space
        in_obs = isinstance(space, gymnasium.spaces.Dict) and ACTION_MASK in space.spaces
        return in_obs or self.action_mask() is not None

    def waiting(self) -> Array | None:
        """Where the present row (N,) is of an agent that waits for the next episode of its environment; None:
        nowhere. The row after it either waits as well or is the first of an episode.
        """
        return None

    def hidden(self) -> dict[str, Array]:
        """Variables (N,) by name that the current observation does not show; NaN where it shows them."""
        return {}

    def new_episode(self) -> Array | None:
        """Where the current observation is the first of an episode of a trial (N,), if env.trial is above
        1; None: the suite runs no trials.
        """
        return None

    def names(self) -> dict[str, list[str]]:
        """Names for people to read: "actions" and "observations", each if the environment has some."""
        return {}

    def check_seed(self, seed: int) -> None:  # noqa: B027 (most adapters repeat by construction)
        """Warn if a reset from this seed does not repeat: such a run cannot be resumed."""

    @property
    def restarts(self) -> int:
        """How often an environment was restarted after a failure."""
        return 0

    def render(self) -> Array | None:
        """An image of environment 0, (H, W, 3) uint8; None if the environment cannot be rendered.

        Raises UsageError with what to install, if the renderer is not installed.
        """
        return None

    def get_state(self) -> EnvState:
        """The whole state, as copies; native adapters implement it."""
        raise NotImplementedError(f"{type(self).__name__} is of tier {self.tier}: its state cannot be saved")

    def set_state(self, state: EnvState) -> None:
        """Restore a state of get_state."""
        raise NotImplementedError(f"{type(self).__name__} is of tier {self.tier}: it takes no state")

    def close(self) -> None:  # noqa: B027 (most adapters hold nothing to release)
        """Release processes and memory."""


class Envs:
    """Environments as training sees them: observations as named leaves, policy actions, finite data only.

    Data is checked here and nowhere else, before it is written into a rollout.

    imposed_limit  time limit that an evaluation set, because the environment has none
    steps, seconds number of steps so far, and the time that the adapter took for them
    """

    def __init__(self, adapter: VecEnv, mask: tuple[int, ...] = ()) -> None:
        self.adapter = adapter
        self.imposed_limit: int | None = None
        self.num_envs, self.agents = adapter.num_envs, adapter.agents
        self.obs_spec, self.action_spec = read_spaces(adapter.observation_space, adapter.action_space, mask)
        self._ranges = Ranges(self.obs_spec)
        self.steps, self.seconds = 0, 0.0

    def around(self, adapter: VecEnv) -> "Envs":
        """The same environments, seen through a wrapper of theirs."""
        envs = Envs(adapter, self.obs_spec.mask)
        envs.imposed_limit = self.imposed_limit
        return envs

    def reset(self, seeds: list[int]) -> Obs:
        """Reset all environments; return the first observations as leaves (N, *shape)."""
        obs = self.obs_spec.split(self.adapter.reset(seeds))
        self._check_obs(obs)
        return obs

    def step(self, action: Array) -> Step:
        """Take one step with policy actions (N, K).

        The returned arrays may be buffers of the environments, which the next step overwrites in place:
        copy what must be kept.
        """
        started = time.perf_counter()
        step = self.adapter.step(self.action_spec.to_env(action))
        self.seconds += time.perf_counter() - started
        self.steps += 1
        obs = self.obs_spec.split(step.obs)
        self._check_obs(obs)
        # NaN, infinities and numbers beyond 1e12 all fail this one comparison: 1 us per step instead of
        # the three passes of isfinite and abs. `not <` rather than `>=`, because NaN compares as False.
        if not squared(step.reward) < LARGEST_REWARD**2:
            bad = np.flatnonzero(~(np.abs(step.reward) <= LARGEST_REWARD))
            if len(bad):
                self._refuse(int(bad[0]), "reward", step.reward[bad[0]])
        return step._replace(obs=obs, waiting=self.adapter.waiting())

    def _check_obs(self, obs: Obs) -> None:
        outside = self._ranges.find_outside(obs)
        if outside is not None:
            self._refuse(outside.env, outside.name, outside.value, outside.rule)
        bad = find_not_finite(obs)
        if bad is not None:
            name, (env, *place) = bad
            self._refuse(env, f"{name}{place if place else ''}", obs[name][env, *place])

    def _refuse(
        self,
        env: int,
        key: str,
        value: Any,
        rule: str = f"observations must be finite and rewards at most {LARGEST_REWARD:.0e} in size",
    ) -> None:
        raise EnvDataError(
            f"environment {env} returned {key} = {value} at step {self.steps}; {rule}. No update used it; "
            "correct the environment, then resume the run, or train again if it has no checkpoint yet"
        )
