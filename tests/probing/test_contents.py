"""Which quantity in a memory state decides, of agents that were built by hand."""

import math
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from recollect.envs import EnvConfig
from recollect.memory import Memory, MemoryConfig
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.rnn import GruConfig, LstmConfig
from recollect.memory.trxl import TrxlConfig
from recollect.memory.xlstm import MlstmConfig
from recollect.probing import probe
from recollect.probing.contents import measure_turn
from recollect.probing.directions import Directions
from recollect.probing.linear import Places, Sources
from recollect.probing.parts import find_parts
from recollect.probing.readout import Material
from recollect.probing.ridge import Split, fit
from recollect.probing.samples import find_by_progress, find_donors
from recollect.probing.screen import write_text
from recollect.run.recording import float_leaves

from .test_open_loop import Slide
from .test_probe import CopyConfig, Lag, LagConfig, Repeat, trained

WEIGHT = 1.5
TURNED = (2 / (1 + math.exp(-WEIGHT)) - 1) * WEIGHT  # KL of the policy of one sign from that of the other


def held_with(probed, name, back=1):
    return next(one for one in probed.contents.held if (one.name, one.back) == (name, back))


class Signs(gymnasium.Env):
    """Seven random signs in the first of five steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (7,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.signs = 0, self.np_random.choice([-1.0, 1.0], 7)
        return self.signs.astype(np.float32), self._info()

    def step(self, action):
        self.time += 1
        reward = float((action == 1) == (self.signs[0] > 0))
        return np.zeros(7, np.float32), reward, self.time == 5, False, self._info()

    def _info(self):
        names = {"cue": self.signs[0], "other": self.signs[1], "product": self.signs[0] * self.signs[2]}
        return {name: float(x) for name, x in names.items()}


class Keep(Memory):
    """Keeps numbers made of the first observation; the last of them is its output."""

    def __init__(self, code):
        super().__init__()
        self.code, self.out_dim, self.reach = code, 1, None
        self.width = code(torch.zeros(1, 7)).shape[1]

    def initial_state(self, batch):
        return torch.zeros(batch, self.width)

    def forward(self, x, state, first):
        said = []
        for row, opens in zip(x, first, strict=True):
            state = torch.where(opens[:, None], self.code(row[:, :7]), state)
            said.append(self.read(state)[:, None])
        return torch.stack(said), state

    def read(self, state):
        """What the policy gets of the state (B,)."""
        return state[:, -1]


class KeepProduct(Keep):
    """Its output is the product of two numbers that it keeps."""

    def read(self, state):
        return state[:, 0] * state[:, 1]


CODES = {
    "plain": lambda x: x[:, [1, 2, 3, 4, 5, 6, 0]],
    "twice": lambda x: x[:, [0, 1, 2, 3, 4, 5, 0]],
    "product": lambda x: torch.stack([x[:, 0], x[:, 2], x[:, 1]], -1),
    "checked": lambda x: torch.stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]], -1),
}


@dataclass(frozen=True, kw_only=True)
class KeepConfig(MemoryConfig):
    """Signs of the first step."""

    name: ClassVar[str] = "keep"
    code: str = "plain"

    def build(self, in_dim, action_dim=0):
        kinds = {"product": KeepProduct, "checked": KeepChecked}
        return kinds.get(self.code, Keep)(CODES[self.code])


@pytest.fixture(scope="module")
def keeping():
    """It keeps seven signs, and follows the last."""
    return probe(trained(WEIGHT, KeepConfig(), EnvConfig(), factory=Signs), episodes=100)


def test_a_turned_cue_turns_the_choice_and_another_sign_does_not(keeping):
    cue, other = (held_with(keeping, name) for name in ("cue", "other"))
    assert cue.measure == other.measure == "accuracy" and cue.memory == other.memory == 1
    assert cue.turned.divergence.value == pytest.approx(TURNED, rel=0.05)
    assert cue.turned.changed.value == 1 and cue.decides and cue.random.drawn > 50
    assert cue.adopted.value == 1 and other.adopted.value == 0
    assert other.turned.changed.value == 0 and not other.decides
    assert other.turned.divergence.value < 0.1 * TURNED  # as the signs of so many episodes are correlated
    assert cue.erased.divergence.value > 10 * other.erased.divergence.value


class KeepChecked(Keep):
    """Its output is the cue, and 0 unless the product that it keeps is that of the cue and another sign."""

    def read(self, state):
        cue, other, product = state.unbind(1)
        return torch.where((cue * other - product).abs() < 0.5, cue, 0.0)


class ThreeActions(Signs):
    action_space = gymnasium.spaces.Discrete(3)


def test_an_agent_that_a_turned_cue_only_disturbs_does_not_adopt_the_action_of_the_other_value():
    """It takes the third action with a state that no episode has."""
    agent = trained(0.0, KeepConfig(code="checked"), EnvConfig(), factory=ThreeActions)
    with torch.no_grad():
        agent.agent.actor.head.out.weight[:2, 0] = torch.tensor([-WEIGHT, WEIGHT])
        agent.agent.actor.head.out.bias[2] = WEIGHT / 2
    cue = held_with(probe(agent, episodes=100), "cue")
    assert cue.followed and cue.other.changed.value == 1
    assert cue.turned.changed.value == 1 and cue.adopted.value == 0


def test_a_cue_that_is_kept_twice_is_turned_in_both_places():
    """The read-out could do with either, and the policy follows one of them."""
    agent = trained(WEIGHT, KeepConfig(code="twice"), EnvConfig(), factory=Signs)
    cue = held_with(probe(agent, episodes=100), "cue")
    assert cue.turned.divergence.value == pytest.approx(TURNED, rel=0.05) and cue.turned.changed.value == 1


def test_a_state_with_the_other_cue_turns_the_choice_and_one_with_the_same_does_not(keeping):
    cue, other = (held_with(keeping, name) for name in ("cue", "other"))
    assert cue.other.changed.value == 1 and cue.other.divergence.value == pytest.approx(TURNED, rel=1e-5)
    assert cue.same.changed.value == 0 and cue.same.divergence.value == pytest.approx(0, abs=1e-9)
    assert cue.followed and not other.followed
    assert 0.2 < other.other.changed.value < 0.8 and 0.2 < other.same.changed.value < 0.8


def test_a_most_likely_action_that_rounding_chooses_follows_nothing(keeping):
    """Of two actions that are as likely the most likely one is another with the other value, by rounding."""
    cue = held_with(keeping, "cue")
    equal = replace(cue, other=replace(cue.other, divergence=cue.same.divergence))
    assert cue.followed and not equal.followed
    # And the divergence alone is not enough where the choices do not differ.
    assert not replace(cue, other=replace(cue.other, changed=cue.same.changed)).followed
    real = replace(cue, other=replace(cue.other, changed=None), same=replace(cue.same, changed=None))
    assert real.followed


def test_the_verdict_names_the_cue(keeping):
    assert keeping.decides.startswith(
        'Its policy follows what its memory state says of "cue", or of what goes with it: with the other'
    )
    assert "at 1.00 (" in keeping.decides and "random changes of equal size" in keeping.decides
    assert (
        "where an episode with the other value has another action, it takes that one at 1.00 ("
        in keeping.decides
    )
    assert "cue" in write_text(keeping) and keeping.decides.split(":")[0] in write_text(keeping)


def test_only_the_number_that_is_read_has_an_effect(keeping):
    units = [one for one in keeping.contents.parts if one.unit]
    assert [one.name for one in units][-1] == "memory state, unit 7 of 7"
    assert [one.effect.changed.value > 0.2 for one in units] == [False] * 6 + [True]
    assert keeping.contents.mean.divergence == units[-1].effect.divergence
    assert [one.effect.divergence.value for one in units[:6]] == pytest.approx([0] * 6, abs=1e-9)


def test_a_cue_that_no_linear_map_reads_out_is_not_named():
    """The control: it follows a product of two numbers, and no single number says anything of it."""
    agent = trained(WEIGHT, KeepConfig(code="product"), EnvConfig(), factory=Signs)
    probed = probe(agent, episodes=100)
    assert probed.contents.exchanged.changed.value > 0.2
    assert "product" not in [one.name for one in probed.contents.held]
    assert not any(one.followed for one in probed.contents.held)


def test_a_few_episodes_are_not_enough():
    probed = probe(trained(WEIGHT, KeepConfig(), EnvConfig(), factory=Signs), episodes=20)
    assert probed.contents is None and probed.decides is None


def test_an_agent_that_ignores_its_memory_follows_nothing():
    probed = probe(trained(0.0, KeepConfig(), EnvConfig(), factory=Signs), episodes=100)
    effects = [one.strongest.divergence.value for one in probed.contents.held]
    assert len(effects) >= 2 and set(effects) == {0.0}
    assert not any(one.decides or one.followed for one in probed.contents.held)
    assert "nothing that differs between episodes decides" in probed.decides


def test_of_three_remembered_signs_the_one_that_is_repeated_decides():
    factory = partial(Repeat, 3)
    probed = probe(trained(WEIGHT, LagConfig(lag=3), EnvConfig(), factory=factory), episodes=100)
    # Two steps before the state, so three before the action.
    repeated, later = (held_with(probed, "entry 0", back) for back in (3, 2))
    assert repeated.decides and not later.decides
    assert repeated.turned.changed.value == pytest.approx(1)
    assert later.turned.changed.value < 0.1
    assert (
        '"entry 0, 3 steps before the action", or of what goes with it: with the other value'
        in probed.decides
    )


def test_a_state_of_one_number_has_no_random_direction_of_smaller_effect():
    probed = probe(trained(WEIGHT, CopyConfig()), episodes=100)
    before = held_with(probed, "secret 0")
    assert before.turned.changed.value == 1 and not before.decides and before.followed
    assert probed.decides.startswith('Its policy follows "secret 0", or what goes with it')


class LongSlide(Slide):
    """Twelve steps of noise."""

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.time == 12, truncated, info


def test_real_actions_are_judged_by_their_divergence():
    probed = probe(trained(2.0, LagConfig(lag=5), EnvConfig(), factory=LongSlide), episodes=100)
    read, other = (held_with(probed, "entry 0", back) for back in (5, 3))
    assert read.erased.changed is None and read.turned is None and read.decides and not other.decides
    # The mean of the action is twice the number, whose mean square is a third; the first four of eleven
    # states have none.
    assert read.erased.divergence.value == pytest.approx(7 / 11 * 4 / 2 / 3, rel=0.15)
    assert (
        '"entry 0, 5 steps before the action", or of what goes with it: without it the policy differs by 0.'
        in probed.decides
    )


class Flicker(Signs):
    """Nine steps; "other" has a random sign at every second one, and is 1 at the rest."""

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.time == 9, truncated, info

    def _info(self):
        return {"other": float(self.signs[1]) if self.time % 2 == 0 else 1.0}


class Phases(Keep):
    """Keeps seven signs, the phase, and what Flicker calls "other"; follows the first sign in one phase."""

    def initial_state(self, batch):
        return torch.zeros(batch, 9)

    def forward(self, x, state, first):
        outputs = []
        for row, opens in zip(x, first, strict=True):
            signs = torch.where(opens[:, None], row[:, :7], state[:, :7])
            odd = torch.where(opens, 0.0, 1 - state[:, 7])
            state = torch.cat([signs, odd[:, None], torch.where(odd > 0, 1.0, signs[:, 1])[:, None]], 1)
            outputs.append((odd * signs[:, 0])[:, None])
        return torch.stack(outputs), state


@dataclass(frozen=True, kw_only=True)
class PhasesConfig(MemoryConfig):
    """Signs of the first step, which are followed in every second one."""

    name: ClassVar[str] = "phases"

    def build(self, in_dim, action_dim=0):
        return Phases(CODES["plain"])


def test_states_with_the_other_value_and_with_the_same_are_compared_at_the_same_steps():
    """The sign that is followed has an effect at the steps at which "other" is constant."""
    probed = probe(trained(WEIGHT, PhasesConfig(), EnvConfig(), factory=Flicker), episodes=200)
    other = held_with(probed, "other")
    assert probed.contents.exchanged.changed.value > 0.1
    assert not other.followed and not other.decides


class Frail(Keep):
    """Not finite if one of its numbers is larger than any sign."""

    def read(self, state):
        return torch.where((state.abs() > 1.01).any(1), torch.nan, 0 * state[:, 6])


@dataclass(frozen=True, kw_only=True)
class FrailConfig(MemoryConfig):
    """Signs of the first step; no other numbers are possible."""

    name: ClassVar[str] = "frail"

    def build(self, in_dim, action_dim=0):
        return Frail(CODES["plain"])


def test_random_changes_after_which_the_policy_is_not_finite_show_nothing():
    probed = probe(trained(WEIGHT, FrailConfig(), EnvConfig(), factory=Signs), episodes=100)
    assert not any(one.decides for one in probed.contents.held)
    assert all(one.random.drawn == 0 for one in probed.contents.held if one.turned)


class Noise(Signs):
    """Hidden variables that nothing shows."""

    def _info(self):
        return {f"noise {i}": float(self.np_random.standard_normal()) for i in range(12)}


def test_what_a_state_does_not_hold_is_not_erased():
    probed = probe(trained(WEIGHT, KeepConfig(), EnvConfig(), factory=Noise), episodes=100)
    names = [one.name for one in probed.contents.held]
    assert len([name for name in names if name.startswith("noise")]) <= 1  # of 12, at 2.5 % each
    assert any(name.startswith("entry") for name in names)


# Directions -----------------------------------------------------------------------------------


def material_of(features):
    """Read-outs of states that are given: 40 episodes of 10 steps."""
    selected = np.ones((10, 40), dtype=bool)
    episode = np.tile(np.arange(40), 10)
    parts = Split(*(np.isin(episode % 4, part) for part in ([0, 1], [2], [3])))
    places = Places(episode, np.repeat(np.arange(10), 40))
    return Material(selected, None, Sources(features, [], features), [], parts, places)


@pytest.fixture
def directions(monkeypatch):
    """Directions of a state of six correlated numbers of different size, one of which is constant."""
    random = np.random.default_rng(0)
    floats = random.standard_normal((400, 6)) @ random.standard_normal((6, 6)) * [1, 10, 1e-2, 3, 1, 0] + 2
    states = torch.from_numpy(floats.reshape(10, 40, 6)).float()
    monkeypatch.setattr("recollect.probing.directions.memory_states", lambda *_: iter(states))
    material = material_of(states.reshape(400, 6).double().numpy())
    return Directions(None, SimpleNamespace(rows=None), material), material


def test_an_erased_read_out_is_gone_for_every_linear_map(directions):
    directions, material = directions
    random, floats = np.random.default_rng(1), material.sources.memory
    y = floats @ random.standard_normal(6) + 0.1 * random.standard_normal(400)
    w = directions.weights(fit(floats, y[:, None], material.parts))
    r, train = directions.features @ w, material.parts.train
    assert np.corrcoef(r, y)[0, 1] > 0.9 and abs(r[train].mean()) < 1e-9
    erased = floats - r[:, None] * directions.slope(w)
    assert directions.deviation(w) == pytest.approx(r[train].std())
    # A least-squares fit from the erased floats to r is 0 because no float is correlated with r.
    covariance = (erased[train] - erased[train].mean(0)).T @ r[train] / train.sum()
    deviation = floats[train].std(0)
    assert np.abs(covariance[deviation > 0] / deviation[deviation > 0]).max() < 1e-6 * r.std()
    # And as little else as possible: the share of variance that is gone is that of the read-out.
    varies = floats[train].std(0) > 0
    gone = 1 - erased[train].var(0)[varies] / floats[train].var(0)[varies]
    assert directions.share(w) == pytest.approx(gone.mean(), rel=1e-4)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.3])
def test_random_directions_have_the_share_of_variance_that_is_asked_for(directions, share):
    directions, _ = directions
    random = np.random.default_rng(2)
    drawn = [directions.draw(share, random) for _ in range(20)]
    assert [directions.share(w) for w in drawn] == pytest.approx([share] * 20, rel=0.02)
    assert [directions.deviation(w) for w in drawn] == pytest.approx([1.0] * 20)
    assert np.linalg.matrix_rank(np.array(drawn), tol=1e-3) == 5


def test_random_directions_of_projected_features_have_another_share_of_the_floats(monkeypatch):
    """Half of the floats are a hundred times as large, so that they make up the projected features."""
    random = np.random.default_rng(0)
    floats = random.standard_normal((400, 20)) * np.repeat([1.0, 100.0], 10)
    states = torch.from_numpy(floats.reshape(10, 40, 20)).float()
    monkeypatch.setattr("recollect.probing.directions.memory_states", lambda *_: iter(states))
    projected = floats @ random.standard_normal((20, 8))
    directions = Directions(None, SimpleNamespace(rows=None), material_of(projected))
    v = directions.draw(1 / 8, random)
    assert directions.share(v) < 0.6 / 8  # which is why a move along it is scaled by the shares of the floats


def test_a_turn_goes_to_the_mean_read_out_of_the_other_value():
    r, values = np.array([1.0, 3.0, 10.0, 20.0, 7.0]), np.array([0.0, 0.0, 1.0, 1.0, np.nan])
    fitted = np.array([True, True, True, False, True])
    turn = measure_turn(r, values, fitted, np.array([0.0, 1.0, np.nan]))
    assert turn == pytest.approx([10 - 2, 2 - 10, np.nan], nan_ok=True)


# Donors ---------------------------------------------------------------------------------------


def sample_of(episode, step, agent=0):
    episode, step = np.array(episode), np.array(step)
    agent = np.broadcast_to(agent, step.shape)
    return SimpleNamespace(row=step, env=episode, agent=agent, episode=episode, step=step)


def test_donors_are_at_the_same_step_of_the_next_episode_that_fits():
    sample = sample_of([0, 0, 1, 1, 2, 2, 3], [1, 2, 1, 2, 1, 2, 1])
    assert find_donors(sample).tolist() == [2, 3, 4, 5, 6, 1, 0]
    values = np.array([1.0, 1, 1, 0, 0, 0, np.nan])
    assert find_donors(sample, values, equal=True).tolist() == [2, -1, 0, 5, -1, 3, -1]
    assert find_donors(sample, values, equal=False).tolist() == [4, 3, 4, 1, 0, 1, -1]


def test_donors_are_steps_of_the_same_agent():
    """The agents of one environment share the number of its episode, and may have different parts to play."""
    sample = sample_of([0, 0, 1, 1, 2, 2], [1] * 6, agent=[0, 1, 0, 1, 0, 1])
    assert find_donors(sample).tolist() == [2, 3, 4, 5, 0, 1]
    values = np.array([1.0, 0, 1, 1, 0, 1])
    assert find_donors(sample, values, equal=False).tolist() == [4, 3, 4, 1, 0, 1]
    record = SimpleNamespace(episode=np.zeros((3, 3), int) + np.arange(3), valid=np.ones((3, 3), dtype=bool))
    assert find_by_progress(sample, record).tolist() == [2, 3, 4, 5, 0, 1]


def test_a_value_that_few_episodes_have_is_not_exchanged():
    """Intervals are over the episodes that get a state; few that give theirs differ less than in truth."""
    rare, common = (
        probe(trained(WEIGHT, KeepConfig(), EnvConfig(), factory=partial(Rare, share)), episodes=100)
        for share in (0.06, 0.5)
    )
    assert held_with(common, "cue").followed
    assert all(one.other is None for one in rare.contents.held if one.name == "cue")


class Rare(Signs):
    """The first sign is positive in few episodes: in those of one environment in 1 / share."""

    def __init__(self, share):
        self.share = share

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        obs[0] = self.signs[0] = 1.0 if self.np_random.random() < self.share else -1.0
        return obs, self._info()


def test_donors_by_progress_are_as_far_from_the_end():
    # Episodes of 4 and of 8 steps.
    sample = sample_of([0, 0, 0, 1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 1, 2, 3, 4, 5, 6, 7])
    valid = np.ones((8, 2), dtype=bool)
    valid[4:, 0] = False
    record = SimpleNamespace(episode=np.broadcast_to(np.arange(2), (8, 2)), valid=valid)
    assert find_by_progress(sample, record).tolist() == [4, 6, 8, 0, 0, 0, 1, 1, 2, 2]
    assert find_by_progress(sample_of([0, 0], [1, 2]), record).tolist() == [-1, -1]
    # Without a step of about the same progress there is no donor.
    few = sample_of([0, 0, 1], [1, 3, 6])
    assert find_by_progress(few, record).tolist() == [-1, 2, 1]


class Stretch(gymnasium.Env):
    """A sign, and the share of the steps that are over after this one; episodes last for 10 or 20 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.sign = 0, self.np_random.choice([-1.0, 1.0])
        self.length = int(self.np_random.choice([10, 20]))
        return self._look(), {}

    def step(self, action):
        self.time += 1
        return self._look(), 0.0, self.time == self.length, False, {}

    def _look(self):
        return np.array([self.sign, 2 * (self.time + 1) / self.length - 1], np.float32)


@dataclass(frozen=True, kw_only=True)
class LaterConfig(LagConfig):
    """An entry of the observation of the step before."""

    name: ClassVar[str] = "later"
    entry: int = 0

    def build(self, in_dim, action_dim=0):
        return Later(self.entry)


class Later(Lag):
    def __init__(self, entry):
        super().__init__(1)
        self.entry = entry

    def forward(self, x, state, first):
        return super().forward(x[..., self.entry :], state, first)


def test_a_memory_of_the_progress_is_the_same_in_other_episodes_after_an_equal_share_of_steps():
    """A sign that is remembered is another one in half of them, however they are matched."""
    progress, sign = (
        probe(trained(WEIGHT, LaterConfig(entry=i), EnvConfig(), factory=Stretch), episodes=100).contents
        for i in (1, 0)
    )
    by_time, by_share = progress.exchanged.divergence.value, progress.progressed.divergence.value
    assert by_share < by_time / 4
    assert min(x.changed.value for x in (sign.exchanged, sign.progressed)) > 0.3


# Parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (GruConfig(width=3), [f"GRU hidden state h, unit {i} of 3" for i in (1, 2, 3)]),
        (GruConfig(width=300), []),
        (
            LstmConfig(width=1),
            [
                "LSTM hidden state h",
                "LSTM cell state c",
                "LSTM hidden state h, unit 1 of 1",
                "LSTM cell state c, unit 1 of 1",
            ],
        ),
        (
            TrxlConfig(width=8, heads=2, layers=1, context=4),
            ["layer 1 of 1", "layer 1, head 1 of 2", "layer 1, head 2 of 2"],
        ),
        (
            Gpt2Config(width=8, heads=2, layers=1, context=4),
            ["layer 1 of 1", "layer 1, head 1 of 2", "layer 1, head 2 of 2"],
        ),
        (
            MlstmConfig(width=8, heads=2, layers=1),
            [
                "mLSTM memory C and normaliser n",
                "mLSTM stabiliser m",
                "mLSTM memory C and normaliser n, row 1 of 2",
                "mLSTM memory C and normaliser n, row 2 of 2",
                "mLSTM stabiliser m, unit 1 of 2",
                "mLSTM stabiliser m, unit 2 of 2",
            ],
        ),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_parts_of_a_state(config, names):
    memory = config.build(4)
    parts = list(find_parts(memory))
    assert [part.name for part in parts] == names
    floats = float_leaves(memory.initial_state(1))
    for part in parts:
        assert all(floats[path][(slice(None), *axes)].numel() for path, axes in part.where.items())
    # Heads, rows and units are all of the state, without overlap.
    covered = {path: torch.zeros(leaf.shape) for path, leaf in floats.items()}
    for part in parts:
        if any(word in part.name for word in ("head", "row", "unit")):
            for path, axes in part.where.items():
                covered[path][(slice(None), *axes)] += 1
    assert not parts or all((count == 1).all() for count in covered.values())
