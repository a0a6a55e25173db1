"""The contract of encoders: built-in ones keep it, each violation is named, and custom ones train."""

from dataclasses import dataclass, replace
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import recollect
from recollect import encoder
from recollect.agent.agent import BranchConfig, build_agent
from recollect.cli import main
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble, from_dict
from recollect.config.config import RunConfig
from recollect.config.data import config_hash, to_dict
from recollect.encoder import Encoder, EncoderConfig
from recollect.encoder.mixed import MixedConfig
from recollect.encoder.nature import NatureConfig
from recollect.encoder.residual import ResidualConfig
from recollect.envs.spaces import read_spaces
from recollect.native.nodes import UnsupportedError
from recollect.native.program import Network
from recollect.testing import check_agent, check_encoder

from ..helpers import sampled


@pytest.mark.parametrize("name", sampled(encoder.available(), "mlp", "mixed"))
def test_built_in_encoders_keep_the_contract(name, capsys):
    check_encoder(encoder.find(name)())
    assert "hold for a vector, categories, a picture, a Dict of all three" in capsys.readouterr().out


# Violations -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LinearConfig(EncoderConfig):
    """A layer on a vector; each test breaks one thing of it."""

    name: ClassVar[str] = "line"
    kind: str = "plain"

    def build(self, obs):
        if [leaf.kind for leaf in obs.leaves.values()] != ["vector"]:
            raise UsageError("line needs one vector")
        return KINDS[self.kind](obs.leaves["obs"].width)


class Line(Encoder):
    def __init__(self, width):
        super().__init__()
        self.layer, self.out_dim = nn.Linear(width, 6), 6

    def forward(self, obs, dtype):
        return self.layer(obs["obs"].to(dtype))


class Flat(Line):
    def forward(self, obs, dtype):
        return super().forward(obs, dtype).flatten(0, 1)


class Single(Line):
    def forward(self, obs, dtype):
        return super().forward(obs, dtype).float()


class Double(Line):
    def forward(self, obs, dtype):
        return super().forward(obs, dtype).double()


class Divides(Line):
    def forward(self, obs, dtype):
        return super().forward(obs, dtype) / 0


class Pair(Line):
    def forward(self, obs, dtype):
        return super().forward(obs, dtype), ()


class Unmeasured(Line):
    def __init__(self, width):
        super().__init__(width)
        del self.out_dim


class Counting(Line):
    calls = 0

    def forward(self, obs, dtype):
        self.calls += 1
        return super().forward(obs, dtype)


class InPlace(Line):
    def forward(self, obs, dtype):
        obs["obs"].mul_(0.5)
        return super().forward(obs, dtype)


class Noisy(Line):
    def forward(self, obs, dtype):
        y = super().forward(obs, dtype)
        return y + 0.01 * torch.randn_like(y)


class BatchNormed(Line):
    def forward(self, obs, dtype):
        y = super().forward(obs, dtype)
        return y - y.mean((0, 1))


class Numpy(Line):
    random = np.random.default_rng(0)

    def __init__(self, width):
        super().__init__(width)
        self.layer.weight.data += torch.from_numpy(self.random.standard_normal((6, width))).float()


class Detached(Line):
    def forward(self, obs, dtype):
        return nn.functional.linear(obs["obs"].to(dtype), self.layer.weight.detach(), self.layer.bias)


KINDS = {
    "plain": Line,
    "shapes": Flat,
    "dtype": Single,
    "dtype, features are torch.float64, not the dtype of the call, torch.float32": Double,
    "shapes, forward returns numbers that are not finite": Divides,
    r"shapes, forward returns \(tensor": Pair,
    "build, the encoder has no out_dim": Unmeasured,
    "pure, a call changes calls of the module": Counting,
    "pure, a call modifies its observations": InPlace,
    "pure, the same observations": Noisy,
    "steps": BatchNormed,
    "seed": Numpy,
    "gradient": Detached,
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plain"])
def test_each_violation_is_named(kind):
    rule, _, problem = kind.partition(", ")
    with pytest.raises(AssertionError, match=f"contract, {rule}: {problem}"):
        check_encoder(LinearConfig(kind=kind))


def test_spaces_that_an_encoder_refuses_are_named(capsys):
    check_encoder(LinearConfig())
    text = capsys.readouterr().out
    assert "hold for a vector; refused: categories: line needs one vector; a picture" in text
    with pytest.raises(AssertionError, match="build refuses every space"):
        check_encoder(LinearConfig(), gym.spaces.Discrete(3))


# In an agent and a run ------------------------------------------------------------------------

MIXED = gym.spaces.Dict(
    camera=gym.spaces.Box(0, 255, (16, 16), np.uint8),
    speed=gym.spaces.Box(-1.0, 1.0, (2,)),
    inventory=gym.spaces.MultiDiscrete([3, 4]),
)


class MixedEnv(gym.Env):
    """Rewards action 1; observations of all kinds."""

    observation_space, action_space = MIXED, gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), float(action == 1), self.t == 8, False, {}


@pytest.mark.parametrize("config", [MixedConfig(width=8), ResidualConfig(features=8)], ids=str)
def test_dict_observations_give_equal_outputs_in_acting_and_learning(config):
    cfg = BranchConfig(hidden=(8,), encoder=config, prev_action=True)
    agent = build_agent(read_spaces(MIXED, MixedEnv.action_space), cfg, cfg, True, seed=0)
    check_agent(agent, length=3)


def test_a_custom_encoder_by_class_trains_resumes_and_loads(tmp_path):
    options = {"rollouts": 2, "env.num_envs": 2, "ppo.num_steps": 16, "ppo.num_minibatches": 2}
    chosen = {"actor.encoder": MixedConfig(width=8), "critic.encoder": MixedConfig}
    run = recollect.train(MixedEnv, options=options | chosen, out=tmp_path, quiet=True)
    assert run.config.actor.encoder == MixedConfig(width=8) and run.config.critic.encoder == MixedConfig()
    again = recollect.load(run.folder, env=MixedEnv)
    assert again.evaluate(2).returns == run.evaluate(2).returns


def test_third_party_encoders_need_permission_to_be_imported():
    name = f"{__name__}:LinearConfig"
    config = assemble(["-e", "CartPole-v1", "--actor.encoder", name, "--actor.encoder.kind", "plain"])
    assert config.actor.encoder == LinearConfig()
    data = to_dict(config)
    assert data["actor"]["encoder"] == {"name": name, "kind": "plain"}
    with pytest.raises(UsageError, match="allow it with --imports"):
        from_dict(data)
    assert from_dict(data, [name]) == config


def test_options_of_earlier_versions_name_the_same_encoders():
    old = ["--actor.pictures", "residual", "--critic.picture-features", "none"]
    config = assemble(["-e", "CartPole-v1", *old])
    assert config.actor.encoder == ResidualConfig() and config.critic.encoder == NatureConfig(features=None)
    data = to_dict(config)
    for branch in ("actor", "critic"):
        part = data[branch].pop("encoder")
        data[branch] |= {"pictures": part["name"], "picture_features": part["features"]}
    assert from_dict(data) == config
    # That of a run of an earlier version with these options: comparisons find it again.
    assert config_hash(config) == "e1800045dc996107"


def test_an_encoder_that_a_flag_names_has_none_of_the_file_s_options(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("actor.pictures: nature\nactor.picture_features: 7\n")
    assert assemble(["-e", "X", "--config", str(file)]).actor.encoder == NatureConfig(features=7)
    mixed = assemble(["-e", "X", "--config", str(file), "--actor.encoder", "mixed"])
    assert mixed.actor.encoder == MixedConfig()


def test_native_kernels_take_encoders_by_exact_type():
    spec = read_spaces(gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2))
    Network(build_agent(spec, BranchConfig(), BranchConfig(), False, 0).actor, "actor")
    for config in (MixedConfig(), LinearConfig()):
        with pytest.raises(UnsupportedError, match="encoder"):
            Network(build_agent(spec, BranchConfig(encoder=config), BranchConfig(), False, 0).actor, "actor")


def test_the_default_encoder_is_that_of_earlier_versions():
    assert RunConfig().actor.encoder == NatureConfig()
    assert replace(BranchConfig(), hidden=()).encoder.features == 256


def test_every_tool_takes_custom_parts_of_a_saved_run(tmp_path, capsys):
    name = f"{__name__}:LinearConfig"
    options = {"rollouts": 1, "env.num_envs": 2, "ppo.num_steps": 16, "ppo.num_minibatches": 2}
    run = recollect.train(
        "CartPole-v1", "ppo_gru", options={**options, "actor.encoder": name}, out=tmp_path, quiet=True
    )
    with pytest.raises(UsageError, match=f"allow it with --imports {name}"):
        recollect.probe(run.folder, 10)
    assert recollect.probe(run.folder, 10, imports=[name]).actor == "gru"
    assert recollect.watch(run.folder, tmp_path / "x.html", episodes=1, shown=1, imports=[name]).exists()
    command = ["probe", str(run.folder), "--episodes", "10", "-e", "CartPole-v1", "--imports", name]
    assert main(command) == 0 and "probe.html" in capsys.readouterr().out
