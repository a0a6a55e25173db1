"""Where two memories lead a task of the leaderboard: which of the two is better? Ten fresh seeds each.

    python -m benchmarks.leaders --run     trains them; resumes
    python -m benchmarks.leaders           the pairs

Written after the first five seeds of studies/memories.yaml and before the first run of its own. The rule: of
each task in which the highest mean of the five seeds is at most 0.95 and at least 0.1 above that of an agent
without a memory, the two memories with the highest means. They are trained with the settings of that file and
the seeds 6 to 15; the first five seeds, which chose the pairs, do not count. The test of a pair is the one of
all reports, of the means of the last weights, adjusted by Holm over all pairs. Where nothing is shown, ten
seeds do not say which of the two is better.

`kernels: auto` stands for native layers with more memories today than in the runs of the leaderboard.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .leaderboard import NAME, ROOT, Cell, read

SEEDS, NO_MEMORY = "6-15", "mlp"
FIRST = range(1, 6)  # the seeds that choose the pairs
SOLVED, LEAST_GAIN = 0.95, 0.1
OUT = Path("runs/leaders")
RESULTS = Path("docs/results/memories_leaders")


def leaders(cells: Sequence[Cell]) -> dict[str, tuple[str, str]]:
    """The two memories with the highest means, of each task of the rule."""
    pairs = {}
    for task in dict.fromkeys(cell.task for cell in cells):
        means = {
            cell.memory: statistics.mean(cell.scores[seed] for seed in FIRST)
            for cell in cells
            if cell.task == task
        }
        first, second, *_ = sorted(means, key=means.__getitem__, reverse=True)
        if means[first] <= SOLVED and means[first] - means[NO_MEMORY] >= LEAST_GAIN:
            pairs[task] = first, second
    return pairs


def presets(report: Path) -> dict[str, str]:
    """The preset of each memory."""
    settings = [group["settings"] for group in json.loads(report.read_text())["groups"]]
    return {each["actor.memory.name"]: each["model"] for each in settings}


def run(pairs: dict[str, tuple[str, str]]) -> None:
    """Train what is missing, and write the report."""
    models = presets(ROOT / "docs/results" / NAME / "report.json")
    command = [sys.executable, "-m", "recollect"]
    for task, pair in pairs.items():
        chosen = ["-e", task, "-m", *(models[memory] for memory in pair)]
        study = [*command, "compare", f"studies/{NAME}.yaml", "--seeds", SEEDS, "--out", str(OUT), *chosen]
        subprocess.run(study, cwd=ROOT, check=True)
    subprocess.run([*command, "report", str(OUT), "--out", str(RESULTS)], cwd=ROOT, check=True)


def main() -> None:
    """Print the pairs, or train them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true")
    pairs = leaders(read(ROOT))
    print("\n".join(f"{task}: {', '.join(pair)}" for task, pair in pairs.items()), flush=True)
    if parser.parse_args().run:
        run(pairs)


if __name__ == "__main__":
    main()
