"""Transformer-XL against a plain loop over rows, heads and layers; what it sees, and what it learns from."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import testing
from recollect.agent.agent import build_agent
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble
from recollect.envs import make
from recollect.learn.settings import Decay, PPOConfig
from recollect.memory.attention import BLOCK
from recollect.memory.trxl import Gate, GtrxlConfig, TrxlConfig, sinusoids

from ..helpers import sampled

IN = 3
KINDS = {kind.name: kind for kind in (TrxlConfig, GtrxlConfig)}
POSITIONS, NORMS = (None, "absolute", "relative"), (None, "pre", "post")
SMALL = {"width": 4, "layers": 2, "heads": 2, "context": 3}
WIDE = {**SMALL, "width": 16}  # in a narrow one all relus of a row may be shut, and nothing is heard
CONFIGS = Path(__file__).parents[2] / "configs"
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_position = pytest.mark.parametrize("positions", POSITIONS)
every_norm = pytest.mark.parametrize("norm", NORMS)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def built(kind=TrxlConfig, **options):
    """A config and its memory in float64, with weights far from their careful beginning."""
    config = kind(**{**SMALL, **options})
    memory = config.build(IN).double()
    with torch.no_grad():
        for p in memory.parameters():
            p += 0.4 * torch.randn(p.shape, dtype=p.dtype)
    return config, memory


def flags(*columns):
    """Columns of one batch, time from left to right; 1 opens an episode."""
    return torch.tensor([[mark == "1" for mark in column] for column in columns]).T


def inputs(first):
    return torch.randn(*first.shape, IN, dtype=torch.float64)


def past(memory, *ages):
    """A state of episodes of these ages; what is older than them is noise that nobody may see."""
    kept, _ = memory.initial_state(len(ages))
    return tuple(map(torch.randn_like, kept)), torch.tensor(ages)


# A loop over rows, heads and layers -----------------------------------------------------------


def plain(config, memory, x, state, first):
    """The same as the memory, one number after another."""
    (kept, age), columns, ends, after = state, [], [], []
    for b in range(x.shape[1]):
        # By layer: key and value of each row, with its errors and without them.
        read = [[(pair, pair.detach()) for pair in of_layer[b].unbind(1)] for of_layer in kept]
        step, said = int(age[b]), []
        for t in range(len(x)):
            step = 0 if first[t, b] else step
            h = F.linear(x[t, b], memory.input.weight, memory.input.bias)
            if config.positions == "absolute":
                h = h + waves(step, config.width)
            for block, pairs in zip(memory.blocks, read, strict=True):
                pairs.append(tuple(key_value(config, block, x) for x in (h, h.detach())))
                h = plain_block(config, block, h, pairs[-1 - min(step, config.context) :])
            said.append(h)
            step += 1
        columns.append(torch.stack(said))
        # With gradient 0 nothing but a number is left.
        which = 1 if config.gradient == 0 else 0
        ends.append(
            torch.stack([torch.stack([p[which] for p in pairs[-config.context :]], 1) for pairs in read])
        )
        after.append(step)
    return torch.stack(columns, 1), (torch.stack(ends).unbind(1), torch.tensor(after))


def norm(config, where, layer, x):
    return F.layer_norm(x, x.shape, layer.weight, layer.bias) if config.norm == where else x


def key_value(config, block, x):
    """What a row is found by and what is then read (2, W)."""
    seen = norm(config, "pre", block.before_attention, x)
    return torch.stack([part @ seen for part in block.key_value.weight.chunk(2)])


def plain_block(config, block, x, pairs):
    """What a block gives on for x, whose key and value are the last of these."""
    live = len(pairs)
    if config.gradient is not None:
        live = config.gradient + 1 if config.gradient else 0
    dead = len(pairs) - live
    kept = [ended if i < dead else pair for i, (pair, ended) in enumerate(pairs)]
    found = look(config, block, norm(config, "pre", block.before_attention, x), kept)
    x = norm(config, "post", block.after_attention, join(block.attended, x, found))
    hidden = F.linear(norm(config, "pre", block.before_feed, x), block.feed.weight, block.feed.bias)
    return norm(config, "post", block.after_feed, join(block.fed, x, hidden.clamp(min=0)))


def look(config, block, seen, pairs):
    """Attention of a row on all before it and on itself, head by head and row by row."""
    query, size = block.query.weight @ seen, config.width // config.heads
    found = []
    for head in range(config.heads):
        part = slice(head * size, (head + 1) * size)
        scores, values = [], []
        for away, (key, value) in zip(reversed(range(len(pairs))), pairs, strict=True):
            key, value = key[part], value[part]
            score = query[part] @ key
            if config.positions == "relative":
                places = block.places
                distance = (places.key.weight @ places.away[away])[part]
                score = score + places.of_row[part] @ key
                score = score + (query + places.of_distance)[part] @ distance
            scores.append((score / math.sqrt(size)).exp())
            values.append(value)
        found.append(sum(s * v for s, v in zip(scores, values, strict=True)) / sum(scores))
    return F.linear(torch.cat(found), block.out.weight, block.out.bias)


def join(layer, x, y):
    """The sum, or the gate as it is written in the paper."""
    if not isinstance(layer, Gate):
        return x + y
    y = y.clamp(min=0)
    w_r, w_z, w_g = layer.said.weight.chunk(3)
    u_r, u_z = layer.read.weight.chunk(2)
    r = torch.sigmoid(w_r @ y + u_r @ x)
    z = torch.sigmoid(w_z @ y + u_z @ x - layer.bias)
    h = torch.tanh(w_g @ y + layer.reset.weight @ (r * x))
    return (1 - z) * x + z * h


def waves(place, width):
    """Sines, then cosines."""
    rates = [1 / 10_000 ** (i / width) for i in range(0, width, 2)]
    angles = torch.tensor([place * rate for rate in rates], dtype=torch.float64)
    return torch.cat([angles.sin(), angles.cos()])[:width]


def everything(memory, run, x, state, first):
    """Outputs, end states, and gradients of x, of what is kept and of all weights."""
    x, kept = x.clone().requires_grad_(), torch.stack(state[0], 1).requires_grad_()
    y, (end, age) = run(x, (kept.unbind(1), state[1]), first)
    end = torch.stack(end, 1)
    generator = torch.Generator().manual_seed(1)
    loss = sum((part * torch.randn(part.shape, generator=generator)).sum() for part in (y, end))
    leaves = {"x": x, "kept": kept, **dict(memory.named_parameters())}
    gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    found = {"y": y.detach(), "end": end.detach(), "age": age}
    return found | {f"gradient of {k}": g for k, g in zip(leaves, gradients, strict=True)}


def assert_a_loop_says_the_same(config, memory, first, *ages):
    x, state = inputs(first), past(memory, *ages)
    wanted = everything(memory, lambda *args: plain(config, memory, *args), x, state, first)
    found = everything(memory, memory, x, state, first)
    for name, number in wanted.items():
        away = float((found[name] - number).abs().max()) / max(1.0, float(number.abs().max()))
        assert found[name].shape == number.shape and away < 1e-10, f"{name} is {away:.2g} away"


COLUMNS = ("......", "1.....", "..1..1")
AGES = (5, 1, 2)


@every_kind
@every_position
@every_norm
def test_a_sequence_equals_a_loop(kind, positions, norm):
    config, memory = built(kind, positions=positions, norm=norm)
    assert_a_loop_says_the_same(config, memory, flags(*COLUMNS), *AGES)


@pytest.mark.parametrize("gradient", sampled([None, 2], 2))
def test_a_long_sequence_equals_a_loop(gradient):
    """So long that attention reads it in blocks, of which the last is not full."""
    config, memory = built(GtrxlConfig, gradient=gradient)
    first = torch.rand(2 * BLOCK + 7, 2) < 0.1
    assert_a_loop_says_the_same(config, memory, first, 2, 9)


@pytest.mark.parametrize("gradient", sampled([0, 1, 2], 0, 2))
@pytest.mark.parametrize(("kind", "norm"), [(TrxlConfig, "post"), (GtrxlConfig, "pre")])
@every_position
def test_errors_end_at_keys_further_back(kind, norm, positions, gradient):
    config, memory = built(kind, positions=positions, norm=norm, gradient=gradient)
    first = flags(*COLUMNS)
    assert_a_loop_says_the_same(config, memory, first, *AGES)
    # What is computed is the same, and what is learned is not.
    free = replace(config, gradient=None).build(IN).double()
    free.load_state_dict(memory.state_dict())
    x, state = inputs(first), past(memory, *AGES)
    found, wanted = (everything(m, m, x, state, first) for m in (memory, free))
    for name in ("y", "end"):
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=1e-13)
    name = "gradient of blocks.0.key_value.weight"
    assert not torch.allclose(found[name], wanted[name], rtol=1e-3)


@st.composite
def episodes(draw):
    """Openings (T, B), and ages (B,) of the episodes that go on."""
    rows, batch = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    opens = draw(st.lists(st.integers(0, 2), min_size=rows * batch, max_size=rows * batch))
    ages = draw(st.lists(st.integers(0, 6), min_size=batch, max_size=batch))
    return torch.tensor(opens).view(rows, batch) == 2, ages


@settings(max_examples=15)
@given(
    drawn=episodes(),
    kind=st.sampled_from(list(KINDS.values())),
    positions=st.sampled_from(POSITIONS),
    norm=st.sampled_from(NORMS),
    gradient=st.sampled_from([None, 0, 1, 5]),
    sizes=st.sampled_from([(4, 1, 1), (5, 1, 2), (6, 3, 4)]),
)
def test_any_episodes_equal_a_loop(drawn, kind, positions, norm, gradient, sizes):
    torch.manual_seed(0)  # for every example
    width, heads, context = sizes
    options = {"positions": positions, "norm": norm, "gradient": gradient, "layers": 1 + context % 2}
    config, memory = built(kind, width=width, heads=heads, context=context, **options)
    assert_a_loop_says_the_same(config, memory, drawn[0], *drawn[1])


# The contract ---------------------------------------------------------------------------------


FORMS = list(product(KINDS, POSITIONS, NORMS, (None, 0, 1)))
SOME = ("trxl", "absolute", "post", 1), ("trxl", None, None, 1), ("gtrxl", "relative", "pre", 1)


@pytest.mark.parametrize(("kind", "positions", "norm", "gradient"), sampled(FORMS, *SOME))
def test_every_form_keeps_the_contract(kind, positions, norm, gradient, monkeypatch):
    if gradient is not None:  # errors that end early are what it asks for
        rules = tuple(rule for rule in testing.RULES if rule is not testing.rules.check_gradient)
        monkeypatch.setattr(testing, "RULES", rules)
    options = {**WIDE, "context": 2, "positions": positions, "norm": norm, "gradient": gradient}
    testing.check_memory(KINDS[kind](**options), IN)


def test_a_detached_past_is_no_reach_of_gradients():
    """The control of the test above: with the rule in place it is noticed."""
    with pytest.raises(AssertionError, match="contract, gradient"):
        testing.check_memory(TrxlConfig(**SMALL, gradient=0), IN)


def rows_with_gradient(memory, rows):
    """Where the last of these rows of one episode has a gradient, by x (T,) and by what is kept (P,)."""
    first = torch.zeros(rows, 1, dtype=torch.bool)
    x, (kept, age) = inputs(first).requires_grad_(), past(memory, 99)
    kept = torch.stack(kept).requires_grad_()
    y, _ = memory(x, (kept.unbind(), age), first)
    said = (y[-1] * torch.randn_like(y[-1])).sum()
    found = torch.autograd.grad(said, [x, kept], materialize_grads=True)
    return found[0][:, 0].any(-1).tolist(), found[1].any(-1).flatten(0, 2).any(0).tolist()


@every_kind
@every_position
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_nothing_beyond_the_reach_is_seen(kind, positions, layers):
    _, memory = built(kind, **{**WIDE, "positions": positions, "layers": layers})
    reach = 1 + layers * SMALL["context"]
    assert memory.reach == reach
    seen, kept = rows_with_gradient(memory, reach + 3)
    assert seen == [False] * 3 + [True] * reach and not any(kept)
    seen, kept = rows_with_gradient(memory, 2)  # the rest of the reach lies in the state
    assert seen == [True] * 2 and kept == [False] * (layers == 1) + [True] * (3 - (layers == 1))


@every_kind
@pytest.mark.parametrize("gradient", [0, 1, 2, 3])
def test_errors_travel_so_many_rows_a_layer(kind, gradient):
    _, memory = built(kind, **WIDE, gradient=gradient)
    seen, _ = rows_with_gradient(memory, 9)
    reached = 1 + SMALL["layers"] * gradient
    assert seen == [False] * (9 - reached) + [True] * reached


def test_rows_are_projected_once_and_not_once_for_each_that_sees_them():
    _, memory = built(layers=2)
    counted = []
    for block in memory.blocks:
        for layer in (block.key_value, block.query):
            layer.register_forward_hook(lambda _, given, __: counted.append(given[0][..., 0].numel()))
    first = torch.zeros(50, 4, dtype=torch.bool)
    memory(inputs(first), memory.initial_state(4), first)
    assert counted == [4 * 50] * 4


# Positions ------------------------------------------------------------------------------------


@every_kind
@every_position
def test_when_an_episode_began_is_told_by_absolute_positions_alone(kind, positions):
    _, memory = built(kind, positions=positions)
    first = flags("......", "......")
    x, (kept, _) = inputs(first), past(memory, 0, 0)
    early, late = (memory(x, (kept, torch.tensor(ages)), first)[0] for ages in ([3, 7], [90, 700]))
    assert torch.equal(early, late) == (positions != "absolute")


@every_kind
def test_steps_have_positions_of_their_own_also_in_half_precision(kind):
    """It has every second number only from 256 on."""
    _, memory = built(kind, positions="absolute")
    memory = memory.bfloat16()
    first = flags("......", "......")
    x, kept = inputs(first).bfloat16(), tuple(part.bfloat16() for part in past(memory, 0, 0)[0])
    even, odd = (memory(x, (kept, torch.tensor(ages)), first)[0] for ages in ([599, 600], [600, 601]))
    # The first row alone: half precision rounds both of its steps to 600.
    assert not torch.equal(even[0], odd[0])


@every_kind
@every_position
def test_the_order_of_what_was_seen_is_told_by_positions_alone(kind, positions):
    _, memory = built(kind, **{**WIDE, "positions": positions, "layers": 1})
    first = flags("1...")
    x = inputs(first)
    one, other = (memory(rows, memory.initial_state(1), first)[0][-1] for rows in (x, x[[2, 0, 1, 3]]))
    assert torch.allclose(one, other, atol=1e-12) == (positions is None)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_sinusoids_are_those_of_the_formula(width):
    places = torch.tensor([[0.0, 1.0], [7.0, 1e4]], dtype=torch.float64)
    found = sinusoids(places, width)
    assert found.shape == (2, 2, width)
    for place, row in zip(places.flatten(), found.flatten(0, 1), strict=True):
        torch.testing.assert_close(row, waves(float(place), width), rtol=0, atol=1e-11)


def test_distances_are_sinusoids_too():
    away = TrxlConfig(context=40).build(IN).blocks[0].places.away
    assert len(away) == 41
    for rows, found in enumerate(away):
        torch.testing.assert_close(found.double(), waves(rows, 64), rtol=0, atol=1e-5)


# How it begins --------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [None, "relative"])  # absolute ones are added to what is read
@pytest.mark.parametrize("norm", [None, "pre"])
def test_closed_gates_pass_on_what_is_read(positions, norm):
    first = torch.rand(20, 5) < 0.1
    x = torch.randn(20, 5, IN)

    def away(bias):
        torch.manual_seed(1)
        memory = GtrxlConfig(width=8, heads=2, positions=positions, norm=norm, gate_bias=bias).build(IN)
        y, _ = memory(x, memory.initial_state(5), first)
        return float((y - memory.input(x)).detach().abs().max())

    assert away(20.0) < 1e-5
    assert away(20.0) < away(GtrxlConfig().gate_bias) < away(0.0)


@every_kind
def test_every_block_of_weights_begins_orthogonal_by_itself(kind):
    memory = kind(width=8, layers=1, heads=2).build(8)
    loud = {"blocks.0.feed.weight"} | ({"blocks.0.out.weight"} if kind is GtrxlConfig else set())
    for name, p in memory.named_parameters():
        if p.ndim == 2:
            for part in p.detach().split(8):
                wanted = (2.0 if name in loud else 1.0) * torch.eye(8)  # a relu halves squares
                torch.testing.assert_close(part @ part.T, wanted, rtol=0, atol=1e-5)
        elif "before" not in name:  # a gain of normalisation is 1
            assert (p == (2.0 if name.endswith(("attended.bias", "fed.bias")) else 0.0)).all(), name
    keys, values = memory.blocks[0].key_value.weight.chunk(2)
    assert not torch.allclose(keys, values), "keys and values begin as one"


# Settings -------------------------------------------------------------------------------------


@every_kind
def test_other_bad_settings_are_refused_by_name(kind):
    with pytest.raises(UsageError) as caught:
        kind(width=6, heads=4)
    assert str(caught.value) == f"{kind.name}.width is 6, which 4 heads do not divide"
    with pytest.raises(UsageError) as caught:
        kind(gradient=-1)
    assert str(caught.value) == f"{kind.name}.gradient is -1, at least 0 is needed"


@pytest.mark.parametrize("flag", ["--actor.positions", "--actor.norm"])
def test_a_choice_is_a_flag_and_none_is_one_of_them(flag):
    setting = flag.rpartition(".")[2]
    chosen = assemble(["-e", "CartPole-v1", "--actor", "gtrxl", flag, "none"]).actor.memory
    assert chosen == GtrxlConfig(**{setting: None})
    with pytest.raises(UsageError) as caught:
        assemble(["-e", "CartPole-v1", "--actor", "trxl", flag, "sideways"])
    assert "sideways" in str(caught.value) and "\n" not in str(caught.value)


# Published settings ---------------------------------------------------------------------------

ADAM = {"optimizer": "adamw", "weight_decay": 0.01, "adam_eps": 1e-8}
GATED = {"layers": 4, "heads": 1, "context": 32, "positions": None, "gradient": 0, "gate_bias": 0.0}
LARGE = {"layers": 3, "width": 384, "heads": 4, "positions": "absolute", "gradient": 0}
SLOW = {"gamma": 0.995, "clip": 0.1, "clip_value": 0.1, "num_minibatches": 8, **ADAM}
QUICK = {"gamma": 0.99, "clip": 0.2, "clip_value": 0.2, "learning_rate": 3e-4, "ent_coef": 1e-3, **ADAM}
LONG = {"num_steps": 512, "bptt": 128, "update_epochs": 3, "max_grad_norm": 0.25, **SLOW}


def to(final, horizon):
    return Decay(final=final, horizon=horizon)


# file: memory, width of the heads' layers, environment steps, algorithm
PUBLISHED = {
    "poc": (
        GtrxlConfig(width=64, **GATED),
        64,
        409_600,
        PPOConfig(num_minibatches=8, bptt=32, vf_coef=0.1, ent_decay=to(1e-4, 200), **QUICK),
    ),
    "cartpole_masked": (
        GtrxlConfig(width=128, **GATED),
        128,
        1_228_800,
        PPOConfig(
            num_steps=256, bptt=32, vf_coef=0.2, lr_decay=to(3e-5, 300), ent_decay=to(1e-4, 300), **QUICK
        ),
    ),
    "minigrid_memory_s9": (
        TrxlConfig(context=64, norm="post", **LARGE),
        384,
        819_200,
        PPOConfig(
            num_steps=512,
            bptt=64,
            update_epochs=5,
            learning_rate=3.5e-4,
            lr_decay=to(1e-4, 250),
            ent_coef=1e-3,
            **SLOW,
        ),
    ),
    "mortar_mayhem_grid": (
        TrxlConfig(context=118, **LARGE),
        384,
        49_152_000,
        PPOConfig(
            learning_rate=2.5e-4,
            lr_decay=to(1e-5, 10_000),
            ent_coef=1e-4,
            ent_decay=to(1e-6, 10_000),
            **LONG,
        ),
    ),
    "mystery_path_grid": (
        TrxlConfig(layers=2, width=256, heads=4, context=96, positions=None, gradient=0),
        256,
        81_920_000,
        PPOConfig(
            learning_rate=2.75e-4,
            lr_decay=to(1e-5, 10_000),
            ent_coef=1e-3,
            ent_decay=to(1e-6, 10_000),
            **LONG,
        ),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_of_settings_holds_what_was_published(name):
    config = assemble(["--config", str(CONFIGS / f"trxl_{name}.yaml")])
    memory, width, steps, ppo = PUBLISHED[name]
    assert config.actor.memory == memory and config.critic.shared
    assert config.ppo == ppo
    assert config.rollouts * config.env.num_envs * ppo.num_steps == steps
    assert config.actor.hidden == (memory.width,)
    assert config.actor.head_hidden == config.critic.head_hidden == (width,)
    assert config.actor.activation == config.critic.activation == "relu"
    assert not config.env.normalize_obs and not config.env.normalize_reward
    assert ppo.chunks_per_minibatch(config.env.num_envs, ppo.bptt) >= 8


def test_every_file_of_settings_is_tested():
    assert {path.stem for path in CONFIGS.glob("trxl_*.yaml")} == {f"trxl_{name}" for name in PUBLISHED}


def test_such_an_agent_acts_as_it_learns():
    config = assemble(["--config", str(CONFIGS / "trxl_poc.yaml")])
    envs = make(config.env)
    agent = build_agent((envs.obs_spec, envs.action_spec), config.actor, config.critic, False, seed=1)
    testing.check_agent(agent, length=40)
