"""A run of one of MarcoMeter's repositories at github.com, from a checkout that is not changed.

recurrent-ppo-truncated-bptt and episodic-transformer-memory-ppo have a trainer of the same shape.

Settings: peer (the checkout), config (a file in it), seed, metric (return or success), target, cap,
steps (instead of a target), threads (None: torch's choice) and, for the former, padding.

What the code of its time needs with today's packages is supplied from outside:

- modules that it imports and these runs never call are empty;
- Gymnasium answers for gym, of which these runs use the spaces alone;
- its YAML is read with PyYAML instead of ruamel.yaml;
- its workers are forked, as they always were where it was written;
- it has no seed: torch is seeded here, and in each worker numpy and the environment. Without that,
  forked workers would all draw the same numbers;
- it writes its summaries into a folder that is deleted;
- its workers wait forever when training stops early: they are ended.

padding is episode, as the code is, or sequence. Recurrent PPO cuts rollouts into short sequences and
pads each to the longest episode (its issue 19), so 84x84 pictures need 22 GB and more. With sequence
they are padded to the longest sequence: the same gradients, in its favour.

Its CartPole divides rewards by 100 for learning only; the episodes that it reports are raw.
"""

import contextlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import active_children, current_process
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch
import yaml

from ..common import Result, result

MEANS = {"return": "reward_mean", "success": "success_percent"}  # what it calls them
UNUSED = ("memory_gym", "gym_minigrid", "gym_minigrid.wrappers")  # by these runs


class Finished(Exception):
    """The target, the cap or the number of steps is reached."""


class Watch:
    """The clock and the means of the last 100 episodes: two methods of the trainer go through here."""

    def __init__(self, trainer: Any, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.rows = trainer.config["n_workers"] * trainer.config["worker_steps"]
        self.started, self.seconds, self.steps = 0.0, 0.0, 0
        self.episodes, self.mean, self.reached = 0, None, False
        self.sample, trainer._sample_training_data = trainer._sample_training_data, self.on_sample
        self.write, trainer._write_training_summary = trainer._write_training_summary, self.on_write

    def on_sample(self) -> list[Any]:
        """The first environment step starts the clock; what comes back are the episodes that ended."""
        self.started = self.started or time.perf_counter()
        episodes = self.sample()
        self.episodes += len(episodes)
        return episodes

    def on_write(self, update: int, training: Any, means: dict[str, Any]) -> None:
        """The end of an update, once it is logged."""
        self.write(update, training, means)
        self.seconds = time.perf_counter() - self.started
        self.steps += self.rows
        mean = means.get(MEANS[self.settings["metric"]])
        self.mean = None if mean is None else float(mean)
        target, steps, cap = (self.settings[key] for key in ("target", "steps", "cap"))
        enough = target is not None and self.mean is not None and self.mean >= target
        self.reached = enough and self.episodes >= 100 and self.seconds <= cap
        if self.reached or self.seconds >= cap or (steps is not None and self.steps >= steps):
            raise Finished


def run(settings: dict[str, Any]) -> Result:
    """Train with one of its configs."""
    peer = Path(settings["peer"]).resolve()
    config = yaml.safe_load((peer / settings["config"]).read_text())
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    build = _load(peer, settings["seed"], settings.get("padding"))
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        try:
            trainer = build(config)
            watch = Watch(trainer, settings)
            with contextlib.suppress(Finished):
                trainer.run_training()
            workers = sum(_own_megabytes(worker.pid) for worker in active_children())
        finally:
            for worker in active_children():
                worker.terminate()
                worker.join()
    target, cap = settings["target"], settings["cap"]
    seconds = watch.seconds if watch.reached or target is None else cap
    reached = None if target is None else watch.reached
    counts = min(seconds, cap), watch.steps, watch.mean, reached
    outcome = result(*counts, settings["metric"], watch.seconds, "a process each")
    return {**outcome, "memory_mb": outcome["memory_mb"] + workers}


def _load(peer: Path, seed: int, padding: str | None) -> Callable[[dict[str, Any]], Any]:
    """Its trainer's class, repaired."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(peer))
    multiprocessing.set_start_method("fork")
    _supply()
    torch.manual_seed(seed)
    trainer, worker = __import__("trainer"), __import__("worker")
    worker.create_env = _seeded(worker.create_env, seed)
    if padding == "sequence":
        trainer.Buffer._arange_sequences = _short(trainer.Buffer._arange_sequences)
    return trainer.PPOTrainer


def _supply() -> None:
    """What it imports, of what is not here or has another name by now."""
    sys.modules.update({"gym": gymnasium, "gym.spaces": gymnasium.spaces})
    for name in UNUSED:
        _stub(name)
    _stub("reprint", output=None)
    pickling = _stub("tblib.pickling_support", install=lambda: None)
    _stub("tblib", pickling_support=pickling)


def _stub(name: str, **attributes: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module
    return module


def _seeded(create: Callable[[Any], Any], seed: int) -> Callable[[Any], Any]:
    def create_seeded(config: Any) -> Any:
        number = int(current_process().name.rpartition("-")[2])
        np.random.seed([seed, number])  # noqa: NPY002 (what its environments draw from)
        env = create(config)
        if hasattr(env, "_env"):
            env._env.reset(seed=1000 * seed + number)
        return env

    return create_seeded


def _short(arrange: Callable[..., Any]) -> Callable[..., Any]:
    def arrange_short(buffer: Any, data: Any, ends: Any) -> tuple[list[Any], int]:
        sequences, _ = arrange(buffer, data, ends)
        return sequences, max(map(len, sequences))

    return arrange_short


def _own_megabytes(pid: int | None) -> float:
    """What a worker holds beside what it shares with the process that it was forked from."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
