"""What is done with a trained agent gives the numbers of the CPU on another device."""

import copy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from recollect import cli
from recollect.agent.agent import build_agent
from recollect.config.config import RunConfig
from recollect.envs import EnvConfig, make
from recollect.probing.contents import measure_contents
from recollect.probing.interventions import measure_spread
from recollect.probing.measure import probe
from recollect.probing.open_loop import number_episodes
from recollect.probing.readout import build_untrained, collect_material
from recollect.run import api, onnx
from recollect.run.recording import has_memory, record_deterministic
from recollect.run.run import Trained
from recollect.run.teaching import clone_teacher
from recollect.watching.internals import compute_internals

from ..helpers import CRITICS, branch, lively, run_quietly, sampled, small_config
from . import fake

D = fake.install()
ENV = EnvConfig(id="CartPole-v1", num_envs=4, backend="gymnasium", mask=(1, 3), time_limit=15)


def trained(actor, critic):
    """An agent with lively weights on the CPU, and the same on the device."""
    config = RunConfig(env=ENV, actor=branch(actor), critic=branch(critic))
    envs = make(ENV)
    agent = lively(build_agent((envs.obs_spec, envs.action_spec), config.actor, config.critic, False, 0))
    envs.adapter.close()
    there = copy.deepcopy(agent).to(D)
    return [Trained(one, config, Path("by-hand"), {}) for one in (agent, there)]


def numbers(value):
    """All numbers and texts of nested data, in one order."""
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, dict):
        return [x for key, one in value.items() for x in (key, *numbers(one))]
    if isinstance(value, (list, tuple)):
        return [x for one in value for x in numbers(one)]
    return [value]


def assert_close(ours, theirs):
    for x, y in zip(numbers(ours), numbers(theirs), strict=True):
        if isinstance(x, np.ndarray):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)
        elif isinstance(x, float):
            assert x == pytest.approx(y, rel=1e-3, abs=1e-4, nan_ok=True)
        else:
            assert x == y


@pytest.mark.parametrize("critic", sampled(CRITICS, "gru", "stack", "gpt2", "shared"))
def test_watch_computes_the_same(critic):
    results = []
    for one in trained(critic if critic != "shared" else "lstm", critic):
        envs = make(replace(ENV, num_envs=1))
        scores, record = record_deterministic(one.agent, envs, 1, 0)
        envs.adapter.close()
        rows = record.rows
        assert all(x.is_cpu for x in (*rows.obs.values(), rows.first, rows.prev_action, rows.prev_reward))
        names = tuple("memory" if has_memory(b) else None for b in (one.agent.actor, one.agent.critic.trunk))
        computed = compute_internals(one.agent, record, one.config.ppo, None, names)
        results.append((scores.returns, computed))
    assert_close(*results)


# A probe alters the leaves of a state: one memory for each kind of leaves, by their number, axes and dtypes.
PROBED = ["gru", "lstm", "stack", "shm", "linear_attention", "mlstm", "slstm", "gpt2", "trxl"]


@pytest.mark.parametrize("memory", sampled(PROBED, "gru"))
def test_probe_measures_the_same(memory):
    with fake.measured(float64=False):
        here, there = (probe(one, episodes=10) for one in trained(memory, memory))
    assert there.actor == memory
    assert_close(*map(without_noise, (there, here)))


def test_contents_of_a_memory_are_the_same():
    """With enough episodes for read-outs to be erased."""
    results = []
    for one in trained("gru", "mlp"):
        envs = make(replace(ENV, num_envs=30))
        _, record = record_deterministic(one.agent, envs, 30, 0)
        envs.adapter.close()
        material = collect_material(one.agent, one.config, record, 0)
        visited, episode = measure_spread(one.agent.actor, record), number_episodes(record, 30)
        arguments = material, material.read(), visited, episode, 0
        results.append(measure_contents(one.agent, record, *arguments))
    assert results[0].held and results[0].parts
    assert_close(*results)


def without_noise(result):
    """A result without the policy under noise, after which rounding decides: a normaliser may be near 0."""
    changes = [one for one in result.policy.changes if not one.name.startswith("noise")]
    return replace(result, policy=replace(result.policy, changes=changes))


def test_probe_measures_on_the_device():
    there = trained("gru", "gru")[1]
    envs = make(ENV)
    _, record = record_deterministic(there.agent, envs, 4, 0)
    envs.adapter.close()
    spread = measure_spread(there.agent.actor, record)
    untrained = build_untrained(there.agent, there.config, 0)
    tensors = (
        *spread.mean.values(),
        *spread.deviation.values(),
        *(w for net in untrained for w in net.parameters()),
    )
    assert tensors and all(fake.is_fake(x) for x in tensors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = small_config("CartPole-v1", rollouts=2, actor=branch("gru"), critic=branch("lstm"))
    return run_quietly(config, tmp_path_factory.mktemp("runs")).folder


@pytest.mark.parametrize(
    "command",
    sampled(
        ["eval --episodes 5", "watch -o out.html --episodes 2", "probe --episodes 10"], "eval --episodes 5"
    ),
)
def test_commands_take_a_device(command, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    loaded = []
    monkeypatch.setattr(
        api, "load", lambda *args, load=api.load, **kw: loaded.append(load(*args, **kw)) or loaded[-1]
    )
    name, *options = command.split()
    texts = []
    for device in ("cpu", "fake"):
        assert cli.main([name, str(folder), *options, "--device", device]) == 0
        texts.append(capsys.readouterr().out)
        assert loaded[-1].agent.device.type == device
    assert texts[0] == texts[1]


def test_a_player_acts_on_the_device_of_its_agent(folder):
    here, there = (api.load(folder, device=device).player(3) for device in ("cpu", "fake"))
    obs = np.random.default_rng(0).standard_normal((20, 3, 4)).astype(np.float32)
    for t in range(20):
        first = obs[t, :, 0] > 1
        np.testing.assert_array_equal(here.act(obs[t], first=first), there.act(obs[t], first=first))
        assert there.inspect().params.device.type == "fake"


def test_values_are_those_of_the_cpu():
    obs = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    here, there = (one.value(obs) for one in trained("gru", "lstm"))
    assert np.abs(here).max() > 0.01
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-4)


def test_a_student_learns_from_a_teacher_on_the_device():
    teacher = trained("gru", "mlp")[0].agent
    students = []
    for device in ("cpu", "fake"):
        config = small_config(
            "CartPole-v1", rollouts=2, actor=branch("gru"), critic=branch("mlp"), device=device
        )
        config = replace(config, env=replace(ENV, num_envs=4))
        learner, _ = clone_teacher(config, copy.deepcopy(teacher), "T", lambda _: None)
        assert learner.agent.device.type == device
        students.append([x.detach().cpu().numpy() for x in learner.agent.parameters()])
    assert_close(*students)


@pytest.mark.thorough
def test_an_exported_graph_is_that_of_the_agent_on_the_cpu(tmp_path):
    pytest.importorskip("onnxscript")
    graphs = []
    for name, one in zip(("here", "there"), trained("gru", "mlp"), strict=True):
        onnx.export(one.agent, tmp_path / f"{name}.onnx")
        graphs.append((tmp_path / f"{name}.onnx").read_bytes())
    assert graphs[0] == graphs[1]
