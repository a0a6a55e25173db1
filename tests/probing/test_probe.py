"""What a probe says of agents whose use of memory is known because it was built by hand."""

import json
import math
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect import cli
from recollect.agent.agent import BranchConfig, build_agent
from recollect.common.errors import UsageError
from recollect.common.intervals import Interval
from recollect.common.tree import leaves, map_leaves
from recollect.config.config import RunConfig
from recollect.envs import EnvConfig, make
from recollect.learn.rollout import slice_rows
from recollect.memory import Memory, MemoryConfig
from recollect.probing import probe, write
from recollect.probing.ablate import (
    AlteredPlay,
    average,
    classify,
    compare,
    measure_loss,
    measure_memory_length,
    measure_unmatched,
)
from recollect.probing.controls import compare_controls, interval_over_runs
from recollect.probing.critic import compute_returns_to_go, score_values
from recollect.probing.interventions import (
    Averaged,
    Cleared,
    Frozen,
    Noisy,
    Spread,
    Swapped,
    altered,
    measure_spread,
    record_sequences,
)
from recollect.probing.limited import Recent, Windowed, limit, most_steps
from recollect.probing.linear import (
    Places,
    Sources,
    Target,
    match_steps,
    read_targets,
    split_episodes,
)
from recollect.probing.memory_length import measure_length, search_fewest
from recollect.probing.open_loop import Estimate
from recollect.probing.probe_page import list_verdict, write_command
from recollect.probing.ridge import Split, predict
from recollect.probing.screen import write_text
from recollect.probing.verdict import judge_need, judge_use
from recollect.run.evaluate import evaluate
from recollect.run.recording import (
    EpisodeScores,
    has_memory,
    memory_states,
    play_deterministic,
    record_deterministic,
)
from recollect.run.run import Trained

from ..audit import audit
from ..helpers import (
    MEMORIES,
    REMEMBERING,
    branch,
    lively,
    run_quietly,
    sampled,
    seen_by_a_browser,
    small_config,
)

RECALL = EnvConfig(id="probe:recall", kwargs={"delay": 3})
MODELS = Path(__file__).parents[2] / "models"
# Memories of which `make test` runs those with unlike states.
SOME = sampled(REMEMBERING, "gru", "stack", "lstm", "linear_attention", "slstm", "gpt2", "trxl")


class Copy(Memory):
    """Keeps the first number that an episode showed, and counts its rows."""

    def __init__(self):
        super().__init__()
        self.out_dim, self.reach = 1, None

    def initial_state(self, batch):
        return torch.zeros(batch, 1), torch.zeros(batch, dtype=torch.long)

    def forward(self, x, state, first):
        kept, count = state
        said = []
        for row, opens in zip(x, first, strict=True):
            kept = torch.where(opens[:, None], row[:, :1], kept)
            count = torch.where(opens, 0, count) + 1
            said.append(kept)
        return torch.stack(said), (kept, count)


@dataclass(frozen=True, kw_only=True)
class CopyConfig(MemoryConfig):
    """The sign of probe:recall, for good."""

    name: ClassVar[str] = "copy"

    def build(self, in_dim, action_dim=0):
        return Copy()


def trained(weight, memory=None, env=RECALL, critic=None, factory=None):
    """An agent that chooses 1 where `weight` times what it is told last is above 0, and else 0.

    It values a row at what its own memory says.
    """
    actor = BranchConfig(memory=memory or CopyConfig(), hidden=())
    critic = critic or actor
    envs = make(replace(env, num_envs=1), factory)
    agent = build_agent((envs.obs_spec, envs.action_spec), actor, critic, False, 0)
    with torch.no_grad():
        for layer in (agent.actor.head.out, agent.critic.head.out):
            layer.weight.zero_(), layer.bias.zero_()
        agent.actor.head.out.weight[-1, 0] = weight
        agent.critic.head.out.weight[0, 0] = 1.0
    config = RunConfig(env=env, actor=actor, critic=critic)
    return Trained(agent, replace(config, ppo=replace(config.ppo, gamma=1.0)), Path("by-hand"), {}, factory)


@pytest.fixture(scope="module")
def remembering():
    return probe(trained(1.0), episodes=60, controls=plain_controls(1))


def plain_controls(count, weight=0.0, env=RECALL):
    """Agents without a memory, of different seeds."""
    control = trained(weight, MEMORIES["mlp"](), env)
    return [replace(control, config=replace(control.config, seed=seed)) for seed in range(count)]


# Known answers --------------------------------------------------------------------------------


def score_with(probed, name):
    """The score with an altered memory."""
    return next(one.score.mean for one in probed.ablations if one.name == name)


def test_an_agent_that_copies_the_sign_uses_its_memory_for_the_whole_episode(remembering):
    assert remembering.source == "success" and remembering.whole.mean == 1.0
    for name in ("cleared at every step", "cleared every 2 steps", "only the last 2 steps"):
        assert 0.2 < score_with(remembering, name) < 0.8, name
    assert 0.2 < score_with(remembering, "that of another episode") < 0.8
    assert 0.2 < score_with(remembering, "the mean state at every step") < 0.8
    assert score_with(remembering, "frozen after the first step") == 1.0
    assert score_with(remembering, "noise of 0.1 deviations") == 1.0
    assert remembering.uses.startswith(
        "It uses about 4 steps (4 to 4) of memory: without it the success rate falls"
    )
    assert remembering.needs.startswith("Whether the task needs a memory cannot be determined from ")
    assert " episodes and one control: the control without one reaches 0." in remembering.needs
    assert remembering.needs.endswith(" At least 3 controls are needed, of different seeds.")


class Lag(Memory):
    """Returns the input of `lag` steps before; 0 if there was none."""

    def __init__(self, lag):
        super().__init__()
        self.lag, self.out_dim, self.reach = lag, 1, lag + 1

    def initial_state(self, batch):
        return torch.zeros(batch, self.lag)

    def forward(self, x, state, first):
        delayed = []
        for row, opens in zip(x, first, strict=True):
            state = state.masked_fill(opens[:, None], 0.0)
            delayed.append(state[:, -1:])
            state = torch.cat([row[:, :1], state[:, :-1]], 1)
        return torch.stack(delayed), state


@dataclass(frozen=True, kw_only=True)
class LagConfig(MemoryConfig):
    """The input of some steps before."""

    name: ClassVar[str] = "lag"
    lag: int = 1

    def build(self, in_dim, action_dim=0):
        return Lag(self.lag)


class Repeat(gymnasium.Env):
    """16 random signs; reward 1 where action 0 or 1 is the sign of `lag` steps before."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, lag):
        self.lag = lag

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.signs = [float(self.np_random.choice([-1, 1]))]
        return np.array(self.signs, np.float32), {}

    def step(self, action):
        right = len(self.signs) > self.lag and (action == 1) == (self.signs[-1 - self.lag] > 0)
        self.signs.append(float(self.np_random.choice([-1, 1])))
        return np.array(self.signs[-1:], np.float32), float(right), len(self.signs) > 16, False, {}


@pytest.mark.parametrize("lag", sampled([1, 2, 3, 5, 8, 15], 1, 5, 15))
def test_the_steps_of_memory_of_an_agent_that_repeats_an_earlier_observation(lag):
    factory = partial(Repeat, lag)
    probed = probe(trained(1.0, LagConfig(lag=lag), EnvConfig(), factory=factory), episodes=40)
    length = f"about {lag + 1} steps ({lag + 1} to {lag + 1}) of memory"
    assert probed.uses.startswith(f"It uses {length}: without it the return falls from")
    assert probed.reaches.startswith(f"Its policy depends on {length}: with fewer it differs by more than")
    assert list_verdict(probed)[:2] == [probed.uses, probed.reaches]
    assert (probed.length.steps, probed.policy.length.steps) == (lag + 1, lag + 1)


@given(enough=st.integers(2, 200), longest=st.none() | st.integers(2, 300), largest=st.integers(1, 400))
def test_the_search_finds_the_fewest_steps_that_are_enough(enough, longest, largest):
    tried = []

    def is_enough(steps):
        tried.append(steps)
        return steps >= enough

    search_fewest(is_enough, longest, largest)
    assert len({*tried}) == len(tried) <= 2 * largest.bit_length()
    assert all(2 <= steps <= largest for steps in tried)
    ends = math.inf if longest is None else longest
    assert all(steps < ends for steps in tried)
    if min(enough, ends) <= largest and 2 ** (enough - 1).bit_length() <= largest:
        # The fewest is known: it is enough, or as long as episodes are, and one fewer is not.
        least = min(enough, ends)
        assert least == ends or least in tried
        assert least - 1 in tried or least == 2


def test_as_many_steps_as_the_longest_episode_has_are_enough():
    losses = {1: np.ones(20), 2: np.ones(20)}
    assert measure_length(losses, 3).steps == 3
    assert measure_length(losses, 4).steps == np.inf  # 3 were not measured
    assert measure_length(losses | {97: np.ones(20)}, 100).steps == np.inf
    assert measure_length(losses | {99: np.ones(20)}, 100).steps == 100
    assert measure_length(losses, None).steps == np.inf  # memories last longer than episodes
    assert measure_length({1: np.full(20, 1e-9)}, 1).interval == (1, 1)  # rounding in episodes of one step


def test_the_interval_has_the_numbers_between_trials():
    """4 steps are enough in few resamples, and 3, which were not tried, would be in as many."""
    losses = {k: np.ones(20) for k in (1, 2)} | {4: np.repeat([0.0, 2.0], [19, 1]), 5: np.zeros(20)}
    length = measure_length(losses, None)
    assert length.steps == 5 and length.interval == (3, 5)
    exact = measure_length({1: np.ones(20), 2: np.ones(20), 3: np.ones(20), 4: np.zeros(20)}, None)
    assert exact.steps == 4 and exact.interval == (4, 4)


def test_the_interval_of_a_memory_length_is_that_of_its_rule_over_episodes():
    fails = np.ones(100)
    seldom = np.repeat([1.0, -1.0, 0.0], [3, 2, 95])  # 0.01 on average, where 0.05 is small
    losses = {1: fails, 2: fails / 2, 4: seldom, 8: np.zeros(100)}
    length = measure_length(losses, None)
    assert (length.steps, length.interval, length.measured) == (4, (3, 8), 8)
    del losses[8]
    assert measure_length(losses, None).interval == (3, np.inf)
    del losses[4]
    length = measure_length(losses, None)
    assert (length.steps, length.interval, length.measured) == (np.inf, (np.inf, np.inf), 2)


@pytest.mark.parametrize(
    ("seldom", "rest", "text"),
    [
        (0, {}, "It uses about 4 steps (3 to 4) of memory"),
        (3, {8: 0}, "It uses about 4 steps (3 to 8) of memory"),
        (3, {}, "It uses about 4 steps (3 to more than 4) of memory"),
        (7, {}, "It uses more than 4 steps (3 to more than 4) of memory"),
        (40, {}, "It uses more than 4 steps of memory"),
    ],
)
def test_a_memory_length_is_written_with_its_interval(seldom, rest, text):
    whole = average(played_as([1] * 100), "success")
    failures = {1: 100, 2: 50, 4: seldom} | rest
    plays = [
        AlteredPlay("", k if k == 1 else None, k if k > 1 else None, played_as([0] * n + [1] * (100 - n)))
        for k, n in failures.items()
    ]
    swapped = AlteredPlay("that of another episode", None, None, played_as([0] * 100))
    ablations = [measure_loss(play, whole, "success") for play in (*plays, swapped)]
    assert judged(whole, ablations).startswith(text + ": without it")


def judged(whole, ablations):
    """The verdict on successes of an agent with a GRU."""
    length = measure_memory_length(whole, ablations, None)
    return judge_use("success", whole, ablations, length, None, "gru", None)


def test_an_agent_that_ignores_its_memory_does_not_use_it():
    probed = probe(trained(0.0), episodes=60)
    assert {one.lost.by for one in probed.ablations} == {0.0}
    assert "has a memory and does not use it: with a reset at every step the success rate is" in probed.uses
    assert "was not tested" in probed.needs


def test_a_task_in_plain_sight_needs_no_memory():
    env = EnvConfig(id="probe:match")
    probed = probe(trained(1.0, env=env), episodes=60, controls=plain_controls(1, 1.0, env))
    assert "does not use it" in probed.uses
    assert probed.needs.startswith("The task does not need a memory: the control without one reaches 1, this")
    probed = probe(trained(1.0, env=env), episodes=60, controls=plain_controls(3, 1.0, env))
    assert probed.needs == (
        "The task does not need a memory: 3 controls without one reach 1 on average, this agent 1 "
        "(difference 0, 0 to 0 over runs and episodes)."
    )


def test_a_task_needs_a_memory_if_three_runs_without_one_show_it():
    two, three = (probe(trained(1.0), episodes=60, controls=plain_controls(count)) for count in (2, 3))
    assert two.needs.startswith(
        "Whether the task needs a memory cannot be determined from 60 episodes and 2 controls: 2 controls"
    )
    assert two.needs.endswith("over runs and episodes). At least 3 controls are needed, of different seeds.")
    assert three.needs.startswith("The task needs a memory: 3 controls without one reach 0.")
    assert three.needs.endswith(
        "over runs and episodes). None of the 3 reaches as much; of further ones up to 63 % may."
    )
    assert 0 < three.controls.above.interval.low < three.controls.above.by == 1 - three.controls.mean


def needs_beside(*shares, episodes=100):
    """The verdict on an agent that always succeeds beside controls with these shares of success."""
    whole = average(played_as([1] * episodes), "success")
    scores = [played_as(np.arange(episodes) < share * episodes) for share in shares]
    controls = compare_controls(whole, [""] * len(shares), [average(x, "success") for x in scores], "success")
    return judge_need("success", whole, controls, "gru")


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ((0.5, 0.5, 0.5), "The task needs a memory: "),
        ((0.5, 0.6, 0.4), "The task needs a memory: "),
        ((0.5,), "Whether the task needs a memory cannot be determined from 100 episodes and one control: "),
        ((0.5, 0.5), "Whether the task needs a memory cannot be determined from 100 episodes and 2 controls"),
        ((0.5, 0.9), "Whether the task needs a memory cannot be determined from 100 episodes and 2 controls"),
        ((0.9, 0.3, 0.4), "Whether the task needs a memory cannot be determined from 100 episodes and 3"),
        # Another run without a memory may reach as much, as these differ by as much as the agent is above.
        ((0.9, 0.8, 0.85), "Whether the task needs a memory cannot be determined from 100 episodes and 3"),
        ((0.84, 0.86, 0.85), "The task needs a memory: "),
        (
            (1.0, 0.3, 0.4),
            "The task can be solved without a memory: 1 of 3 controls without one reaches as much",
        ),
        (
            (1.0, 1.0, 1.0, 0.96),
            "The task does not need a memory: 4 controls without one reach 0.99 on average",
        ),
    ],
)
def test_the_verdict_on_the_task_follows_the_runs_without_a_memory(shares, text):
    assert needs_beside(*shares).startswith(text)


def test_an_agent_that_is_one_of_the_runs_without_a_memory_seldom_shows_a_need():
    """The controls have its distribution of scores, and runs differ."""
    random, needed = np.random.default_rng(0), 0
    for _ in range(100):
        levels = 1 + 0.2 * random.normal(size=4)
        whole, *controls = (
            average(played_as(level + 0.1 * random.normal(size=20)), "return") for level in levels
        )
        compared = compare_controls(whole, [""] * 3, controls, "return")
        needed += judge_need("return", whole, compared, "gru").startswith("The task needs")
    assert needed <= 5


def test_the_page_and_the_screen_show_every_control(tmp_path):
    probed = probe(trained(1.0), episodes=20, controls=plain_controls(3))
    write(probed, tmp_path)
    for text in ((tmp_path / "probe.html").read_text(), write_text(probed)):
        for row in ("control 1 without memory", "control 3 without memory", "mean of 3 controls"):
            assert row in text
    assert write_command(probed).endswith("--control by-hand by-hand by-hand")


def test_three_lucky_runs_over_few_episodes_show_nothing():
    """Without one failure in ten episodes, one in five may be one."""
    assert "cannot be determined from 10 episodes and 3 controls" in needs_beside(1.0, 1.0, 1.0, episodes=10)


def test_the_interval_over_runs_and_episodes_holds_for_three_runs():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        pairs = 0.2 * random.normal(size=(3, 1)) + random.normal(size=(3, 20)) * 0.3
        low, high = interval_over_runs(pairs)
        covered += low <= 0 <= high
    assert covered >= 53


def test_an_agent_without_a_memory_has_none():
    probed = probe(trained(1.0, memory=MEMORIES["mlp"]()), episodes=20)
    assert (probed.uses, probed.ablations, probed.readout) == ("It has no memory.", [], [])
    critic = BranchConfig(memory=CopyConfig(), hidden=())
    probed = probe(trained(1.0, MEMORIES["mlp"](), critic=critic))
    assert "Only its critic has a memory (tests.probing.test_probe:CopyConfig)" in probed.uses
    assert len(probed.values.by_alteration) == 4 and probed.readout


def test_a_memory_that_may_hold_anything_but_nothing_is_told_from_one_that_is_used():
    whole = average(EpisodeScores(*np.ones((3, 50))), "success")
    tries = [
        AlteredPlay("cleared at every step", 1, None, EpisodeScores(*np.zeros((3, 50)))),
        AlteredPlay("that of another episode", None, None, EpisodeScores(*np.ones((3, 50)))),
    ]
    text = judged(whole, [measure_loss(one, whole, "success") for one in tries])
    assert text.startswith("It needs a memory state other than the initial one, but not its content")


@pytest.mark.parametrize(
    ("kept", "cleared", "text"),
    [
        ([1] * 7 + [0] * 3, [1] * 7 + [0] * 3, "Whether it uses it cannot be determined from 10 episodes"),
        ([1] * 70 + [0] * 30, [1] * 69 + [0] * 31, "Its score does not need its memory"),
        (
            [1] * 50 + [0] * 50,
            [1] * 100,
            "Its memory harms it: with a reset at every step the success rate is 1.00",
        ),
    ],
)
def test_that_nothing_was_lost_is_said_only_where_episodes_show_it(kept, cleared, text):
    whole, after = (average(played_as(successes), "success") for successes in (kept, cleared))
    assert compare(whole, after, "success").interval.high >= 0 or "harms" in text
    tried = AlteredPlay("cleared at every step", 1, None, played_as(cleared))
    assert text in judged(whole, [measure_loss(tried, whole, "success")])
    needed = judge_need("success", whole, compare_controls(whole, ["one"], [after], "success"), "gru")
    assert needed.startswith("The task does not need a memory") == ("cannot be determined" not in text)


def played_as(successes) -> EpisodeScores:
    return EpisodeScores(*np.tile(np.array(successes, dtype=float), (3, 1)))


def test_an_agent_that_never_succeeds_has_nothing_to_lose():
    failing = average(EpisodeScores(*np.zeros((3, 50))), "success")
    one = measure_loss(
        AlteredPlay("cleared at every step", 1, None, EpisodeScores(*np.zeros((3, 50)))), failing, "success"
    )
    assert "cannot be determined: no episode is a success" in judged(failing, [one])


def test_the_critic_knows_what_its_memory_knows():
    """It chooses 1 whatever the sign is, so the return to go is the sign, which its critic copies."""
    agent = trained(0.0)
    with torch.no_grad():
        agent.agent.actor.head.out.bias[1] = 1.0
    probed = probe(agent, episodes=100)
    assert probed.values.measure == "explained variance" and probed.values.rows == 400
    assert probed.values.by_alteration["as it is"] == pytest.approx(1.0)
    assert probed.values.by_alteration["frozen after the first step"] == pytest.approx(1.0)
    assert 0 < probed.values.by_alteration["cleared at every step"] < 0.5
    assert probed.values.by_alteration["that of another episode"] < 0
    losses = probed.values.losses
    assert losses["as it is"] is None and losses["frozen after the first step"].interval == (0, 0)
    for name in ("cleared at every step", "that of another episode"):
        low, high = probed.values.intervals[name]
        assert low < probed.values.by_alteration[name] < high
        assert 0.4 < losses[name].interval.low < losses[name].value < losses[name].interval.high


class Turns(gymnasium.Env):
    """Episodes of 2 to 6 steps; the rewards that follow sum to 1 at even steps, and to -1 at odd ones."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.length = 0, self.np_random.integers(2, 7)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        sign, ends = 1.0 - 2 * (self.steps % 2), self.steps + 1 == self.length
        self.steps += 1
        return np.zeros(1, np.float32), sign if ends else 2 * sign, bool(ends), False, {}


def test_a_critic_that_is_exact_with_its_memory_and_constant_without_loses_all():
    probed = probe(trained(1.0, CountConfig(), EnvConfig(), factory=Turns), episodes=30)
    # Cleared, it counts one step, at every step.
    for name, value in {"as it is": 1, "that of another episode": 1, "cleared at every step": 0}.items():
        assert probed.values.by_alteration[name] == pytest.approx(value)
        assert probed.values.intervals[name] == pytest.approx((value, value))
        if name != "as it is":
            loss = probed.values.losses[name]
            assert (loss.value, *loss.interval) == pytest.approx([1 - value] * 3)


def test_the_page_and_the_screen_show_the_loss_of_the_critic(tmp_path):
    probed = probe(trained(1.0, CountConfig(), EnvConfig(), factory=Turns), episodes=30)
    write(probed, tmp_path)
    assert "<td>1.00 to 1.00</td>" in (tmp_path / "probe.html").read_text().replace(' class="number"', "")
    head, _, line, *_ = write_text(probed).partition("critic: ")[2].splitlines()
    assert head.split()[-6:] == ["variance", "95", "%", "loss", "95", "%"]
    assert line.removeprefix("reset at every step").split() == [
        "0.00",
        "0.00",
        "to",
        "0.00",
        "1.00",
        "1.00",
        "to",
        "1.00",
    ]
    data = json.loads((tmp_path / "probe.json").read_text())["values"]
    assert data["found"]["cleared at every step"] == pytest.approx(0)
    assert data["intervals"]["as it is"] == data["losses"]["cleared at every step"]["interval"] == [1.0, 1.0]


def drawn_values(episodes, steps=10, noise=(0.1, 1.0)):
    """Returns of episodes, and values with noise of these variances, more of it in some episodes."""
    random, episode = np.random.default_rng(0), np.repeat(np.arange(episodes), steps)
    returns = random.normal(size=episodes)[episode] + random.normal(size=len(episode))
    hard = random.exponential(size=episodes)[episode]
    values = [returns + np.sqrt(x * hard) * random.normal(size=len(episode)) for x in noise]
    return dict(zip(("whole", "altered"), values, strict=True)), returns, episode


@pytest.mark.parametrize("measure", ["explained variance", "squared correlation"])
def test_intervals_of_values_are_of_the_measure_over_paired_episodes(measure):
    values, returns, episode = drawn_values(40)
    values["same"] = values["whole"]
    scores = {one.name: one for one in score_values(values, returns, episode, measure)}
    one = scores["whole"]
    expected = (
        1 - np.var(returns - values["whole"]) / np.var(returns)
        if measure == "explained variance"
        else np.corrcoef(values["whole"], returns)[0, 1] ** 2
    )
    assert one.value == pytest.approx(expected) and one.loss is None
    for score in scores.values():
        assert score.interval.low < score.value < score.interval.high <= 1
    assert scores["same"].loss == Estimate(0.0, Interval(0.0, 0.0))  # the same episodes for both
    loss = scores["altered"].loss
    assert loss.value == pytest.approx(one.value - scores["altered"].value)
    assert 0 < loss.interval.low < loss.value < loss.interval.high
    shifted = score_values({"": 3 + 2 * values["whole"]}, returns, episode, measure)[0]
    assert (shifted.interval == pytest.approx(one.interval)) == (measure == "squared correlation")


def test_intervals_of_values_need_five_episodes_and_stay_in_the_range_of_the_measure():
    values, returns, episode = drawn_values(4)
    for one in score_values(values, returns, episode, "explained variance"):
        assert one.value < 1 and one.interval is None and one.loss is None
    values, returns, episode = drawn_values(5, noise=(0.05, 3.0))
    whole, altered = score_values(values, returns, episode, "explained variance")
    assert whole.interval.high < 1 and altered.interval.high == 1 < altered.loss.interval.high
    whole, altered = score_values(values, returns, episode, "squared correlation")
    assert altered.interval.low == 0 < altered.value and altered.loss.interval.high == 1
    # What differs by rounding only is a constant.
    (one,) = score_values({"": 0.1 + 1e-9 * returns}, returns, episode, "squared correlation")
    assert (one.value, one.interval) == (0, (0, 0))
    # Some resamples have equal returns, so that nothing is left to explain; none of them is infinitely far.
    signs = np.repeat([1.0, 1, 1, -1, -1], 10)
    for measure in ("explained variance", "squared correlation"):
        wrong, constant = score_values({"": -signs, "0": 0 * signs}, signs, episode, measure)
        assert wrong.interval == pytest.approx([wrong.value] * 2) and constant.interval == (0, 0)
        assert wrong.value == pytest.approx(-3 if measure == "explained variance" else 0)


def test_the_sign_is_read_out_of_the_memory_and_not_out_of_the_observation(remembering):
    secret = next(answer for answer in remembering.readout if answer.name == "secret 0")
    assert secret.measure == "accuracy" and secret.memory == 1.0
    assert secret.observation < 0.8  # it is in sight in one row of four
    (before,) = (answer for answer in remembering.readout if (answer.name, answer.lag) == ("entry 0", 1))
    assert before.memory > before.observation + 0.1


# Learned, or there before ---------------------------------------------------------------------


def test_an_untrained_memory_has_learned_nothing():
    """Whatever can be read out of it: what is read out of others of its kind is as much."""
    actor = branch("gru", prev_action=True)
    envs = make(replace(RECALL, num_envs=10))
    agent = build_agent((envs.obs_spec, envs.action_spec), actor, branch("mlp"), False, 3)
    probed = probe(Trained(agent, RunConfig(env=RECALL, actor=actor), Path(), {}), episodes=60)
    secret = next(answer for answer in probed.readout if answer.name == "secret 0")
    assert secret.memory > 0.9 and secret.untrained > 0.9  # and yet it was not learned
    assert not any(answer.gain_interval.low > 0.02 for answer in probed.readout)


def test_a_memory_that_learned_gains_on_untrained_ones():
    """The trained memory keeps the number; untrained ones forgot half of it."""
    random = np.random.default_rng(0)
    truth = random.normal(size=2000)
    places = Places(np.repeat(np.arange(100), 20), np.tile(np.arange(20), 100))
    noisy = [truth[:, None] + random.normal(size=(2000, 1)) for _ in range(3)]
    sources = Sources(truth[:, None], noisy, random.normal(size=(2000, 1)))
    parts = split_episodes(places.episode, random)
    (answer,) = read_targets(sources, [Target("number", truth)], parts, places)
    assert answer.memory > 0.99 and 0.4 < answer.untrained < 0.6
    assert 0.35 < answer.gain_interval.low < answer.gain < answer.gain_interval.high < 0.75
    assert answer.learned and abs(answer.chance) < 0.05


def test_memories_that_differ_by_luck_have_learned_nothing():
    """The trained one is drawn as the untrained ones are: rarely does the interval of the gain exclude 0."""
    random, learned, draws = np.random.default_rng(0), 0, 100
    places = Places(np.repeat(np.arange(60), 10), np.tile(np.arange(10), 60))
    for _ in range(draws):
        truth = random.normal(size=600)
        noise = random.uniform(0.2, 1.5, size=6)  # how much each network happens to retain
        memory, *others = (truth[:, None] + one * random.normal(size=(600, 1)) for one in noise)
        sources = Sources(memory, others, random.normal(size=(600, 1)))
        (answer,) = read_targets(
            sources, [Target("number", truth)], split_episodes(places.episode, random), places
        )
        learned += answer.learned
    assert learned <= 8


def test_a_difference_is_equal_if_it_is_small_in_both_directions():
    directions = {
        (0.0, -0.1, 0.1): "equal",
        (0.04, -0.1, 0.19): "equal",
        (0.04, -0.1, 0.21): "unclear",
        (-0.15, -0.4, 0.1): "not better",
        (-0.15, -0.2, -0.1): "worse",
        (-0.04, -0.3, 0.1): "not better",
        (0.15, 0.1, 0.2): "better",
    }
    for (by, low, high), direction in directions.items():
        assert classify(by, Interval(low, high), 1.0).direction == direction


def places_of(count, steps):
    """So many episodes of so many steps."""
    return Places(np.repeat(np.arange(count), steps), np.tile(np.arange(steps), count))


def test_what_is_only_a_matter_of_time_is_chance():
    """A value that is the same function of the step in every episode is read out of a clock."""
    places, random = places_of(100, 20), np.random.default_rng(1)
    clock = places.step[:, None] + random.normal(size=(2000, 1)) * 0.01
    parts = split_episodes(places.episode, np.random.default_rng(0))
    question = Target("time", places.step.astype(float))
    # The observation shows nothing, so that only chance says that the memory holds nothing of an episode.
    sources = Sources(clock, [clock], random.normal(size=(2000, 1)))
    (answer,) = read_targets(sources, [question], parts, places)
    assert answer.memory > 0.99 and answer.chance > 0.99 and not answer.learned
    assert answer.beyond_interval.low > 0.9
    low, high = answer.selectivity_interval
    assert -1e-5 < low <= answer.selectivity == 0 <= high < 1e-5 and not answer.held


@pytest.mark.parametrize("of", ["episode", "step"])
def test_a_random_feature_of_an_episode_or_of_a_step_is_not_selective(of):
    """The memory has a random code of it, from which a read-out gains nothing, or as much for others."""
    random = np.random.default_rng(3)
    places = places_of(60, 20)
    where = getattr(places, of)
    codes, drawn = random.normal(size=(where.max() + 1, 8)), random.normal(size=where.max() + 1)
    parts = split_episodes(places.episode, random)
    sources = Sources(codes[where], [codes[where]], random.normal(size=(len(where), 1)))
    (answer,) = read_targets(sources, [Target("drawn", drawn[where])], parts, places)
    low, high = answer.selectivity_interval
    assert low - 1e-9 <= 0 <= high + 1e-9 and abs(answer.selectivity) < 0.3


def test_a_memory_that_holds_a_quantity_is_selective():
    """A third of the variance is a matter of the step: chance is what that gives, and the rest is above."""
    random = np.random.default_rng(4)
    places = places_of(100, 20)
    clock, own = random.normal(size=20)[places.step], random.normal(size=100)[places.episode]
    truth = clock / clock.std() * np.sqrt(1 / 3) + own / own.std() * np.sqrt(2 / 3)
    blind = random.normal(size=(2000, 1))
    parts = split_episodes(places.episode, random)
    targets = [Target("number", truth), Target("sign", np.sign(truth))]
    for answer in read_targets(Sources(truth[:, None], [blind], blind), targets, parts, places):
        assert answer.held and answer.selectivity == pytest.approx(answer.memory - answer.chance)
        low, high = answer.selectivity_interval
        assert 0.1 < low < answer.selectivity < high
        if answer.measure == "R2":
            # The share of the other episode that the clock explains: a third squared.
            assert answer.memory > 0.999 and low < 1 - 1 / 9 < high


def test_chance_is_the_mean_of_several_permutations():
    """With five episodes to choose the penalty there are four ways to give each one that of another."""
    places, random = places_of(25, 30), np.random.default_rng(5)
    parts = split_episodes(places.episode, random)
    memory = random.normal(size=(750, 3))
    target = Target("noise", np.where(random.random(750) < 0.8, random.normal(size=750), np.nan))
    each = []
    for shift in range(1, 5):
        others = target.values[match_steps(parts, places, shift)]
        # The steps at which the value is known in both episodes.
        known = Split(*(part & np.isfinite(others + target.values) for part in parts))
        truth = others[known.score]
        errors = truth - predict(memory, others[:, None], known)[:, 0]
        each.append(1 - np.square(errors).sum() / np.square(truth - truth.mean()).sum())
    (answer,) = read_targets(Sources(memory, [memory], memory), [target], parts, places)
    assert answer.chance == pytest.approx(np.mean(each)) and np.ptp(each) > 1e-3


def test_a_few_episodes_or_one_permutation_give_no_interval():
    random = np.random.default_rng(6)
    places = places_of(20, 60)
    truth = random.normal(size=1200)
    parts = split_episodes(places.episode, random)  # four episodes are scored
    sources = Sources(truth[:, None], [truth[:, None]], random.normal(size=(1200, 1)))
    (answer,) = read_targets(sources, [Target("number", truth)], parts, places)
    assert answer.selectivity > 0.9 and answer.selectivity_interval is None and not answer.held
    two = Split(places.episode < 10, np.isin(places.episode, (10, 11)), places.episode > 11)
    (answer,) = read_targets(sources, [Target("number", truth)], two, places)
    assert answer.beyond_interval.low > 0.9 and answer.selectivity_interval is None and not answer.held


def test_a_value_is_matched_with_that_of_another_episode_at_the_same_step():
    places = Places(np.array([7, 7, 7, 9, 9, 4, 4]), np.array([0, 1, 2, 0, 1, 0, 1]))
    values = np.array([1.0, 2, 3, 10, 20, 5, 6])
    first = np.isin(places.episode, (7, 9))
    rows = match_steps(Split(first, ~first, ~first), places, 1)
    # The second part has no other episode.
    assert rows.tolist() == [3, 4, -1, 0, 1, -1, -1] and values[rows[:2]].tolist() == [10, 20]
    whole = np.ones(7, bool)
    assert match_steps(Split(whole, ~whole, ~whole), places, 1).tolist() == [3, 4, -1, 5, 6, 0, 1]
    assert match_steps(Split(whole, ~whole, ~whole), places, 2).tolist() == [5, 6, -1, 0, 1, 3, 4]


# Exactness ------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [12, 60])
def test_as_it_is_equals_an_evaluation(episodes):
    env = EnvConfig(id="CartPoleMasked", time_limit=40)
    envs = make(env)
    spaces = envs.obs_spec, envs.action_spec
    agent = lively(build_agent(spaces, branch("gru"), branch("mlp"), True, 0))
    evaluated = evaluate(agent, env, episodes, seed=5)
    probed = probe(Trained(agent, RunConfig(env=env, actor=branch("gru")), Path(), {}), episodes, seed=5)
    assert probed.whole.scores.tolist() == evaluated.returns and probed.source == "return"


def recalling(name):
    """An agent with a memory of this name and a record of its episodes, three in each environment."""
    envs = make(replace(RECALL, num_envs=10))
    actor = branch(name, prev_action=True)
    agent = lively(build_agent((envs.obs_spec, envs.action_spec), actor, branch("mlp"), False, 0))
    return agent, envs, record_deterministic(agent, envs, 30, 0)[1]


@torch.no_grad()
def said(agent, rows, alter=None):
    """What the actor says of rows, one call a row as in acting."""
    with altered(agent.actor, alter):
        state, out = agent.actor.memory.initial_state(rows.first.shape[1]), []
        for t in range(len(rows.first)):
            y, state = agent.actor(slice_rows(rows, slice(t, t + 1)), state)
            out.append(y)
    return torch.cat(out)


@pytest.mark.parametrize("name", REMEMBERING)
def test_clearing_is_exact(name):
    agent, _, record = recalling(name)
    whole = said(agent, record.rows)
    assert torch.equal(said(agent, record.rows, partial(Cleared, every=1000)), whole)
    blank = record.rows._replace(first=torch.ones_like(record.rows.first))
    inputs, agent.actor.inputs = agent.actor.inputs, Told(agent.actor.inputs, record.rows)
    memoryless = said(agent, blank)
    agent.actor.inputs = inputs
    assert torch.equal(said(agent, record.rows, partial(Cleared, every=1)), memoryless)
    assert not torch.equal(memoryless, whole)


class Told(torch.nn.Module):
    """Inputs that know where episodes really open: clearing a memory hides no action before."""

    def __init__(self, inputs, rows):
        super().__init__()
        self.inputs, self.rows, self.asked = inputs, rows, {"all": 0, "action": 0}

    def now(self, kind):
        self.asked[kind] += 1
        return slice_rows(self.rows, slice(self.asked[kind] - 1, self.asked[kind]))

    def forward(self, rows):
        return self.inputs(self.now("all"))

    def action(self, rows):
        return self.inputs.action(self.now("action"))


@pytest.mark.parametrize("name", sampled(REMEMBERING, "gru", "lru", "gpt2", "trxl"))
def test_the_last_rows_are_all_that_is_known_of_them(name):
    agent, _, record = recalling(name)
    rows, k = record.rows, 2
    torch.testing.assert_close(said(agent, rows, partial(Recent, steps=64)), said(agent, rows))
    recent = said(agent, rows, partial(Recent, steps=k))
    for t in range(k - 1, len(rows.first)):
        fresh = said(agent, slice_rows(rows, slice(t - k + 1, t + 1)))
        torch.testing.assert_close(recent[t], fresh[-1])


@pytest.mark.parametrize("resets", sampled([True, False], True))
@pytest.mark.parametrize("name", SOME)
def test_copies_and_inputs_computed_anew_are_the_same_limit(name, resets):
    agent, _, record = recalling(name)
    agent.actor.resets = resets
    for k in (1, 2, 3, 64):
        copies, anew = (said(agent, record.rows, partial(kind, steps=k)) for kind in (Recent, Windowed))
        torch.testing.assert_close(copies, anew)


def test_states_that_are_too_large_for_copies_are_computed_anew(monkeypatch):
    agent, _, record = recalling("gru")
    memory, batch = agent.actor.memory, record.valid.shape[1]
    floats = sum(leaf.numel() for leaf in leaves(memory.initial_state(batch)).values())
    monkeypatch.setattr("recollect.probing.limited.LARGEST", 4 * floats)
    assert [limit(memory, batch, k)(memory, True).__class__ for k in (4, 5)] == [Recent, Windowed]
    assert most_steps(memory, batch) == 128
    monkeypatch.setattr("recollect.probing.limited.LARGEST", 200 * floats)
    assert most_steps(memory, batch) == 200


def test_a_memory_that_is_never_reset_goes_on_where_clearings_are_rare():
    agent, _, record = recalling("gru")
    agent.actor.resets = False
    whole = said(agent, record.rows)
    assert torch.equal(said(agent, record.rows, partial(Cleared, every=1000)), whole)
    agent.actor.resets = True
    assert not torch.equal(said(agent, record.rows), whole)


def test_a_swapped_state_is_that_of_another_episode_after_as_many_steps():
    shown = {(0, 0, 0): (10.0, 2), (0, 1, 0): (30.0, 3), (1, 0, 0): (20.0, 4), (1, 1, 0): (40.0, 3)}
    recorded = {key: torch.full((rows, 2), number) for key, (number, rows) in shown.items()}
    memory = Swapped(Copy(), True, recorded)
    first = torch.tensor([[True, True]] + [[False, False]] * 4)
    y, (inside, *_) = memory(torch.full((5, 2, 2), 9.0), memory.initial_state(2), first)
    assert y[0, :, 0].tolist() == [9, 9]  # the state at a start is the initial one for all
    assert y[1:, 0, 0].tolist() == [30, 30, 20, 20]  # the next episode, then one that lasts longer
    assert y[1:, 1, 0].tolist() == [20, 20, 20, 20]
    assert inside[1].tolist() == [4, 4]  # no donor has a fifth row: its last state stays


def test_a_swapped_state_is_one_of_the_same_agent():
    """Two environments of two agents, which may have different parts to play."""
    shown = {(0, env, env % 2): torch.full((5, 2), 10.0 * env) for env in range(4)}
    memory = Swapped(Copy(), True, shown)
    first = torch.tensor([[True] * 4, [False] * 4])
    y, _ = memory(torch.full((2, 4, 2), 9.0), memory.initial_state(4), first)
    assert y[1, :, 0].tolist() == [20, 30, 0, 10]
    agent, _, record = recalling("gru")
    recorded = record_sequences(agent.actor, replace(record, agents=2))
    assert {(env, part) for _, env, part in recorded} == {(env, env % 2) for env in range(10)}


@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("name", SOME)
@torch.no_grad()
def test_states_of_another_episode_are_those_that_it_had(name, resets):
    """All episodes of recall are equally long, so the next environment has the state of the same row."""
    agent, _, record = recalling(name)
    agent.actor.resets = resets
    recorded = record_sequences(agent.actor, record)
    swapped = said(agent, record.rows, partial(Swapped, recorded=recorded))
    state = agent.actor.memory.initial_state(10)
    for t, after in enumerate(memory_states(agent.actor, record.rows)):
        others = map_leaves(lambda leaf: leaf.roll(-1, 0), state)
        expected = agent.actor(slice_rows(record.rows, slice(t, t + 1)), others)[0][0]
        torch.testing.assert_close(swapped[t, :9], expected[:9])  # after the last comes another number
        state = after


class Count(Memory):
    """Returns 1 at even steps of an episode and -1 at odd ones."""

    def __init__(self):
        super().__init__()
        self.out_dim, self.reach = 1, None

    def initial_state(self, batch):
        return torch.zeros(batch, 1)

    def forward(self, x, state, first):
        signs = []
        for opens in first:
            state = torch.where(opens[:, None], 0.0, state) + 1
            signs.append(2 * (state % 2) - 1)
        return torch.stack(signs), state


@dataclass(frozen=True, kw_only=True)
class CountConfig(MemoryConfig):
    """The parity of the step."""

    name: ClassVar[str] = "count"

    def build(self, in_dim, action_dim=0):
        return Count()


class Parity(gymnasium.Env):
    """Episodes of 2 to 6 steps; reward 1 for action 1 at even steps, and for action 0 at odd ones."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.length = 0, self.np_random.integers(2, 7)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = float(action == 1 - self.steps % 2)
        self.steps += 1
        return np.zeros(1, np.float32), reward, self.steps == self.length, False, {}


def test_a_clock_loses_nothing_by_swaps_between_episodes_of_different_lengths():
    parity = replace(trained(1.0, CountConfig(), EnvConfig(), factory=Parity), factory=Parity)
    probed = probe(parity, episodes=60)
    losses = {one.name: one.lost.by for one in probed.ablations}
    assert losses["that of another episode"] == 0 and losses["cleared at every step"] > 1
    (unmatched,) = (one.unmatched for one in probed.ablations if one.unmatched is not None)
    assert unmatched == 0
    values = probed.values.by_alteration
    assert values["that of another episode"] == values["as it is"] != values["cleared at every step"]


def test_swapped_steps_after_the_longest_other_episode_are_counted():
    assert measure_unmatched(np.array([5.0, 9, 11]), np.array([3.0, 8, 5])) == pytest.approx(5 / 25)
    assert measure_unmatched(np.array([5.0, 8, 5]), np.array([5.0, 8, 5])) == pytest.approx(2 / 18)


def test_freezing_keeps_the_first_row_and_a_new_episode_thaws():
    memory, x = Frozen(Copy(), True), torch.arange(4.0).reshape(4, 1, 1)
    y, (kept, count) = memory(x, Copy().initial_state(1), torch.tensor([[True], [False], [True], [False]]))
    assert y.flatten().tolist() == [0, 0, 2, 2] and (kept.item(), count.item()) == (2.0, 1)


def test_only_floats_are_averaged_and_blurred():
    agent, _, record = recalling("gpt2")
    seen = measure_spread(agent.actor, record)
    state = agent.actor.memory.initial_state(10)
    integers = {path for path, leaf in leaves(state).items() if not leaf.is_floating_point()}
    assert integers and not integers & (seen.mean.keys() | seen.deviation.keys())
    assert seen.mean and all(float(x.min()) >= 0 for x in seen.deviation.values())
    random = np.random.default_rng(0)
    own = torch.tensor([[1.0], [3.0]]), torch.tensor([4, 7])
    first = torch.zeros(1, 2, dtype=torch.bool)
    hand = Spread({"0": torch.tensor([[2.0]])}, {"0": torch.tensor([[0.5]])})
    y, (_, count) = Averaged(Copy(), True, hand)(torch.zeros(1, 2, 1), own, first)
    assert y.flatten().tolist() == [2, 2] and count.tolist() == [5, 8]
    y, (_, count) = Noisy(Copy(), True, hand, 0.1, random)(torch.zeros(1, 2, 1), own, first)
    assert 0 < float((y[0] - own[0]).abs().max()) < 0.5 and count.tolist() == [5, 8]


@pytest.mark.parametrize("name", sampled([*MEMORIES, "shared"], "gru", "lru", "gpt2", "shared"))
def test_every_memory_can_be_probed(name):
    actor, critic = ("gru", "shared") if name == "shared" else (name, name)
    envs = make(RECALL)
    spaces = envs.obs_spec, envs.action_spec
    config = RunConfig(env=RECALL, actor=branch(actor), critic=branch(critic))
    agent = lively(build_agent(spaces, config.actor, config.critic, False, 0))
    probed = probe(Trained(agent, config, Path(), {}), episodes=10)
    assert has_memory(agent.actor) == bool(probed.ablations) == (name in (*REMEMBERING, "shared"))
    assert probed.values.shared == (name == "shared")
    assert agent.actor.memory.__class__.__module__.startswith("recollect.memory.")  # and nothing is left


# What is written down -------------------------------------------------------------------------


def test_what_a_mask_hides_is_what_the_environment_has():
    envs = make(EnvConfig(id="CartPoleMasked", num_envs=10, time_limit=9))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch("gru"), branch("mlp"), False, 0)
    one, record = record_deterministic(agent, envs, 10, 0)
    assert set(record.hidden) == {"masked entry 1", "masked entry 3"}
    assert float(record.rows.obs["obs"][..., 1].abs().max()) == 0 < np.ptp(record.hidden["masked entry 1"])
    assert record.valid.shape == record.step.shape and record.rows.first.shape[0] == len(record.valid) + 1
    assert np.array_equal(record.rows.first[1:].numpy(), ~record.valid)  # what follows a tail row opens
    assert record.step[record.valid].max() == one.lengths.max() - 1
    again = play_deterministic(agent, envs, 10, 0)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, again, strict=True))


def test_poc_hides_the_side_once_it_is_no_longer_shown():
    envs = make(EnvConfig(id="poc", num_envs=10))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch("gru"), branch("mlp"), False, 0)
    record = record_deterministic(agent, envs, 10, 0)[1]
    side = record.hidden["side of the good end"]
    shown = record.rows.obs["obs"][..., 0].numpy() != 0
    assert np.isnan(side[shown]).all() and set(np.unique(side[~shown])) <= {-1.0, 1.0}


class Telling(gymnasium.Env):
    """Tells a number beside the observation from the second row on."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.row += 1
        return np.zeros(1, np.float32), 0.0, self.row == 3, False, {"row": self.row, "word": "x"}


def test_numbers_that_environments_tell_are_hidden_ones():
    envs = make(EnvConfig(num_envs=2), Telling)
    envs.adapter.reset([1, 2])
    assert envs.adapter.hidden() == {}
    envs.adapter.step(np.zeros(2, dtype=int))
    assert {name: x.tolist() for name, x in envs.adapter.hidden().items()} == {"row": [1.0, 1.0]}


def test_returns_to_go_by_hand():
    ends = np.array([[False, False], [True, False], [False, True]])
    record = recalling("gru")[2]
    record = replace(record, valid=np.ones((3, 2), bool), terminated=ends, truncated=np.zeros((3, 2), bool))
    reward, values = np.array([[1.0, 2], [1, 2], [1, 2]]), np.array([[9.0, 9], [9, 9], [10, 9], [9, 9]])
    returns, known = compute_returns_to_go(reward, record, values, 0.5, True)
    assert returns[:, 1].tolist() == [3.5, 3.0, 2.0] and returns[:2, 0].tolist() == [1.5, 1.0]
    assert known.tolist() == [[True, True], [True, True], [False, True]]  # the last row goes on
    cut = replace(record, terminated=np.zeros((3, 2), bool), truncated=ends)
    returns, known = compute_returns_to_go(reward, cut, values, 0.5, True)
    assert returns[:2, 0].tolist() == [4.0, 6.0] and known[:2].all()
    assert not compute_returns_to_go(reward, cut, values, 0.5, False)[1].any()
    assert compute_returns_to_go(reward, cut, values, 0.2, False)[1].tolist() == [
        [True, True],
        [False, True],
        [False, False],
    ]


# Linear maps ----------------------------------------------------------------------------------


def test_a_linear_code_is_found_noise_is_not_and_no_episode_is_in_two_parts():
    random = np.random.default_rng(1)
    episode = np.repeat(np.arange(100), 30)
    truth = random.standard_normal((3000, 4))
    memory = truth @ random.standard_normal((4, 40)) + 5
    parts = split_episodes(episode, random)
    names = [set(episode[part]) for part in parts]
    assert sum(map(len, names)) == len(set.union(*names)) == 100 and min(map(len, names)) == 20
    sign = np.sign(truth[:, 1])
    late = np.where(np.arange(3000) % 30 > 3, truth[:, 2], np.nan)
    asked = [Target("truth", truth[:, 0]), Target("sign", sign), Target("late", late, 4)]
    asked += [Target("constant", np.ones(3000)), Target("never", np.full(3000, np.nan))]
    noise = random.standard_normal((3000, 40))
    places = Places(episode, np.tile(np.arange(30), 100))
    code, luck, late = read_targets(Sources(memory, [noise], noise), asked, parts, places)
    assert (code.measure, luck.measure, late.lag) == ("R2", "accuracy", 4)
    assert code.memory > 0.9999 and late.memory > 0.9999 and luck.memory > 0.95
    assert abs(code.observation) < 0.05 and abs(luck.observation - 0.5) < 0.1
    assert late.rows < code.rows == 600
    assert code.learned and abs(code.chance) < 0.05 and abs(luck.chance - 0.5) < 0.1


def test_what_belongs_to_an_episode_is_not_found_by_knowing_the_episode():
    """A code that names episodes tells nothing of new ones; were they split, it would tell all."""
    random = np.random.default_rng(2)
    episode = np.repeat(np.arange(100), 30)
    drawn, names = random.standard_normal(100)[episode], np.eye(100)[episode]
    places = Places(episode, np.tile(np.arange(30), 100))
    sources = Sources(names, [names], names)
    (answer,) = read_targets(sources, [Target("drawn", drawn)], split_episodes(episode, random), places)
    assert answer.memory < 0.05


# The command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a memory, and one of the same environment without."""
    out = tmp_path_factory.mktemp("probed")
    config = small_config("CartPoleMasked")
    config = replace(config, env=replace(config.env, time_limit=30))
    with_memory = replace(config, actor=branch("gru"), critic=branch("gru"))
    return run_quietly(with_memory, out, "gru").folder, run_quietly(config, out, "mlp").folder


@pytest.fixture(scope="module")
def page(run):
    agent, control = run
    assert cli.main(["probe", str(agent), "--control", str(control), "--episodes", "20"]) == 0
    return agent / "probe" / "probe.html"


def test_a_run_is_probed_into_its_own_folder(run, page, tmp_path, capsys):
    data = json.loads((page.parent / "probe.json").read_text())
    assert data["actor"] == data["critic"] == "gru" and [one["run"] for one in data["controls"]["runs"]] == [
        str(run[1])
    ]
    assert data["values"]["measure"] == "explained variance"  # the run keeps the scale of its rewards
    assert len(data["whole"]["scores"]) == data["episodes"] == 20
    assert [one["every"] for one in data["ablations"]][:3] == [1, 2, 4]
    arguments = ["probe", str(run[0]), "--episodes", "20", "--json", "-o", str(tmp_path)]
    assert cli.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["whole"] == data["whole"]


def test_the_screen_says_it_all(run, tmp_path, capsys):
    assert cli.main(["probe", str(run[1]), "--episodes", "10", "-o", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "It has no memory." in text and "actor: no memory" in text
    assert f"{tmp_path / 'probe.html'} and probe.json are written" in text


def test_mistakes_are_one_line(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    agent, plain = map(str, run)
    elsewhere = str(MODELS / "CartPole-v1.safetensors")
    bad = {
        ("probe",): "recollect probe needs RUN",
        ("probe", "random"): "'random' has no memory to probe",
        ("probe", "nowhere"): "nowhere does not exist",
        ("probe", agent, "--episodes", "9"): "9 episodes: at least 10 are needed",
        ("probe", agent, "--control", elsewhere): "was trained in CartPole-v1, the agent in CartPoleMasked",
        ("probe", agent, "--control", agent): "has a memory (gru); a control must have none",
        ("probe", agent, "--control", plain, plain): "have the same settings and seed",
        ("probe", agent, "--control", plain, elsewhere): "was trained in CartPole-v1",
        ("probe", agent, "-o", __file__): "is a file, and a folder is needed",
        ("probe", agent, "--episode", "9"): "unknown option --episode; did you mean --episodes",
    }
    for arguments, message in bad.items():
        assert cli.main([*arguments]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error
    assert list(tmp_path.iterdir()) == []


def test_an_agent_and_its_control_meet_in_one_environment():
    short = replace(RECALL, kwargs={"delay": 1})
    with pytest.raises(UsageError, match="was trained in probe:recall"):
        probe(trained(1.0), controls=[*plain_controls(1), trained(1.0, MEMORIES["mlp"](), short)])


def test_intervals_of_successes_stay_between_0_and_1():
    """Also of parts of a success, whose normal approximation would not."""
    random = np.random.default_rng(0)
    for scores in (np.ones(10), np.eye(10)[0], 1 - np.eye(10)[0], np.array([1] * 9 + [0.1])):
        one, other = (average(played_as(x), "success") for x in (scores, random.permutation(1 - scores)))
        for score in (one, other):
            assert 0 <= score.interval.low <= score.mean <= score.interval.high <= 1
        for lost in (compare(one, other, "success"), compare(other, one, "success")):
            assert -1 <= lost.interval.low <= lost.by <= lost.interval.high <= 1
        several = compare_controls(one, ["a", "b", "c"], [other, one, other], "success")
        above = several.above
        assert -1 <= above.interval.low <= above.by <= above.interval.high <= 1
    parts = compare(*(average(played_as([share] * 10), "success") for share in (0.6, 0.5)), "success")
    assert parts.interval.low <= parts.by <= parts.interval.high


# In a browser ---------------------------------------------------------------------------------

VISIT = """
const page = document.querySelector("iframe").contentWindow;
const all = (what) => [...page.document.querySelectorAll(what)];
const errors = [];
document.querySelector("iframe").addEventListener("load", () => {
  page.addEventListener("error", (event) => errors.push(event.message));
  setTimeout(() => {
    const seen = { errors, wide: page.document.documentElement.scrollWidth };
    seen.lines = all("figure[data-kind=lines]").map((f) => f.querySelectorAll("path.line").length);
    seen.dots = all("figure[data-kind=dots]").map((f) => f.querySelectorAll("circle.mark").length);
    seen.words = all("svg[role=img], div[role=img]").map((node) => node.getAttribute("aria-label"));
    seen.tables = all("p.caption").map((node) => node.textContent);
    seen.headings = all("h2").map((node) => node.textContent);
    seen.ticks = [...all("figure svg")[1].querySelectorAll("text")].map((node) => node.textContent);
    document.querySelector("pre").textContent = JSON.stringify(seen);
  }, 150);
});
"""


@pytest.fixture(scope="module")
def visited(page, tmp_path_factory):
    """What a browser saw."""
    return seen_by_a_browser(page, VISIT, tmp_path_factory.mktemp("browser"))


def test_the_page_shows_itself_on_a_phone(visited):
    assert visited["errors"] == [] and visited["wide"] <= 360
    assert visited["lines"][0] in (2, 3) and visited["dots"][0] == 8
    assert len(visited["words"]) == len(visited["lines"]) + len(visited["dots"]) and all(visited["words"])
    assert visited["headings"][:2] == ["Verdict", "Loss of the actor"]
    assert "Return, with its loss, over 20 episodes" in visited["tables"]


def test_the_page_passes_an_audit(page, tmp_path):
    for width, dark in ((390, True), (1400, False)):
        assert audit(page, tmp_path, width, dark) == []


def test_the_page_loads_nothing(page):
    text = page.read_text()
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|@import|url\(|src=|<link(?! rel=\"icon\")", text)
    assert len(text) < 200_000
