"""What several test files need: small runs, stops at a chosen iteration, comparisons bit for bit."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import torch

from recollect import checkpoint
from recollect.agent import BranchConfig
from recollect.config import RunConfig
from recollect.envs import EnvConfig
from recollect.log import Display
from recollect.run import Destination, Trained, start
from recollect.settings import Decay, PPOConfig

SMALL = BranchConfig(hidden=(16,))


def small_config(env_id: str = "CartPole-v1", backend: str = "gymnasium", **changes: object) -> RunConfig:
    """A run of ten short rollouts with everything switched on that carries state."""
    config = RunConfig(
        env=EnvConfig(
            id=env_id, num_envs=4, backend=backend, normalize_obs=True, normalize_reward=True, threads=1
        ),
        actor=SMALL,
        critic=SMALL,
        ppo=PPOConfig(
            num_steps=16, update_epochs=2, learning_rate=1e-2, lr_decay=Decay(final=0.0), ent_coef=0.01
        ),
        steps=None,
        rollouts=10,
        val_check_interval=0,
        save_interval=1,
        threads=1,
        seed=3,
    )
    return replace(config, **changes)


class StopAt(Display):
    """A screen that sends this process a signal after a chosen iteration, and remembers every line."""

    def __init__(self, iteration: int | None = None, number: signal.Signals = signal.SIGTERM) -> None:
        self.iteration, self.number = iteration, number
        self.said: list[str] = []

    def show(self, metrics, progress) -> None:
        if metrics["iteration"] == self.iteration:
            os.kill(os.getpid(), self.number)

    def say(self, text: str) -> None:
        self.said.append(text)


def run_quietly(config: RunConfig, out: Path, run_id: str = "run", **kwargs: object) -> Trained:
    """Train without a word."""
    return start(config, Destination(out=out, run_id=run_id, quiet=True), **kwargs)


def metrics_of(folder: Path) -> list[dict[str, float | None]]:
    """All lines of metrics.jsonl but for the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("time", "sps")} for row in rows]


def assert_same_end(one: Path, other: Path) -> None:
    """Two runs ended in the same state: every tensor, every counter, every metric, bit for bit."""
    a, b = (checkpoint.existing(folder / "checkpoints")[-1] for folder in (one, other))
    assert a.name == b.name
    (tensors_a, meta_a), (tensors_b, meta_b) = checkpoint.read(a), checkpoint.read(b)
    assert tensors_a.keys() == tensors_b.keys()
    for name, x in tensors_a.items():
        assert x.dtype == tensors_b[name].dtype and x.shape == tensors_b[name].shape, name
        bits, other_bits = (y.reshape(-1).view(torch.uint8) for y in (x, tensors_b[name]))
        assert torch.equal(bits, other_bits), name
    assert meta_a["counters"] == meta_b["counters"]
    assert meta_a.get("envs") == meta_b.get("envs")
    assert metrics_of(one) == metrics_of(other)
