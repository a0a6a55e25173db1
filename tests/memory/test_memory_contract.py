"""Every memory keeps the contract, and a memory that breaks a rule is rejected by that rule."""

import sys
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch

import recollect
from recollect import memory
from recollect.agent.agent import BranchConfig, build_agent
from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, make
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.settings import Plan, PPOConfig
from recollect.memory import Memory, MemoryConfig
from recollect.memory.lru import LruConfig
from recollect.testing import check_memory

from ..helpers import sampled


@pytest.mark.parametrize("name", memory.available())
@pytest.mark.parametrize("in_dim", sampled([1, 5], 5))
def test_every_memory_keeps_the_contract(name, in_dim):
    check_memory(memory.find(name)(), in_dim)


SIZES = [
    (name, field.name)
    for name, config in memory.available().items()
    for field in fields(config)
    if type(field.default) is int
]


@pytest.mark.parametrize(("name", "setting"), SIZES)
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_below_one_are_refused_by_name(name, setting, value):
    with pytest.raises(UsageError) as caught:
        memory.find(name)(**{setting: value})
    assert str(caught.value) == f"{name}.{setting} is {value}, at least 1 is needed"


@pytest.mark.parametrize("limits", [(-0.1, 0.9), (0.9, 0.5), (0.5, 1.0)])
def test_moduli_that_no_eigenvalue_may_have_are_refused(limits):
    with pytest.raises(UsageError, match=r"lru\.r_min is .* and r_max below 1"):
        LruConfig(r_min=limits[0], r_max=limits[1])


def test_names_lead_to_configs():
    found = memory.available()
    assert found, "no memory was found"
    assert all(memory.find(name) is config and config.name == name for name, config in found.items())


def test_checking_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    check_memory(ToyConfig(kind=Trace))
    assert torch.equal(torch.random.get_rng_state(), before)


# A memory that is right, and memories that are wrong in one way each ---------------------------


class Undecorated(MemoryConfig):
    def build(self, in_dim):
        return Trace(in_dim)


@dataclass(frozen=True, kw_only=True)
class ToyConfig(MemoryConfig):
    """Builds any of the toys below."""

    kind: type[Memory]

    def build(self, in_dim):
        return self.kind(in_dim)


class Trace(Memory):
    """y[t] = h[t] = 0.9 h[t-1] + weight x[t], row by row; right."""

    def __init__(self, in_dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(in_dim))
        self.out_dim, self.reach = in_dim, None

    def initial_state(self, batch):
        return (self.weight.new_zeros(batch, self.out_dim),)

    def keep(self, h, first):
        return h * ~first[:, None]

    def forward(self, x, state, first):
        (h,), out = state, []
        for x_t, first_t in zip(x * self.weight, first, strict=True):
            h = 0.9 * self.keep(h, first_t) + x_t
            out.append(h)
        return torch.stack(out), (h,)


class YAlone(Trace):
    def forward(self, x, state, first):
        return super().forward(x, state, first)[0]


class NeverClears(Trace):
    def keep(self, h, first):
        return h


class ClearsWithoutGradient(Trace):
    """Autograd sees no leak, the numbers do."""

    def keep(self, h, first):
        return torch.where(first[:, None], h.detach() * 0.5, h)


class ClearsEveryRow(Trace):
    def keep(self, h, first):
        return h * ~first.any()


class MixesRows(Trace):
    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y - y.mean(1, keepdim=True), state


class LooksAhead(Trace):
    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return torch.cat([y[1:], y[-1:]]), state


class LooksAheadInSecret(Trace):
    """Autograd sees nothing, the numbers do."""

    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y + x.mean(0).detach(), state


class KeepsState(Trace):
    def forward(self, x, state, first):
        y, state = super().forward(x, getattr(self, "kept", state), first)
        self.kept = state
        return y, state


class Counts(Trace):
    """Keeps a number where a look at the module does not find it."""

    def __init__(self, in_dim):
        super().__init__(in_dim)
        self.calls = iter(range(1000))

    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y + next(self.calls), state


class Overwrites(Trace):
    def forward(self, x, state, first):
        y, (h,) = super().forward(x, state, first)
        state[0].copy_(h)
        return y, state


class SeesFurther(Trace):
    def __init__(self, in_dim):
        super().__init__(in_dim)
        self.reach = 3


class SeesFurtherInSecret(SeesFurther):
    """Autograd sees only the present row, the numbers see everything."""

    def keep(self, h, first):
        return super().keep(h, first).detach()


class SeesLess(Trace):
    def __init__(self, in_dim):
        super().__init__(in_dim)
        self.reach = 4

    def keep(self, h, first):
        return torch.zeros_like(h)


class CutsTheGradient(Trace):
    def keep(self, h, first):
        return super().keep(h, first).detach()


class LosesState(Trace):
    def forward(self, x, state, first):
        y, _ = super().forward(x, state, first)
        return y, self.initial_state(x.shape[1])


class GivesAList(Trace):
    def initial_state(self, batch):
        return list(super().initial_state(batch))


class BatchSecond(Trace):
    def initial_state(self, batch):
        return (super().initial_state(batch)[0].T,)

    def forward(self, x, state, first):
        y, (h,) = super().forward(x, (state[0].T,), first)
        return y, (h.T,)


class GrowsState(Trace):
    def forward(self, x, state, first):
        y, (h,) = super().forward(x, state[:1], first)
        return y, (h, h)


class WrongWidth(Trace):
    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y.sum(-1), state


class SinglePrecision(Trace):
    def initial_state(self, batch):
        return (torch.zeros(batch, self.out_dim),)

    def forward(self, x, state, first):
        y, (h,) = super().forward(x, state, first)
        return y, (h.float(),)


class DoublePrecision(Trace):
    """Right in float64, in which the other rules are checked."""

    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y.double(), state


class DoubleState(Trace):
    def initial_state(self, batch):
        return (torch.zeros(batch, self.out_dim, dtype=torch.float64),)


class Divides(Trace):
    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y / 0, state


class WithoutWidth(Trace):
    def __init__(self, in_dim):
        super().__init__(in_dim)
        del self.out_dim


class WithoutReach(Trace):
    def __init__(self, in_dim):
        super().__init__(in_dim)
        del self.reach


class LearnsItsStart(Trace):
    def initial_state(self, batch):
        return (self.weight.expand(batch, -1) * 0,)


class CountsItsCompany(Trace):
    """No gradient crosses rows, yet the size of the batch is seen."""

    def forward(self, x, state, first):
        y, state = super().forward(x, state, first)
        return y + x.shape[1], state


BROKEN = {
    NeverClears: "reset",
    ClearsWithoutGradient: "reset",
    ClearsEveryRow: "rows",
    MixesRows: "rows",
    LooksAhead: "ahead",
    LooksAheadInSecret: "steps",
    KeepsState: "pure",
    Counts: "pure",
    Overwrites: "pure",
    SeesFurther: "reach",
    SeesFurtherInSecret: "reach",
    SeesLess: "gradient",
    CutsTheGradient: "gradient",
    LosesState: "steps",
    GivesAList: "shapes",
    YAlone: "shapes",
    BatchSecond: "shapes",
    GrowsState: "shapes",
    WrongWidth: "shapes",
    SinglePrecision: "dtype",
    DoublePrecision: "dtype: y is not torch.float32",
    DoubleState: "dtype: initial_state.0 is not torch.float32",
    Divides: "shapes: y has numbers that are not finite",
    WithoutWidth: "build: the memory has no out_dim",
    WithoutReach: "build: the memory has no reach",
    LearnsItsStart: "graph",
    CountsItsCompany: "index",
}


def test_a_memory_that_is_right_passes():
    check_memory(ToyConfig(kind=Trace))


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_memory_is_rejected_by_its_rule(kind):
    with pytest.raises(AssertionError, match=f"^contract, {BROKEN[kind]}.*Fix: "):
        check_memory(ToyConfig(kind=kind))


def test_what_is_no_config_or_no_memory_is_named():
    with pytest.raises(AssertionError, match=r"^contract, build: .*ToyConfig.* is no MemoryConfig\. Fix"):
        check_memory(ToyConfig)
    with pytest.raises(AssertionError, match=r"^contract, build: build returns a GRU\. Fix: "):
        check_memory(ToyConfig(kind=lambda in_dim: torch.nn.GRU(in_dim, 4)))
    with pytest.raises(AssertionError, match=r"^contract, options: Undecorated is no dataclass"):
        check_memory(Undecorated())


# A memory from outside ------------------------------------------------------------------------

OUTSIDE = """
from dataclasses import dataclass
from typing import ClassVar
import torch
from recollect.memory import Memory, MemoryConfig

@dataclass(frozen=True, kw_only=True)
class LeakyConfig(MemoryConfig):
    name: ClassVar[str] = "leaky"
    decay: float = 0.9

    def build(self, in_dim):
        return Leaky(in_dim, self.decay)

class Leaky(Memory):
    def __init__(self, in_dim, decay):
        super().__init__()
        self.mix = torch.nn.Linear(in_dim, in_dim)
        self.decay, self.out_dim, self.reach = decay, in_dim, None

    def initial_state(self, batch):
        return (self.mix.weight.new_zeros(batch, self.out_dim),)

    def forward(self, x, state, first):
        (h,), out = state, []
        for x_t, first_t in zip(self.mix(x), first):
            h = self.decay * h * ~first_t[:, None] + x_t
            out.append(h)
        return torch.stack(out), (h,)

class NotAConfig:
    pass
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "outside_pkg").mkdir()
    (tmp_path / "outside_pkg" / "__init__.py").write_text("")
    (tmp_path / "outside_pkg" / "mod.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_memory_from_outside_is_found_checked_and_trained(outside):
    config = memory.find("outside_pkg.mod:LeakyConfig")(decay=0.8)
    check_memory(config)
    envs = make(EnvConfig(num_envs=4, backend="gymnasium"))
    branch = BranchConfig(memory=config, hidden=(8,))
    agent = build_agent((envs.obs_spec, envs.action_spec), branch, branch, False, seed=1)
    plan = Plan(ppo=PPOConfig(num_steps=16, num_minibatches=2), seed=1, rollouts=2)
    before = [p.detach().clone() for p in agent.parameters()]
    metrics = list(ppo.train(envs, begin(envs, agent, plan), plan))
    assert [m["iteration"] for m in metrics] == [1, 2]
    assert all(np.isfinite(m["policy_loss"]) and m["ratio_error"] < 1e-3 for m in metrics)
    assert all(not torch.equal(p, q) for p, q in zip(agent.parameters(), before, strict=True))


@pytest.mark.parametrize(
    "state",
    [
        lambda self, batch: [self.mix.weight.new_zeros(batch, self.out_dim)],
        lambda self, batch: self.mix.weight.new_zeros(batch, self.out_dim),
        lambda self, batch: (self.mix.weight.new_zeros(1, batch, self.out_dim),),
        lambda self, batch: (self.mix.weight.new_zeros(()),),
    ],
    ids=["list", "tensor", "batch second", "no axis"],
)
def test_a_run_names_a_memory_whose_states_cannot_be_stored(outside, monkeypatch, tmp_path, state):
    config = memory.find("outside_pkg.mod:LeakyConfig")
    monkeypatch.setattr(sys.modules["outside_pkg.mod"].Leaky, "initial_state", state)
    for branch in ("actor", "critic"):
        with pytest.raises(UsageError, match=f"memory Leaky of the {branch} .* tuple .*check_memory"):
            options = {"rollouts": 1, "env.num_envs": 4, branch: config()}
            recollect.train("CartPole-v1", options=options, out=tmp_path, quiet=True)


def test_an_unknown_memory_gives_the_nearest_names():
    name = next(iter(memory.available()))
    with pytest.raises(UsageError, match=f"did you mean .*{name}"):
        memory.find(f"{name}x")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no_such_module_anywhere:Config", "module no_such_module_anywhere does not import"),
        ("outside_pkg.mod:Missing", "Missing in outside_pkg.mod is not a MemoryConfig"),
        ("outside_pkg.mod:NotAConfig", "NotAConfig in outside_pkg.mod is not a MemoryConfig"),
    ],
)
def test_what_is_no_memory_is_refused(outside, name, complaint):
    with pytest.raises(UsageError, match=complaint):
        memory.find(name)
