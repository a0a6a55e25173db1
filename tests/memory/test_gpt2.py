"""GPT-2: attention against full scores, one form against the other, and what may be seen."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agent.agent import BranchConfig, build_agent
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, make
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.settings import Plan, PPOConfig
from recollect.memory.attention import BLOCK, Band, count_steps
from recollect.memory.gpt2 import Gpt2Config
from recollect.testing import check_memory

from ..helpers import L, T, branch, chunks_of, prepare, relearn, roll, sampled, small_config
from ..helpers import largest as largest_difference
from ..run.test_run import stop_and_resume

IN, ACTION = 3, 2  # features that are seen, and of the action before
FORMS = ("banded", "window")
TOKENS = ("merged", "interleaved")
every_form = pytest.mark.parametrize("attention", FORMS)
all_tokens = pytest.mark.parametrize("tokens", TOKENS)
SMALL = {"width": 8, "heads": 2, "context": 4, "positions": 16}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def action_dim(config):
    return ACTION if config.action_apart else 0


def built(**options):
    """A memory in float64 with weights far from 0, so that attention is far from even."""
    config = Gpt2Config(**{**SMALL, **options})
    memory = config.build(IN + action_dim(config), action_dim(config)).double()
    with torch.no_grad():
        for p in memory.parameters():
            p += 0.4 * torch.randn(p.shape, dtype=p.dtype)
    return memory


def inputs(first, tokens):
    return torch.randn(*first.shape, IN + ACTION * (tokens == "interleaved"), dtype=torch.float64)


def flags(*columns):
    """Columns of one batch, time from left to right; 1 opens an episode."""
    return torch.tensor([[mark == "1" for mark in column] for column in columns]).T


def past(memory, tokens, batch, rows=9):
    """The state of rows whose episode has gone on for a while."""
    first = torch.zeros(rows, batch, dtype=torch.bool)
    with torch.no_grad():
        return memory(inputs(first, tokens), memory.initial_state(batch), first)[1]


# Attention ------------------------------------------------------------------------------------


def visible(first, age, context, tokens):
    """Which tokens each may look at (B, T M, (P + T) M), from the rule itself."""
    rows, time = len(first), torch.arange(1 - context, len(first))
    # The rows before row 0 that belong to the episode it goes on with; all others are strangers.
    before = torch.where(time[: context - 1, None] >= -age, 0, -1)
    episode = torch.cat([before, first.long().cumsum(0)])  # (P + T, B)
    away = time[context - 1 :, None] - time
    near = (away >= 0) & (away < context)
    rows_seen = near[..., None] & (episode[context - 1 :, None] == episode)  # (T, P + T, B)
    seen = rows_seen[:, None, :, None].expand(-1, tokens, -1, tokens, -1).clone()
    for t in range(rows):
        seen[t, :, t + context - 1] &= torch.ones(tokens, tokens, dtype=torch.bool).tril()[..., None]
    return seen.flatten(2, 3).flatten(0, 1).movedim(-1, 0)


def full_scores(q, k, v, seen, heads):
    """Every query with every key; what may not be seen is taken out by minus infinity."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("context", [1, 2, 5, 64])
@pytest.mark.parametrize("rows", [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 9])
def test_attention_equals_full_scores_under_a_mask(rows, context, tokens):
    heads, width, ages = 2, 6, torch.tensor([0, 1, 3, 200])
    batch = len(ages)
    shapes = (batch, rows * tokens, width), *[(batch, (context - 1 + rows) * tokens, width)] * 2
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    for often in (0.0, 0.1, 0.5):
        first = torch.rand(rows, batch) < often
        back = count_steps(first, ages)[0].clamp(max=context - 1)
        band = Band(back, context - 1, heads, tokens, torch.float64)
        y = band.attend(*leaves)
        wanted = full_scores(*leaves, visible(first, ages, context, tokens), heads)
        torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)
        last = slice(tokens - 1, None, tokens)  # asked for alone
        alone = band.attend(leaves[0][:, last], *leaves[1:])
        torch.testing.assert_close(alone, wanted[:, last], rtol=0, atol=1e-12)
        weight = torch.randn_like(wanted)
        found, expected = (torch.autograd.grad((out * weight).sum(), leaves) for out in (y, wanted))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@given(
    columns=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4),
    ages=st.lists(st.integers(0, 5), min_size=4, max_size=4),
)
def test_steps_are_counted_row_by_row(columns, ages):
    first, age = torch.tensor(columns).T, torch.tensor(ages[: len(columns)])
    step, after = count_steps(first, age)
    for t, opens in enumerate(first):
        age = torch.where(opens, 0, age)
        assert torch.equal(step[t], age)
        age = age + 1
    assert torch.equal(after, age)


# One form against the other -------------------------------------------------------------------


def both_forms(**options):
    """The same weights, banded and as a window."""
    banded, window = built(attention="banded", **options), built(attention="window", **options)
    window.load_state_dict(banded.state_dict())
    return banded, window


def in_two_calls(memory, x, first, cut):
    """Outputs (T, B, W) of a sequence whose state is carried over a cut."""
    state, parts = memory.initial_state(x.shape[1]), []
    for span in (slice(0, cut), slice(cut, None)):
        y, state = memory(x[span], state, first[span])
        parts.append(y)
    return torch.cat(parts)


@st.composite
def short_episodes(draw, context):
    """Openings (T, B) of episodes no longer than the context."""
    lengths = st.lists(st.integers(1, context), min_size=14, max_size=14)
    columns = draw(st.lists(lengths, min_size=1, max_size=3))
    first = torch.zeros(14, len(columns), dtype=torch.bool)
    for b, column in enumerate(columns):
        openings = np.cumsum([0, *column])
        first[openings[openings < 14], b] = True
    return first


@all_tokens
@settings(max_examples=25)
@given(data=st.data(), context=st.integers(1, 5), layers=st.integers(1, 3), cut=st.integers(1, 13))
def test_both_forms_are_one_where_episodes_are_no_longer_than_the_context(tokens, data, context, layers, cut):
    torch.manual_seed(0)  # for every example
    first = data.draw(short_episodes(context))
    forms = both_forms(tokens=tokens, context=context, layers=layers)
    x = inputs(first, tokens).requires_grad_()
    found = []
    for memory in forms:
        y = in_two_calls(memory, x, first, cut)
        leaves = [x, *memory.parameters()]
        weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        gradients = torch.autograd.grad((y * weight).sum(), leaves, allow_unused=True)
        found.append([y, *gradients])
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@all_tokens
def test_the_forms_differ_from_the_first_row_beyond_the_context_on(tokens):
    first = flags("1...........")
    x = inputs(first, tokens)
    for layers in (1, 2):
        one, other = (in_two_calls(m, x, first, 5) for m in both_forms(tokens=tokens, layers=layers))
        away = (one - other).abs().amax((1, 2))
        assert (away[:4] < 1e-12).all()
        # One layer looks back on tokens themselves, which hold nothing of rows before them.
        assert (away[4:] < 1e-12).all() if layers == 1 else (away[4:] > 1e-4).all()


# What may be seen -----------------------------------------------------------------------------


EVERY_SIZE = list(product(TOKENS, FORMS, [(4, 2), (1, 2), (3, 3)]))


@pytest.mark.parametrize(
    ("tokens", "attention", "sizes"), sampled(EVERY_SIZE, *(form for form in EVERY_SIZE if form[2] == (3, 3)))
)
def test_the_contract_holds_for_every_form(tokens, attention, sizes):
    context, layers = sizes
    options = {**SMALL, "context": context, "layers": layers, "positions": 5}
    config = Gpt2Config(tokens=tokens, attention=attention, **options)
    check_memory(config)


def influence(memory, x, state, first):
    """Whether y[t, b] moves with x[s, c, i], exactly: (T, B, T, B, in)."""
    weight = torch.randn(memory.out_dim, dtype=x.dtype)
    jacobian = torch.autograd.functional.jacobian(lambda rows: memory(rows, state, first)[0] @ weight, x)
    return jacobian != 0


@every_form
@all_tokens
@pytest.mark.parametrize("going_on", [False, True])
def test_what_is_said_depends_on_all_that_is_in_reach_and_on_nothing_else(tokens, attention, going_on):
    first = flags("............", "1...........", "...1....1...", "....11......")
    rows, batch = first.shape
    memory = built(tokens=tokens, attention=attention, context=3)
    reach = 5 if attention == "banded" else 3
    start = past(memory, tokens, batch) if going_on else memory.initial_state(batch)
    found = influence(memory, inputs(first, tokens), start, first)
    episode, t = first.cumsum(0), torch.arange(rows)
    near = (t[:, None] >= t) & (t[:, None] - t < reach)
    wanted = near[:, None, :, None] & (episode[:, :, None, None] == episode)
    wanted = wanted & torch.eye(batch, dtype=torch.bool)[:, None]
    assert memory.reach == reach
    assert all(torch.equal(found[..., i], wanted) for i in range(IN))
    # There is no action before the first row of an episode, whatever stands in its columns.
    opens = first.clone()
    opens[0] |= not going_on
    for i in range(IN, found.shape[-1]):
        assert torch.equal(found[..., i], wanted & ~opens)


@every_form
def test_the_token_of_what_is_seen_is_answered(attention):
    """Blocks that write nothing leave the answer to the token itself, which holds no action."""
    memory = built(tokens="interleaved", attention=attention)
    with torch.no_grad():
        for block in memory.trunk.blocks:
            for p in (*block.out.parameters(), *block.down.parameters()):
                p.zero_()
    first = flags("1....", ".....")
    rows, batch = first.shape
    found = influence(memory, inputs(first, "interleaved"), past(memory, "interleaved", batch), first)
    itself = torch.eye(rows * batch, dtype=torch.bool).view(rows, batch, rows, batch)
    assert torch.equal(found.any(-1), itself) and not found[..., IN:].any()


@all_tokens
def test_later_steps_share_an_embedding_and_each_episode_counts_anew(tokens):
    """With a context of one row nothing but the row and its step is left to tell rows apart."""
    memory = built(tokens=tokens, context=1, positions=4)
    first = flags("1........", "1....1...", "1.1......")
    row = torch.randn(1, 1, IN, dtype=torch.float64)
    seen = torch.cat([row, torch.zeros(1, 1, inputs(first, tokens).shape[-1] - IN)], -1)
    y = in_two_calls(memory, seen.expand(*first.shape, -1), first, 3).flatten(0, 1)
    step = count_steps(first, torch.zeros(3, dtype=torch.long))[0].flatten().clamp(max=3)
    same = (y[:, None] - y).abs().amax(-1) < 1e-12
    assert torch.equal(same, step[:, None] == step)


# Dropout --------------------------------------------------------------------------------------


@every_form
@all_tokens
@pytest.mark.parametrize("option", ["dropout", "attention_dropout"])
def test_dropout_acts_in_gradient_steps_alone(tokens, attention, option):
    plain, leaving_out = (built(tokens=tokens, attention=attention, **{option: p}) for p in (0.0, 0.5))
    assert (plain.dropout, leaving_out.dropout) == (0.0, 0.5)
    leaving_out.load_state_dict(plain.state_dict())
    first = flags("1...1..", ".......")
    x, state = inputs(first, tokens), plain.initial_state(2)
    wanted = plain(x, state, first)[0]

    def said():
        return leaving_out(x, state, first)[0]

    with torch.no_grad():
        assert torch.equal(said(), wanted) and torch.equal(said(), wanted)
    one, other = said(), said()
    assert not torch.equal(one, other) and not torch.equal(one, wanted)
    leaving_out.eval()
    assert torch.equal(said(), wanted)


def test_what_is_left_out_of_attention_is_looked_up_in_the_mean():
    """Weights are left out and the rest made larger, so that what is found stays the same on average."""
    band = Band(torch.zeros(1, 4000, dtype=torch.long), 0, 1, 1, torch.float64)
    value = torch.ones(4000, 1, 1, dtype=torch.float64)
    found = band.attend(value, value, value, dropout=0.25)
    assert set(found.flatten().tolist()) == {0.0, 1 / 0.75}
    assert found.mean().item() == pytest.approx(1, abs=0.05)


@all_tokens
def test_what_makes_tokens_may_begin_as_torch_has_it(tokens):
    cfg = Gpt2Config(**{**SMALL, "tokens": tokens, "embedding_init": "torch", "positions": 500})
    made = cfg.build(IN + action_dim(cfg), action_dim(cfg)).tokens
    assert made.step.weight.std().item() == pytest.approx(1, abs=0.1)
    linear = [made.seen] + ([made.action] if tokens == "interleaved" else [])
    for part in linear:
        assert 0.2 * part.in_features**-0.5 < part.weight.abs().max() <= part.in_features**-0.5


def critic(**options):
    return BranchConfig(memory=Gpt2Config(**{**SMALL, **options}), hidden=(6,))


def test_dropout_in_an_actor_is_refused():
    envs = make(EnvConfig(num_envs=1, backend="gymnasium"))
    wrong = critic(dropout=0.5)
    with pytest.raises(UsageError, match=r"^actor dropout is not supported, it is 0\.5: .*$"):
        build_agent((envs.obs_spec, envs.action_spec), wrong, BranchConfig(), False, seed=1)
    with pytest.raises(UsageError, match="actor dropout is not supported"):
        build_agent((envs.obs_spec, envs.action_spec), wrong, BranchConfig(shared=True), False, seed=1)


def trained(dropout, seed=1):
    """Metrics of a short training with a critic that leaves features out."""
    envs = make(EnvConfig(num_envs=4, backend="gymnasium", time_limit=10))
    spaces = envs.obs_spec, envs.action_spec
    agent = build_agent(spaces, BranchConfig(hidden=(8,)), critic(dropout=dropout), True, seed=1)
    cfg = PPOConfig(num_steps=16, bptt=8, num_minibatches=2, update_epochs=2, learning_rate=1e-2)
    plan = Plan(ppo=cfg, seed=seed, rollouts=3)
    return list(ppo.train(envs, begin(envs, agent, plan), plan))


def test_training_with_dropout_agrees_with_acting_and_repeats_from_its_seed():
    metrics = trained(0.5)
    assert all(row["ratio_error"] < 1e-5 and row["value_error"] < 1e-4 for row in metrics)
    torch.rand(7)  # what was drawn elsewhere is nothing to it
    assert trained(0.5) == metrics
    assert trained(0.5, seed=2) != metrics
    assert trained(0.0) != metrics


def first_loss(dropout, seed=5):
    """The value loss of the first gradient step, over the whole of one and the same rollout."""
    s = prepare(branch("mlp"), critic(dropout=dropout))
    roll(s)
    cfg = PPOConfig(num_steps=T, num_minibatches=1, update_epochs=1)
    return ppo.update(s.learner, s.rollout, Plan(ppo=cfg, seed=seed, rollouts=9), L)["value_loss"]


def test_losses_are_of_what_dropout_leaves():
    plain, drawn, other = first_loss(0.0), first_loss(0.5), first_loss(0.5, seed=6)
    assert first_loss(0.0, seed=6) == pytest.approx(plain, rel=1e-12)
    assert first_loss(0.5) == drawn
    assert min(abs(drawn - plain), abs(other - plain), abs(drawn - other)) > 1e-6


def test_what_is_left_out_is_drawn_from_the_seed_and_the_iteration():
    def draws(dropout):
        s = prepare(branch("mlp"), critic(dropout=dropout))
        found = []
        for s.learner.iteration, seed in ((0, 5), (1, 5), (0, 6), (0, 5)):
            s.learner.seed_dropout(seed)
            found.append(float(torch.rand(())))
        return found

    one, *others, again = draws(0.5)
    assert again == one and len({one, *others}) == 3
    assert len(set(draws(0.0))) == 4, "a generator was seeded that nobody uses"


# In an agent ----------------------------------------------------------------------------------


@every_form
@all_tokens
@pytest.mark.parametrize("shared", [False, True])
def test_every_weight_is_reached_by_a_gradient_and_moves(tokens, attention, shared):
    deep = critic(tokens=tokens, attention=attention, layers=3)
    s = prepare(deep, BranchConfig(shared=True)) if shared else prepare(branch("mlp"), deep)
    roll(s)
    before = [p.detach().clone() for p in s.agent.parameters()]
    ppo.update(s.learner, s.rollout, s.plan, L)
    for (name, p), old in zip(s.agent.named_parameters(), before, strict=True):
        assert p.requires_grad and p.grad.abs().max() > 1e-8, f"no gradient reaches {name}"
        assert not torch.equal(p, old), f"{name} did not learn"
    held = [x for name, x in s.learner.optimizer.tensors().items() if name.endswith("exp_avg")]
    assert sum(x.numel() for x in held) == sum(p.numel() for p in s.agent.parameters())


@every_form
@all_tokens
def test_acting_equals_learning_in_every_form(tokens, attention):
    both = critic(tokens=tokens, attention=attention)
    s = prepare(both, both, normalize=True)
    for _ in range(2):
        roll(s)
        assert s.rollout.rows.first[1:-1].any()
        assert largest_difference(relearn(s)) < 1e-12
        s.learner.update_statistics(s.rollout)


@all_tokens
def test_the_action_before_is_a_token_of_its_own_or_none_at_all(tokens):
    """Interleaved an agent sees what it did without prev_action, and nothing twice with it."""
    heard = {}
    for asked in (False, True):
        config = BranchConfig(memory=Gpt2Config(**SMALL, tokens=tokens), hidden=(), prev_action=asked)
        s = prepare(config, branch("mlp"))
        roll(s)
        rows = chunks_of(s).rows
        state = s.agent.actor.memory.initial_state(rows.first.shape[1])
        with torch.no_grad():
            actions = rows.prev_action, (rows.prev_action + 1) % 3
            said = [s.agent.actor(rows._replace(prev_action=x), state)[0] for x in actions]
        heard[asked] = bool((said[0] != said[1]).any())
        assert s.agent.actor.inputs.out_dim == 4 + 3 * (asked and tokens == "merged")
    assert heard == {True: True, False: tokens == "interleaved"}


def test_resuming_with_dropout_equals_never_stopping(tmp_path, monkeypatch):
    leaving_out = {"dropout": 0.3, "attention_dropout": 0.2}
    config = small_config(critic=critic(**leaving_out, tokens="interleaved"), rollouts=10)
    stop_and_resume(config, tmp_path, monkeypatch, 5)


# Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"width": 10, "heads": 3}, "gpt2.width is 10, which 3 heads do not divide"),
        ({"dropout": 1.0}, "gpt2.dropout is 1.0, it must lie in [0, 1)"),
        ({"attention_dropout": 1.0}, "gpt2.attention_dropout is 1.0, it must lie in [0, 1)"),
        ({"dropout": -0.1}, "gpt2.dropout is -0.1, it must lie in [0, 1)"),
        ({"dropout": math.nan}, "gpt2.dropout is nan, it must lie in [0, 1)"),
        ({"trained_blocks": -1}, "gpt2.trained_blocks is -1, at least 0 is needed"),
        ({"trained_blocks": 3}, "gpt2.trained_blocks is 3, there are 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_a_line(options, complaint):
    with pytest.raises(UsageError) as caught:
        Gpt2Config(**options)
    assert str(caught.value) == complaint


def test_the_defaults_fit():
    memory = Gpt2Config().build(5)
    assert memory.out_dim == 64 and memory.reach == 1 + 2 * 63
    assert all(p.requires_grad for p in memory.parameters())
