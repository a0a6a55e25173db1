"""Environment steps per second of POPGym, ours beside the package's, on one core.

    python -m benchmarks.popgym [--envs N] [--tasks Battleship ...] [--ours]

Actions are random and sampled beforehand. The best of five passes of 200 steps counts. --ours leaves the
package out.
"""

import argparse
import time

import numpy as np

from recollect.common.errors import UsageError
from recollect.envs import EnvConfig, VecEnv, make
from recollect.envs.suites import popgym

STEPS, PASSES = 200, 5


def speed(envs: VecEnv) -> float:
    """Steps per second of CPU time, over all environments."""
    actions = [np.stack([envs.action_space.sample() for _ in range(envs.num_envs)]) for _ in range(STEPS)]
    envs.reset(list(range(envs.num_envs)))
    times = []
    for _ in range(PASSES):
        start = time.thread_time()
        for action in actions:
            envs.step(action)
        times.append(time.thread_time() - start)
    return envs.num_envs * STEPS / min(times)


def main() -> None:
    """Print one line for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--tasks", nargs="*", default=[""])
    parser.add_argument("--ours", action="store_true")
    options = parser.parse_args()
    print(f"{'task':<34}{'ours, steps/s':>16}{'popgym, steps/s':>18}{'ratio':>8}")
    for name in popgym.listing():
        if not name.startswith(tuple(options.tasks)):
            continue
        config = EnvConfig(id=f"popgym:{name}", num_envs=options.envs, backend="own")
        line = f"{name:<34}{(ours := speed(make(config).adapter)):>16,.0f}"
        if not options.ours:
            try:
                theirs = speed(
                    make(EnvConfig(id=config.id, num_envs=options.envs, backend="gymnasium")).adapter
                )
                line += f"{theirs:>18,.0f}{ours / theirs:>8.0f}"
            except UsageError:  # its mazes cannot be seeded
                line += f"{'-':>18}{'-':>8}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
