"""The phases of training with torch's kernels and with the native ones, in turns.

The native kernels compute the recurrence alone of mLSTM, sLSTM, FFM and SHM.

    python -m benchmarks.kernels [--rounds 20] [--tasks NAME...]

Times are those of the thread, so other processes of the machine count little; each is the smallest over all
rollouts but the first. `--threads 1`, so that all work is in that thread, except EnvPool's.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from recollect.config.assembly import assemble
from recollect.learn.ppo import collect, update, value
from recollect.learn.rollout import Rollout
from recollect.run.build import build, build_learner
from recollect.run.kernels import engine

TASKS = {
    "CartPole": ["-e", "CartPole-v1"],
    "LunarLander": ["-e", "LunarLander-v3"],
    "BipedalWalker": ["-e", "BipedalWalker-v3"],
    "LSTM": ["-e", "CartPoleMasked", "-m", "ppo_lstm"],
    "GRU": ["-e", "CartPoleMasked", "-m", "ppo_gru"],
    "minGRU": ["-e", "CartPoleMasked", "--actor", "mingru", "--critic", "mingru"],
    "LMU": ["-e", "CartPoleMasked", "-m", "ppo_lmu"],
    "LRU": ["-e", "CartPoleMasked", "-m", "ppo_lru"],
    "Mamba": ["-e", "CartPoleMasked", "-m", "ppo_mamba"],
    "DeltaNet": ["-e", "CartPoleMasked", "-m", "ppo_deltanet"],
    "mLSTM": ["-e", "CartPoleMasked", "-m", "ppo_mlstm"],
    "sLSTM": ["-e", "CartPoleMasked", "-m", "ppo_slstm"],
    "FFM": ["-e", "CartPoleMasked", "-m", "ppo_ffm"],
    "SHM": ["-e", "CartPoleMasked", "-m", "ppo_shm"],
    "frame stack": ["-e", "CartPoleMasked", "--actor", "stack", "--critic", "stack"],
}
KERNELS = "torch", "native"
PHASES = "collect", "value", "update", "statistics"


def iterations(
    arguments: Sequence[str], clock: Callable[[], float] = time.thread_time
) -> tuple[Callable[[], list[float]], int]:
    """One iteration, which returns the seconds of each phase, and the steps that it takes."""
    config = assemble(arguments)
    envs, agent, config = build(config)
    learner, plan = build_learner(config, envs, agent), config.plan
    learner.engine = engine(config, agent, lambda line: None)
    length = plan.ppo.chunk_length(any(agent.initial_state(1)))
    rollout = Rollout(agent, learner.row, plan.ppo.num_steps)
    phases = (
        lambda: collect(envs, learner, rollout, plan, length),
        lambda: value(learner, rollout, length),
        lambda: update(learner, rollout, plan, length),
        lambda: learner.update_statistics(rollout),
    )

    def iterate() -> list[float]:
        ends = [clock()]
        for phase in phases:
            phase()
            ends.append(clock())
        return [end - start for start, end in pairwise(ends)]

    return iterate, plan.ppo.num_steps * envs.num_envs


def measure(arguments: Sequence[str], rounds: int) -> tuple[dict[str, list[float]], int]:
    """The smallest time of each phase by each kind of kernels, and the steps of an iteration."""
    runs = {k: iterations([*arguments, "--kernels", k, "--threads", "1"]) for k in KERNELS}
    times: dict[str, list[list[float]]] = {k: [] for k in KERNELS}
    for _ in range(rounds + 1):
        for name, (iterate, _) in runs.items():
            times[name].append(iterate())
    smallest = {k: [min(phase) for phase in zip(*times[k][1:], strict=True)] for k in KERNELS}
    return smallest, runs["torch"][1]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = parser.parse_args()
    print(f"| task, ms | kernels | {' | '.join(PHASES)} | steps/s |\n|---|---|{'---|' * (len(PHASES) + 1)}")
    for name in options.tasks:
        times, steps = measure(TASKS[name], options.rounds)
        for kernels, phases in times.items():
            columns = " | ".join(f"{1000 * seconds:.2f}" for seconds in phases)
            print(f"| {name} | {kernels} | {columns} | {steps / sum(phases):,.0f} |", flush=True)


if __name__ == "__main__":
    main()
