"""Memories with fast sequences against the formulas of their papers, one step after another in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import memory
from recollect.common import tree
from recollect.common.errors import UsageError
from recollect.memory import matrix, scan
from recollect.memory.elman import IndRnn, limited
from recollect.memory.lmu import legendre

from .test_rnn import assert_alike, past

SMALL = {
    "rnn": {},
    "indrnn": {},
    "lmu": {"order": 5, "theta": 9},
    "lru": {"units": 6},
    "ffm": {"memory_size": 3, "context_size": 2},
    "shm": {"memory_size": 3, "thetas": 5},
    "linear_attention": {"heads": 2},
    "deltanet": {"heads": 2},
    "mamba": {"d_state": 3, "headdim": 4},
    "mlstm": {"heads": 2},
    "slstm": {"heads": 2},
}
every_memory = pytest.mark.parametrize("name", SMALL)
IN, WIDTH = 3, 8


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def built(name, layers=1):
    """A memory with weights and biases far from their start."""
    net = memory.find(name)(width=WIDTH, layers=layers, **SMALL[name]).build(IN).double()
    with torch.no_grad():
        for p in net.parameters():
            p += 0.3 * torch.randn(p.shape)
        for layer in net.modules():
            if isinstance(layer, IndRnn):  # outside, its gradient is not that of the formula
                layer.recurrent.clamp_(-1, 1)
    return net


# The papers' steps: (layer, x (B, in), state) -> y (B, out), state -----------------------------


def rnn(m, x, state):
    h = torch.tanh(x @ m.input.T + state[0] @ m.recurrent.T + m.bias)
    return h, (h,)


def indrnn(m, x, state):
    h = torch.relu(x @ m.input.T + m.recurrent.clamp(-1, 1) * state[0] + m.bias)
    return h, (h,)


def lmu(m, x, state):
    h, coefficients = state
    u = x @ m.encode_input.T + h @ m.encode_hidden.T + coefficients @ m.encode_memory.T
    coefficients = coefficients @ m.a.T + u @ m.b.T
    h = torch.tanh(x @ m.input.T + h @ m.recurrent.T + coefficients @ m.memory.T + m.bias)
    return h, (h, coefficients)


def lru(m, x, state):
    """In real numbers: a rotation and a shrinkage of each pair."""
    real, imaginary = state[0].chunk(2, -1)
    size, angle = torch.exp(-torch.exp(m.nu)), torch.exp(m.theta)
    into = (x @ m.b.T) * torch.exp(m.gamma).repeat(2)
    cosine, sine = size * torch.cos(angle), size * torch.sin(angle)
    h = torch.cat([cosine * real - sine * imaginary, sine * real + cosine * imaginary], -1) + into
    a, g = m.gate(F.gelu(h @ m.c.T + m.d * x)).chunk(2, -1)
    return a * torch.sigmoid(g), (h,)


def ffm(m, x, state):
    value, write, gate, skip = m.input(x).split([m.sizes[0]] * 2 + [WIDTH] * 2, -1)
    real, imaginary = (part.unflatten(1, m.sizes) for part in state[0].chunk(2, -1))
    size = torch.exp(-m.alpha.abs())[:, None]
    cosine, sine = size * torch.cos(m.omega), size * torch.sin(m.omega)
    after = cosine * real - sine * imaginary + (value * torch.sigmoid(write))[..., None]
    imaginary = sine * real + cosine * imaginary
    s = torch.cat([after.flatten(1), imaginary.flatten(1)], -1)
    gate = torch.sigmoid(gate)
    return F.layer_norm(gate * m.mix(s), (WIDTH,)) + (1 - gate) * skip, (s,)


def shm(m, x, state):
    old, step = state
    x = m.norm(m.embed(x))
    value, key, query, calibration, eta = m.input(x).split([m.size] * 4 + [1], -1)
    key, query = (F.relu(a) / (F.relu(a).sum(-1, keepdim=True) + 1e-5) for a in (key, query))
    theta = m.thetas[m.draws[step % len(m.draws)]] - m.thetas[m.draws].mean(0)
    scale = 1 + torch.tanh(torch.einsum("bi,bj->bij", theta, calibration))
    new = scale * old.unflatten(1, (m.size, m.size))
    new = new + torch.sigmoid(eta)[..., None] * torch.einsum("bi,bj->bij", value, key)
    y = torch.einsum("bij,bj->bi", new, query) + x @ m.shortcut.weight.T + m.shortcut.bias
    return m.output(y), (new.flatten(1), step + 1)


def linear_attention(m, x, state):
    query, key, value = (p.unflatten(1, (m.heads, -1)) for p in m.input(x).chunk(3, -1))
    query, key = F.elu(query) + 1, F.elu(key) + 1
    s, z = state[0][..., :-1], state[0][..., -1]
    s, z = s + torch.einsum("bnk,bnv->bnkv", key, value), z + key
    y = torch.einsum("bnk,bnkv->bnv", query, s) / ((query * z).sum(-1, keepdim=True) + 1e-6)
    return m.output(y.flatten(1)), (torch.cat([s, z[..., None]], -1),)


def convolve(x, weight, last):
    inputs = torch.cat([last, x[:, None]], 1)  # (B, J, D), oldest first
    return (inputs * weight.flip(0)).sum(1), inputs[:, 1:]


def deltanet(m, x, state):
    s, last = state
    mixed, gate, beta, step = m.input(x).split([3 * WIDTH, WIDTH, m.heads, m.heads], -1)
    mixed, last = convolve(mixed, m.taps, last)
    query, key, value = (p.unflatten(1, (m.heads, -1)) for p in F.silu(mixed).chunk(3, -1))
    query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
    alpha, beta = torch.exp(-torch.exp(m.rate) * F.softplus(step + m.step)), torch.sigmoid(beta)
    erase = torch.eye(key.shape[-1]) - beta[..., None, None] * torch.einsum("bnk,bnj->bnkj", key, key)
    write = beta[..., None, None] * torch.einsum("bnk,bnv->bnkv", key, value)
    s = alpha[..., None, None] * erase @ s + write
    y = m.norm(torch.einsum("bnk,bnkv->bnv", query, s)).flatten(1)
    return m.output(y * F.silu(gate)), (s, last)


def mamba(m, x, state):
    h, last = state
    gate, mixed, step = m.input(x).split([m.channels, m.channels + 2 * m.state, m.heads], -1)
    mixed, last = convolve(mixed, m.taps, last)
    value, b, c = F.silu(mixed).split([m.channels, m.state, m.state], -1)
    value, step = value.unflatten(1, (m.heads, -1)), F.softplus(step + m.step)
    decay = torch.exp(-torch.exp(m.rate) * step)
    h = decay[..., None, None] * h + torch.einsum("bn,bk,bnp->bnkp", step, b, value)
    y = (torch.einsum("bk,bnkp->bnp", c, h) + m.skip[:, None] * value).flatten(1)
    return m.output(m.norm(y * F.silu(gate))), (h, last)


def mlstm(m, x, state):
    """Without a stabiliser: what is stored divided by exp(m) is multiplied by it first."""
    stored, largest = state
    memory_and_normaliser = stored * torch.exp(largest)[..., None, None]
    query, key, value, out = (p.unflatten(1, (m.heads, -1)) for p in m.input(x).chunk(4, -1))
    key = key / math.sqrt(key.shape[-1])
    log_i, f = m.gates(x).chunk(2, -1)
    write = torch.einsum("bn,bnk,bnv->bnkv", torch.exp(log_i), key, F.pad(value, (0, 1), value=1.0))
    new = torch.sigmoid(f)[..., None, None] * memory_and_normaliser + write
    y = torch.einsum("bnk,bnkv->bnv", query, new)
    h = y[..., :-1] / y[..., -1:].abs().clamp_min(1.0)
    largest = torch.maximum(F.logsigmoid(f) + largest, log_i).detach()
    y = m.output((m.norm(h) * torch.sigmoid(out)).flatten(1))
    return y, (new * torch.exp(-largest)[..., None, None], largest)


def slstm(m, x, state):
    h, c, n, largest = state
    inputs = m.input(x).unflatten(1, (4, m.heads, -1)).transpose(1, 2).flatten(2)
    z, o, log_i, f = (inputs + torch.einsum("bnd,nde->bne", h, m.recurrent)).chunk(4, -1)
    forget, write = torch.sigmoid(f), torch.exp(log_i)
    c = forget * c * torch.exp(largest) + write * torch.tanh(z)
    n = forget * n * torch.exp(largest) + write
    h = torch.sigmoid(o) * c / n
    largest = torch.maximum(F.logsigmoid(f) + largest, log_i).detach()
    y = m.output(m.norm(h).flatten(1))
    return y, (h, c * torch.exp(-largest), n * torch.exp(-largest), largest)


STEPS = {f.__name__: f for f in (rnn, indrnn, lmu, lru, ffm, shm, linear_attention, deltanet, mamba)}
STEPS |= {"mlstm": mlstm, "slstm": slstm}
STABILISED = ("mlstm", "slstm")


def layers_of(net):
    return list(net.blocks) if hasattr(net, "blocks") else list(net.layers)


def cleared(part, first, value=0.0):
    return part.masked_fill(first.view(-1, *[1] * (part.ndim - 1)), value)


def plain(name, net):
    """The same as the memory, step by step."""

    def run(x, state, first):
        outputs = []
        for x_t, first_t in zip(x, first, strict=True):
            after = []
            residual = hasattr(net, "blocks")
            y = net.input(x_t) if residual else x_t
            for place, (layer, before) in enumerate(zip(layers_of(net), state, strict=True)):
                reset = [cleared(part, first_t) for part in before]
                if name in STABILISED:  # nothing is left to stabilise: m has no bound from below
                    reset[-1] = cleared(before[-1], first_t, -1e3)
                out, new = STEPS[name](layer, net.norms[place](y) if residual else y, reset)
                y = y + out if residual else out
                after.append(new)
            state = tuple(after)
            outputs.append(net.norms[-1](y) if residual else y)
        return torch.stack(outputs), state

    return run


def start_of(name, net, batch):
    """A state such as earlier steps leave."""
    state = past(net, batch)
    if name == "shm":
        return tuple((m, torch.randint(50, s.shape)) for m, s in state)
    if name == "slstm":
        return tuple((h, c, n.abs() + 0.1, m) for h, c, n, m in state)
    if name == "linear_attention":  # its normaliser, the last entry, is a sum of positive keys
        return tuple((torch.cat([s[..., :-1], s[..., -1:].abs() + 0.1], -1),) for (s,) in state)
    return state


@every_memory
@pytest.mark.parametrize("layers", [1, 2])
def test_a_sequence_equals_the_formulas_of_its_paper(name, layers):
    """Outputs, end states and gradients, over several chunks and episodes."""
    net = built(name, layers)
    first = torch.rand(2 * matrix.CHUNK + 5, 4) < torch.tensor([0.0, 0.05, 0.3, 1.0])
    x = torch.randn(*first.shape, IN, dtype=torch.float64)
    start = start_of(name, net, 4)
    results = [everything(net, run, x, start, first) for run in (net, plain(name, net))]
    assert_alike(*results, 1e-9)


def everything(net, run, x, start, first):
    """Outputs, end states, and gradients of x, of the start and of all weights."""
    x = x.clone().requires_grad_()
    start = tree.map_leaves(lambda s: s.clone().requires_grad_(s.is_floating_point()), start)
    y, end = run(x, start, first)
    loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum()
    for part in tree.leaves(end).values():
        loss = loss + (part * torch.linspace(-1, 1, part.numel(), dtype=y.dtype).view(part.shape)).sum()
    carried = {name: s for name, s in tree.leaves(start, "start").items() if s.requires_grad}
    leaves = {"x": x, **carried, **dict(net.named_parameters())}
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    pairs = zip(leaves.items(), gradients, strict=True)
    grown = {f"gradient of {k}": torch.zeros_like(a) if g is None else g for (k, a), g in pairs}
    return {"y": y.detach(), **tree.leaves(end, "end")} | grown


@every_memory
def test_the_formulas_tell_a_missing_reset(name):
    """The control of the comparison above."""
    net, first = built(name), torch.zeros(6, 2, dtype=torch.bool)
    x, start = torch.randn(6, 2, IN, dtype=torch.float64), start_of(name, built(name), 2)
    kept = net(x, start, first)[0]
    first[3] = True
    reset = plain(name, net)(x, start, first)[0]
    assert torch.allclose(kept[:3], reset[:3]) and not torch.allclose(kept[3:], reset[3:], atol=1e-4)


# Scans ----------------------------------------------------------------------------------------


def arguments(steps, batch):
    decay, add = torch.randn(2, steps, batch, 4, dtype=torch.float64)
    decay = decay.masked_fill(torch.rand(steps, batch, 1) < 0.2, 0.0)  # resets
    return [x.requires_grad_() for x in (decay, add, torch.randn(batch, 4, dtype=torch.float64))]


@settings(max_examples=30)
@given(steps=st.integers(1, 40), batch=st.integers(1, 3), pairs=st.booleans())
def test_scans_equal_a_loop(steps, batch, pairs):
    """On a CPU, and in chunks as on a device, with gradients."""
    torch.manual_seed(0)
    leaves = arguments(steps, batch)
    wanted = scan.linear_reference(*leaves, pairs)
    weight = torch.randn_like(wanted)
    expected = torch.autograd.grad(wanted, leaves, weight)
    states = scan.linear(*leaves, pairs)
    for y in (states, scan.linear_in_chunks(*leaves, pairs)):
        torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)
    decay, _, h = (x.detach() for x in leaves)
    written = scan.linear_gradients(weight, decay, h, wanted.detach(), pairs)
    for gradients in (torch.autograd.grad(states, leaves, weight), written):
        for one, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_scan_of_pairs_is_one_of_complex_numbers():
    torch.manual_seed(0)
    decay, add, h = (torch.complex(*x.chunk(2, -1)) for x in arguments(7, 2))
    wanted = []
    for a, b in zip(decay, add, strict=True):
        h = a * h + b
        wanted.append(torch.cat([h.real, h.imag], -1))
    torch.manual_seed(0)
    torch.testing.assert_close(scan.linear(*arguments(7, 2), True), torch.stack(wanted))


# What the memories promise --------------------------------------------------------------------


def test_a_legendre_memory_represents_its_window():
    """A signal that changes slowly, and its value theta steps ago, are found in the coefficients."""
    theta, order = 40, 12
    a, b = legendre(order, theta)
    signal = torch.sin(torch.arange(200, dtype=torch.float64) / 9)
    m, delayed, present = torch.zeros(order, dtype=torch.float64), [], []
    for u in signal:
        m = a @ m + b[:, 0] * u
        delayed.append(m.sum())  # all Legendre polynomials are 1 at the far end of the window
        present.append((m * (-1.0) ** torch.arange(order)).sum())
    half = 0.5 * (signal[:-1] + signal[1:])  # a step is constant: its signal is half a step late
    torch.testing.assert_close(torch.stack(delayed)[100:], half[100 - theta : 200 - theta], atol=0.02, rtol=0)
    torch.testing.assert_close(torch.stack(present)[100:], signal[100:], atol=0.1, rtol=0)


@pytest.mark.parametrize("name", ["mlstm", "slstm"])
def test_exponential_gates_do_not_overflow(name):
    net = built(name).float()
    x = 1e3 * torch.randn(40, 3, IN)
    x.requires_grad_()
    y, state = net(x, net.initial_state(3), torch.zeros(40, 3, dtype=torch.bool))
    y.sum().backward()
    assert all(part.isfinite().all() for part in (y, x.grad, *tree.leaves(state).values()))


@every_memory
def test_long_sequences_of_large_inputs_stay_finite(name):
    net = memory.find(name)(width=WIDTH, **SMALL[name]).build(IN)
    y, state = net(10 * torch.randn(500, 2, IN), net.initial_state(2), torch.zeros(500, 2, dtype=torch.bool))
    assert all(part.isfinite().all() for part in (y, *tree.leaves(state).values()))


@pytest.mark.parametrize("name", [name for name, sizes in SMALL.items() if "heads" in sizes])
def test_heads_must_divide_the_width(name):
    with pytest.raises(UsageError, match=rf"{name}\.heads is 3; it must divide {name}\.width, which is 8"):
        memory.find(name)(width=8, heads=3)


def test_heads_of_mamba_must_divide_its_channels():
    with pytest.raises(UsageError, match=r"mamba\.headdim is 5; it must divide .* which is 16"):
        memory.find("mamba")(width=8, headdim=5)


@pytest.mark.parametrize("name", ["mlstm", "slstm", "deltanet"])
def test_heads_of_one_number_are_refused(name):
    with pytest.raises(UsageError, match=rf"{name}\.heads is 8, .*: heads of width 1 keep at most a sign"):
        memory.find(name)(width=8, heads=8)


def test_a_weight_outside_of_its_range_has_a_gradient_that_leads_inside():
    u = torch.tensor([0.5, 1.5, 1.5, -1.5, -1.5], requires_grad=True)
    assert limited(u).tolist() == [0.5, 1.0, 1.0, -1.0, -1.0]
    # Descent moves against the gradient.
    limited(u).backward(torch.tensor([2.0, 2.0, -2.0, 2.0, -2.0]))
    assert u.grad.tolist() == [2.0, 2.0, 0.0, 0.0, -2.0]


def test_a_matrix_that_overflowed_is_reset():
    net = built("shm").float()
    state = tree.map_leaves(lambda x: x + torch.inf if x.is_floating_point() else x, net.initial_state(2))
    y, after = net(torch.randn(1, 2, IN), state, torch.tensor([[True, False]]))
    kept = [leaf for leaf in tree.leaves(after).values() if leaf.is_floating_point()]
    assert y[0, 0].isfinite().all() and all(leaf[0].isfinite().all() for leaf in kept)
    assert not all(leaf[1].isfinite().all() for leaf in kept)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_an_untrained_hadamard_memory_stays_bounded(noise):
    """Over 10,000 equal or random inputs: the mean logarithm of its decays is not above 0."""
    net = memory.find("shm")().build(IN)
    x, first = torch.randn(IN) + noise * torch.randn(10_000, 3, IN), torch.zeros(10_000, 3, dtype=torch.bool)
    with torch.no_grad():
        y, state = net(x, net.initial_state(3), first)
    assert y.abs().max() < 1e6 and all(part.isfinite().all() for part in tree.leaves(state).values())


def test_a_hadamard_memory_draws_the_same_vectors_with_every_version_of_numpy():
    layer = memory.find("shm")().build(IN).layers[0]
    assert layer.draws[[0, 1, 2, 3, 500, 1008]].tolist() == [44, 47, 117, 64, 43, 83]
    assert len(layer.draws) == 1009 and layer.draws.unique().numel() == 128


def test_a_hadamard_memory_passes_on_its_present_input_before_it_is_written_to():
    """The gradient from y to x is that of the shortcut where queries are 0."""
    layer = built("shm").layers[0]
    with torch.no_grad():
        layer.input.weight[2 * layer.size : 3 * layer.size] = 0.0
    x = torch.randn(1, 2, IN, dtype=torch.float64)
    y, _ = layer(x, layer.initial_state(2), torch.ones(1, 2, dtype=torch.bool))
    torch.testing.assert_close(y, layer.output(layer.shortcut(layer.norm(layer.embed(x)))))
