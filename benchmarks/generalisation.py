"""Generalisation: agents trained on one MiniGrid-Memory task, evaluated on all of them.

    recollect compare studies/generalisation.yaml --out runs/paper
    python -m benchmarks.generalisation --out runs/paper [--episodes 100]
    python -m benchmarks.generalisation --agents FILE... --results FILE.json
    python -m benchmarks.generalisation --table

The success rate of the last weights of every seed, deterministic, on levels that training did not use.
The question is how agents perform on sizes and corridors that training did not have. --agents evaluates
saved agents in place of the runs of the study. The results are written to a file, from which --table
prints the table again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import recollect
from recollect.comparison.jobs import plan_jobs
from recollect.comparison.study import read_study
from recollect.config.presets import preset
from recollect.run.build import resolved_config
from recollect.run.evaluate import evaluate

STUDY = Path("studies/generalisation.yaml")
RESULTS = Path(__file__).parents[1] / "docs/results/generalisation/sizes.json"
SIZES = ("S7", "S9", "S11", "S13", "S13Random", "S17Random")
RANDOM = "random agent"
Row = dict[str, Any]


def env_id(size: str) -> str:
    """The id of a size."""
    return f"minigrid:MiniGrid-Memory{size}-v0"


def size_of(name: str) -> str:
    """The size in an id."""
    return name.removeprefix("minigrid:MiniGrid-Memory").removesuffix("-v0")


def random_row(episodes: int) -> Row:
    """Success of random actions in every task."""
    summaries = {s: evaluate(None, preset("ppo", env_id(s)).env, episodes).summary() for s in SIZES}
    return {"trained": RANDOM, "seed": 0, "success": {s: x["success"] for s, x in summaries.items()}}


def agent_row(agent: Path, episodes: int) -> Row:
    """Success of a run or a saved agent in every task."""
    config = recollect.load(agent).config
    success = {
        size: recollect.load(agent, env=env_id(size)).evaluate(episodes, config.seed).summary()["success"]
        for size in SIZES
    }
    row = {"trained": size_of(config.env.id), "seed": config.seed, "success": success}
    print(row, flush=True)
    return row


def finished_runs(out: Path) -> list[Path]:
    """The run folders of the study."""
    study = read_study(STUDY)
    jobs = plan_jobs(study.configs(resolved_config), out, study.episodes)
    for job in jobs:
        if job.state != "done":
            raise SystemExit(f"{job.folder} is not finished: recollect compare {STUDY} --out {out}")
    return [job.folder for job in jobs]


def table(rows: list[Row]) -> str:
    """Success of each seed, by the task of training and that of the evaluation."""
    lines = [f"| trained on | {' | '.join(SIZES)} |", f"|---{'|---' * len(SIZES)}|"]
    for trained in dict.fromkeys(row["trained"] for row in rows):
        seeds = [row["success"] for row in rows if row["trained"] == trained]
        cells = (", ".join(f"{success[size]:.2f}" for success in seeds) for size in SIZES)
        lines.append(f"| {trained} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Evaluate, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="where the runs lie")
    parser.add_argument("--agents", type=Path, nargs="+", help="saved agents, in place of the runs")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        agents = args.agents or finished_runs(args.out)
        rows = [random_row(args.episodes), *(agent_row(agent, args.episodes) for agent in agents)]
        args.results.parent.mkdir(parents=True, exist_ok=True)
        args.results.write_text(json.dumps({"episodes": args.episodes, "rows": rows}, indent=1) + "\n")
    print(table(json.loads(args.results.read_text())["rows"]))


if __name__ == "__main__":
    main()
