"""The phases of training in two checkouts of the repository, in turns.

    python -m benchmarks.phases OLD NEW [--tasks NAME...] [--rounds 10] [--threads 1]

Each checkout trains in a process of its own, one rollout at a time, while the other one waits. Times are CPU
times of the process, each the smallest over all rollouts but the first, so other processes of the machine
count little.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, cast

from .kernels import PHASES, iterations
from .kernels import TASKS as NATIVE

ROOT = Path(__file__).parents[1]
LANDER = (
    "-e LunarLander-v3 --env.num-envs 16 --ppo.num-steps 128 --ppo.update-epochs 5 --ppo.num-minibatches 4"
)
GPT = (
    f"{LANDER} -m ppo_gpt --critic.residual False --critic.hidden --critic.head-hidden 64 "
    "--actor.hidden 64 64 64 64 --actor.head-hidden"
)
PICTURES = "-e minigrid:MiniGrid-MemoryS9-v0 -m ppo_lstm --env.kwargs.pictures True --env.num-envs 16"

TASKS = {
    "TrXL": ["--config", "configs/trxl_poc.yaml"],
    "GPT-2 critic": GPT.split(),
    "GPT-2 actor and critic": [*LANDER.split(), "-m", "ppo_gpt_actor"],
    "pictures": f"{PICTURES} --ppo.num-steps 256 --ppo.update-epochs 4 --ppo.num-minibatches 8".split(),
    "TrXL, native": ["--config", "configs/trxl_poc.yaml", "--kernels", "native"],
    "GPT-2 critic, native": [*GPT.split(), "--kernels", "native"],
    "GPT-2 actor and critic, native": [*LANDER.split(), "-m", "ppo_gpt_actor", "--kernels", "native"],
    **{f"{name}, native": [*arguments, "--kernels", "native"] for name, arguments in NATIVE.items()},
}


class Side:
    """The process of one checkout and one task."""

    def __init__(self, checkout: Path, name: str, threads: int) -> None:
        env = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "benchmarks.phases", "--serve", name, "--threads", str(threads)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True)
        self.steps: int = self._read()

    def iterate(self) -> list[float]:
        """Train for one rollout; the seconds of each phase."""
        cast(IO[str], self._process.stdin).write("\n")
        cast(IO[str], self._process.stdin).flush()
        seconds: list[float] = self._read()
        return seconds

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> Any:
        line = cast(IO[str], self._process.stdout).readline()
        if not line:
            raise SystemExit(f"the process ended with {self._process.wait()}")
        return json.loads(line)


def serve(name: str, threads: int) -> None:
    """Train for one rollout per line of the input."""
    iterate, steps = iterations([*TASKS[name], "--threads", str(threads)], time.process_time)
    print(steps, flush=True)
    for _ in sys.stdin:
        print(json.dumps(iterate()), flush=True)


def measure(checkouts: list[Path], name: str, rounds: int, threads: int) -> tuple[list[list[float]], int]:
    """The smallest time of each phase in each checkout, and the steps of a rollout."""
    sides = [Side(checkout, name, threads) for checkout in checkouts]
    try:
        times = [[side.iterate() for side in sides] for _ in range(rounds + 1)][1:]
    finally:
        for side in sides:
            side.stop()
    return [[min(phase) for phase in zip(*side, strict=True)] for side in zip(*times, strict=True)], sides[
        0
    ].steps


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", choices=list(TASKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.threads)
        return
    print(f"| task, ms | checkout | {' | '.join(PHASES)} | steps/s |\n|---|---|{'---|' * (len(PHASES) + 1)}")
    for name in options.tasks:
        times, steps = measure(options.checkouts, name, options.rounds, options.threads)
        for checkout, phases in zip(options.checkouts, times, strict=True):
            columns = " | ".join(f"{1000 * seconds:.2f}" for seconds in phases)
            print(f"| {name} | {checkout} | {columns} | {steps / sum(phases):,.0f} |", flush=True)


if __name__ == "__main__":
    main()
