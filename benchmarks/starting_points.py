"""PPO from the weights of a clone beside PPO from scratch: training steps to the best return.

    python -m benchmarks.starting_points --out FOLDER [--json FILE]

The task is CartPoleNoVel with an LSTM for actor and critic, at the preset of ppo_lstm (100,000 steps). 50
episodes of models/CartPoleNoVel-v1-ppo_lstm.safetensors are recorded once. For each of five seeds:

    scratch    PPO from initial weights
    clone      an agent cloned from the 50 episodes in 20 epochs with this seed, then PPO from its weights
    warm       the same clone, then PPO in which the critic alone is trained for the first 5 rollouts
    slow       the same clone, then PPO at a tenth of the learning rate of the preset

The first three were chosen before any of them ran; `slow` was added after their results.

Counted are training steps of PPO to the first of three validations in a row with a mean return of 500 over 10
episodes; there is one after every second rollout. A clone that has 500 before PPO begins and in the first
validations counts with the steps of the first one. `lowest` is the lowest of all validations. Each arm is
evaluated with 100 episodes at the end, to show whether PPO keeps what was cloned. Runs that are finished are
not repeated.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import recollect
from recollect import cli
from recollect.common.errors import UsageError

ENV, MODEL = "CartPoleNoVel-v1", "ppo_lstm"
TEACHER = Path(__file__).parents[1] / "models" / f"{ENV}-{MODEL}.safetensors"
SEEDS, EPISODES, BEST, IN_A_ROW = (1, 2, 3, 4, 5), 50, 500.0, 3
ARMS: dict[str, tuple[str, ...]] = {
    "scratch": (),
    "clone": (),
    "warm": ("--init.critic-rollouts", "5"),
    "slow": ("--lr", "2.5e-4"),
}


def command(*words: str | Path) -> None:
    """Run a command of recollect."""
    if cli.main([str(word) for word in words]):
        raise UsageError(f"recollect {' '.join(map(str, words))} failed")


def clone(out: Path, seed: int) -> Path:
    """The clone of a seed."""
    episodes, file = out / "episodes.npz", out / f"clone-{seed}.safetensors"
    if not episodes.exists():
        command("record", TEACHER, "-o", episodes, "--episodes", str(EPISODES))
    if not file.exists():
        command("clone", episodes, "-e", ENV, "-m", MODEL, "--seed", str(seed), "-o", file, "--quiet")
    return file


def run_of(out: Path, arm: str, seed: int) -> dict[str, Any]:
    """The numbers of one run, which is trained if it is not there."""
    folder = out / "runs" / MODEL / ENV / f"{arm}-{seed}"
    start = recollect.load(clone(out, seed)).evaluate(100).mean if arm != "scratch" else None
    if not (folder / "checkpoints" / "last.safetensors").exists():
        words = [
            "train",
            ENV,
            "-m",
            MODEL,
            "--seed",
            str(seed),
            "--out",
            out / "runs",
            "--run-id",
            folder.name,
        ]
        words += ["--val-check-interval", "2", "--quiet"]
        words += [] if arm == "scratch" else ["--init", clone(out, seed)]
        command(*words, *ARMS[arm])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    validations = [(row["step"], row["val_return"]) for row in rows if row["val_return"] is not None]
    return {
        "arm": arm,
        "seed": seed,
        "before": start,
        "steps": steps_to_best(validations),
        "lowest": min(value for _, value in validations),
        "last": recollect.load(folder).evaluate(100).mean,
    }


def steps_to_best(validations: list[tuple[int, float]]) -> int | None:
    """Steps at the first of so many validations in a row with the best return; None: never."""
    values = [value >= BEST for _, value in validations]
    for i in range(len(values) - IN_A_ROW + 1):
        if all(values[i : i + IN_A_ROW]):
            return validations[i][0]
    return None


def table(runs: list[dict[str, Any]]) -> str:
    """One line for each run, and the median of each arm."""
    lines = [f"{'arm':<9}{'seed':>4}{'before PPO':>12}{'steps to 500':>14}{'lowest':>9}{'last':>9}"]
    for run in runs:
        before = "-" if run["before"] is None else f"{run['before']:.1f}"
        steps = "not reached" if run["steps"] is None else f"{run['steps']:,}"
        lines.append(
            f"{run['arm']:<9}{run['seed']:>4}{before:>12}{steps:>14}{run['lowest']:>9.1f}{run['last']:>9.1f}"
        )
    for arm in ARMS:
        steps = [run["steps"] or float("inf") for run in runs if run["arm"] == arm]
        lines.append(f"{arm}: median {median(steps):,.0f} steps, {sum(x < float('inf') for x in steps)} of 5")
    return "\n".join(lines)


def main() -> None:
    """Train, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starting_points", description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [run_of(options.out, arm, seed) for seed in SEEDS for arm in ARMS]
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
