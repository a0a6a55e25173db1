"""Recurrent memories against plain loops, one step of torch's own cells after another."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.common import tree
from recollect.memory import kernels, scan
from recollect.memory.rnn import Gru, GruConfig, Lstm, LstmConfig, MinGruConfig

KINDS = {kind.name: kind for kind in (GruConfig, LstmConfig, MinGruConfig)}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
IN, H = 3, 4
# Columns of one batch, time from left to right; 1 opens an episode.
COLUMNS = ["........", "1.......", ".1......", ".......1", "..11....", "11111111", "1.1.11.1", ".....1.."]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def built(kind, layers=1, in_dim=IN, width=H, dtype=torch.float64):
    """A memory with weights and biases far from 0."""
    memory = kind(width=width, layers=layers).build(in_dim)
    with torch.no_grad():
        for p in memory.parameters():
            p += 0.3 * torch.randn(p.shape)
    return memory.to(dtype)


def flags(columns):
    return torch.tensor([[mark == "1" for mark in column] for column in columns]).T


def inputs(first, in_dim=IN, dtype=torch.float64):
    return torch.randn(*first.shape, in_dim, dtype=torch.float64).to(dtype)


def past(memory, batch):
    """A state of rows that remember something; every leaf of it can have a gradient."""
    start = memory.initial_state(batch)
    return tree.map_leaves(lambda x: torch.randn(x.shape, dtype=torch.float64).to(x.dtype), start)


# A loop over rows -----------------------------------------------------------------------------


def step(layer, x, state):
    """What a layer remembers after one row (B, in); what it says comes first."""
    if isinstance(layer, Gru):
        said = torch.cat([torch.zeros_like(layer.bias)[: 2 * layer.out_dim], layer.recalled])
        return (torch.gru_cell(x, *state, layer.input, layer.recurrent, layer.bias, said),)
    if isinstance(layer, Lstm):
        return torch.lstm_cell(x, state, layer.input, layer.recurrent, layer.bias, None)
    gate, candidate = (x @ layer.input.T + layer.bias).chunk(2, -1)
    z = torch.sigmoid(gate)
    return ((1 - z) * state[0] + z * candidate,)


def plain(memory, x, state, first):
    """The same as the memory, row by row and layer by layer."""
    layers, said = list(memory.layers), []
    for x_t, first_t in zip(x, first, strict=True):
        after = []
        for layer, before in zip(layers, state, strict=True):
            cleared = tuple(torch.where(first_t[:, None], 0.0, part) for part in before)
            after.append(step(layer, x_t, cleared))
            x_t = after[-1][0]
        state = tuple(after)
        said.append(x_t)
    return torch.stack(said), state


def everything(memory, run, x, start, first):
    """Outputs, end states, and gradients of x, of the start and of all weights."""
    x, start = x.clone().requires_grad_(), tree.map_leaves(lambda s: s.clone().requires_grad_(), start)
    y, end = run(x, start, first)
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=x.dtype)
    for part in (y, *tree.leaves(end).values()):
        weight = torch.randn(part.shape, generator=generator, dtype=torch.float64)
        loss = loss + (part * weight.to(x.dtype)).sum()
    leaves = {"x": x, **tree.leaves(start, "start"), **dict(memory.named_parameters())}
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    found = {"y": y.detach(), **tree.leaves(end, "end")}
    return found | {f"gradient of {k}": g for k, g in zip(leaves, gradients, strict=True)}


def assert_alike(found, wanted, tolerance):
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        scale = max(1.0, float(x.detach().abs().max()))
        away = float((found[name] - x).detach().abs().max()) / scale
        assert found[name].shape == x.shape and away < tolerance, f"{name} is {away:.2g} away"


def assert_a_loop_says_the_same(memory, x, first):
    start = past(memory, first.shape[1])
    wanted = everything(memory, lambda *args: plain(memory, *args), x, start, first)
    assert_alike(everything(memory, memory, x, start, first), wanted, 1e-10)


@every_kind
@pytest.mark.parametrize("layers", [1, 2])
def test_a_sequence_equals_its_steps_with_episodes_of_every_pattern(kind, layers):
    memory = built(kind, layers)
    single = [[column] for column in COLUMNS]
    for columns in (COLUMNS, *single, [".", "1", "."], ["."], ["1"]):
        first = flags(columns)
        assert_a_loop_says_the_same(memory, inputs(first), first)


@st.composite
def episodes(draw):
    """Random ends (T, B)."""
    steps, batch = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    rows = st.lists(st.booleans(), min_size=steps * batch, max_size=steps * batch)
    return torch.tensor(draw(rows)).view(steps, batch)


@every_kind
@given(first=episodes(), layers=st.integers(1, 2), scale=st.sampled_from([1.0, 1e3]))
def test_a_sequence_equals_its_steps(kind, first, layers, scale):
    torch.manual_seed(0)  # for every example
    assert_a_loop_says_the_same(built(kind, layers), scale * inputs(first), first)


@every_kind
@pytest.mark.parametrize("layers", [1, 2])
def test_strides_change_nothing(kind, layers):
    memory, first = built(kind, layers), flags(COLUMNS[:5])
    x, start = inputs(first), past(memory, 5)
    odd = tree.map_leaves(lambda s: s.T.contiguous().T, start)
    wanted = memory(x, start, first)
    found = memory(x.permute(2, 1, 0).contiguous().permute(2, 1, 0), odd, first.T.contiguous().T)
    assert_alike(tree.leaves(found), tree.leaves(wanted), 1e-12)
    # The gradient of a sum is one number without strides of its own.
    x.requires_grad_()
    once, slow = (torch.autograd.grad(run(x)[0].sum(), x) for run in runs(memory, start, first))
    torch.testing.assert_close(once, slow, rtol=1e-10, atol=1e-10)


def runs(memory, start, first):
    return (lambda x: memory(x, start, first)), (lambda x: plain(memory, x, start, first))


@every_kind
def test_single_precision_is_as_near_as_it_can_be(kind):
    first = torch.rand(32, 6) < 0.1
    exact = built(kind, 2, in_dim=8, width=16)
    fast = kind(width=16, layers=2).build(8)
    fast.load_state_dict(exact.state_dict())
    x, start = inputs(first, 8), past(exact, 6)
    wanted = everything(exact, exact, x, start, first)
    single = everything(fast, fast, x.float(), tree.map_leaves(torch.Tensor.float, start), first)
    assert all(part.dtype == torch.float32 for part in single.values())
    assert_alike(single, wanted, 5e-6)


# Episodes apart -------------------------------------------------------------------------------


def two_pasts(memory, first, scale, dtype):
    """The same rows, but before the last opening of each column, and in the state, others."""
    x, other = inputs(first, dtype=dtype), scale * inputs(first, dtype=dtype)
    after = first.flip(0).cumsum(0).flip(0) - first.long() == 0  # rows from the last opening on
    after &= first.any(0)
    return x, torch.where(after[..., None], x, other), after


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("learning", [False, True])
def test_nothing_is_left_of_another_episode(kind, dtype, scale, learning):
    """To the last bit: whatever was before, what is after a reset does not move."""
    memory, first = built(kind, 2, dtype=dtype), flags(COLUMNS)
    x, other, after = two_pasts(memory, first, scale, dtype)
    loud = tree.map_leaves(lambda s: scale * s, past(memory, len(COLUMNS)))
    with torch.set_grad_enabled(learning):
        y, end = memory(x, past(memory, len(COLUMNS)), first)
        again, last = memory(other, loud, first)
    assert torch.equal(y[after], again[after])
    opened = first.any(0)
    for a, b in zip(tree.leaves(end).values(), tree.leaves(last).values(), strict=True):
        assert torch.equal(a[opened], b[opened])
        assert not torch.equal(a[~opened], b[~opened])
    assert again.isfinite().all() and not torch.equal(y[~after], again[~after])


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reset_makes_a_row_fresh(kind, dtype):
    memory, first = built(kind, 2, dtype=dtype), flags(["....1..."] * 3)
    x = inputs(first, dtype=dtype)
    y, end = memory(1e3 * x, past(memory, 3), first)
    fresh, last = memory(1e3 * x[4:], memory.initial_state(3), torch.zeros_like(first[4:]))
    exact = 1e-6 if dtype == torch.float32 else 1e-14
    assert_alike(tree.leaves((y[4:], end)), tree.leaves((fresh, last)), exact)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_gradient_goes_over_a_reset(kind, dtype):
    memory, first = built(kind, 2, dtype=dtype), flags(COLUMNS)
    x, _, after = two_pasts(memory, first, 1.0, dtype)
    start = tree.map_leaves(torch.Tensor.requires_grad_, past(memory, len(COLUMNS)))
    x.requires_grad_()
    y, end = memory(x, start, first)
    opened = first.any(0)
    loss = y[after].sum() + sum(part[opened].sum() for part in tree.leaves(end).values())
    of_x, *of_start = torch.autograd.grad(loss, [x, *tree.leaves(start).values()])
    assert (of_x[~after] == 0).all() and of_x[after].any(-1).all()
    assert all((part == 0).all() for part in of_start)
    # The control: where no episode opens, the gradient reaches all the way back.
    *reached, far = torch.autograd.grad(memory(x, start, first)[0][-1, 0].sum(), [*flat(start), x])
    assert far[0, 0].any() and all(part[0].any() for part in reached)


def flat(state):
    return list(tree.leaves(state).values())


def test_an_lstm_reads_no_more_rows_than_the_column_with_most_resets_needs(monkeypatch):
    lengths, run = [], torch.lstm

    def counting(x, *arguments):
        lengths.append(len(x))
        return run(x, *arguments)

    monkeypatch.setattr(torch, "lstm", counting)
    memory = built(LstmConfig)
    for columns, wanted in (
        (["........"], 8),
        (["1......."], 8),  # what a column begins with costs nothing
        (["...1....", "........"], 9),
        (["...1....", ".1.1.1.1", "........"], 12),
        (["11111111"], 15),
    ):
        first = flags(columns)
        memory(inputs(first), past(memory, len(columns)), first)
        assert lengths.pop() == wanted and not lengths


# Kernels --------------------------------------------------------------------------------------


def gru_arguments(steps=5, batch=3, width=2):
    shapes = (steps, batch, 3 * width), (3 * width, width), (width,), (batch, width)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    keep = (torch.rand(steps, batch, 1) < 0.7).double()
    assert 0 < keep.sum() < keep.numel()
    return leaves, (keep,)


def linear_arguments(steps=5, batch=3, width=2):
    shapes = (steps, batch, width), (steps, batch, width), (batch, width)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    with torch.no_grad():
        leaves[0][2, 1] = 0.0  # a reset
    return leaves, ()


def elman_arguments(steps=5, batch=3, width=2):
    shapes = (steps, batch, width + 1), (width + 1, width + 1), (batch, width + 1)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    keep = (torch.rand(steps, batch, 1) < 0.7).double()
    return leaves, (keep,)


def half_linear(kernel):
    return lambda *arguments: kernel(*arguments, 1)


PAIRS = {
    "elman": (kernels.elman, kernels.elman_reference, elman_arguments),
    "elman, half linear": (
        half_linear(kernels.elman),
        half_linear(kernels.elman_reference),
        elman_arguments,
    ),
    "rectified": (scan.rectified, scan.rectified_reference, linear_arguments),
    "gru": (kernels.gru, kernels.gru_reference, gru_arguments),
    "linear": (scan.linear, scan.linear_reference, linear_arguments),
}
every_kernel = pytest.mark.parametrize(("fast", "slow", "arguments"), PAIRS.values(), ids=PAIRS)


@every_kernel
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (7, 1), (7, 4)])
def test_a_kernel_equals_its_reference(fast, slow, arguments, steps, batch):
    leaves, rest = arguments()
    small = [x[:steps, :batch] if x.ndim == 3 else x for x in leaves]
    small[-1] = leaves[-1][:batch]
    rest = tuple(x[:steps, :batch] for x in rest)
    y, wanted = fast(*small, *rest), slow(*small, *rest)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    weight = torch.randn(wanted.shape, dtype=torch.float64)
    found, expected = (torch.autograd.grad((out * weight).sum(), leaves) for out in (y, wanted))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


@every_kernel
def test_gradients_of_a_kernel_by_differences(fast, slow, arguments):
    leaves, rest = arguments(steps=4, batch=2)
    assert torch.autograd.gradcheck(lambda *x: fast(*x, *rest), leaves)


@every_kernel
@pytest.mark.parametrize("width", [1, 2])  # a transposed matrix of one column is contiguous already
def test_a_kernel_changes_none_of_its_arguments(fast, slow, arguments, width):
    leaves, rest = arguments(width=width)
    before = [x.detach().clone() for x in (*leaves, *rest)]
    fast(*leaves, *rest).square().sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(before, (*leaves, *rest), strict=True))


# Settings -------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(("in_dim", "width"), [(3, 5), (5, 3), (4, 4)])
def test_every_block_begins_orthogonal_by_itself(kind, in_dim, width):
    (layer,) = kind(width=width).build(in_dim).layers
    for weight in (p.detach() for p in layer.parameters() if p.ndim == 2):
        blocks = weight.split(width)
        for block in blocks:
            short = block if width <= block.shape[1] else block.T
            torch.testing.assert_close(short @ short.T, torch.eye(len(short)), rtol=0, atol=1e-5)
        assert len(blocks) > 1 and not torch.allclose(blocks[0], blocks[1]), "the blocks are one"


@pytest.mark.parametrize("keep", [1.0, 0.0, -2.0])
@every_kind
def test_what_is_kept_at_the_start(kind, keep):
    """Where nothing is read and nothing heard, sigmoid(keep) of what is remembered stays in each row."""
    memory = kind(width=4, keep=keep).build(3)
    with torch.no_grad():
        for p in memory.parameters():
            p *= p.ndim == 1
    start = past(memory, 2)
    _, end = memory(torch.zeros(5, 2, 3), start, torch.zeros(5, 2, dtype=torch.bool))
    kept, wanted = (flat(state)[-1] for state in (end, start))  # of an LSTM it is c
    torch.testing.assert_close(kept, wanted * torch.sigmoid(torch.tensor(keep)) ** 5)


@every_kind
def test_layers_read_one_another_and_widths_are_kept(kind):
    memory = kind(width=5, layers=3).build(2)
    assert [layer.input.shape[1] for layer in memory.layers] == [2, 5, 5]
    assert memory.out_dim == 5 and memory.reach is None
    assert len(memory.initial_state(4)) == 3
