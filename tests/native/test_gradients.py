"""Losses and gradients by the kernels against autograd in float64, for every operation and option."""

import ctypes
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from recollect.agent.agent import BranchConfig
from recollect.learn.ppo import loss
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.lmu import LmuConfig
from recollect.memory.mlp import MlpConfig
from recollect.memory.rnn import GruConfig, LstmConfig, MinGruConfig
from recollect.memory.stack import LateStackConfig, StackConfig
from recollect.memory.trxl import TrxlConfig
from recollect.native import library
from recollect.native.engine import NativeEngine
from recollect.native.program import coverage

from .cases import ACTIONS, DISCRETE, NOW, check, config, in_float64, kernels, make_agent, make_batch, native

RECURRENT = GruConfig, LstmConfig, MinGruConfig, LmuConfig
PLAIN = BranchConfig()


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("hidden", [(), (1,), (64, 64), (7, 33, 130)])
def test_layers(activation, hidden):
    actor = BranchConfig(hidden=hidden, activation=activation, head_hidden=(9,))
    critic = BranchConfig(hidden=hidden[:1], activation=activation, linear_output=True, init="torch")
    agent = make_agent(actor, critic)
    check(agent, make_batch(agent, 1, 150), config())


@pytest.mark.parametrize("action", ACTIONS, ids=str)
@pytest.mark.parametrize("clip_value", [None, 0.2])
def test_heads_and_losses(action, clip_value):
    agent = make_agent(PLAIN, PLAIN, action)
    check(agent, make_batch(agent, 3, 37), config(clip_value=clip_value, vf_coef=0.7))


@pytest.mark.parametrize("action", ACTIONS[:3], ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_action_masks(action, shared):
    agent = make_agent(PLAIN, BranchConfig(shared=shared), action, masks=True)
    check(agent, make_batch(agent, 3, 37), config())


@pytest.mark.parametrize("memory", RECURRENT, ids=lambda m: m.name)
@pytest.mark.parametrize(("width", "layers", "hidden"), [(64, 1, ()), (5, 2, (8,)), (19, 3, (64,))])
def test_recurrences(memory, width, layers, hidden):
    actor = BranchConfig(memory=memory(width=width, layers=layers), hidden=hidden)
    critic = BranchConfig(memory=memory(width=width), hidden=hidden, head_hidden=(13,))
    agent = make_agent(actor, critic)
    check(agent, make_batch(agent, 17, 11), config())


@pytest.mark.parametrize("memory", [StackConfig, LateStackConfig], ids=lambda m: m.name)
@pytest.mark.parametrize("frames", [1, 4, 12])
def test_frame_stacks(memory, frames):
    branch = BranchConfig(memory=memory(frames=frames))
    agent = make_agent(branch, branch)
    check(agent, make_batch(agent, 9, 11), config())


@pytest.mark.parametrize("memory", [MlpConfig, *RECURRENT, LateStackConfig], ids=lambda m: m.name)
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_residual_branches_and_shared_critics(memory, hidden):
    actor = BranchConfig(memory=memory(), hidden=hidden, residual=True)
    agent = make_agent(actor, BranchConfig(shared=True, head_hidden=(5,)))
    check(agent, make_batch(agent, 9, 11), config())


@pytest.mark.parametrize("memory", [MlpConfig, *RECURRENT], ids=lambda m: m.name)
def test_inputs_frozen_encoders_and_no_resets(memory):
    actor = BranchConfig(memory=memory(), trained_encoder=False, prev_action=True, prev_reward=True)
    critic = BranchConfig(memory=memory(), reset=False)
    agent = make_agent(actor, critic, spaces.MultiDiscrete([2, 3]))
    check(agent, make_batch(agent, 9, 11, resets=0.3), config())


@pytest.mark.parametrize("action", ACTIONS, ids=str)
@pytest.mark.parametrize("part", ["actor", "critic"])
@pytest.mark.parametrize("memory", [Gpt2Config, TrxlConfig], ids=lambda m: m.name)
def test_torch_computes_the_branch_that_the_kernels_cannot(memory, part, action):
    sizes = {"width": 8, "layers": 1, "heads": 2, "context": 4}
    sizes |= {"attention": "window"} if memory is Gpt2Config else {"positions": "relative"}
    branches = {"actor": BranchConfig(memory=GruConfig(width=8)), "critic": PLAIN}
    branches[part] = BranchConfig(memory=memory(**sizes), hidden=(8,))
    agent = make_agent(**branches, action=action)
    check(agent, make_batch(agent, 9, 11), config(vf_coef=0.7, clip_value=0.2))


def test_torch_computes_a_critic_with_dropout():
    agent = make_agent(PLAIN, BranchConfig(memory=Gpt2Config(width=8, layers=1, heads=2, dropout=0.5)))
    covered = coverage(agent)
    assert covered.actor and not covered.critic and "dropout" in covered.reason


@given(data=st.data())
def test_any_shape_and_option(data):
    draw = data.draw
    widths = st.integers(1, 70)
    memory = draw(st.sampled_from([MlpConfig, StackConfig, LateStackConfig, *RECURRENT]))
    options = {} if memory not in RECURRENT else {"width": draw(widths), "layers": draw(st.integers(1, 2))}
    if memory is LmuConfig:
        options["order"] = draw(st.integers(1, 40))
    residual = draw(st.booleans()) and not memory.before_encoder
    actor = BranchConfig(
        memory=memory(**options),
        hidden=draw(st.lists(widths, max_size=2).map(tuple)),
        head_hidden=draw(st.lists(widths, max_size=1).map(tuple)),
        activation=draw(st.sampled_from(["tanh", "relu", "elu"])),
        residual=residual,
        prev_reward=draw(st.booleans()),
    )
    # The kernels have no gelu, so torch computes that critic.
    activation = draw(st.sampled_from(["tanh", "gelu"]))
    own = BranchConfig(hidden=(draw(widths),), activation=activation)
    critic = BranchConfig(shared=True) if draw(st.booleans()) else own
    agent = make_agent(actor, critic, draw(st.sampled_from(ACTIONS)), draw(widths), draw(st.integers(0, 9)))
    steps, sequences = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    batch = make_batch(
        agent, steps, sequences, draw(st.sampled_from([0.0, 0.1, 1.0])), draw(st.integers(0, 9))
    )
    check(agent, batch, config(clip_value=draw(st.sampled_from([None, 0.1]))))


@pytest.mark.parametrize("memory", [MlpConfig, *RECURRENT], ids=lambda m: m.name)
def test_gradients_are_central_differences(memory):
    """Without autograd: the loss in float64 at both ends of a small step along a random direction."""
    branch = BranchConfig(memory=memory(), hidden=(6,))
    agent = make_agent(branch, branch)
    batch, cfg = make_batch(agent, 5, 7), config()
    _, gradient = native(agent, batch, cfg)
    direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(2)).double()
    size, ends = 1e-6, []
    for sign in (1, -1):
        moved = make_agent(branch, branch).double()
        parts = direction.split([p.numel() for p in moved.parameters()])
        with torch.no_grad():
            for p, part in zip(moved.parameters(), parts, strict=True):
                p += sign * size * part.view_as(p)
            ends.append(float(loss(moved, in_float64(batch), cfg, NOW).total))
    slope = (ends[0] - ends[1]) / (2 * size)
    assert float(gradient.double() @ direction) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_gradients_that_are_not_finite_are_seen():
    agent = make_agent(PLAIN, PLAIN)
    batch = make_batch(agent, 1, 20)
    batch.rows.obs["obs"][0, 3, 1] = torch.nan
    assert not native(agent, batch, config())[1].isfinite().all()


# Bits -----------------------------------------------------------------------------------------


def builds():
    """The library by every instruction set of this machine and at several optimisation levels."""
    kernels()
    native_target = library.target()
    targets = ["x86-64-v3", "x86-64-v4"] if native_target == "x86-64-v4" else [native_target]
    for target in targets:
        for level in ("-O1", "-O2", "-O3"):
            flags = [level if flag == "-O3" else flag for flag in library.FLAGS]
            yield f"{target} {level}", library.load(isa=target, flags=flags)


def check_bits_of_builds(agent):
    """Assert that every instruction set and optimisation level gives the same bits."""
    batch, results = make_batch(agent, 21, 5), set()
    for _, lib in builds():
        terms, gradient = native(agent, batch, config(), lib)
        results.add(b"".join(x.numpy().tobytes() for x in (gradient, terms.total, terms.ratio, terms.values)))
    assert len(results) == 1


def check_calls_are_independent(agent):
    """Assert that memory of longer sequences, with NaN, can be used for shorter ones."""
    long, short = make_batch(agent, 30, 4), make_batch(agent, 3, 4)
    long.rows.obs["obs"][:] = torch.nan
    native(agent, short, config())  # gives the weights gradients
    engine = NativeEngine(kernels(), agent, print)

    def results():
        terms = engine.run(short, config(), NOW)
        gradients = [p.grad.clone() for p in agent.parameters() if p.grad is not None]
        return [terms.ratio.clone(), terms.values.clone(), terms.total.clone(), *gradients]

    expected = results()
    assert engine.run(long, config(), NOW).total.isnan()
    assert all(map(torch.equal, results(), expected))


def test_results_are_equal_to_the_bit_for_all_instruction_sets_and_optimisation_levels():
    libraries = dict(builds())
    for memory in (MlpConfig, LateStackConfig, *RECURRENT):
        for action in (DISCRETE, ACTIONS[-1]):
            branch = BranchConfig(memory=memory(), hidden=(20,), activation="elu")
            agent = make_agent(branch, branch, action)
            batch = make_batch(agent, 13, 11)
            results = {}
            for name, lib in libraries.items():
                terms, gradient = native(agent, batch, config(clip_value=0.2), lib)
                parts = (gradient, terms.total, terms.ratio, terms.values)
                results[name] = b"".join(x.numpy().tobytes() for x in parts)
            assert len(set(results.values())) == 1, (memory, action, results.keys())


@pytest.mark.parametrize("memory", [MlpConfig, *RECURRENT], ids=lambda m: m.name)
def test_results_are_equal_to_the_bit_for_one_thread_and_two(memory, monkeypatch):
    branch = BranchConfig(memory=memory(), hidden=(64,))
    agent = make_agent(branch, branch)
    batch = make_batch(agent, 16, 32)  # large enough for the second thread to start
    results = []
    for count in (1, 2, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        terms, gradient = native(agent, batch, config(clip_value=0.2))
        results.append((gradient, terms.total, terms.ratio, terms.values, *terms.means))
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


def large_case():
    """An agent and a minibatch for which the second thread is used."""
    branch = BranchConfig(memory=GruConfig(), hidden=(64,))
    agent = make_agent(branch, branch)
    return agent, make_batch(agent, 16, 32)


def test_two_callers_at_the_same_time_share_the_second_thread(monkeypatch):
    cases = [large_case() for _ in range(4)]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with ThreadPoolExecutor(4) as pool:
        gradients = list(pool.map(lambda case: native(*case, config())[1], cases))
    assert all(torch.equal(x, gradients[0]) for x in gradients)


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_second_thread_of_its_own():
    script = """
import os, torch
from tests.native.test_gradients import config, large_case, native
case = large_case()
torch.set_num_threads(1)  # threads of torch itself do not survive a fork
torch.get_num_threads = lambda: 2
gradient = native(*case, config())[1]
child = os.fork()
equal = torch.equal(native(*case, config())[1], gradient)
if not child:
    os._exit(0 if equal else 3)
assert equal and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=True, timeout=60)


# Functions ------------------------------------------------------------------------------------

FUNCTIONS = """
#include "functions.h"
#define MAP(name) void map_##name(long n, const float *x, float *y) { \\
  for (long i = 0; i < n; i += WIDTH) store(y + i, name##_(load(x + i))); }
MAP(exp) MAP(log) MAP(log1p) MAP(tanh) MAP(erf) MAP(sigmoid) MAP(sin) MAP(cos)
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    kernels()
    folder = tmp_path_factory.mktemp("functions")
    (folder / "functions.c").write_text(FUNCTIONS)
    flags = [flag for flag in library.FLAGS if not flag.startswith("-fvisibility")]
    march = [] if library.target() == "arm64" else [f"-march={library.target()}"]
    include = f"-I{library.SOURCES[0].parent}"
    out = str(folder / "functions.so")
    subprocess.run(["cc", *flags, *march, include, str(folder / "functions.c"), "-o", out], check=True)
    return ctypes.CDLL(out)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("exp", -87, 88.7),
        ("log", 1e-30, 1e30),
        ("log1p", 1e-30, 1e30),
        ("tanh", -20, 20),
        ("erf", -6, 6),
        ("sigmoid", -20, 20),
        ("sin", -1000, 1000),
        ("cos", -1000, 1000),
    ],
)
def test_functions_are_exact_to_a_few_units_in_the_last_place(functions, name, low, high):
    n = 1 << 20
    is_log = name.startswith("log")
    x = np.linspace(*(np.log10([low, high]) if is_log else [low, high]), n)
    x = (10**x if is_log else x).astype(np.float32)
    y = np.empty_like(x)
    pointer = ctypes.c_void_p
    getattr(functions, f"map_{name}")(ctypes.c_long(n), pointer(x.ctypes.data), pointer(y.ctypes.data))
    wide = x.astype(np.float64)
    others = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": np.vectorize(math.erf)}
    exact = others.get(name, getattr(np, name, None))(wide)
    # Of these in absolute terms: sigmoid is computed from tanh, near 1, and sines cross 0 between numbers.
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    unit = np.maximum(unit, {"sigmoid": 4e-8, "sin": 4e-8, "cos": 4e-8, "erf": 8e-8}.get(name, 0.0))
    assert (np.abs(y - exact) / unit).max() < 5
    assert np.abs(y).max() <= 1 + 1e-7 if name in ("tanh", "erf") else True


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("exp", 89, np.inf),
        ("exp", -np.inf, 0),
        ("exp", np.nan, np.nan),
        ("tanh", np.nan, np.nan),
        ("tanh", np.inf, 1),
    ],
)
def test_functions_at_the_ends(functions, name, x, y):
    x, out = np.full(16, x, np.float32), np.empty(16, np.float32)
    pointer = ctypes.c_void_p
    getattr(functions, f"map_{name}")(ctypes.c_long(16), pointer(x.ctypes.data), pointer(out.ctypes.data))
    np.testing.assert_allclose(out, np.full(16, y), atol=2e-38, rtol=1e-7)
