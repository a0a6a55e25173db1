"""Training on a GPU: pytest -m gpu tests/device. The tests of a simulated device, on a real one."""

from dataclasses import replace

import pytest
import torch

import recollect
from recollect import cli, memory
from recollect.common import tree
from recollect.common.devices import automatic, describe, synchronize
from recollect.config.presets import MODELS
from recollect.run import bench

from ..helpers import CRITICS, branch, small_memory
from .runs import (
    CASES,
    FUNCTIONS,
    KINDS,
    assert_equal_numbers,
    assert_resumes_equally,
    available,
    metrics_of,
    run,
    weights_of,
)

GPU = automatic() or "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(automatic() is None, reason="torch sees no GPU on this machine"),
]
SHORT = {"env.num_envs": 8, "ppo.num_steps": 32, "rollouts": 3, "steps": None, "save_interval": 1}
OPTIONS = {
    "predictions": {
        "actor.predict": ("obs", "reward", "hidden"),
        "critic.predict": ("obs",),
        "env.mask": (1, 3),
        "env.hidden": True,
    },
    "intrinsic rewards": {"ppo.rnd_coef": 0.5},
    "hl-gauss": {"critic.value": "hl-gauss", "env.reward_scale": 100.0, "env.normalize_reward": False},
    "popart": {"critic.value": "popart", "env.reward_scale": 100.0, "env.normalize_reward": False},
}
ACTORS = [*memory.available(), "shared, gpt2", "residual", "previous inputs", "Pendulum"]
only_cuda = pytest.mark.skipif(GPU != "cuda", reason="graphs and limits of memory are CUDA's")


def train(out, model="ppo", env="CartPole-v1", **options):
    return recollect.train(env, model, seed=5, options={**SHORT, **options}, out=out, quiet=True)


@pytest.mark.parametrize("model", MODELS)
def test_every_preset_trains(model, tmp_path):
    there, here = (train(tmp_path / device, model, device=device) for device in (GPU, "cpu"))
    assert there.agent.device.type == GPU
    ours, theirs = metrics_of(there)[-1], metrics_of(here)[-1]
    assert ours["step"] == pytest.approx(theirs["step"], rel=0.1)
    assert ours["ratio_error"] < 1e-3 and ours["value_error"] < 1e-3


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_run_gives_the_numbers_of_the_cpu_and_resumes_to_the_bit(name, tmp_path):
    case = available(name)
    here = run(tmp_path / "cpu", case, "cpu", kernels="torch")
    there = run(tmp_path / "gpu", case, GPU, save_interval=1)
    assert_equal_numbers(there, here, GPU)
    if case.env not in FUNCTIONS:  # `resume` finds environments by their ids
        assert_resumes_equally(there, 1)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_give_the_numbers_of_the_cpu_and_resume_to_the_bit(name, tmp_path):
    here = run(tmp_path / "cpu", CASES["gru"], "cpu", kernels="torch", **OPTIONS[name])
    there = run(tmp_path / "gpu", CASES["gru"], GPU, save_interval=1, **OPTIONS[name])
    assert_equal_numbers(there, here, GPU)
    assert_resumes_equally(there, 1)


def test_past_selves_play_as_on_the_cpu(tmp_path):
    pytest.importorskip("pettingzoo")
    case, options = replace(CASES["gru"], env="pettingzoo:tests.envs.teams:Rounds"), {"env.self_play": 1}
    here = run(tmp_path / "cpu", case, "cpu", kernels="torch", **options)
    there = run(tmp_path / "gpu", case, GPU, **options)
    assert_equal_numbers(there, here, GPU)


@pytest.mark.parametrize("name", memory.available())
def test_memories_give_the_outputs_and_gradients_of_the_cpu(name):
    if GPU == "mps":
        pytest.skip("mps has no float64")
    torch.manual_seed(0)
    net = small_memory(name).build(5).double().eval()
    x, first = torch.randn(40, 3, 5, dtype=torch.float64), torch.rand(40, 3) < 0.1
    results = []
    for device in ("cpu", GPU):
        net.to(device).zero_grad()
        inputs = x.clone().to(device).requires_grad_()
        y, after = net(inputs, net.initial_state(3), first.to(device))
        y.square().sum().backward()
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        tensors = [y, *tree.leaves(after).values(), inputs.grad, *gradients]
        results.append([one.detach().cpu() for one in tensors])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("critic", CRITICS)
def test_an_agent_acts_alike_wherever_it_is(critic, tmp_path):
    actor = branch("lstm" if critic == "shared" else critic)
    options = {"actor": actor.memory.name, "critic": critic, "device": GPU}
    trained = train(tmp_path, **options)
    here, there = (recollect.load(trained.folder, device=device) for device in ("cpu", GPU))
    assert here.agent.device.type == "cpu" and there.agent.device.type == GPU
    assert here.evaluate(5).returns == pytest.approx(there.evaluate(5).returns, rel=0.2)


@pytest.mark.parametrize("options", [{"amp": "bf16"}, {"compile": True}, {"amp": "bf16", "compile": True}])
@pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles
def test_faster_networks_agree_with_themselves(options, tmp_path):
    model = train(tmp_path, "ppo_gpt_actor", device=GPU, **options)
    assert metrics_of(model)[-1]["ratio_error"] < (0.2 if "amp" in options else 1e-2)


@only_cuda
@pytest.mark.parametrize(
    "name", [*memory.available(), "shared, gpt2", "residual", "previous inputs", "Pendulum"]
)
def test_replays_give_the_bits_of_acting(name, tmp_path):
    plain, graphed = (
        run(tmp_path / str(flag), CASES[name], GPU, cuda_graphs=flag, rollouts=3) for flag in (False, True)
    )
    for key, x in weights_of(graphed).items():
        assert torch.equal(x, weights_of(plain)[key]), key


@only_cuda
def test_a_full_gpu_is_one_line(tmp_path, capsys):
    command = f"train CartPole-v1 -m ppo_gpt_actor --device cuda --out {tmp_path}"
    size = "--actor.memory.width 2048 --actor.memory.layers 8 --actor.memory.heads 16"
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        assert cli.main([*command.split(), *size.split()]) == 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert (
        "recollect: OutOfMemoryError: cuda is out of memory; checkpoints are intact."
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("width", "device"), [(16, "cpu"), (1024, GPU)])
def test_auto_takes_the_gpu_for_large_networks(width, device, tmp_path, capsys):
    command = f"train CartPole-v1 --device auto --rollouts 1 --out {tmp_path} --actor.hidden {width} {width}"
    assert cli.main(command.split()) == 0
    assert f"device: {device} ({describe(torch.device(device))})" in capsys.readouterr().out


def test_bench_waits_for_the_device(monkeypatch, capsys):
    waits = []
    monkeypatch.setattr(bench, "synchronize", lambda device: waits.append(device) or synchronize(device))
    monkeypatch.setattr(bench, "SECONDS", 1.0)
    assert cli.main(["bench", "CartPole-v1", "--device", GPU]) == 0
    assert describe(torch.device(GPU)) in capsys.readouterr().out
    assert len(waits) >= 9 and {device.type for device in waits} == {GPU}
