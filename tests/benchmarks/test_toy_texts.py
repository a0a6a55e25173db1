"""The preset of Gymnasium's toy texts beside the best policy, which their own tables give exactly."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FOREVER = 2_000  # steps, where a task has no limit
# The best mean return, and how far from it the preset may be: chance in 100 episodes included.
BEST = {
    "FrozenLake-v1": (0.744, 0.05),
    "FrozenLake8x8-v1": (0.913, 0.1),
    "CliffWalking-v1": (-13.0, 2.5),
    "CliffWalkingSlippery-v1": (-64.71, 5.0),
    "Taxi-v4": (7.93, 0.3),
}


def best_return(name: str) -> float:
    """The mean return of the best policy within the limit of steps, by dynamic programming."""
    env = gymnasium.make(name).unwrapped
    states, actions = env.observation_space.n, env.action_space.n
    moves, rewards = np.zeros((states, actions, states)), np.zeros((states, actions))
    for state, of_state in env.P.items():
        for action, outcomes in of_state.items():
            for probability, after, reward, ended in outcomes:
                rewards[state, action] += probability * reward
                moves[state, action, after] += probability * (not ended)
    values = np.zeros(states)
    for _ in range(gymnasium.spec(name).max_episode_steps or FOREVER):
        values = (rewards + moves @ values).max(1)
    return float(env.initial_state_distrib @ values)


@pytest.mark.parametrize("name", BEST)
def test_the_best_return_is_that_of_dynamic_programming(name):
    assert best_return(name) == pytest.approx(BEST[name][0], abs=5e-3)


@pytest.mark.parametrize("name", BEST)
def test_the_preset_is_near_the_best_policy(name):
    best, room = BEST[name]
    means = [run["mean"] for run in json.loads((RESULTS / f"returns-{name}.json").read_text())]
    assert len(means) == 5
    assert abs(np.mean(means) - best) < room
