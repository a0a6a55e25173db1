"""Memories of residual blocks by the kernels: gradients against autograd in float64, acting, bits."""

import copy

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recollect.agent.agent import BranchConfig
from recollect.memory.deltanet import DeltaNet, DeltaNetConfig
from recollect.memory.layers import Chain
from recollect.memory.lmu import Lmu
from recollect.memory.lru import Lru, LruConfig
from recollect.memory.mamba import Mamba, MambaConfig
from recollect.memory.rnn import GruConfig
from recollect.native.program import coverage

from . import test_acting
from .cases import ACTIONS, by_autograd, check, config, distance, make_agent, make_batch, native, reference
from .test_gradients import PLAIN, check_bits_of_builds, check_calls_are_independent

MEMORIES = {
    "lru": LruConfig(width=12, units=9),
    "lru, two layers": LruConfig(width=19, units=16, layers=2),
    "deltanet": DeltaNetConfig(width=12, heads=3),
    "deltanet, one head": DeltaNetConfig(width=19, heads=1),
    "deltanet, many heads, two layers": DeltaNetConfig(width=40, heads=20, layers=2),
    "mamba": MambaConfig(width=12, d_state=7, headdim=8),
    "mamba, one head": MambaConfig(width=19, d_state=3, expand=1, headdim=19),
    "mamba, heads of one channel": MambaConfig(width=9, d_state=1, headdim=1),
    "mamba, long keys, two layers": MambaConfig(width=16, d_state=37, headdim=4, layers=2),
}
# Of the whole gradient, and of that of each parameter: some are small beside the whole. Norms of a few
# numbers, and keys divided by their length, amplify rounding: autograd in float32 is off by up to 1.5e-4.
LIMIT, LIMIT_EACH = 5e-4, 2e-3
EACH = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)


def check_each(agent, batch, cfg, amplified=1):
    """Assert that the kernels compute what autograd computes in float64, for every parameter.

    amplified  factor of both limits
    """
    check(agent, batch, cfg, amplified * LIMIT)
    gradients = native(agent, batch, cfg)[1], reference(agent, batch, cfg)[1]
    names, parameters = zip(*agent.named_parameters(), strict=True)
    parts = (gradient.split([p.numel() for p in parameters]) for gradient in gradients)
    for name, x, expected in zip(names, *parts, strict=True):
        assert (x.double() - expected).norm() <= amplified * LIMIT_EACH * expected.norm() + 1e-9, name


@EACH
@pytest.mark.parametrize("steps", [1, 4, 45])
def test_gradients(memory, steps):
    agent = make_agent(
        BranchConfig(memory=memory, hidden=(9,)), BranchConfig(memory=memory, hidden=(), head_hidden=(7,))
    )
    assert coverage(agent).complete
    check_each(agent, make_batch(agent, steps, 6), config())


@EACH
@pytest.mark.parametrize(
    "critic", [PLAIN, BranchConfig(shared=True, head_hidden=(8,))], ids=["own", "shared"]
)
def test_residual_memories_and_shared_critics(memory, critic):
    agent = make_agent(BranchConfig(memory=memory, hidden=(9,), residual=True), critic)
    check_each(agent, make_batch(agent, 9, 7), config(clip_value=0.2))


@given(data=st.data())
def test_any_shape_and_option(data):
    draw = data.draw
    layers = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["lru", "deltanet", "mamba"]))
    if kind == "lru":
        # Layer norm of two features is a step function of their difference: rounding decides where.
        memory = LruConfig(width=draw(st.integers(4, 40)), units=draw(st.integers(1, 40)), layers=layers)
    elif kind == "mamba":
        width, expand = draw(st.integers(4, 40)), draw(st.integers(1, 3))
        heads = draw(st.sampled_from([n for n in range(1, 25) if expand * width % n == 0]))
        memory = MambaConfig(
            width=width,
            d_state=draw(st.integers(1, 40)),
            expand=expand,
            headdim=expand * width // heads,
            layers=layers,
        )
    else:
        heads = draw(st.integers(1, 18))
        memory = DeltaNetConfig(width=heads * draw(st.integers(4, 20)), heads=heads, layers=layers)
    branch = BranchConfig(memory=memory, hidden=(9,), reset=draw(st.booleans()))
    critic = draw(st.sampled_from([PLAIN, branch, BranchConfig(shared=True)]))
    agent = make_agent(branch, critic, draw(st.sampled_from(ACTIONS)), seed=draw(st.integers(0, 9)))
    shape = draw(st.integers(1, 40)), draw(st.integers(1, 9))
    batch = make_batch(agent, *shape, draw(st.sampled_from([0.0, 0.1, 1.0])))
    # Some of these amplify rounding by far, as autograd in float32 shows: keys are divided by their lengths.
    exact, rounded = (f(copy.deepcopy(agent), batch, config())[1] for f in (reference, by_autograd))
    rounding = distance(rounded, exact)
    assume(rounding < 2e-3)
    check_each(agent, batch, config(), amplified=max(10 if kind == "deltanet" else 1, 10 * rounding / LIMIT))


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


@EACH
def test_numbers_of_an_earlier_call_do_not_matter(memory):
    branch = BranchConfig(memory=memory, hidden=(9,))
    check_calls_are_independent(make_agent(branch, branch))


@EACH
def test_results_are_equal_to_the_bit_for_all_instruction_sets_and_optimisation_levels(memory):
    branch = BranchConfig(memory=memory, hidden=(20,))
    check_bits_of_builds(make_agent(branch, branch))


@pytest.mark.parametrize(
    "layer",
    [Lmu(12, 12, 5, 7), Lru(12, 9, 0.5, 0.9), DeltaNet(12, 3), Mamba(12, 7, 24, 8)],
    ids=lambda m: type(m).__name__,
)
def test_weights_that_are_not_trained_take_torch(layer):
    """In a chain, as a third-party memory may have them; the kernels write the gradients of all of them."""
    agent = make_agent(BranchConfig(memory=GruConfig(width=12), hidden=(12,)), PLAIN)
    agent.actor.memory = Chain([layer])
    assert coverage(agent).complete
    next(layer.parameters()).requires_grad_(False)
    covered = coverage(agent)
    assert covered.critic and not covered.actor and "not trained" in covered.reason
