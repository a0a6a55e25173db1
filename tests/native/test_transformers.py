"""Transformers by the kernels: gradients against autograd in float64, acting against learning, bits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.agent.agent import BranchConfig
from recollect.common import tree
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.trxl import GtrxlConfig, TrxlConfig
from recollect.native.engine import NativeEngine
from recollect.native.nodes import UnsupportedError
from recollect.native.program import actor_network, coverage

from . import test_acting
from .cases import ACTIONS, check, config, kernels, make_agent, make_batch
from .test_gradients import PLAIN, check_bits_of_builds, check_calls_are_independent

SMALL = {"width": 12, "layers": 2, "heads": 2, "context": 5, "positions": None}
MEMORIES = {
    "trxl": TrxlConfig(**SMALL),
    "gtrxl": GtrxlConfig(**SMALL),
    "gtrxl, no gradient through time": GtrxlConfig(**{**SMALL, "gradient": 0, "heads": 1, "width": 16}),
    "trxl, normalised sums, no gradient": TrxlConfig(**SMALL, norm="post", gradient=0),
    "trxl, not normalised": TrxlConfig(**SMALL, norm=None),
    "trxl, relative": TrxlConfig(**{**SMALL, "positions": "relative"}),
    "gtrxl, relative, no gradient": GtrxlConfig(
        **{**SMALL, "positions": "relative", "gradient": 0, "heads": 3}
    ),
    "gtrxl, not normalised, no gradient": GtrxlConfig(**SMALL, norm=None, gradient=0),
    "gpt2, one token": Gpt2Config(width=12, layers=2, heads=2, context=5, positions=7),
    "gpt2, two tokens": Gpt2Config(width=12, layers=2, heads=3, context=5, positions=7, tokens="interleaved"),
    "gpt2, one layer": Gpt2Config(width=16, layers=1, heads=1, context=1, tokens="interleaved"),
    "gpt2, three layers": Gpt2Config(width=8, layers=3, heads=1, context=30, tokens="interleaved"),
}
EACH = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)


@EACH
@pytest.mark.parametrize("steps", [1, 4, 45])
def test_gradients(memory, steps):
    actor = BranchConfig(memory=memory, hidden=(9,))
    agent = make_agent(actor, BranchConfig(memory=memory, hidden=(), head_hidden=(7,)))
    assert coverage(agent).complete
    check(agent, make_batch(agent, steps, 6), config())


@EACH
@pytest.mark.parametrize(
    "critic", [PLAIN, BranchConfig(shared=True, head_hidden=(8,))], ids=["own", "shared"]
)
def test_residual_memories_and_shared_critics(memory, critic):
    agent = make_agent(BranchConfig(memory=memory, hidden=(9,), residual=True), critic)
    check(agent, make_batch(agent, 9, 7), config(clip_value=0.2))


@given(data=st.data())
def test_any_shape_and_option(data):
    draw = data.draw
    heads = draw(st.integers(1, 3))
    sizes = {
        # Layer norm of two features is a step function of their difference: rounding decides where.
        "width": heads * draw(st.integers(math.ceil(4 / heads), 20)),
        "heads": heads,
        "layers": draw(st.integers(1, 3)),
        "context": draw(st.integers(1, 20)),
    }
    kind = draw(st.sampled_from([TrxlConfig, GtrxlConfig, Gpt2Config]))
    if kind is Gpt2Config:
        tokens, positions = draw(st.sampled_from(["merged", "interleaved"])), draw(st.integers(1, 30))
        memory = Gpt2Config(**sizes, tokens=tokens, positions=positions)
    else:
        norm, gradient = draw(st.sampled_from(["pre", "post", None])), draw(st.sampled_from([None, 0]))
        positions = draw(st.sampled_from([None, "relative"]))
        memory = kind(**sizes, positions=positions, norm=norm, gradient=gradient)
    branch = BranchConfig(memory=memory, hidden=(9,), reset=draw(st.booleans()))
    critic = draw(st.sampled_from([PLAIN, branch, BranchConfig(shared=True)]))
    agent = make_agent(branch, critic, draw(st.sampled_from(ACTIONS)), seed=draw(st.integers(0, 9)))
    shape = draw(st.integers(1, 40)), draw(st.integers(1, 9))
    check(agent, make_batch(agent, *shape, draw(st.sampled_from([0.0, 0.1, 1.0]))), config())


@EACH
def test_acting_and_values(memory):
    branch = BranchConfig(memory=memory, hidden=(20,), prev_action=True)
    agent = test_acting.make_agent(branch, obs=test_acting.MIXED)
    test_acting.check(agent, test_acting.MIXED, 12, 5, 0.1)


@EACH
def test_acting_and_learning_compute_the_same_bits(memory):
    test_acting.check_bits_of_learning(memory)


@EACH
def test_chunks_of_any_length_have_the_same_values_and_states(memory):
    test_acting.check_chunks(memory)


def test_numbers_of_an_earlier_call_do_not_matter():
    agent = make_agent(*[BranchConfig(memory=GtrxlConfig(**SMALL), hidden=(9,))] * 2)
    check_calls_are_independent(agent)


def test_results_are_equal_to_the_bit_for_all_instruction_sets_and_optimisation_levels():
    relative = {**SMALL, "width": 20, "positions": "relative"}
    actor = BranchConfig(memory=GtrxlConfig(**relative), hidden=(20,))
    gpt2 = Gpt2Config(width=20, layers=2, heads=2, context=5, tokens="interleaved")
    agent = make_agent(actor, BranchConfig(memory=gpt2, hidden=(20,)))
    check_bits_of_builds(agent)


@pytest.mark.parametrize("trained_blocks", [0, 1, None])
@pytest.mark.parametrize("trained_ends", [True, False])
def test_parts_of_a_gpt2_that_are_not_trained(trained_blocks, trained_ends):
    memory = Gpt2Config(
        width=8, layers=2, heads=2, context=4, trained_blocks=trained_blocks, trained_ends=trained_ends
    )
    agent = make_agent(PLAIN, BranchConfig(memory=memory, hidden=(5,)))
    check(agent, make_batch(agent, 11, 5), config())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"positions": "absolute"}, "absolute"),
        ({"gradient": 3}, "bound"),
    ],
)
def test_what_the_kernels_do_not_have(options, reason):
    agent = make_agent(BranchConfig(memory=TrxlConfig(**{**SMALL, **options})), PLAIN)
    with pytest.raises(UnsupportedError, match=reason):
        actor_network(agent)


def test_an_old_cache_is_not_attended_to():
    """The control: with an age above 0 the cache matters, with 0 it does not."""
    agent = test_acting.make_agent(BranchConfig(memory=GtrxlConfig(**SMALL), hidden=(9,)))
    rows = test_acting.make_rollout(agent, test_acting.VECTOR, 3, 4, 0.0).normalized(agent)
    engine = NativeEngine(kernels(), agent, print)
    state = test_acting.random_state(agent, 4)
    empty = agent.initial_state(4)
    fresh = tree.map_leaves(lambda x: x if x.is_floating_point() else torch.zeros_like(x), state.critic)
    young = engine.value(rows, state._replace(critic=fresh))[0]
    assert torch.equal(young, engine.value(rows, empty)[0])
    assert not torch.equal(young, engine.value(rows, state)[0])
