"""Short runs that are compared between devices: every kind of run of the equality cases."""

import importlib.util
import json

import pytest
import torch
from benchmarks.equality_cases import CASES, MEMORIES, SMALL
from benchmarks.equality_runs import timed_cartpole

import recollect
from recollect.run import checkpoint

from ..helpers import set_status

FUNCTIONS = {"timed_cartpole": timed_cartpole}
# A simulated operation takes longer than the arithmetic, so runs are shorter than those of the CPU's tests.
SHORT = {
    "rollouts": 2,
    "env.time_limit": 9,
    "ppo.num_steps": 16,
    "ppo.update_epochs": 1,
    "ppo.num_minibatches": 2,
}
COMPARED = "policy_loss", "value_loss", "entropy", "kl", "explained_variance", "return", "val_return"
# Cases that show the device nothing new: presets that differ from ppo_gru by their memory, which has a small
# case, and environments, which stay on the CPU, whose kinds of observations and actions have another case.
COVERED = {
    *(f"preset ppo_{name}" for name in MEMORIES.keys() - {"gru"}),
    *("Acrobot", "PendulumNoVel", "MountainCarContinuousNoVel", "a config file", "poc", "probe:recall"),
    *("EnvPool, CartPole", "EnvPool, Pendulum", "EnvPool, LunarLander", "MiniGrid, EnvPool"),
}
KINDS = [name for name, case in CASES.items() if case.run == "train" and name not in COVERED]


def available(name):
    """A case, if the package that it needs is installed."""
    case = CASES[name]
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    return case


def options_of(case):
    options = {**SMALL, **SHORT, **case.options}
    if "ppo.batch_size" in options:
        del options["ppo.num_minibatches"]
    return options


def run(folder, case, device, **options):
    options = {**options_of(case), "device": device, **options}
    env = FUNCTIONS.get(case.env, case.env)
    return recollect.train(env, case.model, seed=5, options=options, out=folder, run_id="run", quiet=True)


def metrics_of(trained):
    return [json.loads(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]


def weights_of(trained):
    return checkpoint.read(trained.folder / "checkpoints" / "last.safetensors")[0]


def die_after(trained, iteration):
    """Leave the folder of a run as if it had died after a rollout."""
    for path in (trained.folder / "checkpoints").glob("iteration-*"):
        if path.name > f"iteration-{iteration:08}.safetensors":
            path.unlink()
    (trained.folder / "checkpoints" / "last.safetensors").unlink()
    set_status(trained.folder)
    return trained.folder


def assert_resumes_equally(trained, iteration):
    """A run that is resumed on its device after a rollout ends with the weights that it had."""
    before, device = weights_of(trained), trained.agent.device
    resumed = recollect.resume(die_after(trained, iteration), quiet=True)
    assert resumed.agent.device == device
    for key, x in weights_of(resumed).items():
        assert torch.equal(x, before[key]), key


def assert_equal_numbers(there, here, device):
    """A run on a device has the metrics and the weights of one on the CPU, up to rounding."""
    assert there.agent.device.type == there.config.device == device
    for ours, theirs in zip(metrics_of(there), metrics_of(here), strict=True):
        assert ours["step"] == theirs["step"]
        for key in COMPARED:
            x, y = ours[key], theirs[key]
            assert x is y is None or x == pytest.approx(y, rel=5e-3, abs=5e-4, nan_ok=True), key
    weights = weights_of(here)
    for key, x in weights_of(there).items():
        assert x.is_cpu
        torch.testing.assert_close(x, weights[key], rtol=1e-2, atol=5e-3)
