"""A player acts with an agent outside training and holds its memory state."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..common import rng, tree
from ..common.errors import UsageError
from ..common.finite import find_not_finite
from ..common.tree import Tree
from ..envs.action_masks import find_blocked, read_mask
from ..envs.ranges import Ranges
from ..envs.spaces import ACTION_MASK, NEW_EPISODE, Array, Obs
from .arguments import (
    batched_obs,
    check_obs,
    check_state,
    count_envs,
    known_leaves,
    read_flags,
    read_rewards,
)
from .nets import Rows

if TYPE_CHECKING:
    from .agent import Agent, Branch


class Decision(NamedTuple):
    """The quantities of one step of a player.

    rows    inputs of the actor (1, N, ...); they may share the memory of the observation
    params  parameters of the policy (N, P)
    state   memory state of the actor after the step
    """

    rows: Rows
    params: Tensor
    state: Tree


class PlayerState(NamedTuple):
    """All that is carried from step to step: the states of both memories, and the action taken."""

    memory: Tree  # of the actor
    action: Array  # (N, K)
    critic: "Tree | None" = None  # of the critic, for values; None: of a player, which does not compute it
    first: Array | None = None  # (N,) where an episode begins, as after a reset; None: nowhere


class Player:
    """Acts with an agent, holds its memory state and resets it.

    player = agent.player()
    player.reset()
    action = player.act(obs)
    """

    def __init__(self, agent: "Agent", num_envs: int, deterministic: bool, seed: int) -> None:
        for name, number, least in (("num_envs", num_envs, 1), ("seed", seed, 0)):
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
                raise UsageError(
                    f"player: {name} is {number!r}; a whole number of at least {least} is needed"
                )
        self.agent, self.num_envs, self.deterministic = agent, num_envs, deterministic
        self._rng = rng.generator(seed, rng.Purpose.PLAY)
        self._dtype = next(agent.parameters()).dtype
        self._ranges = Ranges(agent.obs_spec)
        self.needs_reward = agent.actor.inputs.prev_reward
        self.reset()

    def reset(self) -> None:
        """Every environment begins a new episode: the memory state is reset."""
        self._state = self.agent.initial_state(self.num_envs).actor
        self._first = np.ones(self.num_envs, dtype=bool)
        self._action = np.zeros((self.num_envs, self.agent.action_spec.width))
        self._steps = 0  # since the reset
        self._decision: Decision | None = None

    @property
    def state(self) -> PlayerState:
        """What is carried to the next step; another player of the same agent continues from it."""
        return PlayerState(self._state, self._action, first=self._first)

    def continue_from(self, state: PlayerState) -> None:
        """Continue the episodes of another player."""
        check_state(state, self.state)
        self._state, self._action, _, first = state
        self._first = np.zeros(self.num_envs, dtype=bool) if first is None else first

    def inspect(self) -> Decision:
        """The inputs, the policy parameters and the memory state of the latest step."""
        if self._decision is None:
            raise UsageError("the player has not acted since its reset: call act before inspect")
        return self._decision

    @torch.no_grad()
    def act(
        self,
        obs: Any,
        reward: Any = None,
        first: Array | None = None,
        action_mask: Any = None,
        new_episode: Any = False,
    ) -> Any:
        """The action for an observation, as the environment takes it.

        obs          of one environment, or of num_envs with a leading axis
        reward       of the previous step, for agents with prev_reward
        first        (num_envs,) bool: which environments begin an episode with this observation;
                     after reset() all do
        action_mask  which actions are allowed, for agents with action masks; None: it is in the observation
        new_episode  (num_envs,) bool: which environments begin a further episode of a trial, for agents of
                     trials, unless it is in the observation. The memory is not reset; `first` begins a trial
        """
        check_obs(self.agent.obs_spec, obs)
        single = self.agent.obs_spec.is_single(obs)
        rows = self.rows(obs, reward, first, action_mask, new_episode)
        (params,), self._state = self.agent.actor(rows, self._state)
        self._decision = Decision(rows, params, self._state)
        policy = self.agent.policy
        if self.deterministic:
            action = policy.mode(params)
        else:
            # Drawn in float64 and then rounded, as in `collect`.
            noise = policy.noise(self._rng, (self.num_envs,))
            action = policy.sample(params, torch.from_numpy(noise).to(params.device, self._dtype))
        spec_out, chosen = self.agent.action_spec, action.cpu().numpy()
        self._action = spec_out.to_prev_action(chosen)
        self._first = np.zeros(self.num_envs, dtype=bool)
        self._steps += 1
        out = spec_out.to_env(chosen)
        return out[0] if single else out

    def _allowed(self, mask: Any) -> Array:
        """The action mask (num_envs, P); a UsageError if there is none, or if it allows no action."""
        if mask is None:
            raise UsageError(
                "this agent was trained with action masks: act and predict need the one of the environment "
                "(action_mask=info['action_mask'], or env.action_masks())"
            )
        spec = self.agent.action_spec
        allowed = read_mask(mask, spec.sizes, self.num_envs)
        blocked = find_blocked(allowed, spec.sizes)
        if len(blocked):
            raise UsageError(
                f"the action mask of environment {blocked[0]} allows no action at step {self._steps} of this "
                f"player: {allowed[blocked[0]].astype(int)}; at least one choice of each component must be "
                "allowed"
            )
        return allowed

    def rows(
        self, obs: Any, reward: Any, first: Array | None, action_mask: Any, new_episode: Any = False
    ) -> Rows:
        """The inputs of both networks (1, N, ...) for the arguments of `act`; the critic may lack some."""
        spec = self.agent.obs_spec
        single = spec.is_single(obs)
        if single and self.num_envs != 1:
            raise UsageError(f"one observation for a player of {self.num_envs} environments")
        batched = batched_obs(obs) if single else obs
        self._check_shapes(known_leaves(spec, batched))
        leaves = spec.split(batched, partial=True)
        opens = self._first | (False if first is None else read_flags("first", first, self.num_envs))
        if NEW_EPISODE in spec.leaves and NEW_EPISODE not in leaves:
            leaves[NEW_EPISODE] = (opens | read_flags("new_episode", new_episode, self.num_envs))[:, None]
        self._check_values(leaves)
        if self.agent.actor.masked:
            leaves[ACTION_MASK] = self._allowed(
                leaves.get(ACTION_MASK) if action_mask is None else action_mask
            )
        elif action_mask is not None:
            raise UsageError(
                "action_mask is given to an agent that was trained without action masks, whose actions it "
                "would not change; train with --env.action-mask"
            )
        rewards = read_rewards(reward, opens, self._steps if self.needs_reward else None)
        return self._rows(leaves, rewards, opens)

    def _check_shapes(self, leaves: Obs) -> None:
        for name, leaf in self.agent.actor.inputs.leaves.items():
            if name == NEW_EPISODE:
                continue  # an argument, unless the observation has it
            if name not in leaves:
                raise UsageError(
                    f"the actor of this agent sees {name}, which the observation does not have: it has "
                    f"{', '.join(leaves)}"
                )
            shape, expected = leaves[name].shape, (self.num_envs, *leaf.shape)
            if shape != expected and (leaf.kind, shape) != ("discrete", (*expected, 1)):
                raise UsageError(
                    f"observation {name!r} has shape {shape[1:]} in {next(iter(shape), 'no')} environments; "
                    f"this agent needs shape {leaf.shape}, and its player acts in {self.num_envs}"
                )

    def _check_values(self, leaves: Obs) -> None:
        """Raise UsageError for a number that is not finite, from which a memory state would not recover, and
        for an index outside of its space, which would be one of the next component."""
        outside = self._ranges.find_outside(leaves)
        if outside is not None:
            raise UsageError(
                f"observation {outside.name} is {outside.value} in environment {outside.env}, at step "
                f"{self._steps} of this player: {outside.rule}"
            )
        if (bad := find_not_finite(leaves)) is not None:
            name, (env, *place) = bad
            raise UsageError(
                f"observation {name}{place if place else ''} is {leaves[name][env, *place]} in environment "
                f"{env}, at step {self._steps} of this player: only finite numbers are allowed"
            )

    def _rows(self, leaves: Obs, reward: Array, opens: Array) -> Rows:
        tensors = {key: torch.from_numpy(np.ascontiguousarray(x)[None]) for key, x in leaves.items()}
        floats = {k: x.to(self._dtype) if x.is_floating_point() else x for k, x in tensors.items()}
        # 0 where an episode opens, as Rollout.write stores them: the actor must get the inputs of training.
        previous = torch.as_tensor(np.where(opens, 0.0, reward), dtype=self._dtype)
        action = torch.as_tensor(self._action * ~opens[:, None])
        action = action.long() if self.agent.policy.discrete else action.to(self._dtype)
        rows = Rows(floats, torch.from_numpy(opens)[None], action[None], previous[None]).to(self.agent.device)
        return rows._replace(obs=self.agent.normalizer(rows.obs))


class _Continued(NamedTuple):
    """A player after the given state, and its inputs for an observation."""

    player: Player
    first: Array | None
    rows: Rows


def _continue(
    agent: "Agent",
    obs: Any,
    state: PlayerState | None,
    episode_start: Any,
    deterministic: bool,
    action_masks: Any,
) -> _Continued:
    num_envs = count_envs(agent.obs_spec, obs)
    # A seed from torch's global generator, which the seed functions of other libraries seed.
    player = Player(agent, num_envs, deterministic, seed=int(torch.randint(2**62, ())))
    if state is not None:
        player.continue_from(state)
    # Callers have refused agents whose computed branch takes rewards; those of the other one do not matter.
    player.needs_reward = False
    first = None if episode_start is None else read_flags("episode_start", episode_start, num_envs)
    return _Continued(player, first, player.rows(obs, None, first, action_masks))


def _refuse_reward(branch: "Branch", call: str) -> None:
    if branch.inputs.prev_reward:
        raise UsageError(f"{call} gets no rewards, and this agent needs the previous one; use player()")


@torch.no_grad()
def predict(
    agent: "Agent",
    obs: Any,
    state: PlayerState | None,
    episode_start: Any,
    deterministic: bool,
    action_masks: Any = None,
) -> tuple[Any, PlayerState]:
    """Actions and the state for the next call, as `predict` of Stable-Baselines3 has them.

    obs            of one environment, or of several with a leading axis
    state          that the previous call returned; None: every environment begins an episode
    episode_start  (num_envs,) bool: which environments begin an episode with this observation
    action_masks   which actions are allowed, as in sb3-contrib; None: they are in the observation
    """
    _refuse_reward(agent.actor, "predict")
    player, first, rows = _continue(agent, obs, state, episode_start, deterministic, action_masks)
    critic = agent.initial_state(player.num_envs).critic if state is None else state.critic
    inputs = agent.critic.trunk.inputs
    if critic is not None and not inputs.prev_reward and inputs.leaves.keys() <= rows.obs.keys():
        critic = agent.critic.advance(rows, critic)
    action = player.act(obs, first=first, action_mask=action_masks)
    return action, player.state._replace(critic=critic)


@torch.no_grad()
def value(agent: "Agent", obs: Any, state: PlayerState | None, episode_start: Any) -> Array:
    """V (num_envs,) as the critic computes it; arguments are those of predict."""
    _refuse_reward(agent.critic.trunk, "value")
    # Values depend on no mask; the actor of the player takes one.
    shape = count_envs(agent.obs_spec, obs), sum(agent.action_spec.sizes)
    mask = np.ones(shape, dtype=bool) if agent.actor.masked else None
    player, _, rows = _continue(agent, obs, state, episode_start, True, mask)
    if missing := sorted(agent.critic.trunk.inputs.leaves.keys() - rows.obs.keys()):
        raise UsageError(f"value needs {', '.join(missing)}, which the critic of this agent sees")
    before = agent.initial_state(player.num_envs)
    if state is not None:
        before = before._replace(actor=state.memory, critic=_critic_state(state, before.critic))
    values: Array = agent.value(rows, before)[0][0].cpu().numpy()
    return values


def _critic_state(state: PlayerState, initial: Tree) -> Tree:
    """The memory state of the critic before a step, which the state of a player does not have."""
    if state.critic is not None:
        return state.critic
    if tree.leaves(initial):
        raise UsageError(
            "this is the state of a player, which has no memory state of the critic: value needs the state "
            "that predict returned, called at every step from the start of the episode"
        )
    return initial


@torch.no_grad()
def distribution(
    agent: "Agent", obs: Any, state: PlayerState | None, episode_start: Any, action_masks: Any = None
) -> Distribution:
    """The policy of num_envs environments; arguments are those of predict."""
    _refuse_reward(agent.actor, "distribution")
    player, first, _ = _continue(agent, obs, state, episode_start, True, action_masks)
    player.act(obs, first=first, action_mask=action_masks)
    return agent.policy.distribution(player.inspect().params)
