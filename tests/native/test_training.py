"""Runs with the native kernels: what they record, how they resume, and when torch takes over."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from recollect.agent.agent import BranchConfig
from recollect.agent.nets import Tanh
from recollect.common.errors import UsageError
from recollect.config.data import config_hash
from recollect.envs import EnvConfig
from recollect.learn.settings import PPOConfig
from recollect.memory import MemoryConfig
from recollect.memory.deltanet import DeltaNetConfig
from recollect.memory.gpt2 import Gpt2Config
from recollect.memory.lmu import LmuConfig
from recollect.memory.lru import LruConfig
from recollect.memory.mamba import MambaConfig
from recollect.memory.mlp import MlpConfig
from recollect.memory.rnn import GruConfig, LstmConfig, MinGruConfig
from recollect.memory.stack import LateStackConfig, StackConfig
from recollect.memory.trxl import GtrxlConfig
from recollect.native import engine, library
from recollect.native.program import coverage
from recollect.run import api, checkpoint
from recollect.run.destination import Destination
from recollect.run.run import start_run

from ..helpers import assert_same_end, sampled, set_status, small_config
from .cases import ACTIONS, config, kernels, make_agent, make_batch

NATIVE = {"kernels": "native"}


@pytest.fixture(autouse=True)
def _library():
    kernels()


def run(tmp_path, name="run", quiet=False, **changes):
    return start_run(
        small_config(**{"kernels": "torch", **changes}), Destination(out=tmp_path, run_id=name, quiet=quiet)
    )


def metrics(trained, key):
    return [json.loads(line)[key] for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]


def weights(trained):
    return torch.cat([p.detach().reshape(-1) for p in trained.agent.parameters()])


def test_a_native_run_is_recorded_and_close_to_torch(tmp_path, capsys):
    trained, by_torch = run(tmp_path, **NATIVE), run(tmp_path, "torch", rollouts=1)
    assert f"kernels: native {library.version()}" in capsys.readouterr().out
    assert trained.summary["kernels"] == f"native {library.version()}"
    assert by_torch.summary["kernels"] == "torch"
    errors = metrics(trained, "kernel_error")
    assert 0 < errors[0] < 1e-5 and len(set(errors)) == 1
    assert metrics(by_torch, "kernel_error") == [None]
    assert max(metrics(trained, "ratio_error")) < 1e-5 and max(metrics(trained, "value_error")) < 1e-5
    assert metrics(trained, "policy_loss")[0] == pytest.approx(metrics(by_torch, "policy_loss")[0], abs=1e-4)


def test_native_runs_are_equal_to_the_bit(tmp_path):
    recurrent = BranchConfig(memory=GruConfig(width=8), hidden=())
    first, second = (run(tmp_path, name, actor=recurrent, **NATIVE) for name in "ab")
    assert torch.equal(weights(first), weights(second))


@pytest.mark.parametrize(
    "memory",
    [
        MlpConfig(),
        LstmConfig(),
        StackConfig(),
        Gpt2Config(width=8, layers=1, heads=2, context=9, tokens="interleaved"),
        GtrxlConfig(width=8, layers=1, heads=2, context=9, positions=None),
    ],
    ids=lambda m: m.name,
)
def test_a_resumed_run_equals_one_without_a_stop(tmp_path, memory):
    branch = BranchConfig(memory=memory, hidden=(16,))
    whole, stopped = (run(tmp_path, name, actor=branch, critic=branch, **NATIVE) for name in "ab")
    for path in checkpoint.existing(stopped.folder / "checkpoints")[-2:]:
        path.unlink()
    set_status(stopped.folder)
    resumed = api.resume(stopped.folder)
    assert torch.equal(weights(whole), weights(resumed))
    assert resumed.summary["kernels"] == whole.summary["kernels"]


def test_a_run_is_resumed_to_the_bit_with_another_instruction_set(tmp_path, monkeypatch):
    """As on another machine: trained with AVX-512, resumed with AVX2."""
    if library.target() != "x86-64-v4":
        pytest.skip("needs a processor with both")
    loaded = []
    load = library.load

    def with_target(announce, isa):
        loaded.append(isa)
        return load(announce, isa)

    branch = BranchConfig(memory=GruConfig(width=8), hidden=(16,))
    whole, stopped = (run(tmp_path, name, actor=branch, critic=branch, **NATIVE) for name in "ab")
    for path in checkpoint.existing(stopped.folder / "checkpoints")[-2:]:
        path.unlink()
    set_status(stopped.folder)
    monkeypatch.setattr("recollect.run.kernels.load", lambda announce: with_target(announce, "x86-64-v3"))
    resumed = api.resume(stopped.folder)
    assert loaded == ["x86-64-v3"]
    assert torch.equal(weights(whole), weights(resumed))
    for key in ("policy_loss", "value_loss", "kl", "return"):
        assert metrics(resumed, key) == metrics(whole, key)


def test_resume_refuses_other_kernels_unless_told_to_take_torch(tmp_path, monkeypatch, capsys):
    trained = run(tmp_path, keep=9, **NATIVE)
    checkpoint.existing(trained.folder / "checkpoints")[-1].unlink()
    set_status(trained.folder)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    library.compiler.cache_clear()
    with pytest.raises(UsageError, match="--kernels torch"):
        api.resume(trained.folder)
    capsys.readouterr()
    resumed = api.resume(trained.folder, kernels="torch")
    assert "no longer to the bit" in capsys.readouterr().out
    assert resumed.summary["kernels"] == "torch"
    library.compiler.cache_clear()


def test_without_a_compiler_a_run_takes_torch_says_so_once_and_resumes_so(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
        library.compiler.cache_clear()
        trained = run(tmp_path, **NATIVE)
    library.compiler.cache_clear()
    assert capsys.readouterr().out.count("kernels: torch; the native ones cannot be used: no C compiler") == 1
    assert trained.summary["kernels"] == "torch"
    assert torch.equal(weights(trained), weights(run(tmp_path, "torch")))
    checkpoint.existing(trained.folder / "checkpoints")[-1].unlink()
    set_status(trained.folder)
    assert torch.equal(weights(api.resume(trained.folder)), weights(trained))


def test_a_processor_that_the_kernels_do_not_know_takes_torch(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(library, "_processor_features", lambda: {"sse2"})
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    trained = run(tmp_path, rollouts=1, **NATIVE)
    assert (
        capsys.readouterr().out.count("the native ones cannot be used: the processor (x86_64) has no AVX2")
        == 1
    )
    assert trained.summary["kernels"] == "torch"


def test_a_wrong_first_gradient_gives_the_run_to_torch(tmp_path, monkeypatch, capsys):
    kernels_of_run = engine.NativeEngine.run

    def wrong(self, *arguments):
        terms = kernels_of_run(self, *arguments)
        self._covered.networks[0].nodes[-2].weights[0].weight_gradient.mul_(2)
        return terms

    monkeypatch.setattr(engine.NativeEngine, "run", wrong)
    trained = run(tmp_path, **NATIVE)
    out = capsys.readouterr().out
    assert out.count("the first native gradient differs by") == 1
    assert trained.summary["kernels"] == "torch"
    # Equal up to rounding: the kernels have acted in the first rollout.
    torch.testing.assert_close(weights(trained), weights(run(tmp_path, "torch")), atol=1e-4, rtol=0)


def test_a_point_without_a_derivative_does_not_give_the_run_to_torch(tmp_path):
    """In recall the signs 1 and -1 cancel, and all biases start at 0: rounding alone says on which side of 0
    the input of a ReLU is, and the norm before the attention makes the difference large."""
    memory = GtrxlConfig(width=36, layers=1)
    branch = BranchConfig(memory=memory, hidden=(64,))
    env = EnvConfig(id="probe:recall", num_envs=8, kwargs={"delay": 2, "lead": 2})
    ppo = PPOConfig(num_steps=64, bptt=64, num_minibatches=2)
    changes = {"env": env, "ppo": ppo, "actor": branch, "critic": branch, "rollouts": 2}
    trained, stopped = (run(tmp_path, name, **NATIVE, **changes) for name in "ab")
    assert trained.summary["kernels"] == f"native {library.version()}"
    assert 0 < metrics(trained, "kernel_error")[0] < 1e-4
    checkpoint.existing(stopped.folder / "checkpoints")[-1].unlink()
    set_status(stopped.folder)
    assert torch.equal(weights(api.resume(stopped.folder)), weights(trained))


def test_a_first_gradient_that_is_not_written_gives_the_run_to_torch(tmp_path, monkeypatch, capsys):
    load = library.load

    class Silent:
        def __init__(self, library):
            self.library = library

        def __getattr__(self, name):
            return getattr(self.library, name)

        def gradients(self, *arguments):
            pass

    monkeypatch.setattr("recollect.run.kernels.load", lambda announce, *isa: Silent(load(announce, *isa)))
    trained = run(tmp_path, rollouts=1, **NATIVE)
    assert "the first native gradient differs by 1," in capsys.readouterr().out.replace("\n", ",")
    assert trained.summary["kernels"] == "torch"


def test_a_run_that_restarts_from_its_seed_takes_torch_if_it_is_told_to(tmp_path):
    stopped = run(tmp_path, rollouts=2, **NATIVE)
    shutil.rmtree(stopped.folder / "checkpoints")
    set_status(stopped.folder)
    assert api.resume(stopped.folder, kernels="torch", quiet=True).summary["kernels"] == "torch"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"algorithm": "a2c"}, "algorithm a2c"),
        ({"amp": "bf16"}, "amp"),
        ({part: BranchConfig(activation="gelu") for part in ("actor", "critic")}, "layer GELU"),
    ],
)
def test_agents_that_the_kernels_cannot_compute_take_torch(tmp_path, capsys, changes, reason):
    trained = run(tmp_path, rollouts=1, **NATIVE, **changes)
    assert f"the native ones cannot be used: {reason}" in capsys.readouterr().out
    assert trained.summary["kernels"] == "torch"


@pytest.mark.parametrize(
    ("part", "other"), sampled([("actor", "critic"), ("critic", "actor")], ("actor", "critic"))
)
def test_torch_computes_the_branch_that_the_kernels_cannot(tmp_path, capsys, part, other):
    memory = Gpt2Config(width=8, layers=1, heads=2, attention="window")
    changes = {part: BranchConfig(memory=memory, hidden=(8,))}
    trained, again = (run(tmp_path, name, **NATIVE, **changes) for name in "ab")
    kernels = f"native {library.version()}, {other} only"
    assert f"kernels: {kernels}; torch for the {part}: memory Window" in capsys.readouterr().out
    assert trained.summary["kernels"] == kernels
    assert 0 < metrics(trained, "kernel_error")[0] < 1e-5
    checkpoint.existing(again.folder / "checkpoints")[-1].unlink()
    set_status(again.folder)
    assert torch.equal(weights(api.resume(again.folder)), weights(trained))
    assert_same_end(again.folder, trained.folder)


def test_a_subclass_of_a_layer_is_not_taken_for_it():
    class Other(Tanh):
        pass

    agent = make_agent(BranchConfig(), BranchConfig())
    agent.actor.encoder[1] = Other()
    assert not coverage(agent).actor and "Other" in coverage(agent).reason


def of_memory(memory: MemoryConfig) -> dict[str, BranchConfig]:
    return {part: BranchConfig(memory=memory) for part in ("actor", "critic")}


@pytest.mark.parametrize(
    ("changes", "native"),
    [
        ({}, True),
        (of_memory(GruConfig(width=8)), True),
        ({"actor": BranchConfig(memory=LstmConfig(width=8)), "critic": BranchConfig(shared=True)}, True),
        (of_memory(MinGruConfig(width=8)), True),
        ({"critic": BranchConfig(memory=Gpt2Config(width=8, layers=1, heads=2))}, True),
        (of_memory(GtrxlConfig(width=8, layers=1, heads=2)), True),
        (of_memory(LateStackConfig()), True),
        (of_memory(LmuConfig(width=8, order=5)), True),
        (of_memory(LruConfig(width=8, units=4)), True),
        (of_memory(DeltaNetConfig(width=8, heads=2)), True),
        (of_memory(MambaConfig(width=8, headdim=4)), True),
        ({"critic": BranchConfig(activation="gelu")}, False),
        (dict.fromkeys(("actor", "critic"), BranchConfig(activation="gelu")), False),
        ({"algorithm": "a2c"}, False),
        ({"amp": "bf16"}, False),
    ],
    ids=str,
)
def test_auto_means_native_where_it_learns_as_well(tmp_path, capsys, changes, native):
    trained = run(tmp_path, rollouts=1, kernels="auto", **changes)
    expected = f"native {library.version()}" if native else "torch"
    assert trained.summary["kernels"] == expected
    assert not native or trained.summary["kernel_error"] < 1e-4
    assert "kernels:" not in capsys.readouterr().out  # nobody asked for either
    assert config_hash(trained.config) != config_hash(replace(trained.config, kernels="torch"))


@pytest.mark.parametrize("kernels", ["auto", "native"])
def test_auto_says_why_torch_takes_over(tmp_path, monkeypatch, capsys, kernels):
    monkeypatch.setattr(library, "target", lambda: (_ for _ in ()).throw(library.UnavailableError("no AVX2")))
    trained = run(tmp_path, rollouts=1, kernels=kernels)
    assert capsys.readouterr().out.count("kernels: torch; the native ones cannot be used: no AVX2") == 1
    assert trained.summary["kernels"] == "torch"


@pytest.mark.parametrize("action", ACTIONS, ids=str)
@pytest.mark.parametrize(
    "memory",
    [
        GruConfig(width=8),
        LmuConfig(width=8, order=5),
        DeltaNetConfig(width=8, heads=2),
        MambaConfig(width=8, headdim=4),
    ],
    ids=lambda memory: memory.name,
)
def test_minibatches_of_several_sizes_share_the_memory(memory, action):
    branch = BranchConfig(memory=memory)
    agent = make_agent(branch, branch, action)
    from .cases import NOW, FlatAdam

    optimizer = FlatAdam([agent.actor, agent.critic], config())
    gradients = engine.NativeEngine(kernels(), agent, print)
    results = []
    for sequences in (8, 3, 8, 20, 8):
        gradients.run(make_batch(agent, 5, sequences), config(), NOW)
        results.append(optimizer.gradient.clone())
    assert torch.equal(results[0], results[2]) and torch.equal(results[0], results[4])
