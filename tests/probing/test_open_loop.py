"""The policy at recorded steps, of agents whose answers are known because they were built by hand."""

import json
import math
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from recollect.envs import EnvConfig
from recollect.probing import probe
from recollect.probing.interventions import Noisy
from recollect.probing.open_loop import are_enough, average_steps, number_episodes
from recollect.probing.screen import write_text
from recollect.reporting.summary import to_json_data
from recollect.run.recording import Record

from ..helpers import MEMORIES
from .test_probe import RECALL, CountConfig, Lag, LagConfig, Parity, Repeat, trained

WEIGHT = 1.5
HEADS = 1 / (1 + math.exp(-WEIGHT))  # the probability of the more likely action


def change_with(probed, name):
    return next(one for one in probed.policy.changes if one.name == name)


@pytest.fixture(scope="module")
def remembering():
    """It copies the sign of the first step, which is 0 in all others: its policy depends on nothing else."""
    return probe(trained(WEIGHT), episodes=60)


def test_divergences_are_those_of_the_formulas(remembering):
    later = 1 - 1 / remembering.whole.length  # in the first step the sign is seen, whatever the memory
    entropy = -HEADS * math.log(HEADS) - (1 - HEADS) * math.log(1 - HEADS)
    reset = change_with(remembering, "cleared at every step").divergence
    assert reset.value == pytest.approx(later * (math.log(2) - entropy), rel=1e-5)
    assert reset.interval == pytest.approx((reset.value, reset.value), rel=1e-5)  # equal in every episode
    assert change_with(remembering, "frozen after the first step").divergence.value == 0
    # The other sign has the other probabilities; half of the episodes have it, more or less.
    swapped = change_with(remembering, "that of another episode")
    opposite = (2 * HEADS - 1) * WEIGHT
    assert swapped.divergence.value == pytest.approx(swapped.changed.value * opposite, rel=1e-5)
    assert swapped.divergence.interval.low < swapped.divergence.value < swapped.divergence.interval.high
    assert 0.2 < swapped.changed.value < 0.6


def test_choices_follow_the_state_but_where_the_sign_is_seen(remembering):
    later = 1 - 1 / remembering.whole.length
    patching = remembering.policy.patching
    assert patching.other.value == pytest.approx(later) and patching.same.value == pytest.approx(1 - later)
    assert patching.steps % remembering.whole.length == 0
    assert "With the memory state of another episode it takes that episode's action at 0." in (
        remembering.follows
    )
    assert "policy at the same steps" in write_text(remembering)


def test_an_agent_that_ignores_its_memory_has_the_policy_that_it_had():
    probed = probe(trained(0.0), episodes=60)
    assert {one.divergence.value for one in probed.policy.changes} == {0.0}
    assert {one.changed.value for one in probed.policy.changes} == {0.0}
    # 60 episodes without a change do not show that there is none.
    assert all(0.02 < one.changed.interval.high < 0.1 for one in probed.policy.changes)
    assert probed.policy.patching is None and probed.follows is None
    assert probed.policy.length is None and probed.reaches is None


class Idle(Repeat):
    """Signs without a task: the reward is 1 in any case."""

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 1.0, terminated, truncated, info


def test_a_policy_may_change_without_a_loss_of_score():
    """The control of both: the score says that the memory is not used, and the policy depends on it."""
    probed = probe(trained(1.0, LagConfig(lag=1), EnvConfig(), factory=partial(Idle, 1)), episodes=20)
    assert {one.lost.by for one in probed.ablations} == {0.0} and probed.length is None
    assert probed.uses.startswith(
        "Its score does not need its memory: with a reset at every step the return is"
    )
    assert (probed.policy.length.steps, probed.policy.length.interval) == (2, (2, 2))
    assert probed.reaches.startswith("Its policy depends on about 2 steps (2 to 2) of memory: with fewer")
    assert change_with(probed, "cleared at every step").divergence.value > 0.1
    assert change_with(probed, "only the last 2 steps").divergence.value == pytest.approx(0, abs=1e-9)
    assert probed.policy.patching.other.value > 0.9 and probed.policy.patching.same.value < 0.1


def test_a_clock_has_the_same_policy_with_the_state_of_another_episode():
    env = EnvConfig()
    probed = probe(trained(1.0, CountConfig(), env, factory=Parity), episodes=20)
    assert change_with(probed, "that of another episode").divergence.value < 0.02  # beyond the longest other
    assert change_with(probed, "cleared at every step").divergence.value > 0.1


class Slide(gymnasium.Env):
    """Five steps of noise, and a number as the action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([self.np_random.uniform(-1, 1)], np.float32), {}

    def step(self, action):
        self.time += 1
        return np.array([self.np_random.uniform(-1, 1)], np.float32), 1.0, self.time == 5, False, {}


def test_real_actions_have_a_divergence_and_no_choices():
    # The mean is twice the number before, and the deviation 1.
    probed = probe(trained(2.0, LagConfig(lag=1), EnvConfig(), factory=Slide), episodes=40)
    reset = change_with(probed, "cleared at every step")
    # Four of five steps; the mean of 4 x^2 / 2 for uniform x is 2 / 3.
    assert reset.divergence.value == pytest.approx(0.8 * 2 / 3, rel=0.2) and reset.changed is None
    assert probed.policy.patching is None


class Fragile(Lag):
    """Its state is 1, and it computes the root of it."""

    def initial_state(self, batch):
        return torch.ones(batch, 1)

    def forward(self, x, state, first):
        return (x[..., :1] + state.sqrt() - 1), state


@dataclass(frozen=True, kw_only=True)
class FragileConfig(LagConfig):
    """A state that noise must not make negative."""

    name: ClassVar[str] = "fragile"

    def build(self, in_dim, action_dim=0):
        return Fragile(1)


def test_a_policy_that_is_not_finite_has_no_divergence(monkeypatch):
    step = Noisy.step
    monkeypatch.setattr(Noisy, "step", lambda self, x, state, first: step(self, x, state - 2, first))
    probed = probe(trained(1.0, FragileConfig(), EnvConfig(), factory=partial(Idle, 1)), episodes=20)
    noisy = change_with(probed, "noise of 1 deviation")
    assert noisy.divergence is None and noisy.changed is None
    assert change_with(probed, "cleared at every step").divergence.value == 0
    assert "noise of 1 deviation" in write_text(probed)
    assert (
        json.loads(json.dumps(to_json_data(probed), allow_nan=False))["policy"]["changes"][-1]["divergence"]
        is None
    )


def test_an_agent_without_a_memory_has_no_open_loop():
    assert probe(trained(1.0, MEMORIES["mlp"](), RECALL), episodes=20).policy is None


def test_means_are_over_steps_and_intervals_over_episodes():
    episodes, steps = 40, 5
    episode, all_steps = np.tile(np.arange(episodes), (steps, 1)), np.ones((steps, episodes), dtype=bool)
    # Steps of an episode are equal: 200 steps, but only 40 independent numbers.
    x = np.tile(np.repeat([0.0, 1.0], episodes // 2), (steps, 1))
    estimate = average_steps(x, all_steps, episode, is_share=True)
    half = 1.96 * math.sqrt(0.25 / episodes)
    assert estimate.value == 0.5
    assert estimate.interval == pytest.approx((0.5 - half, 0.5 + half), abs=0.02)
    # A mask leaves out steps, and whole episodes.
    mask = all_steps.copy()
    mask[:, :10] = False
    mask[1:, 10:20] = False
    assert average_steps(x, mask, episode).value == pytest.approx(100 / 110)
    assert average_steps(x * 0 + 1, all_steps, episode, is_share=True).interval.low < 0.95
    # Nor where the share is the same in every episode.
    each = np.stack([[0.0, 1.0, 1.0, 1.0]] * 5, 1)
    estimate = average_steps(each, each >= 0, np.arange(5)[None].repeat(4, 0), is_share=True)
    assert estimate.value == 0.75 and estimate.interval.low < 0.6 < 0.9 < estimate.interval.high
    # Steps of no episode do not count.
    assert average_steps(x, all_steps, np.where(x == 1, -1, episode)).value == 0


@pytest.mark.parametrize("few", [5, 10])
def test_the_interval_of_a_mean_holds_where_few_of_many_episodes_have_such_a_step(few):
    """40 episodes, of which a few have steps: the others say nothing about the mean."""
    random, episodes = np.random.default_rng(few), 40
    episode = np.tile(np.arange(episodes), (20, 1))
    mask = np.zeros(episode.shape, dtype=bool)
    mask[:, :few] = True
    within = 0
    for _ in range(300):
        x = 10 + random.normal(size=episodes) + 0.3 * random.normal(size=episode.shape)
        low, high = average_steps(x, mask, episode).interval
        within += low <= 10 <= high
    assert within / 300 > 0.89
    assert are_enough(mask, episode) and not are_enough(mask & (episode < 4), episode)


def test_steps_that_are_played_after_the_share_of_an_environment_do_not_count():
    """Three episodes in two environments: two of the first, one of the second, which goes on meanwhile."""
    record = recorded([[1, 1, 0, 1, 1], [1, 0, 1, 0, 1]], [[1, 0, 0, 1, 0, 0], [1, 0, 1, 0, 1, 0]])
    assert (number_episodes(record, 3) >= 0).T.astype(int).tolist() == [[1, 1, 0, 1, 1], [1, 0, 0, 0, 0]]


def test_an_episode_of_several_agents_lasts_until_all_have_ended():
    record = recorded([[1, 1, 0, 1, 1], [1, 0, 0, 1, 0]], [[1, 0, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0]], 2)
    assert record.episode.T.tolist() == [[1, 1, 1, 2, 2]] * 2
    assert (number_episodes(record, 1) >= 0).T.astype(int).tolist() == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]


def recorded(valid, first, agents=1):
    """A record of two entries: whether a step (T,) is one, and whether a row (T + 1,) begins an episode."""
    first = np.array(first, dtype=bool).T
    rows, blank = SimpleNamespace(first=torch.from_numpy(first)), np.zeros(0)
    acted = np.array(valid, dtype=bool).T
    return Record(rows, acted, blank, blank, blank, {}, [], agents)


def test_the_open_loop_has_the_steps_of_the_scored_episodes():
    probed = probe(trained(WEIGHT, factory=Parity, memory=CountConfig(), env=EnvConfig()), episodes=51)
    assert probed.policy.steps == round(51 * probed.whole.length)


class Told(Repeat):
    """One action is allowed at each step, by chance."""

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {"action_mask": np.eye(2, dtype=np.int8)[int(self.np_random.integers(2))]}

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return (
            obs,
            reward,
            terminated,
            truncated,
            {"action_mask": np.eye(2, dtype=np.int8)[len(self.signs) % 2]},
        )


def test_a_forbidden_action_is_not_one_that_could_be_followed():
    probed = probe(
        trained(1.0, LagConfig(lag=1), EnvConfig(action_mask=True), factory=partial(Told, 1)), episodes=20
    )
    assert probed.policy.patching is None
