"""Learning, on environments so small that values and best actions are known beforehand.

Each catches its own kind of mistake: a wrong discount fails `delay` and `countdown`, an end taken
for a cut (or the other way round) fails `forever`, a state that is lost fails `recall`.
"""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recollect import memory as memories
from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.nets import Rows
from recollect.envs import EnvConfig, make
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.settings import Decay, Plan, PPOConfig
from recollect.memory.mlp import MlpConfig
from recollect.memory.stack import StackConfig

from ..helpers import sampled

GAMMA = 0.9


def learn(
    name,
    rollouts,
    memory=None,
    kwargs=None,
    shared=False,
    update=ppo.update,
    critic=None,
    until=None,
    **options,
):
    """Train small networks on a probe; the agent, environments to play in, and its metrics.

    critic  the memory of the critic; None: that of the actor
    until   a condition of the agent at which training ends before its last rollout
    """
    config = EnvConfig(id=f"probe:{name}", num_envs=16, kwargs=kwargs or {})
    envs = make(config)
    branch = BranchConfig(memory=memory or MlpConfig(), hidden=(16,))
    critic = replace(branch, shared=shared, memory=critic or branch.memory)
    agent = build_agent((envs.obs_spec, envs.action_spec), branch, critic, False, seed=1)
    chosen = {
        "num_steps": 16,
        "num_minibatches": 2,
        "gamma": GAMMA,
        "learning_rate": 2e-2,
        "lr_decay": Decay(final=0.0),
        "max_grad_norm": 0.0,
    }
    plan = Plan(ppo=PPOConfig(**{**chosen, **options}), seed=1, rollouts=rollouts)
    learned = SimpleNamespace(agent=agent, envs=make(config), metrics=[])
    for learned.last in ppo.train(envs, begin(envs, agent, plan), plan, update):
        learned.metrics.append(learned.last)
        if until is not None and until(learned):
            break
    return learned


@torch.no_grad()
def values(learned, *observations):
    """V of single observations that open an episode."""
    count = len(observations)
    rows = Rows(
        {"obs": torch.tensor([observations], dtype=torch.float32)[..., None]},
        torch.ones(1, count, dtype=torch.bool),
        torch.zeros(1, count, learned.envs.action_spec.width),
        torch.zeros(1, count),
    )
    return learned.agent.critic(rows, learned.agent.initial_state(count).critic)[0][0].tolist()


def play(learned, steps):
    """Mean return of the deterministic player's episodes."""
    envs, total, ends = learned.envs, 0.0, 0
    player = learned.agent.player(envs.num_envs)
    obs, first = envs.adapter.reset(list(range(1000, 1000 + envs.num_envs))), None
    ended = np.zeros(envs.num_envs, dtype=bool)
    for _ in range(steps):
        step = envs.adapter.step(player.act(obs, first=first))
        obs, first, ended = step.obs, ended, step.terminated | step.truncated
        total, ends = total + step.reward.sum(), ends + ended.sum()
    return total / ends


def recalls(learned):
    """Whether the task `recall` is solved, by drawn actions and by the best ones; half of it is by chance."""
    return (learned.last["success"] or 0.0) > 0.95 and play(learned, 50) == 1.0


def test_constant_value():
    assert values(learn("constant", 30), 0.0) == pytest.approx([1.0], abs=0.02)


def test_value_follows_the_observation():
    assert values(learn("sight", 60), -1.0, 1.0) == pytest.approx([-1.0, 1.0], abs=0.05)


def test_a_later_reward_is_discounted_once():
    assert values(learn("delay", 60), 0.0, 1.0) == pytest.approx([GAMMA, 1.0], abs=0.03)


@pytest.mark.thorough
def test_values_count_down():
    wanted = [(1 - GAMMA**left) / (1 - GAMMA) for left in range(1, 6)]
    found = values(learn("countdown", 150), *(left / 5 for left in range(1, 6)))
    assert found == pytest.approx(wanted, abs=0.15)


@pytest.mark.parametrize("gamma", sampled([0.5, GAMMA], GAMMA))
def test_what_a_time_limit_cuts_goes_on_in_the_value(gamma):
    found = values(learn("forever", 100, gamma=gamma), 0.0)
    assert found == pytest.approx([1 / (1 - gamma)], rel=0.03)


def test_the_better_of_two_actions_is_chosen():
    learned = learn("choice", 40)
    assert play(learned, 20) == 1.0
    assert learned.last["return"] > 0.9
    assert values(learned, 0.0) == pytest.approx([1.0], abs=0.1)


def test_actions_follow_observations():
    learned = learn("match", 60)
    assert play(learned, 40) == 1.0
    assert values(learned, -1.0, 1.0) == pytest.approx([1.0, 1.0], abs=0.15)


@pytest.mark.thorough
def test_box_actions_come_near():
    # Slower than elsewhere: beyond a bound, where actions are clipped, nothing leads back.
    learned = learn("box", 120, learning_rate=1e-2)
    assert play(learned, 40) > -0.05


@pytest.mark.thorough
def test_every_kind_of_space_at_once():
    learned = learn("mixed", 120, ent_coef=0.001)
    assert play(learned, 100) > 5.9


@pytest.mark.thorough
def test_binary_actions_equal_the_bits_that_are_seen():
    assert play(learn("bits", 120), 100) > 0.95


def small(name):
    """A memory of this name with few units, where it has units."""
    kind = memories.find(name)
    return kind(**{"width": 16} if "width" in {f.name for f in fields(kind)} else {})


@pytest.mark.parametrize("name", sampled(memories.available(), "gru", "stack", "mamba", "deltanet", "trxl"))
def test_recall_is_learned_by_every_memory_that_sees_far_enough_back(name):
    memory = small(name)
    reach = memory.build(1).reach
    options = {"memory": memory, "learning_rate": 1e-2, "max_grad_norm": 0.5}
    if reach is None or reach > 3:
        assert recalls(learn("recall", 50, until=recalls, **options))
    else:
        assert abs(play(learn("recall", 50, **options), 500)) < 0.1


def test_recall_is_learned_with_one_memory_for_both_and_states_that_follow_the_weights():
    options = {"learning_rate": 1e-2, "max_grad_norm": 0.5, "ent_coef": 0.02}
    options |= {"chunk_state": "refresh", "bptt": 8, "until": recalls}
    assert recalls(learn("recall", 50, small("lstm"), shared=True, **options))


@pytest.mark.thorough
def test_recall_cannot_be_learned_with_too_few_frames():
    assert abs(play(learn("recall", 100, memory=StackConfig(frames=3)), 500)) < 0.1


def test_recall_is_learned_with_just_enough_frames():
    options = {"memory": StackConfig(frames=3), "kwargs": {"delay": 2}, "until": recalls}
    assert recalls(learn("recall", 100, **options))


@pytest.mark.thorough
def test_only_a_critic_that_remembers_knows_the_value_of_a_loan():
    explained = {}
    for name, memory in (("gru", small("gru")), ("none", MlpConfig())):
        learned = learn("loan", 60, kwargs={"steps": 8}, critic=memory, learning_rate=1e-2)
        explained[name] = learned.last["explained_variance"]
    assert explained["gru"] > 0.9 > 0.5 > explained["none"]
