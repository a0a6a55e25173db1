"""The algorithm: advantages, losses, schedules, the optimiser, updates, and golden numbers."""

import copy
import json
import math
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.values import value_loss
from recollect.common.errors import DisagreementError, DivergedError, UsageError
from recollect.envs import EnvConfig, make
from recollect.envs.spaces import read_spaces
from recollect.learn import ppo
from recollect.learn.chunks import Scores, cut, scores
from recollect.learn.learner import begin
from recollect.learn.maths import (
    agreement,
    explained_variance,
    mean,
    policy_loss,
    standardize,
    variance,
)
from recollect.learn.optim import MAX_SKIPPED, FlatAdam
from recollect.learn.rollout import Rollout, opening_row
from recollect.learn.settings import Coefficients, Decay, Plan, PPOConfig

from ..helpers import chunks_with

NOW = Coefficients(clip=0.2, entropy=0.0, rates=(0.0, 0.0))

# Advantages -----------------------------------------------------------------------------------

GO, TAIL, TERMINATED, TRUNCATED = "go", "tail", "terminated", "truncated"
AGENT = build_agent(
    read_spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2)),
    BranchConfig(hidden=()),
    BranchConfig(hidden=()),
    normalize_obs=False,
    seed=0,
)


def scripted_rollout(columns, values):
    """A rollout whose rows are of the given kinds, a column for each environment."""
    steps, num_envs = len(columns[0]), len(columns)
    row = opening_row({"obs": np.zeros((num_envs, 2))}, 1, np.dtype("int64"))
    rollout = Rollout(AGENT, row, steps, torch.float64)
    kinds = np.array(columns).T
    after = (kinds[-1] == TERMINATED) | (kinds[-1] == TRUNCATED)
    rollout.valid[:-1] = torch.from_numpy(kinds != TAIL)
    rollout.valid[-1] = torch.from_numpy(~after)
    rollout.terminated.copy_(torch.from_numpy(kinds == TERMINATED))
    rollout.truncated.copy_(torch.from_numpy(kinds == TRUNCATED))
    rollout.value.copy_(torch.as_tensor(values, dtype=torch.float64))
    return rollout


def by_hand(kinds, reward, values):
    values, reward = torch.tensor([values]).T, torch.tensor([reward]).T.double()
    rollout = scripted_rollout([kinds], values)
    return ppo.advantages(rollout, reward, 0.5, 0.5)[:, 0].tolist()


def test_advantages_of_an_open_end_by_hand():
    # The deltas are 1 + 0.5 * 4 - 2 and 2 + 0.5 * 8 - 4, and A[0] is 1 + 0.25 * 2.
    assert by_hand([GO, GO], [1, 2], [2.0, 4.0, 8.0]) == [1.5, 2.0]


def test_advantages_of_a_termination_by_hand():
    # The value of the tail row, 100, is nobody's future; A[1] = 2 - 4, A[0] = 1 - 0.25 * 2.
    kinds = [GO, TERMINATED, TAIL, GO]
    found = by_hand(kinds, [1, 2, 50, 3], [2.0, 4.0, 100.0, 6.0, 8.0])
    assert found == [0.5, -2.0, 0.0, 1.0]


def test_advantages_of_a_cut_by_hand():
    # V(final observation) is 10: A[1] = 2 + 0.5 * 10 - 4, A[0] = 1 + 0.25 * 3.
    kinds = [GO, TRUNCATED, TAIL, GO]
    found = by_hand(kinds, [1, 2, 50, 3], [2.0, 4.0, 10.0, 6.0, 8.0])
    assert found == [1.75, 3.0, 0.0, 1.0]


def test_advantages_with_a_tail_row_first_and_last():
    # Row 0 is a tail row; row 2 ends the episode, so row T = 3 is one.
    values = [100.0, 2.0, 4.0, 10.0]
    assert by_hand([TAIL, GO, TRUNCATED], [50, 1, 2], values) == [0.0, 1.75, 3.0]
    assert by_hand([TAIL, GO, TERMINATED], [50, 1, 2], values) == [0.0, 0.5, -2.0]
    # Row T - 1 is a tail row, row T opens an episode whose value is nobody's future.
    assert by_hand([GO, TRUNCATED, TAIL], [1, 2, 50], [2.0, 4.0, 10.0, 99.0]) == [1.75, 3.0, 0.0]


def test_termination_wins_over_truncation():
    rollout = scripted_rollout([[TERMINATED, TAIL]], [[2.0], [10.0], [6.0]])
    rollout.truncated[0] = True
    reward = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    assert ppo.advantages(rollout, reward, 0.5, 0.5)[:, 0].tolist() == [-1.0, 0.0]


@st.composite
def columns(draw):
    """Kinds of rows of one environment: after an end comes a tail row, after it an episode."""
    ends = draw(st.lists(st.sampled_from([GO, GO, TERMINATED, TRUNCATED]), min_size=1, max_size=12))
    kinds = [TAIL] if draw(st.booleans()) else []
    for kind in ends:
        kinds += [kind] if kind == GO else [kind, TAIL]
    return kinds[: len(ends)]


def slow_advantage(kinds, t, reward, values, gamma, gae_lambda):
    """The sum of discounted deltas to the end of the episode, from its definition."""
    if kinds[t] == TAIL:
        return 0.0
    total, weight = 0.0, 1.0
    for k in range(t, len(kinds)):
        future = 0.0 if kinds[k] == TERMINATED else values[k + 1]
        total += weight * (reward[k] + gamma * future - values[k])
        weight *= gamma * gae_lambda
        if kinds[k] in (TERMINATED, TRUNCATED):
            break
    return total


@given(columns(), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_advantages_against_their_definition(kinds, gamma, gae_lambda, seed):
    random = np.random.default_rng(seed)
    reward, values = random.standard_normal(len(kinds)), random.standard_normal(len(kinds) + 1)
    rollout = scripted_rollout([kinds], values[:, None])
    found = ppo.advantages(rollout, torch.from_numpy(reward[:, None]), gamma, gae_lambda)[:, 0]
    rows = range(len(kinds))
    wanted = [slow_advantage(kinds, t, reward, values, gamma, gae_lambda) for t in rows]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)


# Formulas -------------------------------------------------------------------------------------


def test_policy_loss_by_hand():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1])
    advantage = torch.tensor([2.0, -2.0, 2.0, -2.0, 3.0])
    # Only a gain is clipped: 1.2 * 2, 1.5 * -2, 0.5 * 2, 0.8 * -2, 1.1 * 3.
    wanted = torch.tensor([-2.4, 3.0, -1.0, 1.6, -3.3])
    torch.testing.assert_close(policy_loss(ratio, advantage, 0.2), wanted)


def test_value_loss_by_hand():
    value, old, target = torch.tensor([[3.0, 0.5, 1.0], [1.0, 1.0, 1.0], [0.0, 2.0, 1.1]])
    torch.testing.assert_close(value_loss(value, old, target, None), torch.tensor([9.0, 2.25, 0.01]))
    # Clipped to 1.2, 0.8, 1.0: the worse of 9 and 1.44, of 2.25 and 1.44, of 0.01 and 0.01.
    clipped = value_loss(value, old, target, 0.2)
    torch.testing.assert_close(clipped, torch.tensor([9.0, 2.25, 0.01]))
    nearer = value_loss(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([4.0]), 0.5)
    assert nearer.item() == 6.25  # (1.5 - 4)^2 is worse than (3 - 4)^2


def test_means_over_valid_rows_by_hand():
    weight, x = torch.tensor([0.5, 0.25, 0.25, 0.0]), torch.tensor([1.0, 2.0, 4.0, 1e6])
    assert mean(weight, x).item() == 2.0
    assert variance(weight, x).item() == 1.5
    wanted = torch.tensor([-1.0, 0.0, 2.0]) / math.sqrt(1.5)
    torch.testing.assert_close(standardize(x[None], weight[None])[0, :3], wanted)


@pytest.mark.parametrize("value", [0.3, 5.1, -0.7, 0.0])
@pytest.mark.parametrize("steps", [2, 37, 1024])
def test_equal_advantages_push_nothing(value, steps):
    valid = torch.arange(steps + 1)[:, None] < steps
    advantage = torch.full((steps + 1, 1), value).masked_fill(~valid, 1e6)
    assert not standardize(advantage, valid / valid.sum())[:-1].any()


def test_explained_variance_by_hand():
    weight, target = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([1.0, 3.0, 1e6])
    assert explained_variance(target, target, weight) == 1.0
    assert explained_variance(torch.full((3,), 7.0), target, weight) == pytest.approx(0.0)
    assert explained_variance(torch.tensor([1.0, 2.0, 0.0]), target, weight) == pytest.approx(0.75)
    assert explained_variance(-target, target, weight) == pytest.approx(-3.0)


# Schedules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decay", "rollouts", "steps", "progress", "wanted"),
    [
        (Decay(), 7, 700, 0.7, 8.0),
        (Decay(final=0.0), 7, 700, 0.25, 6.0),
        (Decay(final=4.0), 7, 700, 0.25, 7.0),
        (Decay(final=16.0), 7, 700, 0.5, 12.0),
        (Decay(final=0.0, power=2.0), 7, 700, 0.5, 2.0),
        (Decay(final=0.0), 7, 700, 1.0, 0.0),
        (Decay(final=0.0, horizon=10), 5, 700, 0.9, 4.0),
        (Decay(final=0.0, horizon=10), 50, 700, 0.9, 0.0),
        (Decay(final=4.0, horizon=1000, unit="steps"), 5, 250, 0.9, 7.0),
        (Decay(final=4.0, horizon=1000, unit="steps"), 5, 2500, 0.9, 4.0),
    ],
)
def test_decay(decay, rollouts, steps, progress, wanted):
    assert decay.at(8.0, rollouts, steps, progress) == pytest.approx(wanted)


def test_coefficients_move_together():
    cfg = PPOConfig(
        learning_rate=1e-2,
        critic_learning_rate=4e-2,
        lr_decay=Decay(final=0.0),
        clip=0.4,
        clip_decay=Decay(final=0.2),
        ent_coef=0.1,
        ent_decay=Decay(final=0.0, horizon=4),
    )
    now = Plan(ppo=cfg, seed=0, rollouts=10, steps=1000).coefficients(2, 500)
    assert now.rates == pytest.approx((5e-3, 2e-2))
    assert (now.clip, now.entropy) == pytest.approx((0.3, 0.05))


def test_progress_is_that_of_the_nearer_end():
    plan = Plan(ppo=PPOConfig(), seed=0, rollouts=10, steps=1000)
    assert [plan.progress(*at) for at in ((0, 0), (5, 100), (2, 500), (3, 2000))] == [0, 0.5, 0.5, 1]
    assert Plan(ppo=PPOConfig(), seed=0).progress(99, 10**9) == 0


# Settings that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "num_envs", "length"),
    [
        ({}, 2, 5),
        ({}, 2, 0),
        ({"num_minibatches": 9}, 2, 4),
        ({"num_minibatches": 0}, 2, 4),
        ({"num_minibatches": None, "batch_size": 3}, 2, 4),
        ({"num_minibatches": None, "batch_size": 33}, 2, 4),
    ],
)
def test_minibatches_that_do_not_fit_name_the_sizes(options, num_envs, length):
    cfg = PPOConfig(num_steps=16, **options)
    sizes = f"env.num_envs {num_envs}, ppo.num_steps 16, chunks of {length} "
    with pytest.raises(UsageError, match=sizes if options else f"ppo.bptt is {length}, .*ppo.num_steps, 16"):
        cfg.chunks_per_minibatch(num_envs, length)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"num_minibatches": 4}, 2),
        ({"num_minibatches": 8}, 1),
        ({"num_minibatches": 3}, 3),
        ({"num_minibatches": None, "batch_size": 9}, 2),
        ({"num_minibatches": None, "batch_size": 32}, 8),
    ],
)
def test_chunks_per_minibatch(options, wanted):
    assert PPOConfig(num_steps=16, **options).chunks_per_minibatch(2, 4) == wanted


def test_chunks_are_whole_rollouts_with_a_memory_and_single_rows_without():
    assert PPOConfig(num_steps=16).chunk_length(has_memory=True) == 16
    assert PPOConfig(num_steps=16).chunk_length(has_memory=False) == 1
    assert PPOConfig(num_steps=16, bptt=4).chunk_length(has_memory=True) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_steps", 1),
        ("update_epochs", 0),
        ("gamma", 1.01),
        ("gamma", -0.1),
        ("gae_lambda", 2.0),
        ("target_lambda", -0.5),
        ("steps_per_minibatch", 0),
        ("learning_rate", 0.0),
        ("clip", -0.2),
        ("adam_eps", 0.0),
        ("critic_learning_rate", 0.0),
        ("bptt", -1),
        ("gamma", math.nan),
        ("learning_rate", math.nan),
        ("ent_coef", math.nan),
        ("ent_coef", math.inf),
        ("vf_coef", -0.5),
        ("vf_coef", math.nan),
        ("target_return", math.nan),
    ],
)
def test_options_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"ppo.{name} is {value}"):
        PPOConfig(**{name: value})


@pytest.mark.parametrize("horizon", [0, -1])
def test_a_horizon_that_is_no_count_is_refused(horizon):
    with pytest.raises(UsageError, match="horizon"):
        Decay(final=0.0, horizon=horizon)


@pytest.mark.parametrize(
    ("name", "values"),
    [("final", (-1e-3, math.nan, math.inf, -math.inf)), ("power", (0.0, -1.0, math.nan, math.inf))],
)
def test_a_decay_that_leaves_the_range_of_its_option_is_refused(name, values):
    for value in values:
        with pytest.raises(UsageError, match=f"the {name}.* of a decay is {value:g}"):
            Decay(**{name: value})


@pytest.mark.parametrize("sizes", [(None, None), (4, 64)])
def test_minibatches_are_given_one_way(sizes):
    with pytest.raises(UsageError, match=r"one of ppo\.num_minibatches and ppo\.batch_size"):
        PPOConfig(num_minibatches=sizes[0], batch_size=sizes[1])


# Optimiser ------------------------------------------------------------------------------------


def two_nets():
    torch.manual_seed(0)
    sizes = ((3, 5), (4, 2))
    return [torch.nn.Sequential(torch.nn.Linear(*s), torch.nn.Tanh()).double() for s in sizes]


def give_gradients(nets, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    for net in nets:
        for p in net.parameters():
            gradient = scale * torch.randn(p.shape, generator=generator, dtype=p.dtype)
            if p.grad is None:
                p.grad = gradient
            else:
                p.grad.copy_(gradient)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 2.0])
def test_flat_adam_equals_adam_with_clipping_per_branch(kind, max_norm):
    cfg = PPOConfig(optimizer=kind, weight_decay=0.1, max_grad_norm=max_norm)
    ours, theirs = two_nets(), two_nets()
    flat = FlatAdam(ours, cfg)
    adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    groups = [{"params": list(net.parameters())} for net in theirs]
    reference = adam(groups, lr=1.0, eps=cfg.adam_eps, weight_decay=0.1)
    for step in range(20):
        rates = 1e-2 / (step + 1), 3e-2 / (step + 1)
        flat.zero_grad()
        for nets in (ours, theirs):
            give_gradients(nets, step, scale=0.1 * step)
        for net, group, rate in zip(theirs, reference.param_groups, rates, strict=True):
            group["lr"] = rate
            if max_norm:
                torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        flat.step(rates)
        reference.step()
        for one, other in zip(ours, theirs, strict=True):
            for p, q in zip(one.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
    assert flat.skipped == 0


def snapshot(nets, flat):
    parts = [p for net in nets for p in net.parameters()]
    return [x.detach().clone() for x in (*parts, *flat.tensors().values())]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    nets = two_nets()
    flat = FlatAdam(nets, PPOConfig())
    give_gradients(nets, 0)
    flat.step((1e-2, 1e-2))
    before = snapshot(nets, flat)
    give_gradients(nets, 1)
    nets[1][0].weight.grad[0, 0] = bad  # in one branch: neither may move
    flat.step((1e-2, 1e-2))
    after = snapshot(nets, flat)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert flat.skipped == 1
    give_gradients(nets, 2)
    flat.step((1e-2, 1e-2))
    assert not torch.equal(snapshot(nets, flat)[0], after[0]) and flat.skipped == 1


def test_ten_bad_gradients_in_a_row_stop_the_run():
    nets = two_nets()
    flat = FlatAdam(nets, PPOConfig())

    def step(scale):
        give_gradients(nets, 0, scale)
        flat.step((1e-2, 1e-2))

    for _ in range(2):
        for _ in range(MAX_SKIPPED - 1):
            step(math.nan)
        step(1.0)  # one good step, and counting begins anew
    for _ in range(MAX_SKIPPED - 1):
        step(math.nan)
    with pytest.raises(DivergedError, match="10 consecutive gradient steps"):
        step(math.nan)
    assert flat.skipped == 3 * MAX_SKIPPED - 2


# Updates --------------------------------------------------------------------------------------


def prepare(seed=1, scale=0.3, dtype=torch.float64, time_limit=9, **options):
    """A learner on CartPole, lively from the start, with episodes that end and are cut."""
    envs = make(EnvConfig(num_envs=4, backend="gymnasium", time_limit=time_limit))
    branch = BranchConfig(hidden=(8,))
    seen = envs.obs_spec, envs.action_spec
    agent = build_agent(seen, branch, branch, False, seed).to(dtype)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in agent.parameters():
            p += scale * torch.randn(p.shape, generator=generator, dtype=dtype)
    plan = Plan(ppo=PPOConfig(**{"num_steps": 16, **options}), seed=seed, rollouts=4)
    return SimpleNamespace(envs=envs, agent=agent, plan=plan, learner=begin(envs, agent, plan))


def rolled(**options):
    """The same with a first rollout, chunks of 4 rows."""
    s = prepare(**options)
    steps = s.plan.ppo.num_steps
    s.rollout = Rollout(s.agent, s.learner.row, steps, next(s.agent.parameters()).dtype)
    ppo.collect(s.envs, s.learner, s.rollout, s.plan, 4)
    ppo.value(s.learner, s.rollout, 4)
    assert not s.rollout.valid[:-1].all(), "a rollout without tail rows tests too little"
    return s


def weights(agent):
    return {name: p.detach().clone() for name, p in agent.named_parameters()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def steps_taken(s):
    return int(s.learner.optimizer.tensors()["0.step"])


def test_an_update_takes_all_its_steps_and_moves_every_weight():
    s = rolled(num_minibatches=4, update_epochs=3)
    before = weights(s.agent)
    metrics = ppo.update(s.learner, s.rollout, s.plan, 4)
    assert steps_taken(s) == 12
    after = weights(s.agent)
    assert all(not torch.equal(before[name], after[name]) for name in before)
    assert metrics["skipped_steps"] == 0 and metrics["learning_rate"] == 2.5e-4


def test_steps_in_a_row_on_a_minibatch_are_steps_of_their_own():
    s = rolled(num_minibatches=4, update_epochs=2, steps_per_minibatch=5)
    ppo.update(s.learner, s.rollout, s.plan, 4)
    assert steps_taken(s) == 40
    # Of a single minibatch several steps in a row are several passes.
    options = "steps_per_minibatch", "update_epochs"
    rows, passes = (rolled(num_minibatches=1, **{name: 3}) for name in options)
    cfg = replace(rows.plan.ppo, update_epochs=1)
    ppo.update(rows.learner, rows.rollout, replace(rows.plan, ppo=cfg), 4)
    ppo.update(passes.learner, passes.rollout, passes.plan, 4)
    assert steps_taken(rows) == steps_taken(passes) == 3
    after = weights(passes.agent)
    assert all((p - after[name]).abs().max() < 1e-9 for name, p in weights(rows.agent).items())


def test_a_target_lambda_of_1_makes_targets_discounted_returns():
    """The advantages stay what they are."""
    s = rolled(target_lambda=1.0, gamma=0.9, gae_lambda=0.5)

    def of(cfg: PPOConfig) -> Scores:
        return scores(s.rollout, 4, ppo.estimates(s.learner, s.rollout, cfg))

    chunks, plain = of(s.plan.ppo), of(replace(s.plan.ppo, target_lambda=None))
    assert torch.equal(chunks.advantage, plain.advantage)
    assert not torch.equal(chunks.target, plain.target)
    rollout = s.rollout
    wanted = torch.zeros_like(rollout.reward, dtype=torch.float64)
    for n in range(wanted.shape[1]):
        ahead = rollout.value[-1, n]
        for t in reversed(range(len(wanted))):
            if not rollout.valid[t, n]:
                ahead = rollout.value[t, n]  # of the final observation, if the episode was cut before it
                continue
            if rollout.terminated[t, n]:
                ahead = 0.0
            ahead = wanted[t, n] = rollout.reward[t, n] + 0.9 * ahead
    live = wanted * rollout.valid[:-1]
    torch.testing.assert_close(chunks.target, cut(live, 4), rtol=0, atol=1e-12)


def test_a_learning_rate_of_zero_changes_nothing():
    s = rolled(lr_decay=Decay(final=0.0, horizon=1), optimizer="adamw", weight_decay=0.1)
    s.learner.iteration = 1  # where the learning rate has come to 0
    before = weights(s.agent)
    metrics = ppo.update(s.learner, s.rollout, s.plan, 4)
    assert same(before, weights(s.agent)) and steps_taken(s) > 0
    assert metrics["learning_rate"] == 0 and metrics["kl"] < 1e-12


def acted_with_tails(spoil):
    """The weights and progress after an update with this in what tail rows were given."""
    s = rolled(learning_rate=1e-2)
    if spoil is not None:
        tails = ~s.rollout.valid[:-1]
        s.rollout.reward[tails] = spoil
        s.rollout.log_prob[tails] = spoil
        s.rollout.action[tails] = 1 - s.rollout.action[tails]
    ppo.update(s.learner, s.rollout, s.plan, 4)
    s.learner.update_statistics(s.rollout)
    return weights(s.agent), s.learner.progress()


@pytest.mark.parametrize("spoil", [1e6, math.nan])
def test_what_tail_rows_hold_changes_no_bit(spoil):
    plain, spoiled = acted_with_tails(None), acted_with_tails(spoil)
    assert same(plain[0], spoiled[0]) and plain[1] == spoiled[1]


def learned_with_tails(spoil, monkeypatch):
    """The weights after an update with this in the advantages and values of tail rows."""
    s = rolled(learning_rate=1e-2)
    tails = ~s.rollout.valid[:-1]
    spoiled = ppo.advantages(s.rollout, s.rollout.reward, 0.99, 0.95).masked_fill(tails, spoil)
    monkeypatch.setattr(ppo, "advantages", lambda *_: spoiled)
    s.rollout.value[:-1][tails] += spoil
    ppo.update(s.learner, s.rollout, s.plan, 4)
    monkeypatch.undo()
    return weights(s.agent)


@pytest.mark.parametrize("spoil", [1e6, math.nan])
def test_advantages_and_values_of_tail_rows_change_no_bit(monkeypatch, spoil):
    plain = learned_with_tails(0.0, monkeypatch)
    assert same(plain, learned_with_tails(spoil, monkeypatch))


def test_a_large_kl_ends_the_update_after_its_pass():
    eager = {"num_minibatches": 2, "update_epochs": 5, "learning_rate": 1e-2}
    s = rolled(target_kl=1e-9, **eager)
    ppo.update(s.learner, s.rollout, s.plan, 4)
    assert steps_taken(s) == 2
    patient = rolled(target_kl=1e9, **eager)
    ppo.update(patient.learner, patient.rollout, patient.plan, 4)
    assert steps_taken(patient) == 10


def test_losses_are_means_over_valid_rows():
    s = rolled()
    generator = torch.Generator().manual_seed(0)
    advantage = torch.randn(16, 4, generator=generator, dtype=torch.float64)
    batch = chunks_with(s.rollout, advantage, 4)
    # As if acting had found some actions 1.5 times as likely: their ratio is 2 / 3.
    moved = torch.zeros_like(batch.valid)
    moved[0] = True
    shift = moved * math.log(1.5)
    cfg = PPOConfig(normalize_advantage="off")
    loss = ppo.loss(s.agent, batch._replace(log_prob=batch.log_prob + shift), cfg, NOW)
    terms = loss.means
    rows = int(batch.valid.sum())
    hit = int((moved & batch.valid).sum())
    assert 0 < hit < rows < batch.valid.numel()
    assert terms.clip_fraction.item() == pytest.approx(hit / rows)
    assert terms.kl.item() == pytest.approx(hit / rows * (2 / 3 - 1 + math.log(1.5)))
    assert (loss.ratio - 1).abs().max().item() == pytest.approx(1 / 3)
    assert (loss.values - batch.value)[batch.valid].abs().max().item() < 1e-12
    with pytest.raises(DisagreementError, match=r"ratio_error is 0\.33"):
        agreement(loss.ratio, loss.values, batch.value, batch.valid)
    live = [torch.where(batch.valid, x, 0) for x in (batch.advantage, advantage_target(batch))]
    ratio = torch.where(moved, 2 / 3, 1.0)
    surrogate = -torch.minimum(ratio * live[0], ratio.clamp(0.8, 1.2) * live[0]).sum() / rows
    assert terms.policy.item() == pytest.approx(surrogate.item())
    assert terms.value.item() == pytest.approx(live[1].square().sum().item() / rows)
    params, _ = s.agent.actor(batch.rows, batch.state.actor)
    entropy = torch.distributions.Categorical(logits=params[batch.valid]).entropy().mean()
    assert terms.entropy.item() == pytest.approx(entropy.item())


def advantage_target(batch):
    return batch.target - batch.value


def entropies(ent_coef):
    """Of a policy that prefers some actions, before and after an update."""
    s = rolled(ent_coef=ent_coef, scale=0.6, learning_rate=3e-2, update_epochs=8, gamma=0.0)
    s.rollout.reward.copy_(s.rollout.value[:-1])  # advantages of 0: nothing else moves the policy
    batch = chunks_with(s.rollout, torch.zeros(16, 4, dtype=torch.float64), 4)
    before = ppo.loss(s.agent, batch, s.plan.ppo, NOW).means.entropy.item()
    ppo.update(s.learner, s.rollout, s.plan, 4)
    return before, ppo.loss(s.agent, batch, s.plan.ppo, NOW).means.entropy.item()


def test_the_entropy_bonus_keeps_choices_open():
    before, after = entropies(0.1)
    assert before < after - 0.01
    before, after = entropies(0.0)
    assert before == pytest.approx(after, abs=1e-6)
    before, after = entropies(-0.1)
    assert before > after + 0.01


def test_a_narrow_clip_holds_the_policy_back():
    moved = []
    for clip in (1e-3, 10.0):
        s = rolled(clip=clip, learning_rate=3e-2, update_epochs=8)
        moved.append(ppo.update(s.learner, s.rollout, s.plan, 4))
    narrow, wide = moved
    assert narrow["clip_fraction"] > 0.5 and wide["clip_fraction"] == 0
    assert narrow["kl"] < wide["kl"]


@pytest.mark.parametrize("over", ["minibatch", "rollout", "off"])
def test_normalised_advantages_do_not_depend_on_the_scale_of_rewards(over):
    found = []
    for scale in (1.0, 8.0):
        s = rolled(normalize_advantage=over, vf_coef=0.0)
        with torch.no_grad():  # values of 0, so that advantages scale with rewards
            s.agent.critic.head.out.weight.zero_()
            s.agent.critic.head.out.bias.zero_()
        s.rollout.value.zero_()
        s.rollout.reward *= scale
        found.append(ppo.update(s.learner, s.rollout, s.plan, 4)["policy_loss"])
    assert (found[0] == pytest.approx(found[1], rel=1e-4)) == (over != "off")


def test_value_loss_is_logged_in_raw_units():
    losses = []
    for _ in range(2):
        s = rolled()
        if losses:
            s.learner.rewards.active = True
            s.learner.rewards.count.fill_(10)
            s.learner.rewards.var.fill_(16.0)  # rewards are divided by 4
            s.rollout.value /= 4
            with torch.no_grad():
                s.agent.critic.head.out.weight /= 4
                s.agent.critic.head.out.bias /= 4
        still = Plan(ppo=PPOConfig(num_steps=16, learning_rate=1e-12), seed=1, rollouts=4)
        losses.append(ppo.update(s.learner, s.rollout, still, 4)["value_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# Training -------------------------------------------------------------------------------------


def test_training_is_deterministic():
    runs = []
    for seed in (1, 1, 2):
        s = prepare(seed=seed, scale=0.0, dtype=torch.float32)
        metrics = list(ppo.train(s.envs, s.learner, s.plan))
        runs.append((weights(s.agent), metrics))
    assert same(runs[0][0], runs[1][0]) and runs[0][1] == runs[1][1]
    assert not same(runs[0][0], runs[2][0])


def test_training_counts_valid_rows_and_ends_with_the_plan():
    s = prepare()
    metrics = list(ppo.train(s.envs, s.learner, s.plan))
    assert [row["iteration"] for row in metrics] == [1, 2, 3, 4]
    counts = np.diff([0, *(row["step"] for row in metrics)])
    assert all(48 <= count < 64 for count in counts)  # of 64 rows, tail rows are none
    s = prepare()
    by_steps = Plan(ppo=s.plan.ppo, seed=1, steps=metrics[1]["step"])
    assert list(ppo.train(s.envs, s.learner, by_steps))[-1]["iteration"] == 2


def test_a_target_return_ends_the_run():
    s = prepare(target_return=5.0, num_steps=128, scale=0.0)
    metrics = list(ppo.train(s.envs, s.learner, s.plan))
    assert len(metrics) < 4
    assert metrics[-1]["episodes"] >= 100 and metrics[-1]["return"] >= 5
    assert all(row["return"] is None for row in metrics[:-1])
    beyond = prepare(target_return=1e9, num_steps=128)
    assert len(list(ppo.train(beyond.envs, beyond.learner, beyond.plan))) == 4


def test_a_copied_learner_goes_on_alike():
    """In between two iterations the learner and the environments are all there is."""
    s = prepare()
    training = ppo.train(s.envs, s.learner, s.plan)
    next(training)
    state = copy.deepcopy(s.envs.adapter.get_state())
    other = prepare()
    list(zip(range(1), ppo.train(other.envs, other.learner, other.plan), strict=False))
    other.envs.adapter.set_state(state)
    assert list(training) == list(ppo.train(other.envs, other.learner, other.plan))


# Golden numbers -------------------------------------------------------------------------------


def test_golden_numbers():
    """Refreshed by `PYTHONPATH=src python -m tests.golden`, where numbers are meant to move."""
    golden = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "__main__.py"), run_name="golden")
    wanted, found = json.loads(golden["FILE"].read_text()), golden["measure"]()
    assert len(found["metrics"]) == len(wanted["metrics"])
    for number, (row, old) in enumerate(zip(found["metrics"], wanted["metrics"], strict=True)):
        assert row == pytest.approx(old, rel=1e-6, abs=1e-9), f"update {number + 1}"
    assert found["weights"].keys() == wanted["weights"].keys()
    for name, sums in wanted["weights"].items():
        assert found["weights"][name] == pytest.approx(sums, rel=1e-6, abs=1e-9), name
