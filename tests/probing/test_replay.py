"""Episodes replayed after first inputs of another episode, of agents that were built by hand."""

import json
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from recollect.agent.agent import build_agent
from recollect.envs import EnvConfig, make
from recollect.probing import probe, replay, samples
from recollect.probing.command import write
from recollect.probing.open_loop import number_episodes
from recollect.probing.replay import compute_policy, exchange_inputs, measure_replays
from recollect.probing.samples import find_donors, follow_episodes, take_sample
from recollect.run.recording import float_leaves, memory_states, record_deterministic

from ..helpers import MEMORIES, branch, lively
from .test_open_loop import Slide, Told
from .test_probe import Copy, CopyConfig, Lag, LagConfig, Repeat, trained

WEIGHT = 1.5
TURNED = (2 / (1 + math.exp(-WEIGHT)) - 1) * WEIGHT  # KL of the policy of one sign from that of the other


def replay_of(trained_agent, episodes=100):
    """The replays by the number of exchanged inputs."""
    envs = make(EnvConfig(**{**vars(trained_agent.config.env), "num_envs": 20}), trained_agent.factory)
    _, record = record_deterministic(trained_agent.agent, envs, episodes, 0)
    replays = measure_replays(trained_agent.agent, record, number_episodes(record, episodes), 0)
    return {one.exchanged: one for one in replays}


# Known answers --------------------------------------------------------------------------------


def test_an_agent_that_keeps_the_first_input_takes_the_action_of_the_other_episode():
    by = replay_of(trained(WEIGHT, env=EnvConfig(id="probe:recall", kwargs={"delay": 8})))
    assert list(by) == [1, 2, 4, 8]
    for exchanged, one in by.items():
        assert one.steps == 100 * (9 - exchanged)
        assert one.choices.other.value == one.last.other.value == 1
        assert one.choices.same.value == one.last.same.value == 0
        assert one.choices.other.interval.low > 0.8  # few episodes do not show that it always does
        # The signs of the others are equal, and nothing changes.
        assert one.divergence.value == pytest.approx(TURNED * one.choices.steps / one.steps)
        assert one.choices.steps == one.last.steps * (9 - exchanged)


class Present(Lag):
    """Keeps earlier inputs, and returns the present one."""

    def forward(self, x, state, first):
        return x[..., :1], super().forward(x, state, first)[1]


@dataclass(frozen=True, kw_only=True)
class PresentConfig(LagConfig):
    """The present input."""

    name: ClassVar[str] = "present"

    def build(self, in_dim, action_dim=0):
        return Present(self.lag)


def test_an_agent_that_acts_by_the_present_observation_takes_its_own_action():
    by = replay_of(trained(WEIGHT, PresentConfig(), EnvConfig(), factory=partial(Repeat, 3)))
    assert list(by) == [1, 2, 4, 8]
    for one in by.values():
        assert one.choices.other.value == one.last.other.value == one.divergence.value == 0
        assert one.choices.same.value == one.last.same.value == 1


def test_an_agent_that_acts_by_the_input_of_three_steps_before_follows_for_three_steps():
    """Episodes have 16 steps. It has no sign in the first 3 of them."""
    by = replay_of(trained(WEIGHT, LagConfig(lag=3), EnvConfig(), factory=partial(Repeat, 3)), 400)
    # Later steps with a sign, and those of them whose sign was exchanged.
    for exchanged, signs, follows in ((1, 13, 1), (2, 13, 2), (4, 12, 3), (8, 8, 3)):
        choices = by[exchanged].choices
        assert choices.other.value == pytest.approx(follows / signs, abs=0.03)
        assert choices.other.value + choices.same.value == pytest.approx(1)
        assert choices.steps == pytest.approx(400 * signs / 2, rel=0.05)
        # The last of at least 8 signs is later.
        assert by[exchanged].last.other.value < 0.1


def test_the_policy_after_these_steps_is_unchanged():
    agent = trained(WEIGHT, LagConfig(lag=3), EnvConfig(), factory=partial(Repeat, 3)).agent
    _, record = record_deterministic(agent, make(EnvConfig(num_envs=20), partial(Repeat, 3)), 20, 0)
    starts = (record.valid & (record.step == 0)).astype(np.float64)
    sample = take_sample(agent, record, record.episode, starts)
    place, inside = follow_episodes(record, record.episode, sample, 16)
    assert inside.all()
    with torch.no_grad():
        whole, mixed = (
            compute_policy(agent, record, sample, *exchange_inputs(sample, place, find_donors(sample), count))
            for count in (0, 5)
        )
    changed = (whole != mixed).any(-1).any(-1)
    assert changed.nonzero().flatten().tolist() == [3, 4, 5, 6, 7]  # after 5 inputs, of 3 steps before


class Shown(gymnasium.Env):
    """Ten steps with a sign in the first and in the sixth, 0 in all others."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.sign = 0, float(self.np_random.choice([-1, 1]))
        return np.array([self.sign], np.float32), {}

    def step(self, action):
        self.time += 1
        sign = self.sign if self.time == 5 else 0.0
        return np.array([sign], np.float32), 1.0, self.time == 10, False, {}


class Latest(Copy):
    """Keeps the latest number that is not 0."""

    def forward(self, x, state, first):
        return super().forward(x, state, first | (x[..., 0] != 0))


@dataclass(frozen=True, kw_only=True)
class LatestConfig(CopyConfig):
    """The latest sign."""

    name: ClassVar[str] = "latest"

    def build(self, in_dim, action_dim=0):
        return Latest()


def test_a_sign_that_is_seen_again_in_an_input_of_its_own_takes_the_place_of_the_other():
    by = replay_of(trained(WEIGHT, LatestConfig(), EnvConfig(), factory=Shown))
    assert list(by) == [1, 2, 4, 8]
    for exchanged in (1, 2, 4):
        one = by[exchanged]
        # Of the later steps to the tenth, those before the sixth.
        assert one.choices.other.value == pytest.approx((5 - exchanged) / (10 - exchanged))
        assert one.last.other.value == 0 and one.last.same.value == 1
    assert by[8].choices.other.value == by[8].last.other.value == 1  # both signs are exchanged


def test_real_actions_have_a_divergence_and_no_choices():
    """The mean is twice the number before, and the deviation 1; episodes have 5 steps."""
    by = replay_of(trained(2.0, LagConfig(lag=1), EnvConfig(), factory=Slide))
    # One of the later steps differs; the mean square of a difference of two uniform numbers is 2 / 3.
    assert by[1].divergence.value == pytest.approx(2 * 2 / 3 / 4, rel=0.25)
    assert by[4].divergence.value == pytest.approx(2 * 2 / 3, rel=0.25)
    assert by[1].choices is None and by[1].last is None


def test_an_action_that_a_mask_forbids_could_not_be_followed():
    by = replay_of(trained(1.0, LagConfig(lag=1), EnvConfig(action_mask=True), factory=partial(Told, 1)), 20)
    assert by and all(one.choices is None for one in by.values())


# Replays are of whole episodes ----------------------------------------------------------------


class Vary(gymnasium.Env):
    """Random numbers as observations and rewards, for 4 to 14 steps."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(4, 15))
        return self._look(), {}

    def step(self, action):
        self.left -= 1
        return self._look(), float(self.np_random.normal()), self.left == 0, False, {}

    def _look(self):
        return self.np_random.normal(size=2).astype(np.float32)


def recorded(name, episodes=30, **options):
    """An agent with random weights, and episodes of different lengths."""
    envs = make(EnvConfig(num_envs=6), Vary)
    spaces = envs.obs_spec, envs.action_spec
    options |= {"prev_action": True, "prev_reward": True}
    agent = lively(build_agent(spaces, branch(name, **options), branch("mlp"), False, 0).double())
    with torch.no_grad():
        agent.actor.head.out.weight.mul_(9)
    _, record = record_deterministic(agent, envs, episodes, 0)
    return agent, record, number_episodes(record, episodes)


@pytest.mark.parametrize("name", ["gru", "gpt2"])
def test_an_exchange_with_itself_changes_no_bit(name, monkeypatch):
    agent, record, episode = recorded(name)
    others = measure_replays(agent, record, episode, 0)
    assert all(one.divergence.value > 1e-4 for one in others) and others[0].choices.steps > 20
    monkeypatch.setattr(replay, "find_donors", lambda sample: np.arange(len(sample.row)))
    same = measure_replays(agent, record, episode, 0)
    assert len(same) == len(others)
    assert all(one.divergence.value == 0 and one.choices is None for one in same)


@pytest.mark.parametrize("name", ["gru", "mlstm", "gpt2", "gtrxl", "stack"])
@pytest.mark.parametrize("reset", [True, False])
def test_later_steps_are_those_of_an_episode_with_other_first_inputs(name, reset, monkeypatch):
    """Each episode is put together by hand and computed alone, from the state before it."""
    monkeypatch.setattr(replay, "CHUNK", 3)
    agent, record, episode = recorded(name, reset=reset)
    starts = (episode >= 0) & (record.step == 0)
    sample = take_sample(agent, record, episode, starts.astype(np.float64))
    donors, longest = find_donors(sample), int(record.step[episode >= 0].max()) + 1
    place, inside = follow_episodes(record, episode, sample, longest)
    lengths = inside.sum(0)
    assert len(np.unique(lengths)) > 3 and (lengths[donors] != lengths).any()
    exchanged = int(np.median(lengths))
    with torch.no_grad():
        replaced = exchange_inputs(sample, place, donors, exchanged)
        params = compute_policy(agent, record, sample, *replaced)
        states = [agent.actor.initial_state(6), *memory_states(agent.actor, record.rows)]
        compared = 0
        for i in np.flatnonzero((lengths > exchanged) & (lengths[donors] >= exchanged)):
            own, other = (
                record.rows.map(lambda x, j=j: x[sample.row[j] :, [sample.env[j]]]) for j in (i, donors[i])
            )
            pairs = zip(leaves_of(other), leaves_of(own), strict=True)
            mixed = [torch.cat([a[:exchanged], b[exchanged : lengths[i]]]) for a, b in pairs]
            whole = own._replace(
                obs=dict(zip(own.obs, mixed[:-3], strict=True)),
                first=mixed[-3],
                prev_action=mixed[-2],
                prev_reward=mixed[-1],
            )
            state = samples.take(states[sample.row[i]], np.array([sample.env[i]]))
            expected = agent.actor(whole, state)[0][exchanged:, 0]
            torch.testing.assert_close(params[exchanged : lengths[i], i], expected, rtol=1e-9, atol=1e-9)
            compared += 1
    assert compared > 5


def leaves_of(rows):
    return [*rows.obs.values(), rows.first, rows.prev_action, rows.prev_reward]


def test_an_episode_counts_if_the_other_one_has_as_many_inputs():
    agent, record, episode = recorded("gru")
    weight = ((episode >= 0) & (record.step == 0)).astype(np.float64)
    sample = take_sample(agent, record, episode, weight)
    lengths = np.array([(episode == number).sum() for number in sample.episode])
    others = lengths[find_donors(sample)]
    replays = measure_replays(agent, record, episode, 0)
    assert len(replays) > 2 and (others < replays[-1].exchanged).any()
    for one in replays:
        assert one.steps == (lengths - one.exchanged)[others >= one.exchanged].clip(min=0).sum()
        # Actions can be compared where both episodes last.
        both = (np.minimum(lengths, others) - one.exchanged).clip(min=0).sum()
        assert one.choices is None or one.choices.steps <= both


def test_states_that_are_too_large_are_those_of_fewer_episodes(monkeypatch):
    agent, record, episode = recorded("gru")
    counts = []
    monkeypatch.setattr(replay, "find_donors", lambda x: counts.append(len(x.row)) or find_donors(x))
    width = sum(leaf.numel() for leaf in float_leaves(agent.actor.initial_state(1)).values())
    for largest, measured in ((10 * width, True), (4 * width, False), (width - 1, False)):
        monkeypatch.setattr(samples, "LARGEST", largest)
        assert bool(measure_replays(agent, record, episode, 0)) == measured
    assert counts == [10, 4]


def test_the_other_episode_is_one_of_the_same_agent(monkeypatch):
    """Two consecutive entries are the agents of one environment, which may have different parts to play."""
    agent = trained(WEIGHT, LatestConfig(), EnvConfig(), factory=Shown).agent
    _, record = record_deterministic(agent, make(EnvConfig(num_envs=8), Shown), 24, 0)
    record, pairs = replace(record, agents=2), []

    def paired(sample):
        donors = find_donors(sample)
        pairs.append((sample, donors))
        return donors

    monkeypatch.setattr(replay, "find_donors", paired)
    assert measure_replays(agent, record, number_episodes(record, 12), 0)
    (sample, donors), *_ = pairs
    assert len(donors) == 24 and (sample.env[donors] % 2 == sample.env % 2).all()
    assert (sample.episode[donors] != sample.episode).all()


# What is written ------------------------------------------------------------------------------


def test_the_page_and_the_file_have_the_replays(tmp_path):
    probed = probe(trained(WEIGHT, env=EnvConfig(id="probe:recall", kwargs={"delay": 8})), episodes=60)
    write(probed, tmp_path)
    data = json.loads((tmp_path / "probe.json").read_text())["replays"]
    assert [one["exchanged"] for one in data] == [1, 2, 4, 8] and data[0]["last"]["other"]["value"] == 1
    page = (tmp_path / "probe.html").read_text()
    assert "First inputs of another episode" in page and "first inputs exchanged" in page
    assert probe(trained(1.0, MEMORIES["mlp"]()), episodes=20).replays == []
