"""How the policy depends on single earlier inputs, of agents that were built by hand."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from recollect.agent.agent import build_agent
from recollect.common.intervals import Interval
from recollect.envs import EnvConfig, make
from recollect.probing import probe
from recollect.probing.interventions import Altered, altered, record_inputs
from recollect.probing.occlusion import Dependence, _cut_window, _params, choose_sources
from recollect.probing.open_loop import Estimate, number_episodes
from recollect.probing.samples import draw_sample, find_donors, take_sample
from recollect.probing.verdict import judge_dependence
from recollect.run.recording import record_deterministic

from ..helpers import MEMORIES, branch, lively, sampled
from .test_open_loop import Slide
from .test_probe import LagConfig, Repeat, trained

WEIGHT = 1.5
TURNED = (2 / (1 + math.exp(-WEIGHT)) - 1) * WEIGHT  # KL of the policy of one sign from that of the other


@pytest.fixture(scope="module")
def repeating():
    """It repeats the sign of three steps before; episodes have 16 steps."""
    return probe(trained(WEIGHT, LagConfig(lag=3), EnvConfig(), factory=partial(Repeat, 3)), episodes=100)


def test_only_the_input_of_three_steps_before_matters(repeating):
    by = {one.back: one for one in repeating.dependence}
    assert list(by) == list(range(1, 16))  # all that an episode has
    assert {back for back, one in by.items() if one.occlusion.value > 1e-9} == {3}
    # Half of the signs of another episode are the same.
    assert by[3].occlusion.value == pytest.approx(TURNED / 2, rel=0.1) and by[3].steps == 820
    assert by[3].gradient.value == pytest.approx(WEIGHT, rel=0.01)
    assert by[2].gradient.value == by[4].gradient.value == 0
    assert "that of 3 steps before the action changes its policy most" in repeating.depends


def test_real_actions():
    """The mean is twice the number of two steps before, and the deviation 1."""
    probed = probe(trained(2.0, LagConfig(lag=2), EnvConfig(), factory=Slide), episodes=100)
    by = {one.back: one for one in probed.dependence}
    assert by[1].occlusion.value == by[1].gradient.value == 0
    # Numbers are uniform in -1 to 1: the mean square of a difference of two is 2 / 3.
    assert by[2].occlusion.value == pytest.approx(2 * 2 / 3, rel=0.25)
    assert by[2].gradient.value == pytest.approx(2 / math.sqrt(3), rel=0.05)


def test_an_agent_that_ignores_its_memory_depends_on_no_step():
    probed = probe(trained(0.0, LagConfig(lag=3), EnvConfig(), factory=partial(Repeat, 3)), episodes=40)
    assert {one.occlusion.value for one in probed.dependence} == {0.0} and probed.depends is None
    assert probe(trained(1.0, MEMORIES["mlp"]()), episodes=20).dependence == []


@pytest.mark.parametrize(("delay", "far"), sampled([(30, 30), (150, 60)], (30, 30)))
def test_the_first_input_counts_where_only_it_matters(delay, far):
    """Of 151 numbers of steps the sources have 90, which stand for all."""
    env = EnvConfig(id="probe:recall", kwargs={"delay": delay})
    by = {one.back: one.occlusion.value for one in probe(trained(WEIGHT, env=env), episodes=100).dependence}
    # The agent keeps the sign, so its policy depends on the first input at every step, and on no other. Half
    # of the signs of another episode are the same.
    numbers = delay + 1 - far  # that are followed by so many steps
    assert by[far] * numbers == pytest.approx(TURNED / 2, rel=0.3)
    assert by[1] * delay == pytest.approx(by[far] * numbers, rel=0.05)


def test_the_step_that_is_named_is_not_one_of_few_episodes():
    """Few episodes last for 40 steps, so that the estimate there is large and wide."""
    sure = Dependence(1, 900, Estimate(0.05, Interval(0.04, 0.06)), None)
    rare = Dependence(40, 20, Estimate(0.09, Interval(0.02, 0.3)), None)
    assert "that of the step before the action changes its policy most" in judge_dependence([sure, rare])


def test_inputs_whose_effects_may_be_as_large_are_named_too():
    """Of equal effects the largest lower end is a matter of luck."""

    def one(back, low, high):
        return Dependence(back, 900, Estimate((low + high) / 2, Interval(low, high)), None)

    some = [one(2, 0.40, 0.50), one(3, 0.38, 0.52), one(1, 0.1, 0.4), one(4, 0.2, 0.39), one(9, 0.03, 0.05)]
    text = judge_dependence(some)
    assert "that of 2 steps before the action changes its policy most" in text
    assert text.endswith(" Those of k = 1, 3 steps before may change it as much.")
    assert judge_dependence([some[0], some[2]]).endswith(
        " Those of k = 1 steps before may change it as much."
    )
    assert judge_dependence([some[0], *some[3:]]).endswith("(0.4 to 0.5).")
    many = [one(back, 0.4, 0.5) for back in range(1, 9)]
    assert judge_dependence(many).endswith(" Those of 7 other numbers of steps before may change it as much.")


def test_an_input_in_the_middle_of_an_episode_counts():
    """The agent repeats the input of 5 steps before; of 46 inputs the one with a sign is not the first."""
    env = EnvConfig(id="probe:recall", kwargs={"delay": 25, "lead": 20})
    probed = probe(trained(WEIGHT, LagConfig(lag=5), env), episodes=100)
    by = {one.back: one.occlusion.value for one in probed.dependence}
    assert {back for back, value in by.items() if value > 1e-9} == {5}


def test_the_sources_stand_for_all_steps():
    envs = make(EnvConfig(id="probe:recall", kwargs={"delay": 9}, num_envs=6))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch("gru"), branch("mlp"), False, 0)
    _, record = record_deterministic(agent, envs, 40, 0)
    episode = number_episodes(record, 40)
    # First steps, at most a half, then as many of every other number as fit.
    for most, rows in ((1000, 400), (220, 40 + 9 * 20), (100, 40 + 9 * 6), (45, 22 + 9 * 2)):
        weight = choose_sources(record, episode, np.random.default_rng(1), most)
        assert (weight > 0).sum() == rows and weight.sum() == pytest.approx(400)
        first = weight[record.valid & (record.step == 0) & (episode >= 0)]
        assert first.sum() == pytest.approx(40) and (first == 1).all() == (most >= 80)
    assert len(draw_sample(agent, record, record.valid, episode, np.random.default_rng(1), 90).row) == 80


class ShiftedLater(Altered):
    """Adds a shift to the input of one row of a call."""

    def __init__(self, memory, resets, row, shift):
        super().__init__(memory, resets)
        self.row, self.shift = row, shift

    def forward(self, x, state, first):
        x = x.clone()
        x[self.row] += self.shift
        return self.step(x, state, first)

    def step(self, x, state, first):
        return self.call(x, state, first)


@pytest.mark.parametrize("name", ["gru", "mlstm", "gpt2", "gtrxl", "stack"])
def test_windows_continue_as_whole_episodes_do(name):
    """Of each source the episode is computed again from its start, with the one input changed."""
    envs = make(EnvConfig(id="probe:recall", kwargs={"delay": 3}, num_envs=6))
    spaces = envs.obs_spec, envs.action_spec
    agent = lively(build_agent(spaces, branch(name), branch("mlp"), False, 0).double())
    _, record = record_deterministic(agent, envs, 12, 0)
    episode = number_episodes(record, 12)
    weight = choose_sources(record, episode, np.random.default_rng(0), 99)
    sample = take_sample(agent, record, episode, weight)
    donors, inputs = find_donors(sample), record_inputs(agent.actor, record)
    shift = inputs[sample.row[donors], sample.env[donors]] - inputs[sample.row, sample.env]
    window = _cut_window(agent, record, sample, episode)
    assert len(sample.row) > 30 and window.inside[0].all() and not window.inside[-1].all()
    with torch.no_grad():
        short = _params(agent, window, sample, shift)
        for i, (row, column) in enumerate(zip(sample.row, sample.env, strict=True)):
            start, stop = row - sample.step[i], row + int(window.inside[:, i].sum())
            rows = record.rows.map(lambda x, a=start, b=stop, n=column: x[a:b, n : n + 1])
            later = partial(ShiftedLater, row=sample.step[i], shift=shift[i])
            with altered(agent.actor, later):
                whole = agent.actor(rows, agent.actor.initial_state(1))[0][sample.step[i] :, 0]
            torch.testing.assert_close(short[: len(whole), i], whole, rtol=1e-9, atol=1e-9)


def test_few_sources_are_of_many_numbers_of_steps():
    """The dependence may be on one of them alone."""
    envs = make(EnvConfig(id="probe:recall", kwargs={"delay": 59}, num_envs=6))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch("gru"), branch("mlp"), False, 0)
    _, record = record_deterministic(agent, envs, 30, 0)
    episode = number_episodes(record, 30)
    counted = record.valid & (episode >= 0)
    weight = choose_sources(record, episode, np.random.default_rng(1), 50)
    assert (weight > 0).sum() <= 50 and weight.sum() == pytest.approx(counted.sum())
    assert weight[counted & (record.step == 0)].sum() == pytest.approx(30)
    assert len(np.unique(record.step[weight > 0])) == 1 + (50 - 25) // 2
