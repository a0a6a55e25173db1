"""The simulated device computes what the CPU computes, and refuses and counts what a GPU would."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from recollect.common.devices import deterministic

from . import fake

D = fake.install()


def gradients_on(device, function, inputs):
    """The result of a function of tensors on a device, and the gradients of its sum of squares."""
    leaves = [x.detach().to(device).requires_grad_(x.is_floating_point()) for x in inputs]
    results = function(*leaves)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    assert all(x.device.type == torch.device(device).type for x in results)
    total = sum(x.square().sum() for x in results if x.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    return [x.detach().cpu() for x in results] + [x.grad.cpu() for x in leaves if x.grad is not None]


R = torch.randn
INDEX = torch.tensor([[0, 1, 2], [1, 1, 1]])
OPERATIONS = {
    "linear": (F.linear, R(4, 3), R(5, 3), R(5)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, 2, 1), R(2, 3, 9, 9), R(4, 3, 3, 3), R(4)),
    "pooling": (lambda x: F.max_pool2d(x, 3, 2, 1), R(2, 3, 9, 9)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), R(2, 4, 6), R(6), R(6)),
    "attention": (F.scaled_dot_product_attention, R(2, 2, 5, 4), R(2, 2, 7, 4), R(2, 2, 7, 4), R(5, 7)),
    "where": (lambda x: torch.where(x > 0, x, -1.0), R(4, 3)),
    "gather": (lambda x, i: x.gather(0, i), R(4, 3), INDEX),
    "scatter": (lambda x, i, s: x.scatter_add(0, i, s), R(4, 3), INDEX, R(2, 3)),
    "index": (lambda x, i: x[i[0], 1:], R(4, 3), INDEX),
    "index_put": (lambda x, i, v: x.index_put((i[0],), v), R(4, 3), INDEX, R(3, 3)),
    "views": (lambda x: x.view(3, 4).t().unflatten(0, (2, 2))[1:].expand(2, 2, 3) * 2, R(12)),
    "in place": (lambda x: (x * 2)[1:].mul_(3).add_(1).clamp_(-1, 1), R(4, 3)),
    "softmax": (lambda x: x.log_softmax(-1), R(5, 4)),
    "other dtype": (lambda x: x.double() * 2, R(4)),
    "bytes as numbers": (lambda x: x.view(torch.int64) * 3, torch.arange(16, dtype=torch.uint8)),
    "gru": (
        lambda x, h, *w: torch.gru(x, h, w, True, 1, 0.0, True, False, False)[0],
        *(R(6, 4, 3), R(1, 4, 5), R(15, 3), R(15, 5), R(15), R(15)),
    ),
    "lstm": (
        lambda x, h, c, *w: torch.lstm(x, (h, c), w, True, 1, 0.0, True, False, False)[0],
        *(R(6, 4, 3), R(1, 4, 5), R(1, 4, 5), R(20, 3), R(20, 5), R(20), R(20)),
    ),
    "gru cell": (torch.gru_cell, R(4, 3), R(4, 5), R(15, 3), R(15, 5), R(15), R(15)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_and_gradients_equal_those_of_the_cpu(name):
    function, *inputs = OPERATIONS[name]
    there, here = gradients_on(D, function, inputs), gradients_on("cpu", function, inputs)
    assert len(there) == len(here)
    for x, y in zip(there, here, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=2e-5)


REFUSED = {
    "a sum with the CPU": lambda x, c: x + c,
    "a sum in place": lambda x, c: c.add_(x),
    "a product": lambda x, c: x @ c,
    "a concatenation": lambda x, c: torch.cat([x, c]),
    "a mask": lambda x, c: x.masked_fill(c > 0, 0),
    "an index": lambda x, c: x.gather(0, c.long()),
    "an index into the CPU": lambda x, c: c[x.long()],
    "selected rows": lambda x, c: x.index_select(0, torch.tensor([0])),
    "a result": lambda x, c: torch.add(x, x, out=c),
    "a gradient": lambda x, c: setattr(nn.Parameter(x), "grad", c),
    "numpy": lambda x, c: x.numpy(),
    "numpy by its protocol": lambda x, c: np.asarray(x),
    "a generator of the CPU": lambda x, c: torch.randn(3, device=D, generator=torch.Generator()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(name):
    with pytest.raises((RuntimeError, TypeError)):
        REFUSED[name](torch.ones(3, 3, device=D), torch.ones(3, 3))


WITHOUT_DETERMINISM = {
    "sums of floats": lambda x: x.cumsum(0),
    "adaptive pooling": lambda x: F.adaptive_avg_pool2d(x[None], 2).sum().backward(),
    "reflections": lambda x: F.pad(x[None], (1, 1, 1, 1), mode="reflect").sum().backward(),
    "a median": lambda x: x.median(0),
}


@pytest.mark.parametrize("name", WITHOUT_DETERMINISM)
def test_operations_without_a_deterministic_kernel_are_refused_where_a_run_asks_for_one(name):
    function = WITHOUT_DETERMINISM[name]
    x = torch.ones(3, 3, device=D, requires_grad=True)
    function(x)
    with deterministic(D), pytest.raises(RuntimeError, match="deterministic"):
        function(x)
    with deterministic(D):  # integers have one
        assert (x > 0).cumsum(0)[-1].tolist() == [3, 3, 3]


def test_a_graph_computes_again_in_its_memory_and_refuses_copies_and_waits():
    x, graph = torch.ones(3, device=D), torch.fake.CUDAGraph()
    with torch.fake.graph(graph):
        y = (x * 2).view(3, 1).add_(1)[1:]
    assert y.cpu().tolist() == [[-1], [-1]]  # nothing is computed before the first replay
    for value in (1, 5):
        x.fill_(value)
        with fake.measured() as traffic:
            graph.replay()
        assert y.cpu().tolist() == [[2 * value + 1]] * 2 and traffic.operations == 1
    for refused in (lambda: x.sum().item(), lambda: x.cpu(), lambda: torch.ones(3).to(D)):
        with torch.fake.graph(torch.fake.CUDAGraph()), pytest.raises(RuntimeError, match="captured"):
            refused()


def test_what_cuda_allows_is_allowed():
    x, number = torch.ones(3, 3, device=D), torch.tensor(2.0)
    for y in (x + number, torch.where(x > 0, x, number), x[torch.tensor([0])], x.copy_(torch.ones(3, 3))):
        assert y.device.type == "fake"
    assert torch.ones(3, 3).copy_(x).is_cpu


def test_copies_and_waits_are_counted():
    x = torch.ones(3, 3, device=D)
    with fake.measured() as traffic:
        (x * torch.ones(3).pin_memory().to(D, non_blocking=True)).sum()
    assert (traffic.up, traffic.down, traffic.waits) == (1, 0, 0)
    with fake.measured() as traffic:
        # Both wait: one copy is of pageable memory, the other is waited for.
        torch.ones(3).to(D, non_blocking=True), torch.ones(3).pin_memory().to(D)
    assert (traffic.up, traffic.down, traffic.waits) == (2, 0, 2)
    with fake.measured() as traffic:
        # One copy; five waits: it, a number, a selection, places, a comparison.
        x.cpu(), float(x.sum()), x[x > 0], (x > 0).nonzero(), torch.equal(x, x)
    assert (traffic.up, traffic.down, traffic.waits) == (0, 1, 5)


def test_late_copies_show_what_is_read_or_written_too_early():
    x = torch.ones(3, device=D)
    with fake.measured(late=True):
        y = x.to("cpu", non_blocking=True)
        assert y.tolist() == [0, 0, 0]
        fake.synchronize()
        assert y.tolist() == [1, 1, 1]
    buffer = torch.zeros(3).pin_memory()
    with fake.measured(late=True), pytest.raises(RuntimeError, match="under way"):
        sent = buffer.to(D, non_blocking=True)
        buffer[:] = 1
        sent.sum().item()


def test_rounding_differs_from_the_cpu_on_request():
    a, b = R(4, 4), R(4, 4)
    exact = (a.to(D) @ b.to(D)).cpu()
    assert torch.equal(exact, a @ b)
    with fake.measured(rounding=1e-6):
        rounded = (a.to(D) @ b.to(D)).cpu()
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=2e-6, atol=1e-6)


def test_float64_is_refused_on_request():
    with fake.measured(float64=False):
        assert (R(4).to(D) * 2).dtype == torch.float32
        for make in (lambda: R(4).to(D).double(), lambda: R(4).double().to(D)):
            with pytest.raises(TypeError, match="no float64"):
                make()


def test_random_numbers_of_the_device_leave_those_of_the_cpu_alone():
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    drawn = torch.randn(3, device=D)
    assert torch.equal(torch.randn(3), expected)
    torch.manual_seed(1)
    assert torch.equal(torch.randn(3, device=D), drawn)
