"""An exported graph computes what the agent computes, over episodes with resets, for all memories."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import recollect
from recollect import cli
from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.policies import Categorical
from recollect.agent.speed import faster
from recollect.common.errors import UsageError
from recollect.envs.spaces import ACTION_MASK, Extended, ExtendedObs, read_spaces
from recollect.memory.gpt2 import Gpt2Config
from recollect.run import onnx as onnx_export

from ..helpers import MEMORIES, branch, lively, run_quietly, sampled, small_config, small_memory

onnxruntime = pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[2]
VECTOR, CHOICES = spaces.Box(-5.0, 5.0, (4,), np.float32), spaces.MultiDiscrete([3, 2], start=[1, 0])
MIXED = spaces.Dict(
    {
        "code": spaces.MultiDiscrete([3, 4], start=[-1, 2]),
        "number": spaces.Discrete(5, start=3),
        "picture": spaces.Box(0, 255, (36, 36, 3), np.uint8),
        "switches": spaces.MultiBinary(3),
        "vector": spaces.Box(-5.0, 5.0, (2, 2), np.float32),
    }
)
BOUNDED = spaces.Box(np.float32([-1, -np.inf, 2]), np.float32([3, np.inf, 5]))
TYPES = {"float": np.float32, "int64": np.int64, "uint8": np.uint8, "bool": bool}


@pytest.fixture(autouse=True, scope="module")
def one_registry():
    """For each export torch lists its operators anew, which takes a fifth of the time of these tests."""
    from torch.onnx._internal.exporter import _registration

    with pytest.MonkeyPatch.context() as patch:
        listed = staticmethod(functools.cache(_registration.ONNXRegistry.from_torchlib))
        patch.setattr(_registration.ONNXRegistry, "from_torchlib", listed)
        yield


def type_of(tensor):
    return TYPES[tensor.type.removeprefix("tensor(").removesuffix(")")]


class Graph:
    """An exported agent: holds its state, as a program without recollect would."""

    def __init__(self, agent, path):
        onnx_export.export(agent, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)
        self.inputs = {tensor.name: tensor for tensor in self.session.get_inputs()}
        self.names = [tensor.name for tensor in self.session.get_outputs()]

    def begin(self, num_envs):
        states = {name: x for name, x in self.inputs.items() if name.startswith("state.")}
        self.carried = {name: np.zeros([num_envs, *x.shape[1:]], type_of(x)) for name, x in states.items()}

    def step(self, obs, first, reward, mask=None):
        flat = obs if isinstance(obs, dict) else {"obs": obs}
        feed = {name if name in self.inputs else f"obs.{name}": np.asarray(x) for name, x in flat.items()}
        feed |= {"reset": first, "prev_reward": reward, ACTION_MASK: mask, **self.carried}
        feed = {name: feed[name].astype(type_of(x)) for name, x in self.inputs.items() if name in feed}
        if "prev_action" in self.inputs:
            width = self.inputs["prev_action"].shape[1]
            kind = type_of(self.inputs["prev_action"])
            feed["prev_action"] = self.carried.get("choice", np.zeros((len(first), width), kind))
        out = dict(zip(self.names, self.session.run(None, {k: feed[k] for k in self.inputs}), strict=True))
        self.carried = {
            name.replace("next_", ""): x
            for name, x in out.items()
            if name.startswith(("next_state", "choice"))
        }
        return out


def sample(space, num_envs, random):
    if isinstance(space, spaces.Dict):
        return {key: sample(part, num_envs, random) for key, part in space.items()}
    space.seed(int(random.integers(2**31)))
    return np.stack([space.sample() for _ in range(num_envs)])


def assert_equal_over_episodes(agent, graph, observation, num_envs, steps=40, masked=False):
    player, random = agent.player(num_envs), np.random.default_rng(num_envs)
    graph.begin(num_envs)
    first, reward = np.ones(num_envs, dtype=bool), np.zeros(num_envs, dtype=np.float32)
    largest = 0.0
    for _ in range(steps):
        obs, mask = sample(observation, num_envs, random), None
        if masked:
            mask = random.random((num_envs, sum(agent.action_spec.sizes))) < 0.5
            mask[:, [0, 3]] = True
        action = player.act(ExtendedObs({"obs": obs, ACTION_MASK: mask}) if masked else obs, reward, first)
        out = graph.step(obs, first, reward, mask)
        params = player.inspect().params.numpy()
        np.testing.assert_allclose(out["params"], params, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(out["action"], action, rtol=1e-5, atol=1e-5)
        assert out["action"].dtype == np.asarray(action).dtype
        largest = max(largest, np.abs(params[params > -1e9]).max())
        first, reward = random.random(num_envs) < 0.15, random.normal(size=num_envs).astype(np.float32)
    assert largest > 0.1, "parameters near 0 would agree whatever the graph computes"


def built(observation, action, memory="mlp", normalize=True, layers=2, **options):
    """An agent with lively weights and statistics of observations."""
    actor = BranchConfig(memory=small_memory(memory, layers), hidden=(6,), **options)
    agent = lively(build_agent(read_spaces(observation, action), actor, branch("mlp"), normalize, 0))
    normalizer = agent.normalizer
    for i, _ in enumerate(normalizer.names):
        normalizer.get_buffer(f"mean{i}").fill_(0.7)
        normalizer.get_buffer(f"var{i}").fill_(2.5)
    normalizer.count.fill_(100)
    return agent


# The time of an export grows with the layers. One memory of each kind of stack has two: chained layers,
# residual blocks, and the two transformers, which keep a state for each block.
TWO_LAYERS = "gru", "linear_attention", "gpt2", "trxl"


@pytest.mark.parametrize("memory", sampled(MEMORIES, "gru"))
def test_every_memory(memory, tmp_path):
    layers = 2 if memory in TWO_LAYERS else 1
    agent = built(VECTOR, CHOICES, memory, layers=layers, prev_action=True, prev_reward=True)
    graph = Graph(agent, tmp_path / "agent.onnx")
    for num_envs in (1, 3):  # any number of environments by one file
        assert_equal_over_episodes(agent, graph, VECTOR, num_envs, steps=20)  # more than the context


@pytest.mark.thorough
def test_a_memory_that_takes_the_action_separately(tmp_path):
    apart = BranchConfig(memory=Gpt2Config(tokens="interleaved", context=5, layers=1), hidden=(6,))
    agent = lively(build_agent(read_spaces(VECTOR, spaces.Discrete(3)), apart, branch("mlp"), False, 0))
    assert_equal_over_episodes(agent, Graph(agent, tmp_path / "agent.onnx"), VECTOR, 2)


def test_every_kind_of_observation(tmp_path):
    agent = built(MIXED, spaces.Discrete(4, start=-2), "gru")
    assert_equal_over_episodes(agent, Graph(agent, tmp_path / "agent.onnx"), MIXED, 3, steps=15)


class Constant(torch.nn.Module):
    """A layer that uses the number of environments as a constant."""

    def forward(self, x):
        return x.reshape(len(x), len(x[0]), -1)


def test_a_graph_of_one_batch_size_is_refused(tmp_path):
    agent = built(VECTOR, spaces.Discrete(4), "mlp")
    agent.actor.encoder = torch.nn.Sequential(*agent.actor.encoder, Constant())
    with pytest.raises(UsageError, match=r"batches of 2 alone .*write x\.shape\[0\] for len\(x\)"):
        onnx_export.export(agent, tmp_path / "agent.onnx")
    assert not (tmp_path / "agent.onnx").exists()


@pytest.mark.thorough
def test_real_actions(tmp_path):
    agent = built(VECTOR, BOUNDED, "lstm", prev_action=True)
    assert_equal_over_episodes(agent, Graph(agent, tmp_path / "agent.onnx"), VECTOR, 3)


def test_bounds_whose_difference_is_no_float32(tmp_path):
    agent = built(VECTOR, spaces.Box(-3e38, 3e38, (2,), np.float32), "mlp")
    graph, player = Graph(agent, tmp_path / "agent.onnx"), agent.player(3)
    graph.begin(3)
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    actions = graph.step(obs, np.ones(3, bool), np.zeros(3))["action"], player.act(obs)
    np.testing.assert_allclose(*(action / 3e38 for action in actions), atol=1e-5)
    assert 0 < np.abs(actions[0]).max() < 3e38


WIDE = spaces.Box(np.float64([-0.1, -1e300, -np.inf]), np.float64([0.1, 1e300, 0.1]), dtype=np.float64)


@pytest.mark.parametrize("actions", [WIDE, spaces.Box(-0.1, 0.1, (3,), np.float16)], ids=["64", "16"])
def test_actions_have_the_type_of_the_environment_and_are_in_its_bounds(actions, tmp_path):
    agent = built(VECTOR, actions, "mlp", prev_action=True)
    graph, player, random = Graph(agent, tmp_path / "agent.onnx"), agent.player(3), np.random.default_rng(0)
    graph.begin(3)
    first = np.ones(3, bool)
    for size in (1, 1000, 1):  # between the bounds, at them, and after actions that were clipped to them
        obs = (size * random.normal(size=(3, 4))).astype(np.float32)
        out, action = graph.step(obs, first, np.zeros(3)), player.act(obs)
        assert out["action"].dtype == action.dtype == actions.dtype
        scale = np.maximum(np.abs(action), 1)
        np.testing.assert_allclose(out["action"] / scale, action / scale, atol=1e-3)
        assert all(actions.contains(one) for one in out["action"])
        first[:] = False


class Replaced:
    """A method that `faster` has replaced; a CUDA graph can be neither copied nor exported."""

    def __call__(self, *inputs):
        raise AssertionError("an export takes the methods of the class")

    __deepcopy__ = __call__


def test_an_export_while_training_is_that_of_the_agent_after_it(tmp_path):
    agent = built(VECTOR, spaces.Discrete(4), "mlp")
    with faster(agent, bf16=True, compiled=False):
        vars(agent.actor)["features"] = vars(agent.actor)["forward"] = Replaced()
        graph = Graph(agent, tmp_path / "agent.onnx")
        assert agent.actor.bf16 and isinstance(vars(agent.actor)["features"], Replaced)
    assert_equal_over_episodes(agent, graph, VECTOR, 3, steps=5)


def test_action_masks(tmp_path):
    agent = built(
        Extended({"obs": VECTOR, ACTION_MASK: spaces.MultiBinary(5)}), CHOICES, "lstm", prev_action=True
    )
    graph = Graph(agent, tmp_path / "agent.onnx")
    assert_equal_over_episodes(agent, graph, VECTOR, 3, masked=True)
    graph.begin(1)
    mask = np.array([[False, True, True, True, True]])
    out = graph.step(np.zeros((1, 4)), np.array([True]), np.zeros(1), mask)
    assert torch.from_numpy(out["params"])[:, :3].softmax(-1)[0, 0] == 0


def test_hidden_entries_stay_hidden(tmp_path):
    spec = read_spaces(VECTOR, spaces.Discrete(3), mask=(1, 3))
    agent = lively(build_agent(spec, branch("gru"), branch("mlp"), False, 0))
    assert_equal_over_episodes(agent, Graph(agent, tmp_path / "agent.onnx"), VECTOR, 2)


def test_only_observations_are_masked_and_no_hidden_variables(tmp_path):
    hidden = spaces.Box(-1, 1, (2,), np.float32)  # fewer entries than the mask counts
    spec = read_spaces(Extended({"obs": VECTOR, "hidden": hidden}), spaces.Discrete(3), mask=(1, 3))
    actor = BranchConfig(memory=small_memory("gru", 1), hidden=(6,), sees=("obs", "hidden"))
    agent = lively(build_agent(spec, actor, branch("mlp"), False, 0))
    graph, player, random = Graph(agent, tmp_path / "agent.onnx"), agent.player(2), np.random.default_rng(0)
    graph.begin(2)
    for first in (np.ones(2, bool), np.zeros(2, bool)):
        obs = {"obs": random.normal(size=(2, 4)), "hidden": random.normal(size=(2, 2))}
        obs = {name: x.astype(np.float32) for name, x in obs.items()}
        player.act(ExtendedObs(obs), np.zeros(2), first)
        out = graph.step(obs, first, np.zeros(2))
        np.testing.assert_allclose(out["params"], player.inspect().params.numpy(), rtol=1e-5, atol=1e-5)


def test_a_run_is_exported_by_the_command_and_the_example_of_the_docs_plays_it(tmp_path, capsys):
    run = run_quietly(small_config(actor=branch("lstm")), tmp_path)
    assert cli.main(["export", str(run.folder), str(tmp_path / "agent.onnx")]) == 0
    assert "agent.onnx" in capsys.readouterr().out
    text = (ROOT / "docs/onnx.md").read_text()
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "onnxruntime" in code
    ]
    assert len(example.strip().splitlines()) <= 30 and "recollect" not in example
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    obs, _ = (env := gym.make("CartPole-v1")).reset(seed=0)
    player, total, over = run.player(), 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(player.act(obs))
        total, over = total + reward, terminated or truncated
    assert float(done.stdout) == total


def test_the_agent_is_as_before_after_an_export(tmp_path):
    agent = built(VECTOR, CHOICES, "gru", prev_action=True)
    obs = np.ones((1, 4), np.float32)
    before = agent.player().act(obs[0]), agent.player()
    onnx_export.export(agent, tmp_path / "agent.onnx")
    assert np.array_equal(agent.player().act(obs[0]), before[0])
    assert isinstance(agent.policy, Categorical)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs onnx and onnxscript: pip install 'recollect-rl\[onnx\]'"):
        onnx_export.export(built(VECTOR, CHOICES), tmp_path / "agent.onnx")
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "agent.onnx").touch()
    run = recollect.train("CartPole-v1", steps=1, out=tmp_path, quiet=True)
    assert cli.main(["export", str(run.folder), str(tmp_path / "agent.onnx")]) == 2


@pytest.mark.parametrize("words", [["eval"], ["export"], ["record"], ["watch"]], ids=lambda words: words[0])
def test_a_graph_is_no_saved_agent(words, tmp_path, capsys):
    (graph := tmp_path / "agent.onnx").touch()
    assert cli.main([*words, str(graph), *([str(tmp_path / "x.onnx")] if words == ["export"] else [])]) == 2
    assert f"{graph} is an ONNX graph, which other programs act with; give the run" in capsys.readouterr().err
