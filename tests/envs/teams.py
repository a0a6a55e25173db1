"""Environments of PettingZoo with several agents, whose every number is known."""

from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

NAMES = "abcd"
# Episodes of each agent: steps, and whether the end is a termination; None: the agent is absent.
PLAN = [{"a": (2, True), "b": (4, False)}, {"a": (3, False), "b": (1, True)}, {"a": None, "b": (2, True)}]


class Script(ParallelEnv):
    """Episodes by a plan, in turn. An observation is (agent, episode, step, a number of the seed).

    The reward is 10 (agent + 1) + step. An agent that does not act, or acts out of turn, is an error.
    """

    metadata: ClassVar = {"name": "script", "render_modes": ["rgb_array"], "render_fps": 5}
    render_mode = None

    def __init__(self, plan=None, names="ab"):
        self.plan, self.possible_agents = plan or PLAN, list(names)
        self.episode, self.rng = -1, np.random.default_rng()

    def observation_space(self, agent):
        return spaces.Box(-1e3, 1e3, (4,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def see(self, agent):
        return np.array([NAMES.index(agent), self.episode, self.time, self.draw], np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.episode, self.time, self.draw = self.episode + 1, 0, self.rng.random()
        self.ends = self.plan[self.episode % len(self.plan)]
        self.agents = [agent for agent in self.possible_agents if self.ends[agent]]
        return {agent: self.see(agent) for agent in self.agents}, {
            agent: self.tell() for agent in self.agents
        }

    def step(self, actions):
        assert set(actions) == set(self.agents), f"{set(actions)} acted, not {set(self.agents)}"
        assert all(self.action_space(a).contains(x) for a, x in actions.items()), actions
        self.time += 1
        acted = self.agents
        over = {agent: self.ends[agent][0] == self.time for agent in acted}
        terminated = {agent: over[agent] and self.ends[agent][1] for agent in acted}
        truncated = {agent: over[agent] and not self.ends[agent][1] for agent in acted}
        rewards = {agent: float(10 * (NAMES.index(agent) + 1) + self.time) for agent in acted}
        self.agents = [agent for agent in acted if not over[agent]]
        return (
            {agent: self.see(agent) for agent in acted},
            rewards,
            terminated,
            truncated,
            {agent: self.tell() for agent in acted},
        )

    def tell(self):
        return {}

    def state(self):
        return np.array([self.episode, self.time], np.float32)

    def render(self):
        return np.full((16, 16, 3), self.time, np.uint8)


def total(agent, length):
    """The return of an episode of an agent."""
    return sum(10.0 * (NAMES.index(agent) + 1) + time for time in range(1, length + 1))


class Fair(Script):
    """Two agents with equal episodes, which both the plan and the conversion from AEC allow."""

    def __init__(self):
        super().__init__([{"a": (3, True), "b": (3, True)}])


class Gates(Script):
    """One choice is open to each agent; another is an error. Nothing is open to agents that have ended.

    source  where the mask is: info or dict
    """

    def __init__(self, source="info"):
        self.source = source
        super().__init__()

    def observation_space(self, agent):
        view = super().observation_space(agent)
        if self.source == "info":
            return view
        return spaces.Dict({"observation": view, "action_mask": spaces.MultiBinary(3)})

    def open(self, agent):
        playing = agent in self.agents
        return np.eye(3, dtype=np.int8)[(self.time + NAMES.index(agent)) % 3] * playing

    def see(self, agent):
        view = super().see(agent)
        return view if self.source == "info" else {"observation": view, "action_mask": self.open(agent)}

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents
        return self.with_masks(*super().reset(seed, options))

    def step(self, actions):
        for agent, action in actions.items():
            assert self.open(agent)[action], f"action {action} is closed to {agent}"
        *outcome, infos = super().step(actions)
        return (*outcome[:1], *outcome[1:], self.with_masks(None, infos)[1])

    def with_masks(self, observations, infos):
        if self.source == "info":
            infos = {agent: {"action_mask": self.open(agent)} for agent in infos if agent in self.agents}
        return observations, infos


class Raises(Script):
    """Fails in the second step of every third episode."""

    def step(self, actions):
        if self.time == 1 and self.rng.random() < 0.3:
            raise ZeroDivisionError("no wind")
        return super().step(actions)


class Turns(AECEnv):
    """Agents act in turn, and cannot act at once."""

    metadata: ClassVar = {"name": "turns", "is_parallelizable": False}
    possible_agents: ClassVar = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Discrete(2)

    action_space = observation_space


class Uneven(Script):
    """Two observation spaces."""

    def observation_space(self, agent):
        return spaces.Box(0, 1, (NAMES.index(agent) + 1,), np.float32)


class Unnamed(Script):
    def __init__(self):
        super().__init__()
        del self.possible_agents


class Vanishes(Script):
    """An agent is gone after its first step, without an end."""

    def step(self, actions):
        outcome = super().step(actions)
        self.agents = self.agents[1:]
        return outcome


class Silent(Script):
    def step(self, actions):
        _, *outcome = super().step(actions)
        return ({}, *outcome)


class Wide(Script):
    def see(self, agent):
        return np.zeros(5, np.float32)


class Overflows(Script):
    """300 is 44 as an int8."""

    def observation_space(self, agent):
        return spaces.Box(-128, 127, (1,), np.int8)

    def see(self, agent):
        return np.array([300])


class Succeeds(Script):
    def tell(self):
        return {"is_success": "yes"}


class Successful(Script):
    """Agent a succeeds and b does not, which infos say where an episode ends."""

    def step(self, actions):
        *outcome, infos = super().step(actions)
        ended = [agent for agent in actions if agent not in self.agents]
        return *outcome, infos | {agent: {"success": agent == "a"} for agent in ended}


class Unpaid(Script):
    def step(self, actions):
        observed, _, *others = super().step(actions)
        return observed, dict.fromkeys(observed), *others


class OldStep(Script):
    """PettingZoo before 1.23: one dict of ends."""

    def step(self, actions):
        observed, rewards, terminated, _, infos = super().step(actions)
        return observed, rewards, terminated, infos


class OldReset(Script):
    def reset(self, seed=None, options=None):
        return super().reset(seed, options)[0]


class Alone(Script):
    """Returns what an environment of Gymnasium does."""

    def step(self, actions):
        return np.zeros(4, np.float32), 1.0, False, False, {}


class Empty(Script):
    def reset(self, seed=None, options=None):
        observations = super().reset(seed, options)
        self.agents = []
        return observations


def turned():
    """An environment whose agents act in turn, which can be converted."""
    return parallel_to_aec(Fair())


class Rounds(AECEnv):
    """Agents act in turn, and every number is known: episode k has moves[k] moves and begins with agent k.

    An observation is (agent, move, the last action, a number of the seed). Whoever moves gets
    10 (agent + 1) + action, the others -1 - action each. `log` has (episode, agent, action) of every move.

    limit  whether episodes are truncated and not terminated
    """

    metadata: ClassVar = {"name": "rounds", "render_modes": ["rgb_array"], "is_parallelizable": False}
    render_mode = None

    def __init__(self, moves=(5, 3, 4, 6), names="ab", limit=False):
        self.moves, self.possible_agents, self.limit = moves, list(names), limit
        self.episode, self.rng, self.log = -1, np.random.default_rng(), []

    def observation_space(self, agent):
        return spaces.Box(-1e3, 1e3, (4,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def observe(self, agent):
        return np.array([NAMES.index(agent), self.move, self.last_action, self.draw], np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.episode, self.move, self.draw = self.episode + 1, 0, self.rng.random()
        self.agents, self.last_action = list(self.possible_agents), 0
        self.rewards, self._cumulative_rewards = (dict.fromkeys(self.agents, 0.0) for _ in range(2))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[self.episode % len(self.agents)]

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert self.action_space(agent).contains(action), action
        self.log.append((self.episode, agent, int(action)))
        self._cumulative_rewards[agent] = 0.0
        self.move, self.last_action = self.move + 1, int(action)
        self.rewards = dict.fromkeys(self.agents, -1.0 - int(action))
        self.rewards[agent] = 10.0 * (NAMES.index(agent) + 1) + int(action)
        place = self.possible_agents.index(agent)
        self.agent_selection = self.possible_agents[(place + 1) % len(self.possible_agents)]
        if self.move == self.moves[self.episode % len(self.moves)]:
            ends = self.truncations if self.limit else self.terminations
            ends.update(dict.fromkeys(self.agents, True))
        self._accumulate_rewards()

    def state(self):
        return np.array([self.episode, self.move], np.float32)

    def render(self):
        return np.full((16, 16, 3), self.move, np.uint8)


class Drawn(Rounds):
    """The first number of the seed decides who begins."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agent_selection = self.possible_agents[int(self.draw * len(self.possible_agents))]


class Plain(Rounds):
    """It has no state, reports successes, and can be drawn only if its constructor was told so.

    keywords  an argument that it does not take is an error
    """

    success = None  # that of the agent a alone

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    state = AECEnv.state

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.brush = self.render_mode and 1.0

    def step(self, action):
        super().step(action)
        if any(self.terminations.values()):
            self.infos = {agent: {"success": self.success or agent == "a"} for agent in self.agents}

    def render(self):
        return np.full((16, 16, 3), self.brush * self.move, np.uint8)


class ClosedRounds(Rounds):
    """One choice is open to each agent, by the number of moves; another is an error.

    source  where the mask is: info, dict, or nowhere; info has none after the end
    """

    def __init__(self, source="info", moves=(5, 3, 4, 6)):
        self.source = source
        super().__init__(moves)

    def observation_space(self, agent):
        view = super().observation_space(agent)
        if self.source != "dict":
            return view
        return spaces.Dict({"observation": view, "action_mask": spaces.MultiBinary(3)})

    def open(self):
        return np.eye(3, dtype=np.int8)[self.move % 3]

    def observe(self, agent):
        view = super().observe(agent)
        return {"observation": view, "action_mask": self.open()} if self.source == "dict" else view

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.tell()

    def step(self, action):
        if action is not None:
            assert self.open()[action], f"action {action} is closed"
        super().step(action)
        self.tell()

    def tell(self):
        if self.source == "info":
            goes_on = not any(self.terminations.values())
            self.infos = {agent: {"action_mask": self.open()} if goes_on else {} for agent in self.agents}


class BadRounds(Rounds):
    """fault: what is wrong with it."""

    def __init__(self, fault):
        self.fault = fault
        super().__init__((5,))

    def reset(self, seed=None, options=None):
        if self.fault == "reset":
            raise ZeroDivisionError("no board")
        super().reset(seed, options)
        if self.fault == "empty":
            self.agents = []
        if self.fault == "blocked for b":
            self.infos["a"], self.infos["b"] = ({"action_mask": np.full(3, x, np.int8)} for x in (1, 0))

    def observe(self, agent):
        if self.fault == "observe":
            raise ZeroDivisionError("no light")
        if self.fault == "wide" or (self.fault == "wide for b" and agent == "b"):
            return np.zeros(5, np.float32)
        return super().observe(agent) * (np.nan if self.fault == "nan for b" and agent == "b" else 1)

    def state(self):
        if self.fault == "state":
            raise ZeroDivisionError("no wall")
        return super().state()

    def step(self, action):
        if self.fault == "step":
            raise ZeroDivisionError("no wind")
        super().step(action)
        if self.fault == "one" and self.agents:  # only ever one of them acts
            self.agent_selection = "a"
        if self.fault == "lost" and any(self.terminations.values()):
            self.agents = []


parallel_env = Script
NOT_A_FUNCTION = 3


def number():
    return 3
