"""Where memories stand when a chunk is learned from, against runs of one row after another."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recollect.agent.agent import AgentState, BranchConfig, build_agent
from recollect.common import tree
from recollect.common.errors import DisagreementError, UsageError
from recollect.envs import EnvConfig, make
from recollect.learn import minibatches, ppo, trpo
from recollect.learn.algorithms import UPDATES
from recollect.learn.learner import begin
from recollect.learn.maths import LARGEST_ERROR
from recollect.learn.minibatches import Minibatches
from recollect.learn.rollout import slice_rows
from recollect.learn.settings import Decay, Plan, PPOConfig
from recollect.learn.states import chunk_states, restate
from recollect.memory.rnn import GruConfig, LstmConfig
from recollect.memory.stack import StackConfig

from ..helpers import L, Scripted, T, branch, chunks_of, prepare, roll

LSTM = BranchConfig(memory=LstmConfig(width=6), hidden=(6,), prev_action=True)
GRU = BranchConfig(memory=GruConfig(width=6), hidden=(6,))
SHARED = BranchConfig(shared=True)
RULES = {
    "stored": {},
    "zero": {"chunk_state": "zero"},
    "burn-in": {"chunk_state": "burn-in", "burn_in": 2},
    "refresh": {"chunk_state": "refresh"},
}
OTHERS = {name: options for name, options in RULES.items() if name != "stored"}
# An episode takes 11 rows, so one goes over both rows at which later chunks begin.
RECALL = EnvConfig(id="probe:recall", num_envs=3, kwargs={"delay": 9})
CARTPOLE = EnvConfig(id="CartPole-v1", num_envs=3, backend="gymnasium", time_limit=10)
LONG = {"recall": lambda: make(RECALL).adapter, "cartpole": lambda: make(CARTPOLE).adapter}
WORLDS = {"short episodes": Scripted, **LONG}
STILL = {"lr_decay": Decay(final=0.0, horizon=1)}
every_rule = pytest.mark.parametrize("rule", RULES)
every_critic = pytest.mark.parametrize("critic", [GRU, SHARED], ids=["gru", "shared"])


def ready(actor=LSTM, critic=GRU, world="short episodes", **options):
    """A second rollout, which begins inside episodes, before its update."""
    cfg = PPOConfig(**{"num_steps": T, "num_minibatches": 2, "learning_rate": 1e-2, **options})
    plan = Plan(ppo=cfg, seed=5, rollouts=9)
    s = prepare(actor, critic, WORLDS[world](), plan, normalize=True)
    roll(s)
    s.learner.update_statistics(s.rollout)
    roll(s)
    first = s.rollout.rows.first
    assert first[1:].any() and not first[[0, L, 2 * L]].all(), "chunks begin with episodes or hold none"
    return s


def read(network, rows, state, span):
    """The state after rows of a span, one call for each row."""
    with torch.no_grad():
        for t in range(*span):
            state = network.advance(slice_rows(rows, slice(t, t + 1)), state)
    return state


def by_hand(s, agent, network, start, nothing):
    """The states before each chunk (C, ...) as the rule of this learner has them."""
    cfg, rows = s.plan.ppo, s.rollout.normalized(agent)

    def before(t):
        if cfg.chunk_state == "zero":
            return nothing
        begun = max(t - cfg.burn_in, 0) if cfg.chunk_state == "burn-in" else 0
        return read(network, rows, nothing if begun else start, (begun, t))

    states = [before(t) for t in range(0, T, L)]
    return tree.map_leaves(lambda x: x.flatten(0, 1), tree.stack(states))


def both_by_hand(s, agent):
    """The same for both branches; what stays stored is what acting and valuing kept."""
    rollout, fresh = s.rollout, agent.initial_state(s.rollout.num_envs)
    actor = by_hand(s, agent, agent.actor, rollout.starts[0], fresh.actor)
    return AgentState(actor, by_hand(s, agent, agent.critic, rollout.critic_starts[0], fresh.critic))


def stored(s):
    return chunks_of(s).state


def away(one, other):
    """The largest difference between two trees."""
    a, b = tree.leaves(one), tree.leaves(other)
    assert a.keys() == b.keys() and len(a)
    return max(float((a[key] - b[key]).abs().max()) for key in a)


def updated(s, monkeypatch):
    """An update, and what it did: its metrics, the chunks and weights of each pass, its first ratios."""
    seen = SimpleNamespace(passes=[], agents=[], first=None)
    epoch, agreement = Minibatches.epoch, minibatches.agreement

    def recorded(self, number):
        seen.passes.append(self.batch)
        seen.agents.append(copy.deepcopy(s.agent))
        return epoch(self, number)

    def compared(ratio, values, acted, valid, *precision):
        seen.first = ratio, (values - acted)[valid]
        return agreement(ratio, values, acted, valid, *precision)

    monkeypatch.setattr(Minibatches, "epoch", recorded)
    monkeypatch.setattr(minibatches, "agreement", compared)
    seen.metrics = ppo.learn(s.learner, s.rollout, s.plan, L, ppo.update)
    monkeypatch.undo()
    return seen


# States of each rule --------------------------------------------------------------------------


@every_critic
@every_rule
def test_each_pass_begins_where_the_rule_says(rule, critic, monkeypatch):
    """With the weights of that moment where they are renewed, with those of acting elsewhere."""
    s = ready(critic=critic, update_epochs=3, **RULES[rule])
    before, kept = stored(s), s.learner.state
    seen = updated(s, monkeypatch)
    assert len(seen.passes) == 3 and away(seen.passes[2].rows.obs, chunks_of(s).rows.obs) == 0
    for batch, agent in zip(seen.passes, seen.agents, strict=True):
        if rule == "stored":
            assert away(batch.state, before) == 0
        else:
            assert away(batch.state, both_by_hand(s, agent)) < 1e-12
    moved = away(seen.passes[0].state, seen.passes[2].state)
    assert moved > 1e-3 if rule in ("burn-in", "refresh") else moved == 0
    if rule != "refresh":
        assert s.learner.state is kept


@every_critic
def test_refreshing_carries_what_the_last_weights_remember(critic, monkeypatch):
    s = ready(critic=critic, **RULES["refresh"])
    kept, agent = s.learner.state, s.agent
    updated(s, monkeypatch)
    rows = s.rollout.normalized(agent)
    wanted = AgentState(
        read(agent.actor, rows, s.rollout.starts[0], (0, T)),
        read(agent.critic, rows, s.rollout.critic_starts[0], (0, T)),
    )
    refreshed = s.learner.state
    assert away(refreshed, wanted) < 1e-12
    assert away(s.learner.state, kept) > 1e-3, "the weights did not move"
    # Nothing but the states of the next rollout depends on it.
    roll(s)
    assert s.rollout.starts[0] is refreshed.actor


@pytest.mark.parametrize("algorithm", ["a2c", "reinforce", "trpo"])
def test_every_algorithm_carries_what_the_last_weights_remember(algorithm):
    s = ready(**RULES["refresh"])
    kept = s.learner.state
    ppo.learn(s.learner, s.rollout, s.plan, L, UPDATES[algorithm])
    rows = s.rollout.normalized(s.agent)
    wanted = [read(s.agent.actor, rows, s.rollout.starts[0], (0, T))]
    wanted.append(read(s.agent.critic, rows, s.rollout.critic_starts[0], (0, T)))
    assert away(tuple(s.learner.state), tuple(wanted)) < 1e-12 and away(s.learner.state, kept) > 1e-6


def test_the_critic_of_trpo_begins_where_the_rule_says():
    """In each pass with the weights of that moment: the actor has moved before the first."""
    s = ready(update_epochs=2, **RULES["refresh"])
    seen, epoch = [], Minibatches.epoch

    def recorded(self, number):
        seen.append((self.batch, copy.deepcopy(s.agent)))
        return epoch(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Minibatches, "epoch", recorded)
        trpo.update(s.learner, s.rollout, s.plan, L)
    assert len(seen) == 2
    assert all(away(batch.state, both_by_hand(s, agent)) < 1e-12 for batch, agent in seen)


@pytest.mark.parametrize("world", WORLDS)
def test_refreshing_changes_nothing_where_nothing_is_learned(world, monkeypatch):
    s = ready(world=world, **RULES["refresh"], **STILL)
    before, kept = stored(s), s.learner.state
    seen = updated(s, monkeypatch)
    assert seen.metrics["learning_rate"] == 0
    assert all(away(batch.state, before) < 1e-12 for batch in seen.passes)
    assert away(s.learner.state, kept) < 1e-12 and seen.metrics["state_error"] < 1e-12


def test_zero_is_what_a_memory_has_that_remembers_nothing():
    s = ready()
    found = chunk_states(s.agent, s.rollout, PPOConfig(**RULES["zero"]))
    assert {len(x) for x in tree.leaves(found).values()} == {9}
    assert away(found, s.agent.initial_state(9)) == 0 and away(found, stored(s)) > 0.1


@pytest.mark.parametrize("world", LONG)
def test_burning_in_from_the_start_of_the_rollout_gives_the_stored_states(world):
    s = ready(world=world)
    for rows, near in ((T, True), (2 * L, True), (2 * L - 1, False)):
        cfg = PPOConfig(chunk_state="burn-in", burn_in=rows)
        assert (away(chunk_states(s.agent, s.rollout, cfg), stored(s)) < 1e-12) == near


@pytest.mark.parametrize(("frames", "same"), [(2, True), (4, True), (5, False)])
def test_burning_in_fills_a_window_to_the_last_bit(frames, same):
    stack = BranchConfig(memory=StackConfig(frames=frames), hidden=(6,))
    s = ready(stack, stack, "cartpole")
    found = chunk_states(s.agent, s.rollout, PPOConfig(chunk_state="burn-in", burn_in=3))
    assert (away(found, stored(s)) == 0) == same


# What ratios are measured against ---------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rule", OTHERS)
def test_ratios_begin_at_one_by_the_rule_itself(rule, world, monkeypatch):
    s = ready(world=world, **RULES[rule])
    seen = updated(s, monkeypatch)
    ratio, values = seen.first
    assert (ratio - 1).abs().max() < 1e-12 and values.abs().max() < 1e-12
    # Acting is still held against the states it left.
    assert seen.metrics["ratio_error"] < 1e-12 and seen.metrics["value_error"] < 1e-12
    moved = seen.metrics["state_error"]
    assert moved < 1e-12 if rule == "refresh" else moved > 1e-3
    assert rule != "zero" or moved > LARGEST_ERROR, "by so much acting and learning may not disagree"


@pytest.mark.parametrize("size", [1, 4, 9])
def test_the_state_error_is_how_far_the_rule_moves_ratios(size):
    s = ready(**RULES["zero"])
    batch = chunks_of(s)
    again, errors = restate(s.agent, s.rollout, batch, s.plan.ppo, size)
    with torch.no_grad():
        params, values = s.agent(batch.rows, s.agent.initial_state(9))
    log_prob = s.agent.policy.evaluate(params, batch.action)[0]
    moved = ((log_prob - batch.log_prob).exp() - 1)[batch.valid].abs().max()
    assert errors["state_error"] == pytest.approx(float(moved), rel=1e-9)
    torch.testing.assert_close(again.log_prob[batch.valid], log_prob[batch.valid], rtol=0, atol=1e-12)
    torch.testing.assert_close(again.value, values, rtol=0, atol=1e-12)
    # What is aimed at stays as the rollout gave it.
    assert again.target is batch.target and again.advantage is batch.advantage


def test_stored_states_are_left_as_they_are():
    s = ready()
    batch = chunks_of(s)
    assert restate(s.agent, s.rollout, batch, s.plan.ppo, 9) == (batch, {"state_error": 0.0})


@every_critic
@pytest.mark.parametrize("side", ["actor", "critic"])
@every_rule
def test_a_spoiled_stored_state_is_noticed_under_every_rule(rule, side, critic):
    s = ready(critic=critic, **RULES[rule])
    if critic.shared and side == "critic":
        assert s.rollout.critic_starts == [()] * 3  # it has none to spoil
        return
    kept = s.rollout.starts if side == "actor" else s.rollout.critic_starts
    kept[1] = tree.map_leaves(lambda x: x + 2, kept[1])
    before = copy.deepcopy(s.agent.state_dict())
    with pytest.raises(DisagreementError, match="ratio_error" if side == "actor" else "value_error"):
        ppo.update(s.learner, s.rollout, s.plan, L)
    assert away(before, s.agent.state_dict()) == 0, "it learned all the same"


@pytest.mark.parametrize("rule", OTHERS)
def test_without_a_memory_the_rule_changes_nothing(rule, monkeypatch):
    found = []
    for options in ({}, RULES[rule]):
        s = ready(branch("mlp"), branch("mlp"), **options)
        seen = updated(s, monkeypatch)
        found.append((seen.metrics, copy.deepcopy(s.agent.state_dict())))
    (plain, weights), (ruled, others) = found
    assert ruled == pytest.approx(plain, rel=1e-9, abs=1e-12)
    assert away(weights, others) < 1e-9


# Whole runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "critic", [GRU, pytest.param(SHARED, marks=pytest.mark.thorough)], ids=["gru", "shared"]
)
@every_rule
def test_training_in_single_precision_agrees_with_acting(rule, critic):
    envs = make(replace(CARTPOLE, num_envs=4))
    agent = build_agent((envs.obs_spec, envs.action_spec), LSTM, critic, True, seed=1)
    cfg = PPOConfig(num_steps=32, bptt=8, num_minibatches=4, learning_rate=1e-2, **RULES[rule])
    plan = Plan(ppo=cfg, seed=1, rollouts=4, barrier=2)
    metrics = list(ppo.train(envs, begin(envs, agent, plan), plan))
    assert len(metrics) == 4
    for row in metrics:
        assert row["ratio_error"] < 1e-5 and row["value_error"] < 1e-4
        assert np.isfinite(list(row[k] for k in ("policy_loss", "value_loss", "kl"))).all()
    assert (metrics[-1]["state_error"] > 1e-4) == (rule in ("zero", "burn-in"))


@pytest.mark.parametrize(
    "options",
    [
        {"burn_in": 3},
        {"burn_in": -1},
        {"chunk_state": "burn-in"},
        {"chunk_state": "burn-in", "burn_in": -2},
        {"chunk_state": "zero", "burn_in": 2},
        {"chunk_state": "refresh", "burn_in": 2},
    ],
)
def test_rows_to_burn_in_go_with_burning_in(options):
    rows, rule = options.get("burn_in", 0), options.get("chunk_state", "stored")
    with pytest.raises(UsageError, match=rf"ppo\.burn_in is {rows} with ppo\.chunk_state {rule}: "):
        PPOConfig(**options)
