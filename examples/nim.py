"""Nim with a limit that is seen once: two players in turn take stones, and whoever takes the last one wins.

A player may take up to 2 or up to 3 stones, as drawn for each game. It sees this limit at its first turn
only, and the heap at every turn. Whoever leaves a multiple of the limit plus 1 wins, so it must remember the
limit. The agent learns by playing against earlier versions of itself. Then it plays against the perfect
player, who always knows the limit, from all positions from which a perfect player wins: the best share of
games won is 1, and without a memory 5/6. Run it with

    python examples/nim.py
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

import recollect

HEAPS = range(5, 13)
LIMITS = (2, 3)
DIGITS = 4  # binary ones, of a heap
OPTIONS = {
    "env.self_play": 8,
    "env.num_envs": 64,
    "ppo.num_steps": 64,
    "ppo.learning_rate": 0.003,
    "ppo.gamma": 1.0,
    "ppo.ent_coef": 0.05,
}


class Nim(AECEnv[str, NDArray[np.float32], int]):
    """An observation has the heap in binary, and at the first turn of a player the limit, one-hot."""

    metadata: ClassVar[dict[str, Any]] = {"name": "nim", "render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = ["first", "second"]
        self._seen = spaces.Box(0.0, 1.0, (DIGITS + len(LIMITS),), np.float32)
        self._takes = spaces.Discrete(max(LIMITS), start=1)
        self.random = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The heap (4 binary digits) and the limit (2)."""
        return self._seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Stones to take; more than the limit takes the limit."""
        return self._takes

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Draw a heap and a limit."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.heap, self.limit = int(self.random.choice(HEAPS)), int(self.random.choice(LIMITS))
        self.agent_selection, self.turns = "first", 0

    def observe(self, agent: str) -> NDArray[np.float32]:
        """The heap, and at the first turn the limit."""
        heap = [(self.heap >> digit) % 2 for digit in range(DIGITS)]
        limit = [self.turns < 2 and self.limit == limit for limit in LIMITS]
        return np.array([*heap, *limit], np.float32)

    def step(self, action: int | None) -> None:
        """Take stones; the last one wins."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        self._cumulative_rewards[agent] = 0.0
        self.heap -= min(int(action), self.limit, self.heap)
        self.turns += 1
        self.agent_selection = other = self.possible_agents[self.turns % 2]
        if not self.heap:
            self.rewards = {agent: 1.0, other: -1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()


def play_perfectly(game: Nim) -> int:
    """Leave a multiple of the limit plus 1, or if that is impossible take any number."""
    return game.heap % (game.limit + 1) or int(game.random.integers(1, game.limit + 1))


def play(agent: recollect.Trained, games: int, seed: int = 0) -> float:
    """The share of games that an agent wins against the perfect player, where a perfect player would."""
    game, player = Nim(), agent.player()
    game.reset(seed)
    wins = []
    while len(wins) < games:
        game.reset()
        player.reset()
        # Who is first wins unless the heap is such a multiple.
        seat = "first" if game.heap % (game.limit + 1) else "second"
        for name in game.agent_iter():
            observed, reward, ended, _, _ = game.last()
            if ended:
                wins += [reward > 0] if name == seat else []
                game.step(None)
            else:
                game.step(int(player.act(observed)) if name == seat else play_perfectly(game))
    return float(np.mean(wins))


def main(steps: int = 200_000, games: int = 1000, seed: int = 40, out: str = "runs") -> dict[str, float]:
    """Train with a GRU and without a memory; the share of games that each wins."""
    shares = {}
    for model in ("ppo_gru", "ppo"):
        run = recollect.train(Nim, model, steps=steps, seed=seed, options=OPTIONS, out=out, quiet=True)
        shares[model] = play(run, games)
        print(f"{model}: wins {shares[model]:.3f} of the games that can be won")
    return shares


if __name__ == "__main__":
    main()
