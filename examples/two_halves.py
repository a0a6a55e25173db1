"""Two agents each see half of a code, signal it to the other, and must both enter the whole code later.

An agent that remembers enters the right code: the best mean return is 1. Without a memory nothing is known
when the code is entered, so no policy is better than a guess among four codes: 0.25. Run it with

    python examples/two_halves.py
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

import recollect

CODES = 4  # of two halves, each 0 or 1
OPTIONS = {
    "env.num_envs": 32,
    "env.agent_id": True,  # the agents see different halves: an input says which one it is
    "ppo.num_steps": 32,
    "ppo.learning_rate": 0.003,
    "actor.hidden": [32],
    "critic.hidden": [32],
}


class TwoHalves(ParallelEnv[str, NDArray[np.float32], int]):
    """Step 0 shows an agent its half, step 1 the action of the other, the last step asks for the code.

    Nothing is shown in the steps between. The reward of both is the share of agents that enter the code.

    delay  steps between the signal and the question
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "two_halves", "render_modes": []}

    def __init__(self, delay: int = 3) -> None:
        self.possible_agents = ["left", "right"]
        self._seen = spaces.Box(0.0, 1.0, (2 + CODES + 1,), np.float32)
        self._code = spaces.Discrete(CODES)
        self.last_step = delay + 2
        self.random = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """One-hot codes of the half (2) and of the signal (4), and whether the code is asked for."""
        return self._seen

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """A code, which is the signal in step 0."""
        return self._code

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Draw the halves."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.halves = self.random.integers(2, size=2)
        self.time = 0
        return self._observe([]), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        """Show the signals after step 0, and end after the last step."""
        agents, self.time = self.agents, self.time + 1
        taken = [int(actions[agent]) for agent in agents]
        ended = self.time > self.last_step
        code = int(2 * self.halves[0] + self.halves[1])
        reward = float(np.mean([action == code for action in taken])) if ended else 0.0
        observations = self._observe(taken)
        self.agents = [] if ended else agents
        return (
            observations,
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, ended),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def _observe(self, taken: list[int]) -> dict[str, NDArray[np.float32]]:
        observations = {}
        for i, agent in enumerate(self.agents):
            seen = np.zeros(2 + CODES + 1, np.float32)
            if self.time == 0:
                seen[self.halves[i]] = 1
            elif self.time == 1:
                seen[2 + taken[1 - i]] = 1
            seen[-1] = self.time == self.last_step
            observations[agent] = seen
        return observations


def main(steps: int = 150_000, out: str = "runs") -> dict[str, float]:
    """Train with a GRU and without a memory; the mean return of each."""
    returns = {}
    for model in ("ppo_gru", "ppo"):
        run = recollect.train(TwoHalves, model, steps=steps, seed=0, options=OPTIONS, out=out, quiet=True)
        returns[model] = run.evaluate(200).mean
        print(f"{model}: mean return {returns[model]:.3f}")
    return returns


if __name__ == "__main__":
    main()
