"""The example of two agents with half a code each: what the best and the memoryless policies get."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

PATH = Path(__file__).parents[2] / "examples" / "two_halves.py"
SPEC = importlib.util.spec_from_file_location("two_halves", PATH)
two_halves = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(two_halves)


def play(policy, episodes=400):
    """The mean return of a policy: (agent, observations so far) -> action."""
    env, returns = two_halves.TwoHalves(), []
    for seed in range(episodes):
        observations, _ = env.reset(seed=seed)
        seen = {agent: [x] for agent, x in observations.items()}
        total = 0.0
        while env.agents:
            actions = {agent: policy(agent, seen[agent]) for agent in env.agents}
            observations, rewards, *_ = env.step(actions)
            total += rewards["left"]
            assert rewards["left"] == rewards["right"]
            for agent, x in observations.items():
                seen[agent].append(x)
        assert len(seen["left"]) == env.last_step + 2
        returns.append(total)
    return float(np.mean(returns))


def signals_and_remembers(agent, seen):
    """Signal the half that was seen, and enter it with the half that the other signalled."""
    mine = int(seen[0][1])
    if len(seen) == 1:
        return mine
    other = int(seen[1][2:6].argmax())
    return 2 * mine + other if agent == "left" else 2 * other + mine


@pytest.mark.filterwarnings("ignore")  # the package of the test imports games in a deprecated way
def test_the_interface_is_that_of_pettingzoo():
    checks = pytest.importorskip("pettingzoo.test", exc_type=ImportError)  # the games need pygame
    checks.parallel_api_test(two_halves.TwoHalves(), num_cycles=50)


def test_a_memory_solves_it():
    assert play(signals_and_remembers) == 1.0


@pytest.mark.parametrize("answer", range(4))
def test_without_a_memory_no_policy_is_better_than_a_guess(answer):
    assert play(lambda agent, seen: answer) == pytest.approx(0.25, abs=0.06)


def test_the_last_observation_is_the_same_for_every_code():
    """So a policy without memory has one answer."""
    seen = [last_observation(halves) for halves in itertools.product(range(2), repeat=2)]
    assert all(one == seen[0] for one in seen)


def last_observation(halves):
    """The observation in which the code is asked for."""
    env = two_halves.TwoHalves()
    env.reset(seed=0)
    env.halves = np.array(halves)
    for _ in range(env.last_step):
        observations, *_ = env.step(dict.fromkeys(env.agents, 1))
    assert observations["left"].tolist() == observations["right"].tolist()
    return observations["left"].tolist()


def test_the_example_runs(tmp_path, capsys):
    returns = two_halves.main(steps=2_048, out=str(tmp_path))
    assert returns.keys() == {"ppo_gru", "ppo"} and all(0 <= x <= 1 for x in returns.values())
    assert "ppo_gru: mean return" in capsys.readouterr().out
