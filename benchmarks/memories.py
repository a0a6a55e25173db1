"""Every memory beside a GRU of 64 units: speed at equal width and at equal parameters, state, acting time.

    python -m benchmarks.memories [--memories gru lru ...] [--rounds N]

Each memory trains PPO on CartPoleMasked, one per actor and critic: 64 environments, rollouts of 64 steps,
chunks of 16, 4 epochs, one thread, the kernels that a run takes by default. Times are CPU times of the
process and the best of the rounds, in which the memories take turns, so that other processes of the machine
disturb little.

    steps/s        environment steps per second of training, with a width of 64
    at equal size  the same with the width at which the memory has the parameters of the GRU
    sequence       forward and backward of 64 steps x 64 sequences x 64 features, by the module
    acting         one step of 16 sequences, by the module
    state          numbers for one environment

The result goes to benchmarks/results/memories.json, from which `python -m benchmarks.tables` writes a table.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recollect import memory
from recollect.common import malloc, tree
from recollect.config.config import RunConfig
from recollect.config.presets import preset, with_memory
from recollect.learn import ppo
from recollect.learn.rollout import Rollout
from recollect.memory import Memory, MemoryConfig
from recollect.memory.layers import LayeredConfig
from recollect.memory.sequences import use
from recollect.native.sequences import NativeSequences
from recollect.run.build import build, build_learner, training_mode
from recollect.run.kernels import engine

from . import cells

RESULT = Path(__file__).parent / "results" / "memories.json"
REFERENCE, WIDTH, ENVS, STEPS = "gru", 64, 64, 64
WIDTHS = range(8, 257, 8)  # heads divide them


def parameters(net: Memory) -> int:
    return sum(p.numel() for p in net.parameters())


def layered(name: str) -> LayeredConfig:
    """The config of a memory at the width of the benchmark."""
    kind = memory.find(name)
    assert issubclass(kind, LayeredConfig)
    return kind(width=WIDTH)


def of_equal_size(config: LayeredConfig, features: int, size: int) -> LayeredConfig:
    """The config with the width at which its memory has about `size` parameters."""
    configs = [replace(config, width=width) for width in WIDTHS]
    return min(configs, key=lambda c: abs(parameters(c.build(features)) - size))


def training(config: MemoryConfig) -> Callable[[], float]:
    """A function that trains for one rollout and returns its steps per second of CPU time."""
    run = preset("ppo_gru", "CartPoleMasked")
    run = replace(
        run,
        actor=with_memory(run.actor, config),
        critic=with_memory(run.critic, config),
        env=replace(run.env, num_envs=ENVS),
        ppo=replace(run.ppo, num_steps=STEPS, bptt=16, update_epochs=4),
        device="cpu",
        threads=1,
    )
    return _rollouts(run)


def _rollouts(run: RunConfig) -> Callable[[], float]:
    envs, agent, run = build(run)
    learner = build_learner(run, envs, agent)
    learner.engine = engine(run, agent, lambda line: None)
    plan, rollout = run.plan, Rollout(agent, learner.row, run.ppo.num_steps)

    def once() -> float:
        start = time.process_time()
        with training_mode(agent, run):
            ppo.collect(envs, learner, rollout, plan, 16)
            ppo.value(learner, rollout, 16)
            ppo.update(learner, rollout, plan, 16)
        learner.update_statistics(rollout)
        return ENVS * STEPS / (time.process_time() - start)

    return once


def sequence(net: Memory) -> float:
    """Milliseconds of forward and backward."""
    x, first = torch.randn(STEPS, ENVS, WIDTH), torch.rand(STEPS, ENVS) < 0.02
    start = time.process_time()
    net(x, net.initial_state(ENVS), first)[0].sum().backward()
    return 1000 * (time.process_time() - start)


@torch.no_grad()
def acting(net: Memory) -> float:
    """Microseconds of one step."""
    x, state, first = torch.randn(1, 16, WIDTH), net.initial_state(16), torch.zeros(1, 16, dtype=torch.bool)
    start = time.process_time()
    for _ in range(100):
        net(x, state, first)
    return 1e4 * (time.process_time() - start)


def measure(names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Name -> measurements; the best of the rounds."""
    size = parameters(layered(REFERENCE).build(WIDTH))
    runs: dict[str, dict[str, Callable[[], float]]] = {}
    rows: dict[str, dict[str, float]] = {}
    for name in names:
        config = layered(name)
        equal = of_equal_size(config, WIDTH, size)
        net = config.build(WIDTH)
        use(NativeSequences(), net)
        rows[name] = {
            "parameters": parameters(net),
            "state": sum(x[0].numel() for x in tree.leaves(net.initial_state(1)).values()),
            "equal width": equal.width,
        }
        runs[name] = {
            "steps/s": training(config),
            "equal steps/s": training(equal),
            "sequence ms": partial(sequence, net),
            "acting us": partial(acting, net),
        }
    for _ in range(rounds):
        for name, tasks in runs.items():
            for key, task in tasks.items():
                best = max if key.endswith("/s") else min
                value = task()
                rows[name][key] = best(rows[name].get(key, value), value)
    return rows


def table(out: Path) -> list[str]:
    """The lines of the table, from the result file in this folder."""
    rows = json.loads((out / RESULT.name).read_text())
    reference = rows[REFERENCE]
    header = (
        "memory",
        "steps/s",
        "of GRU",
        "at equal size (width)",
        "sequence",
        "acting",
        "state",
        "parameters",
    )
    lines = []
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["steps/s"]):
        lines.append(
            (
                f"`{name}`",
                f"{row['steps/s']:,.0f}",
                f"{row['steps/s'] / reference['steps/s']:.2f}",
                f"{row['equal steps/s']:,.0f} ({row['equal width']:.0f})",
                f"{row['sequence ms']:.1f} ms",
                f"{row['acting us']:.0f} us",
                f"{row['state']:,.0f}",
                f"{row['parameters']:,.0f}",
            )
        )
    return cells.table(header, lines, right=range(1, len(header)))


def main() -> None:
    """Measure, print the table and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [name for name, config in memory.available().items() if issubclass(config, LayeredConfig)]
    parser.add_argument("--memories", nargs="*", default=names)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    malloc.keep_freed_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict[str, Any] = measure(options.memories, options.rounds)
    RESULT.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    print("\n".join(table(RESULT.parent)))


if __name__ == "__main__":
    main()
