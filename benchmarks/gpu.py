"""Training on a GPU beside the CPU of the same machine, from small networks to large ones.

    python -m benchmarks.gpu [--tasks NAME...] [--seconds 2] [--out gpu.json]

Each task trains on the CPU, and on the GPU without and with its options, one after the other in one process:
one rollout without a clock (three with --compile, which compiles in them), then rollouts for some seconds.
Times are medians over these rollouts, until the device has finished. A rollout that takes longer than ten
seconds is measured once. Small networks have one thread of the CPU, which is fastest for them, others eight.

Prints a line for each, and writes all numbers to a file, with the machine that they are of.
"""

import argparse
import gc
import json
import os
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from recollect.common.devices import describe, synchronize
from recollect.config.assembly import assemble
from recollect.learn.ppo import collect, update, value
from recollect.learn.rollout import Rollout
from recollect.run.build import build, build_learner, training_mode
from recollect.run.kernels import engine

PHASES = "collect", "value", "update"
MANY = (
    "-e CartPoleMasked --env.num-envs 128 --ppo.num-steps 64 --ppo.bptt 32 --ppo.num-minibatches 4 "
    "--ppo.update-epochs 2"
)
LANDER = "-e LunarLander-v3 --env.num-envs 16 --ppo.num-steps 128"
LARGE_GPT = "--critic.memory.width 768 --critic.memory.layers 12 --critic.memory.heads 12"


def wide(model: str, width: int, layers: int = 1) -> str:
    """A memory of this size for actor and critic, with many environments."""
    sizes = (
        f"--{branch}.memory.width {width} --{branch}.memory.layers {layers}" for branch in ("actor", "critic")
    )
    return f"{MANY} -m {model} {' '.join(sizes)}"


# The threads of the CPU, and the options of a run.
TASKS = {
    "the preset ppo_gru": (1, "-e CartPoleMasked -m ppo_gru"),
    "GRU, width 64": (1, wide("ppo_gru", 64)),
    "GRU, width 256": (8, wide("ppo_gru", 256)),
    "GRU, width 1024": (8, wide("ppo_gru", 1024)),
    "Mamba, width 256": (8, wide("ppo_mamba", 256)),
    "the preset ppo_gpt": (1, f"{LANDER} -m ppo_gpt"),
    "GPT-2, width 256, 4 layers": (8, wide("ppo_gpt_actor", 256, 4)),
    "GTrXL, width 256, 4 layers": (8, wide("ppo_gtrxl", 256, 4)),
    "a frozen critic of GPT-2's size": (8, f"{LANDER} -m ppo_gpt_frozen {LARGE_GPT}"),
    "pictures of Atari, 8 environments": (8, "-e atari:Pong"),
}
OPTIONS = {
    "GPU": "",
    "GPU, graphs": "--cuda-graphs True",
    "GPU, bf16": "--amp bf16",
    "GPU, bf16, compiled, graphs": "--amp bf16 --compile True --cuda-graphs True",
}
LONG = 10.0  # seconds


def measure(arguments: str, seconds: float) -> dict[str, Any]:
    """Milliseconds of each phase, steps per second, and the peak of the GPU's memory in MB."""
    config = assemble([*arguments.split(), "--seed", "1"])
    envs, agent, config = build(config)
    learner, plan = build_learner(config, envs, agent), config.plan
    learner.engine = engine(config, agent, lambda line: None)
    device, length = learner.agent.device, plan.ppo.chunk_length(any(agent.initial_state(1)))
    rollout = Rollout(agent, learner.row, plan.ppo.num_steps)
    phases = (
        (1, partial(collect, envs, learner, rollout, plan, length)),
        (plan.threads, partial(value, learner, rollout, length)),
        (plan.threads, partial(update, learner, rollout, plan, length)),
    )

    def iterate() -> list[float]:
        ends = [time.perf_counter()]
        for threads, phase in phases:
            torch.set_num_threads(threads)
            phase()
            synchronize(device)
            ends.append(time.perf_counter())
        learner.update_statistics(rollout)
        return [end - start for start, end in pairwise(ends)]

    with training_mode(agent, config):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        rows = [iterate() for _ in range(3 if config.compile else 1)][-1:]
        end = time.perf_counter() + seconds
        if sum(rows[0]) < LONG:
            rows = [iterate()]
            while time.perf_counter() < end:
                rows.append(iterate())
    envs.adapter.close()
    times = dict(zip(PHASES, map(median, zip(*rows, strict=True)), strict=True))
    steps = plan.ppo.num_steps * envs.num_envs
    return {
        "ms": {name: 1000 * one for name, one in times.items()},
        "steps/s": steps / sum(times.values()),
        "rollouts": len(rows),
        "weights": sum(p.numel() for p in agent.parameters()),
        "memory_mb": torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None,
    }


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no CUDA device on this machine: docs/gpu.md")
    rows: dict[str, dict[str, Any]] = {}
    for task in options.tasks:
        rows[task] = {}
        threads, arguments = TASKS[task]
        columns = {"CPU": f"--device cpu --threads {threads}"}
        columns |= {name: f"--device cuda {switches}" for name, switches in OPTIONS.items()}
        for name, switches in columns.items():
            row = rows[task][name] = measure(f"{arguments} {switches}", options.seconds)
            phases = "  ".join(f"{phase} {ms:,.1f}" for phase, ms in row["ms"].items())
            print(f"{task:<36}{name:<30}{row['steps/s']:>10,.0f} steps/s  {phases}", flush=True)
            gc.collect()
            torch.cuda.empty_cache()
        machine = {
            "device": describe(torch.device("cuda")),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
        }
        options.out.write_text(json.dumps({"machine": machine, "tasks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
