"""An environment of PettingZoo as one of Gymnasium: the observations of its agents side by side.

Shapes.  A possible agents, P choices of all action components, S variables of the state.
"""

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, create_empty_array

from ..common.errors import EnvDataError, NoHiddenError, UsageError
from .action_masks import read_mask
from .info import as_success, reported_success
from .returned import is_writable, join, outline, wraps
from .spaces import ACTION_MASK, Array, read_spaces

IDENTITY = "agent"  # key of a Dict observation: the index of the agent
# Keys of info, each an array (A, ...) of what the agents got from the last step or reset.
REWARD, TERMINATED, TRUNCATED, WAITING = "reward", "terminated", "truncated", "waiting"
SUCCESS = "success_of_agents"  # not `success`, which is one number of an environment
# What PettingZoo's calls return, each a dict by agent.
RESET, STEP = "observations, infos", "observations, rewards, terminations, truncations, infos"
STATE = "state"  # key of info: what PettingZoo's `state()` returned, as a vector (S,)


class Team(gymnasium.Env[Any, Any]):  # type: ignore[misc] # its base is Any to mypy
    """A parallel environment of PettingZoo, whose observations and actions are those of all possible agents.

    An agent that has no episode waits: its action is ignored, and its observation is its last one. The
    episode of the team terminates when no agent has one. Outcomes of agents are in info.

    agent_id  add the index of the agent to its observation
    state     report the state of the environment in info
    """

    def __init__(self, env: Any, agent_id: bool, state: bool) -> None:
        self.env, self._agent_id, self._with_state = env, agent_id, state
        self.metadata = env.metadata
        self.agents = possible_agents(env)
        self.names = tuple(map(str, self.agents))
        self.single_space, self.single_action_space = (
            shared_space(env, kind, self.agents) for kind in ("observation", "action")
        )
        # Before batches of the space are made, because this error names an unsupported space.
        self._action_spec = read_spaces(self.single_space, self.single_action_space)[1]
        if agent_id:
            self.single_space = with_identity(self.single_space, len(self.agents))
        self.observation_space, self.action_space = (
            batch_space(space, len(self.agents)) for space in (self.single_space, self.single_action_space)
        )
        self._buffer = create_empty_array(self.single_space, len(self.agents))
        self._wraps = wraps(self.single_space)

    @property
    def unwrapped(self) -> Any:
        """The environment of the user: messages name it, and it must not be used twice."""
        return self.env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode with the agents that take part in it."""
        observed, infos = self._by_agent("reset", self.env.reset(seed=seed, options=options), RESET)
        self._playing = set(self.env.agents)
        if not self._playing:
            raise EnvDataError(
                f"{self.env}: no agent takes part in the episode: `agents` is empty after reset"
            )
        self._observed = [_blank(self.single_space)] * len(self.agents)
        # Decided once: a later row may have no mask, because no agent acts in it.
        self._with_masks = any(ACTION_MASK in info for info in infos.values())
        return self._joined(observed, self._playing), self._info(infos, {}, {}, {}, set())

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Let the agents that have an episode act."""
        acted = self._playing
        # Copies, because a policy overwrites its actions, and an environment may keep them.
        actions = {name: copy.copy(action[i]) for i, name in enumerate(self.agents) if name in acted}
        result = self._by_agent("step", self.env.step(actions), STEP)
        observed, rewards, terminated, truncated, infos = result
        ended = {name for name in acted if terminated.get(name) or truncated.get(name)}
        self._playing = set(self.env.agents) - ended
        lost = acted - ended - self._playing
        if lost:
            raise EnvDataError(
                f"{self.env}: agent {min(map(str, lost))} left `agents` without an end; its terminated or "
                "truncated must be True in that step"
            )
        obs = self._joined(observed, ended | self._playing)
        info = self._info(infos, rewards, terminated, truncated, acted)
        return obs, 0.0, not self._playing, False, info

    def _by_agent(self, call: str, result: Any, names: str) -> tuple[dict[Any, Any], ...]:
        """What a call returned, if it is one dict by agent for each of these names."""
        parts = tuple(result) if isinstance(result, tuple | list) else (result,)
        count = len(names.split(", "))
        if len(parts) != count or not all(isinstance(part, dict) for part in parts):
            kinds = ", ".join(type(part).__name__ for part in parts) or "nothing"
            raise EnvDataError(
                f"{call} of {self.env} returned {kinds}; PettingZoo's returns {count} dicts by agent, "
                f"{names}: correct the environment"
            )
        return parts

    def _joined(self, observed: dict[Any, Any], present: set[Any]) -> Any:
        """The observations of all agents, by index; those of present agents are new."""
        for i, name in enumerate(self.agents):
            if name not in present:
                continue
            if name not in observed:
                raise EnvDataError(f"{self.env} returned no observation of agent {name}")
            # A copy where it is the final one: it must stay until the agent has another.
            ended = name not in self._playing
            seen = copy.deepcopy(observed[name]) if ended else observed[name]
            self._observed[i] = self._identified(seen, i) if self._agent_id else seen
        try:
            return join(self.single_space, self._observed, self._buffer, self._wraps)
        except Exception as error:
            for name, obs in zip(self.agents, self._observed, strict=True):
                if not is_writable(self.single_space, obs):
                    raise EnvDataError(
                        f"{self.env} returned an observation of agent {name} of "
                        f"{outline(self.single_space, obs)} that is not in its space {self.single_space}"
                    ) from error
            raise

    def _identified(self, obs: Any, index: int) -> dict[str, Any]:
        parts = obs if isinstance(obs, dict) else {"observation": obs}
        return {**parts, IDENTITY: index}

    def _info(
        self,
        infos: dict[Any, dict[str, Any]],
        rewards: dict[Any, float],
        terminated: dict[Any, bool],
        truncated: dict[Any, bool],
        acted: set[Any],
    ) -> dict[str, Any]:
        """The outcomes of the agents that acted, and what the others have."""
        ended = np.array(
            [[bool(x.get(a)) and a in acted for a in self.agents] for x in (terminated, truncated)]
        )
        absent = np.array([name not in self._playing for name in self.agents])
        info: dict[str, Any] = {
            REWARD: np.array([self._reward(rewards, a) if a in acted else 0.0 for a in self.agents]),
            TERMINATED: ended[0],
            TRUNCATED: ended[1] & ~ended[0],  # terminated takes precedence: no bootstrap
            WAITING: absent & ~ended.any(0),
        }
        successes = [reported_success(infos.get(a, {})) for a in self.agents]
        if any(value is not None for _, value in successes):
            info[SUCCESS] = np.array(
                [
                    as_success(value, key, f"{self.env}: agent {name}")
                    for name, (key, value) in zip(self.names, successes, strict=True)
                ]
            )
        if self._with_masks:
            info[ACTION_MASK] = np.stack([self._mask(infos.get(a, {}).get(ACTION_MASK)) for a in self.agents])
        if self._with_state:
            info[STATE] = read_state(self.env)
        return info

    def _reward(self, rewards: dict[Any, Any], name: Any) -> float:
        reward = rewards.get(name, 0)
        try:
            return float(reward)
        except (TypeError, ValueError):
            raise EnvDataError(
                f"{self.env} returned the reward {reward!r:.80} of agent {name}; it must be one number: "
                "correct the environment"
            ) from None

    def _mask(self, mask: Any) -> Array:
        """The mask of an agent (P,); nothing is allowed where there is none."""
        if mask is None:
            return np.zeros(sum(self._action_spec.sizes), dtype=bool)
        return read_mask(mask, self._action_spec.sizes, 1)[0]

    def render(self) -> Any:
        """An image of the environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def possible_agents(env: Any) -> list[Any]:
    """The agents that may take part, in the order of their indices."""
    agents = list(getattr(env, "possible_agents", ()))
    if not agents:
        raise UsageError(
            f"{env} has no `possible_agents`; they are needed, because each is one sequence of the batch"
        )
    return agents


def read_state(env: Any) -> Array:
    """What PettingZoo's `state()` returns, as a vector (S,)."""
    try:
        return np.asarray(env.state(), dtype=np.float64).ravel()
    except NotImplementedError as error:  # which PettingZoo's base classes raise
        raise NoHiddenError(
            f"{env} has no `state()`, which is needed because `sees` or `predict` names hidden"
        ) from error


def shared_space(env: Any, kind: str, agents: list[Any]) -> spaces.Space[Any]:
    """The observation or action space that all agents have."""
    space_of = getattr(env, f"{kind}_space")
    first = space_of(agents[0])
    for other in agents[1:]:
        if space_of(other) != first:
            hint = "; pad them (pad_observations_v0 or pad_action_space_v0 of supersuit)"
            raise UsageError(
                f"agents share one policy, so they need one {kind} space: that of {agents[0]} is {first}, "
                f"that of {other} is {space_of(other)}{hint}"
            )
    return first


def with_identity(space: spaces.Space[Any], agents: int) -> spaces.Dict:
    """The observation space with the index of the agent."""
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
    if IDENTITY in parts:
        raise UsageError(f"env.agent_id: the observation already has a key {IDENTITY!r}; turn agent_id off")
    return spaces.Dict({**parts, IDENTITY: spaces.Discrete(agents)})


def _blank(space: spaces.Space[Any]) -> Any:
    """The observation of an agent before its first one, zeros or the smallest values."""
    match space:
        case spaces.Dict():
            return {key: _blank(part) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_blank(part) for part in space.spaces)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return space.start
    return np.zeros(space.shape, space.dtype)
