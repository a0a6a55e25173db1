"""Nim with a heap that is seen once: two players in turn take 1 to 3 stones, and whoever takes the last wins.

A player sees the heap before its first turn, and from then on only how many stones the other took. Whoever
leaves a multiple of 4 wins, so a winning player must remember the heap and count. The agent learns by playing
against earlier versions of itself. Then it plays against the perfect player, who always sees the heap, from
all positions from which a perfect player wins: the best share of games won is 1. Run it with

    python examples/blind_nim.py
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

import recollect

SMALLEST, LARGEST = 5, 12  # stones of a heap; each remainder by 4 is as likely
DIGITS = 4  # binary ones, of the heap
MOST = 3  # stones that a player may take
OPTIONS = {
    "env.self_play": 8,
    "env.num_envs": 64,
    "ppo.num_steps": 64,
    "ppo.learning_rate": 0.003,
    "ppo.gamma": 1.0,
    "ppo.ent_coef": 0.02,
    "actor.prev_action": True,
    "critic.prev_action": True,
}


class BlindNim(AECEnv[str, NDArray[np.float32], int]):
    """An observation has the heap in binary, 0 after the first turn of a player, and what the other took."""

    metadata: ClassVar[dict[str, Any]] = {"name": "blind_nim", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["first", "second"]
        self._seen = spaces.Box(0.0, 1.0, (DIGITS + MOST + 1,), np.float32)
        self._takes = spaces.Discrete(MOST, start=1)
        self.random = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The heap (4 binary digits) and the stones that the other took (0 to 3, one-hot)."""
        return self._seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Stones to take; more than there are take all."""
        return self._takes

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Draw a heap."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.heap = int(self.random.integers(SMALLEST, LARGEST + 1))
        self.agent_selection, self.turns, self.taken = "first", 0, 0

    def observe(self, agent: str) -> NDArray[np.float32]:
        """The heap at the first turn, and the last move of the other."""
        heap = [(self.heap >> digit) % 2 * (self.turns < 2) for digit in range(DIGITS)]
        return np.concatenate([heap, np.eye(MOST + 1)[self.taken]]).astype(np.float32)

    def step(self, action: int | None) -> None:
        """Take stones; the last one wins."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        self._cumulative_rewards[agent] = 0.0
        self.turns, self.taken = self.turns + 1, min(int(action), self.heap)
        self.heap -= self.taken
        self.agent_selection = other = self.possible_agents[self.turns % 2]
        if not self.heap:
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()


def play_perfectly(game: BlindNim) -> int:
    """Leave a multiple of 4, or if that is impossible take any number."""
    return game.heap % 4 or int(game.random.integers(1, MOST + 1))


def play(agent: recollect.Trained, games: int, seed: int = 0) -> float:
    """The share of games that an agent wins against the perfect player, where a perfect player would."""
    game, player = BlindNim(), agent.player()
    game.reset(seed)
    wins = []
    while len(wins) < games:
        game.reset()
        player.reset()
        # Who is first wins unless the heap is a multiple of 4.
        seat = "first" if game.heap % 4 else "second"
        for name in game.agent_iter():
            observed, reward, ended, _, _ = game.last()
            if ended:
                wins += [reward > 0] if name == seat else []
                game.step(None)
            else:
                game.step(int(player.act(observed)) if name == seat else play_perfectly(game))
    return float(np.mean(wins))


def main(steps: int = 200_000, games: int = 1000, seed: int = 30, out: str = "runs") -> dict[str, float]:
    """Train with a GRU and without a memory; the share of games that each wins."""
    shares = {}
    for model in ("ppo_gru", "ppo"):
        run = recollect.train(BlindNim, model, steps=steps, seed=seed, options=OPTIONS, out=out, quiet=True)
        shares[model] = play(run, games)
        print(f"{model}: wins {shares[model]:.3f} of the games that can be won")
    return shares


if __name__ == "__main__":
    main()
