"""The published runs of recurrent PPO beside ours of the same settings: returns at the end of training.

    recollect compare -e poc -m ppo_gru --config configs/poc.yaml --seeds 10 --out runs/published
    recollect compare -e CartPoleMasked -m ppo_lstm --config configs/cartpole_masked.yaml --seeds 10 \\
        --out runs/published
    python -m benchmarks.published_recurrent --out runs/published
    python -m benchmarks.published_recurrent --table

Theirs are the last values of episode/reward_mean in the event files of the repository (results/), ten
runs of 2021 for each task. Ours are the last `return` of metrics.jsonl. Both are means of the last 100
training episodes.
"""

import argparse
import json
import statistics
from pathlib import Path

from recollect.comparison.compare import CompareOptions, study_of
from recollect.comparison.jobs import plan_jobs
from recollect.config.assembly import assemble
from recollect.config.command import parse
from recollect.run.build import resolved_config

RESULTS = Path(__file__).parents[1] / "docs/results/published_recurrent.json"
THEIRS = {
    "poc": [1.182, 1.219, 1.190, 1.198, 1.219, 1.175, 1.241, 1.171, 1.186, 1.187],
    "cartpole_masked": [187.32, 192.45, 196.57, 187.68, 193.80, 193.99, 192.73, 193.62, 194.71, 194.92],
    "minigrid_memory_s9": [0.925, 0.924, 0.965, 0.859, 0.974, 0.960, 0.962, 0.907, 0.864, 0.487],
}


def ours(name: str, out: Path) -> list[float]:
    """The last training return of each seed that is finished."""
    file = f"configs/{name}.yaml"
    config = assemble(["--config", file])
    flags = ["-e", config.env.id, "-m", config.model, "--seeds", "10", "--config", file]
    study = study_of(parse(CompareOptions, flags, "recollect compare"))
    jobs = plan_jobs(study.configs(resolved_config), out, study.episodes)
    return [round(job.metrics["return"], 3) for job in jobs if job.state == "done"]


def cell(returns: list[float]) -> str:
    """The mean, and the lowest and the highest seed."""
    if not returns:
        return "not run"
    digits = 3 if max(returns) < 10 else 1
    mean, low, high = (f"{x:.{digits}f}" for x in (statistics.mean(returns), min(returns), max(returns)))
    return f"{mean} ({low} to {high}), {len(returns)} seeds"


def table(results: dict[str, list[float]]) -> str:
    """Their returns beside ours, for each task."""
    lines = ["| settings | there | here |", "|---|---|---|"]
    for name, theirs in THEIRS.items():
        lines.append(f"| `configs/{name}.yaml` | {cell(theirs)} | {cell(results[name])} |")
    return "\n".join(lines)


def main() -> None:
    """Read, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/published"), help="where our runs lie")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        results = {name: ours(name, args.out) for name in THEIRS}
        args.results.write_text(json.dumps(results, indent=1) + "\n")
    print(table(json.loads(args.results.read_text())))


if __name__ == "__main__":
    main()
