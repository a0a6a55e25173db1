"""Self-play: earlier versions of an agent, which play the other seats of its games.

After each update the latest opponent gets the weights of the agent. Up to K older ones are kept, spread
evenly over training: the interval between two of them doubles whenever their number reaches K. A game draws
its opponent when it begins, the latest with probability 1/2 and else one of the older ones. If weights are
replaced while a game goes on, its opponent continues with the new ones.

Against the latest alone, an agent may run in circles, forgetting how to beat what it has left behind.

Shapes.  N games, A seats; the sequences of opponents are N A, of which seat a of game g is g A + a.
"""

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.player import Player, PlayerState
from ..common.errors import UsageError
from ..common.tree import leaves, map_leaves
from ..envs import Envs
from ..envs.action_masks import read_mask
from ..envs.opponents import Turn, join_observations
from ..envs.spaces import ACTION_MASK, ActionSpec, Array

SHARE_OF_LATEST = 0.5  # of the games
PARTS = ("actor", "normalizer")  # of an agent, which acting depends on


class PastSelves:
    """The opponents of a run. They sample from their policies, as the agent does in training."""

    def __init__(self, agent: Agent, envs: Envs, keep: int) -> None:
        """agent: as it is when training begins."""
        self._agent = agent
        self._games, self._seats = envs.num_envs, len(envs.adapter.seats)
        # The critic takes no part in acting, so the copies share it.
        copies = (copy.deepcopy(agent, {id(agent.critic): agent.critic}) for _ in range(1 + keep))
        self._latest, *self._older = copies
        self._opponents = [self._latest] * self._games
        self.begin_training()
        self.restart()

    # As opponents -----------------------------------------------------------------------------------

    def begin(self, game: int, random: np.random.Generator) -> None:
        """Draw the opponent of a game, whose sequences begin."""
        older = [x for x, iteration in zip(self._older, self._iterations, strict=True) if iteration >= 0]
        index = int(random.integers(len(older)))
        self._opponents[game] = self._latest if random.random() < SHARE_OF_LATEST else older[index]
        self._first[game * self._seats : (game + 1) * self._seats] = True

    @torch.no_grad()
    def act(self, turns: list[Turn]) -> list[Array]:
        """One sampled action for each turn."""
        groups: dict[int, list[int]] = {}
        for i, turn in enumerate(turns):
            groups.setdefault(id(self._opponents[turn.game]), []).append(i)
        actions: dict[int, Array] = {}
        for group in groups.values():
            opponent = self._opponents[turns[group[0]].game]
            actions |= zip(group, self._act(opponent, [turns[i] for i in group]), strict=True)
        return [actions[i] for i in range(len(turns))]

    def _act(self, opponent: Agent, turns: list[Turn]) -> Array:
        """Actions (n, ...) of one opponent in n games."""
        policy, spec = opponent.policy, opponent.action_spec
        sequences = np.array([turn.game * self._seats + turn.seat for turn in turns])
        places = torch.from_numpy(sequences)
        memory = map_leaves(lambda x: x[places], self._memory)
        player = Player(opponent, len(turns), deterministic=False, seed=0)
        player.continue_from(PlayerState(memory, self._actions[sequences]))
        rows = player.rows(
            join_observations(turns),
            np.array([turn.reward for turn in turns]),
            self._first[sequences],
            np.concatenate([_allowed(spec, turn) for turn in turns]) if opponent.actor.masked else None,
        )
        (params,), memory = opponent.actor(rows, memory)
        # Of the generator of each game, so that actions do not depend on the games beside it.
        noise = torch.from_numpy(np.stack([policy.noise(turn.random, ()) for turn in turns]))
        action: Array = policy.sample(params, noise.to(params)).cpu().numpy()
        for kept, new in zip(leaves(self._memory).values(), leaves(memory).values(), strict=True):
            kept[places] = new
        self._actions[sequences] = spec.to_prev_action(action)
        self._first[sequences] = False
        return spec.to_env(action)

    def restart(self) -> None:
        """Every game begins: all memories are reset."""
        sequences = self._games * self._seats
        self._memory = map_leaves(torch.clone, self._agent.initial_state(sequences).actor)
        self._actions = np.zeros((sequences, self._agent.action_spec.width))
        self._first = np.ones(sequences, dtype=bool)

    # As part of a learner ---------------------------------------------------------------------------

    def begin_training(self) -> None:
        """All versions are the agent as it is now."""
        for version in (self._latest, *self._older):
            _copy_weights(self._agent, version)
        self._iterations = [0] + [-1] * (len(self._older) - 1)  # of the older ones; -1: a free place
        self._interval = 1

    def follow(self, iteration: int) -> None:
        """Take the weights that the agent has after an iteration, and keep older ones."""
        _copy_weights(self._agent, self._latest)
        while iteration % self._interval == 0:
            if -1 in self._iterations:
                place = self._iterations.index(-1)
                self._iterations[place] = iteration
                _copy_weights(self._agent, self._older[place])
                return
            self._interval *= 2
            self._iterations = [x if x % self._interval == 0 else -1 for x in self._iterations]

    def tensors(self) -> dict[str, Tensor]:
        """The older versions, by name, for a checkpoint; the latest has the weights of the agent."""
        weights = {
            f"{i}.{part}.{name}": x
            for i, older in enumerate(self._older)
            for part in PARTS
            for name, x in getattr(older, part).state_dict().items()
        }
        return {**weights, "iterations": torch.tensor([self._interval, *self._iterations])}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Undoes `tensors`, after the agent was restored."""
        _copy_weights(self._agent, self._latest)
        for name, x in self.tensors().items():
            x.copy_(tensors[name])
        self._interval, *self._iterations = tensors["iterations"].tolist()
        self.restart()


def _allowed(spec: ActionSpec, turn: Turn) -> Array:
    """The action mask of a turn (1, P)."""
    if turn.mask is None:
        raise UsageError(
            f"the game gives no action mask: no entry {ACTION_MASK} in its Dict observation or info; use "
            "--env.action-mask False"
        )
    return read_mask(turn.mask, spec.sizes, 1)


@torch.no_grad()
def _copy_weights(source: Agent, target: Agent) -> None:
    for part in PARTS:
        getattr(target, part).load_state_dict(getattr(source, part).state_dict())
