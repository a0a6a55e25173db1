"""Recurrences in C against torch's in float64, and runs of memories that use them."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import recollect
from recollect.agent.agent import BranchConfig
from recollect.common import tree
from recollect.common.errors import UsageError
from recollect.memory import sequences
from recollect.memory.ffm import FfmConfig
from recollect.memory.linear_attention import LinearAttentionConfig
from recollect.memory.mamba import MambaConfig
from recollect.memory.rnn import GruConfig
from recollect.memory.sequences import TORCH
from recollect.native import autograd, library
from recollect.native.sequences import NativeSequences
from recollect.run import api, checkpoint

from ..helpers import set_status
from ..memory import test_linear_memories as papers
from ..memory.test_rnn import assert_alike
from .cases import kernels
from .test_training import run, weights

MEMORIES = ("lru", "ffm", "shm", "mamba", "linear_attention", "deltanet", "mlstm", "slstm")
METHODS = [name for name in vars(sequences.TorchSequences) if not name.startswith("_") and name != "name"]
STATES = {"exponential": 2, "gated": 4}
sizes = st.integers(1, 19)


@pytest.fixture(autouse=True)
def _seeded():
    kernels()
    torch.manual_seed(0)


@pytest.fixture
def without_torch(monkeypatch):
    """Torch's recurrences fail, so that what passes was computed by the kernels."""
    for name in METHODS:
        monkeypatch.setattr(sequences.TorchSequences, name, lambda *_: pytest.fail("torch computed it"))


def single(state):
    return tree.map_leaves(lambda s: s.float() if s.is_floating_point() else s, state)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_memory_equals_the_formulas_of_its_paper(name, layers):
    """Outputs, end states and gradients, over several episodes."""
    net = papers.built(name, layers)
    first = torch.rand(37, 4) < torch.tensor([0.0, 0.05, 0.3, 1.0])
    x, start = torch.randn(*first.shape, papers.IN), papers.start_of(name, net, 4)
    expected = papers.everything(net, papers.plain(name, net), x.double(), start, first)
    net = net.float()
    sequences.use(NativeSequences(), net)
    assert_alike(papers.everything(net, net, x, single(start), first), expected, 1e-4)


# Every recurrence, by any shape ---------------------------------------------------------------


def resets(steps, batch):
    return torch.rand(steps, batch) < torch.rand(batch)


def part_of_a_product(*shape):
    """A tensor whose rows lie apart from each other, as the parts of a split do."""
    numbers = math.prod(shape[2:])
    return torch.randn(*shape[:2], 5 + numbers)[..., 2 : 2 + numbers].unflatten(2, shape[2:])


def trained_copy(x, dtype):
    """An argument that gets a gradient; numbers and booleans are left as they are."""
    if isinstance(x, float) or x.dtype == torch.bool:
        return x
    return x.to(dtype).detach().requires_grad_()


def compare(method, *arguments):
    """Results and gradients of all arguments but booleans, in float32 by C and in float64 by torch."""
    results = []
    for implementation, dtype in ((NativeSequences(), torch.float32), (TORCH, torch.float64)):
        leaves = [trained_copy(x, dtype) for x in arguments]
        parts = STATES.get(method)  # the last ones, which are one argument
        given = (*leaves[:-parts], tuple(leaves[-parts:])) if parts else leaves
        outputs = tree.leaves(getattr(implementation, method)(*given))
        # Not equal weights, so that no two numbers may change places.
        loss = sum((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() for y in outputs.values())
        trained = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        pairs = enumerate(zip(trained, gradients, strict=True))
        results.append(
            outputs | {f"gradient {i}": torch.zeros_like(x) if g is None else g for i, (x, g) in pairs}
        )
    assert_alike(*({k: x.detach().double() for k, x in result.items()} for result in results), 1e-4)


@settings(max_examples=25)
@given(steps=sizes, batch=st.integers(1, 4), units=sizes)
def test_scans(steps, batch, units):
    first, h = resets(steps, batch), torch.randn(batch, units)
    compare("linear", torch.rand(steps, batch, units), torch.randn(steps, batch, units), first, h)
    pairs = torch.randn(steps, batch, 2 * units), first, torch.randn(batch, 2 * units)
    compare("oscillating", torch.rand(2 * units) / 2, *pairs)


@settings(max_examples=25)
@given(steps=sizes, batch=st.integers(1, 4), channels=sizes, taps=st.integers(2, 6))
def test_convolutions(steps, batch, channels, taps):
    x, past = part_of_a_product(steps, batch, channels), torch.randn(batch, taps - 1, channels)
    compare("convolution", x, torch.randn(taps, channels), resets(steps, batch), past)


@settings(max_examples=40)
@given(
    steps=sizes,
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    keys=sizes,
    values=sizes,
    shared=st.booleans(),
)
def test_matrix_memories(steps, batch, heads, keys, values, shared):
    shape = torch.Size([steps, batch, heads])
    first, log_decay = resets(steps, batch), -torch.rand(shape)
    value, state = part_of_a_product(*shape, values), torch.randn(batch, heads, keys, values)
    query, key = (part_of_a_product(steps, batch, 1 if shared else heads, keys) for _ in range(2))
    compare("outer", query, key, value, torch.rand(shape), log_decay, first, state)
    if not shared:
        compare("delta", query, key, value, torch.rand(shape), log_decay, first, state)


@settings(max_examples=25)
@given(steps=sizes, batch=st.integers(1, 3), heads=st.integers(1, 3), values=sizes)
def test_exponential_gates(steps, batch, heads, values):
    shape = torch.Size([steps, batch, heads])
    # Positive, so that no sum of weights is near 0, where rounding changes its inverse at will.
    query, key = (part_of_a_product(*shape, values).abs() for _ in range(2))
    gates = 5 * torch.randn(shape), -5 * torch.rand(shape)
    state = torch.rand(batch, heads, values, values + 1), torch.randn(batch, heads)
    first = resets(steps, batch)
    compare("exponential", query, key, part_of_a_product(*shape, values), *gates, first, *state)


@settings(max_examples=25)
@given(steps=sizes, batch=st.integers(1, 3), heads=st.integers(1, 3), units=st.integers(1, 35))
def test_gates_that_see_the_output(steps, batch, heads, units):
    x, weight = torch.randn(steps, batch, heads, 4 * units), torch.randn(heads, units, 4 * units) / 4
    h, c, m = torch.randn(3, batch, heads, units)
    # A normaliser near 0 would change its inverse at will.
    compare("gated", 2 * x, weight, resets(steps, batch), h, c, 0.5 + torch.rand_like(c), m)


@settings(max_examples=25)
@given(steps=sizes, batch=st.integers(1, 3), channels=st.integers(1, 70))
def test_gated_norms(steps, batch, channels):
    x, gate = 3 * torch.randn(steps, batch, channels), part_of_a_product(steps, batch, channels)
    compare("gated_norm", x, 3 * gate, torch.randn(channels), 1e-5)


def test_a_wrong_decay_is_noticed():
    """The control of the comparisons above."""
    arguments = (
        torch.rand(5, 2, 3),
        torch.randn(5, 2, 3),
        torch.zeros(5, 2, dtype=torch.bool),
        torch.randn(2, 3),
    )
    wrong = NativeSequences().linear(arguments[0] * 1.001, *arguments[1:])
    with pytest.raises(AssertionError):
        assert_alike({"y": wrong}, {"y": TORCH.linear(*arguments)}, 1e-4)


def test_keys_of_zeros_have_a_gradient():
    shape = torch.Size([3, 2, 2])
    zeros = torch.zeros(*shape, 5)
    beta, first = torch.rand(shape), torch.zeros(3, 2, dtype=torch.bool)
    compare(
        "delta",
        zeros,
        zeros,
        torch.randn(*shape, 4),
        beta,
        -torch.rand(shape),
        first,
        torch.randn(2, 2, 5, 4),
    )


def test_large_gates_overflow_nowhere():
    shape = torch.Size([4, 1, 1])
    parts = [torch.randn(*shape, 3, requires_grad=True) for _ in range(3)]
    gates = torch.full(shape, 200.0, requires_grad=True), torch.full(shape, -1e-3, requires_grad=True)
    first = torch.tensor([False, True, False, True])[:, None]
    state = torch.randn(1, 1, 3, 4), torch.full((1, 1), 300.0)
    h, _ = NativeSequences().exponential(*parts, *gates, first, state)
    gradients = torch.autograd.grad(h.sum(), [*parts, *gates])
    assert h.isfinite().all() and all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", ["deltanet", "slstm"])
def test_bits_do_not_depend_on_the_optimisation_level(name, monkeypatch):
    net = papers.built(name).float()
    sequences.use(NativeSequences(), net)
    first, x = resets(40, 3), torch.randn(40, 3, papers.IN)
    results = []
    for level in ("-O1", "-O3"):
        built = library.load(flags=[level if flag == "-O3" else flag for flag in library.FLAGS])
        monkeypatch.setattr(autograd, "library", lambda built=built: built)
        results.append(papers.everything(net, net, x, net.initial_state(3), first))
    assert all(torch.equal(one, other) for one, other in zip(*(r.values() for r in results), strict=True))


def test_acting_equals_learning_to_the_bit():
    """One sequence at a time, because torch's products of other shapes are rounded differently."""
    state, first = torch.randn(1, 2, 8, 8), torch.tensor([False] * 5 + [True] + [False] * 6)[:, None]
    parts = torch.randn(3, 12, 1, 2, 8)
    beta, log_decay = torch.rand(12, 1, 2), -torch.rand(12, 1, 2)
    whole, end = NativeSequences().delta(*parts, beta, log_decay, first, state)
    for t in range(12):
        now = slice(t, t + 1)
        one, state = NativeSequences().delta(*parts[:, now], beta[now], log_decay[now], first[now], state)
        assert torch.equal(one, whole[now])
    assert torch.equal(state, end)


def test_other_types_take_torch():
    arguments = torch.rand(5, 2, 3), torch.randn(5, 2, 3), resets(5, 2), torch.randn(2, 3)
    double = [x if x.dtype == torch.bool else x.double() for x in arguments]
    assert torch.equal(NativeSequences().linear(*double), TORCH.linear(*double))


def test_the_default_type_of_torch_changes_nothing():
    arguments = torch.rand(5, 2, 3), torch.randn(5, 2, 3), resets(5, 2), torch.randn(2, 3)
    expected = NativeSequences().linear(*arguments)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(NativeSequences().linear(*arguments), expected)
        compare("convolution", torch.randn(5, 2, 3), torch.randn(4, 3), arguments[2], torch.randn(2, 3, 3))
    finally:
        torch.set_default_dtype(torch.float32)


def test_expanded_heads_have_a_gradient_each():
    key = torch.randn(5, 2, 1, 4).expand(5, 2, 3, 4)
    first, value, state = resets(5, 2), torch.randn(5, 2, 3, 6), torch.randn(2, 3, 4, 6)
    compare("outer", key, key, value, torch.rand(5, 2, 3), -torch.rand(5, 2, 3), first, state)


def test_small_keys_keep_their_direction():
    """Silu of -20 is -4e-8; a key of such numbers is divided by its length."""
    x, first = -20 - torch.rand(6, 2, 5), torch.zeros(6, 2, dtype=torch.bool)
    taps, past = torch.zeros(4, 5).index_fill(0, torch.tensor(0), 1.0), torch.zeros(2, 3, 5)
    y, expected = (s.convolution(x, taps, first, past)[0] for s in (NativeSequences(), TORCH))
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=0.0)


def test_other_shapes_are_refused():
    """They would be read beyond their end."""
    first, add, h = resets(5, 2), torch.randn(5, 2, 3), torch.randn(2, 3)
    with pytest.raises(ValueError, match=r"has the shape \(5, 2, 1\); it must be \(5, 2, 3\)"):
        NativeSequences().linear(torch.rand(5, 2, 1), add, first, h)
    with pytest.raises(ValueError, match=r"torch\.bool"):
        NativeSequences().linear(add, add, first.float(), h)
    query, value, state = torch.randn(5, 2, 2, 4), torch.randn(5, 2, 2, 3), torch.randn(2, 2, 4, 3)
    with pytest.raises(ValueError, match=r"has the shape \(2, 2, 3, 4\)"):
        NativeSequences().outer(query, query, value, None, -torch.rand(5, 2, 2), first, state.mT)
    with pytest.raises(ValueError, match=r"has the shape \(5, 2, 3, 4\)"):
        other = torch.randn(5, 2, 3, 4)
        NativeSequences().outer(query, other, value, None, -torch.rand(5, 2, 2), first, state)


# Runs -----------------------------------------------------------------------------------------


def of_memory(memory):
    return {part: BranchConfig(memory=memory, hidden=(8,)) for part in ("actor", "critic")}


FFM = of_memory(FfmConfig(width=8, memory_size=4))
BY_TORCH = {
    "ffm": FFM,
    "linear_attention": of_memory(LinearAttentionConfig(width=8, heads=2)),
    "mamba, a2c": of_memory(MambaConfig(width=8, headdim=4)) | {"algorithm": "a2c"},
}


@pytest.mark.parametrize("changes", BY_TORCH.values(), ids=BY_TORCH)
def test_a_run_records_them_and_resumes_to_the_bit(tmp_path, monkeypatch, capsys, changes):
    trained, again = (run(tmp_path, name, kernels="auto", **changes) for name in "ab")
    assert trained.summary["kernels"] == f"torch, sequences {library.version()}"
    assert "kernels:" not in capsys.readouterr().out
    by_torch = run(tmp_path, "torch", kernels="torch", **changes)
    assert by_torch.summary["kernels"] == "torch"
    assert torch.allclose(weights(trained), weights(by_torch), atol=1e-2)
    assert not torch.equal(weights(trained), weights(by_torch))
    checkpoint.existing(again.folder / "checkpoints")[-1].unlink()
    set_status(again.folder)
    monkeypatch.setattr("recollect.native.library.version", lambda: "another")
    monkeypatch.setattr("recollect.native.sequences.version", lambda: "another")
    with pytest.raises(UsageError, match="--kernels torch"):
        api.resume(again.folder)
    monkeypatch.undo()
    assert torch.equal(weights(api.resume(again.folder)), weights(trained))


@pytest.mark.parametrize("changes", BY_TORCH.values(), ids=BY_TORCH)
def test_a_trained_agent_is_computed_like_one_from_a_file(tmp_path, changes):
    trained = run(tmp_path, rollouts=2, kernels="auto", **changes)
    assert {m.sequences for m in sequences.sequence_memories(trained.agent)} == {TORCH}
    assert trained.evaluate(5).returns == recollect.load(trained.folder).evaluate(5).returns


@pytest.mark.usefixtures("without_torch")
def test_a_branch_that_torch_computes_beside_a_native_one_has_them(tmp_path, capsys):
    branches = FFM | {"critic": BranchConfig(memory=GruConfig(width=8), hidden=(8,))}
    trained = run(tmp_path, rollouts=2, kernels="native", **branches)
    assert trained.summary["kernels"] == f"native {library.version()}, critic only"


def test_agents_without_such_a_memory_need_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr("recollect.run.kernels.load", lambda *_: pytest.fail("loaded"))
    trained = run(tmp_path, rollouts=1, kernels="auto", algorithm="a2c")
    assert trained.summary["kernels"] == "torch"


def test_without_a_compiler_torch_computes_them(tmp_path, monkeypatch, capsys):
    def unavailable(*_):
        raise library.UnavailableError("no AVX2")

    monkeypatch.setattr(library, "target", unavailable)
    trained = run(tmp_path, rollouts=1, kernels="auto", **FFM)
    assert capsys.readouterr().out.count("kernels: torch; the native ones cannot be used: no AVX2") == 1
    assert trained.summary["kernels"] == "torch"


def test_copies_of_an_agent_keep_them():
    net = papers.built("mlstm").float()
    sequences.use(NativeSequences(), net)
    copied = copy.deepcopy(net)
    assert all(m.sequences.name == NativeSequences().name for m in sequences.sequence_memories(copied))
