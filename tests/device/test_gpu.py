"""Training on a GPU: pytest -m gpu. What these tests compare is compared on a simulated device elsewhere."""

import json

import pytest
import torch

import recollect
from recollect import cli, memory
from recollect.common import tree
from recollect.common.devices import automatic, describe, synchronize
from recollect.config.presets import MODELS
from recollect.run import bench, checkpoint

from ..helpers import CRITICS, branch, set_status

GPU = automatic() or "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(automatic() is None, reason="torch sees no GPU on this machine"),
]
SHORT = {"env.num_envs": 8, "ppo.num_steps": 32, "rollouts": 3, "steps": None, "save_interval": 1}
RESUMED = ["gru", "lstm", "gpt2", "trxl"]


def train(out, model="ppo", env="CartPole-v1", **options):
    return recollect.train(env, model, seed=5, options={**SHORT, **options}, out=out, quiet=True)


def weights_of(trained):
    return checkpoint.read(trained.folder / "checkpoints" / "last.safetensors")[0]


def last_metrics(trained):
    return json.loads((trained.folder / "metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize("model", MODELS)
def test_every_preset_learns_what_it_learns_on_the_cpu(model, tmp_path):
    there, here = (train(tmp_path / device, model, device=device) for device in (GPU, "cpu"))
    assert there.agent.device.type == GPU
    ours, theirs = last_metrics(there), last_metrics(here)
    assert ours["step"] == pytest.approx(theirs["step"], rel=0.1)
    assert ours["ratio_error"] < 1e-3 and ours["value_error"] < 1e-3


@pytest.mark.parametrize("name", memory.available())
def test_memories_give_the_outputs_and_gradients_of_the_cpu(name):
    if GPU == "mps":
        pytest.skip("mps has no float64")
    torch.manual_seed(0)
    net = memory.find(name)().build(5).double().eval()
    x, first = torch.randn(9, 3, 5, dtype=torch.float64), torch.rand(9, 3) < 0.3
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


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_equals_one_that_was_not_stopped(name, tmp_path):
    options = {"actor": name, "critic": name, "device": GPU, "env.time_limit": 9}
    whole = train(tmp_path, **options)
    before = weights_of(whole)
    checkpoint.existing(whole.folder / "checkpoints")[-1].unlink()
    (whole.folder / "checkpoints" / "last.safetensors").unlink()
    set_status(whole.folder)
    for key, x in weights_of(recollect.resume(whole.folder, quiet=True)).items():
        assert torch.equal(x, before[key]), key


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
    assert last_metrics(model)["ratio_error"] < (0.2 if "amp" in options else 1e-2)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_replays_give_the_bits_of_acting(name, tmp_path):
    if GPU != "cuda":
        pytest.skip("graphs are CUDA's")
    options = {"actor": name, "critic": name, "device": GPU}
    plain, graphed = (train(tmp_path / str(flag), cuda_graphs=flag, **options) for flag in (False, True))
    for key, x in weights_of(graphed).items():
        assert torch.equal(x, weights_of(plain)[key]), key


def test_bench_waits_for_the_device(monkeypatch, capsys):
    waits = []
    monkeypatch.setattr(bench, "synchronize", lambda device: waits.append(device) or synchronize(device))
    monkeypatch.setattr(bench, "SECONDS", 1.0)
    assert cli.main(["bench", "CartPole-v1", "--device", GPU]) == 0
    assert describe(torch.device(GPU)) in capsys.readouterr().out
    assert len(waits) >= 9 and {device.type for device in waits} == {GPU}
