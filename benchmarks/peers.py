"""recollect beside Stable-Baselines3 at its RL Zoo settings, in turns on the same machine.

    python -m benchmarks.peers [--tasks CartPole-v1 ...] [--seeds 3] [--out benchmarks/results]

Every run is a process of its own; ours and the peer's take turns, and what counts is the ratio of
medians. Time runs from the first environment step, with logging on, until the mean return of the
last 100 training episodes reaches the target; a cap that is hit counts as the time. Where there is
no target, both do the same number of steps.
"""

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .common import Result, cells, describe, in_a_process, kept, memory


@dataclass(frozen=True)
class Task:
    """One row of the table: a target under a cap, or a number of steps."""

    env: str
    name: str
    target: float | None
    cap: float  # seconds
    goal: str
    peer: dict[str, Any]  # RL Zoo's settings
    normalize: bool = False
    peer_envs: int = 8
    peer_budget: int = 1_000_000  # over which the peer's schedules run
    steps: int | None = None  # instead of a target
    peer_steps: int | None = None  # fewer, where only the pace counts
    options: dict[str, Any] = field(default_factory=dict)  # ours, beside the preset


def linear(initial: float) -> str:
    """A schedule that falls to zero over the peer's budget, by name so that it survives JSON."""
    return f"linear {initial}"


TASKS = (
    Task(
        "CartPole-v1",
        "CartPole-v1 >= 475",
        475,
        60,
        "<= 1/8 of the time",
        dict(
            n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20,
            learning_rate=linear(1e-3), clip_range=linear(0.2),
        ),
        peer_budget=100_000,
    ),
    Task(
        "Acrobot-v1",
        "Acrobot-v1 >= -90",
        -90,
        60,
        "<= 1/10 of the time",
        dict(n_steps=256, gae_lambda=0.94, gamma=0.99, n_epochs=4),
        normalize=True,
        peer_envs=16,
    ),
    Task(
        "LunarLander-v3",
        "LunarLander-v3 >= 200",
        200,
        240,
        "<= 1/15 of the time, within 250 k steps",
        dict(n_steps=1024, batch_size=64, gae_lambda=0.98, gamma=0.999, n_epochs=4, ent_coef=0.01),
        peer_envs=16,
    ),
    Task(
        "BipedalWalker-v3",
        "BipedalWalker-v3, 100 k steps",
        None,
        600,
        "<= 1/6 of the time a step",
        dict(
            n_steps=2048, batch_size=64, gae_lambda=0.95, gamma=0.999, n_epochs=10,
            learning_rate=3e-4, clip_range=0.18,
        ),
        normalize=True,
        peer_envs=32,
        steps=100_000,
        options={"threads": 2},
    ),
    Task(
        "CartPole-v1",
        "CartPole-v1, steps/s",
        None,
        600,
        ">= 60,000 steps/s",
        dict(n_steps=512, batch_size=1024, n_epochs=4),
        steps=1_200_000,
        peer_steps=200_000,
        options={"env.num_envs": 64, "ppo.num_steps": 64, "ppo.num_minibatches": 4},  # as the peer's
    ),
)  # fmt: skip


# One run in this process ----------------------------------------------------------------------


def run_ours(task: Task, seed: int) -> Result:
    """A preset until its target, its cap or its steps."""
    from .shims import ours

    what = dict(env=task.env, model="ppo", options=task.options, steps=task.steps, seed=seed)
    return ours.run({**what, "metric": "return", "target": task.target, "cap": task.cap})


def run_peer(task: Task, seed: int) -> Result:
    """Stable-Baselines3 PPO the same way."""
    from .shims import sb3

    return sb3.run(
        dict(
            algorithm="stable_baselines3:PPO",
            policy="MlpPolicy",
            env=task.env,
            num_envs=task.peer_envs,
            normalize=task.normalize,
            hyperparameters=task.peer,
            budget=task.peer_budget,
            steps=task.peer_steps or task.steps,
            seed=seed,
            target=task.target,
            cap=task.cap,
            threads=None,
        )
    )


# All runs -------------------------------------------------------------------------------------


def measure(task: Task, seeds: int) -> dict[str, list[Result]]:
    """Ours and the peer's in turns, each in a new process."""
    found: dict[str, list[Result]] = {"ours": [], "peer": []}
    for seed in range(1, seeds + 1):
        for who, results in found.items():
            which = who, str(TASKS.index(task)), str(seed)
            results.append(in_a_process("benchmarks.peers", "--one", *which))
            print(describe(task.name, who, seed, results[-1]), flush=True)
    return found


def row(task: Task, found: dict[str, list[Result]]) -> str:
    """A line of the table: medians, their ratio and what was asked."""
    cost = "seconds" if task.steps is None else "seconds_a_step"
    ours, peer, ratio = cells(found["ours"], found["peer"], cost)
    return f"| {task.name} | {ours} | {peer} | {ratio} | {task.goal} | {memory(found['ours'])} |"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="*", help="names, or parts of names, of rows")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--table", action="store_true", help="print what was kept, run nothing")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        who, index, seed = args.one
        run = run_ours if who == "ours" else run_peer
        print(json.dumps(run(TASKS[int(index)], int(seed))))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "| task | recollect | Stable-Baselines3 | time | asked | memory |",
        "|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        if args.tasks and not any(part in task.name for part in args.tasks):
            continue
        file = kept(args.out, "peers", task.name)
        found = json.loads(file.read_text())["runs"] if args.table else measure(task, args.seeds)
        lines.append(row(task, found))
        if not args.table:
            file.write_text(json.dumps({"task": asdict(task), "runs": found}, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
