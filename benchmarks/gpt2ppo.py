"""The plain PPO of GPT2PPO's authors, run again from their checkout.

    git clone https://github.com/andreicozma1/ECE517-Final-Project
    python -m benchmarks.gpt2ppo --peer ECE517-Final-Project [--jobs 2]
    python -m benchmarks.gpt2ppo --table

Their budget (150 epochs of 2,048 steps) on current Gymnasium tasks. Every run is a separate process; runs
that are in --out are not repeated. `pairs` is their code without changes. In `steps` the values of a batch
have the shape of its returns (`shims/bolts.py` explains this); nothing else differs.

The table has, for each task, the mean over seeds of the mean training return of the last ten epochs, as
docs/gpt2ppo.md reads their pictures, and of 100 deterministic episodes of the last weights.
"""

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .common import in_a_process
from .comparison import commit_of

TASKS = ("LunarLander-v3", "Acrobot-v1", "BipedalWalker-v3")
EPOCHS = 150
OUT = Path("docs/results/gpt2ppo_peer.json")
Runs = dict[str, list[dict[str, Any]]]  # by "task losses"


def load(out: Path) -> dict[str, Any]:
    """The results so far."""
    return json.loads(out.read_text()) if out.exists() else {"runs": {}}


def save(out: Path, results: dict[str, Any]) -> None:
    """One run per line, so that a diff shows which runs are new."""
    runs = results["runs"]
    for name in runs:
        runs[name].sort(key=lambda run: run["seed"])
    head = {key: value for key, value in results.items() if key != "runs"}
    blocks = (
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(run) for run in runs[name]) + "]"
        for name in sorted(runs)
    )
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    out.write_text("{" + ",\n".join([*parts, '"runs": {\n' + ",\n".join(blocks) + "}"]) + "}\n")


def measure(args: argparse.Namespace) -> None:
    """Run the missing runs, several at a time."""
    results = load(args.out)
    results["peer"] = args.peer_commit or commit_of(args.peer)
    runs: Runs = results["runs"]
    missing = [
        (env, losses, seed)
        for losses in args.losses
        for seed in range(1, args.seeds + 1)
        for env in args.tasks
        if seed not in {run["seed"] for run in runs.get(f"{env} {losses}", [])}
    ]

    def train_job(job: tuple[str, str, int]) -> tuple[str, dict[str, Any]]:
        env, losses, seed = job
        settings = {"peer": str(args.peer), "env": env, "epochs": args.epochs, "seed": seed}
        text = json.dumps({**settings, "pairs": losses == "pairs"})
        return f"{env} {losses}", in_a_process("benchmarks.shims.bolts", text)

    with ThreadPoolExecutor(args.jobs) as pool:
        for name, run in pool.map(train_job, missing):
            runs.setdefault(name, []).append(run)
            save(args.out, results)
            line = f"{name} seed {run['seed']}: last epoch {run['return'][-1]}, evaluated {run['evaluated']}"
            print(f"{line}, {run['seconds']} s", flush=True)


def table(results: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    lines = [
        "| task | losses | seeds | last ten epochs, mean (range) | evaluated, mean (range) | time a run |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in results["runs"].items():
        env, losses = name.split()
        last = [statistics.fmean(run["return"][-10:]) for run in runs]
        evaluated = [run["evaluated"] for run in runs]
        seconds = statistics.median(run["seconds"] for run in runs)
        cells = env, losses, str(len(runs)), spread(last), spread(evaluated), f"{seconds:.0f} s"
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spread(scores: list[float]) -> str:
    """The mean and the range."""
    return f"{statistics.fmean(scores):.0f} ({min(scores):.0f} to {max(scores):.0f})"


def main() -> None:
    """Measure unless --table is given, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", type=Path, help="a checkout of andreicozma1/ECE517-Final-Project")
    parser.add_argument("--peer-commit", help="its commit, where the checkout has no .git")
    parser.add_argument("--tasks", nargs="*", default=TASKS, choices=TASKS)
    parser.add_argument("--losses", nargs="*", default=("pairs", "steps"), choices=("pairs", "steps"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true", help="print the stored results, run nothing")
    args = parser.parse_args()
    if not args.table:
        if args.peer is None:
            parser.error("--peer is needed: a checkout of andreicozma1/ECE517-Final-Project")
        measure(args)
    print("\n".join(table(load(args.out))))


if __name__ == "__main__":
    main()
