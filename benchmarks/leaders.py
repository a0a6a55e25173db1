"""Where two memories lead a task of the leaderboard: which of the two is better? Ten fresh seeds each.

    python -m benchmarks.leaders --run     trains them; resumes
    python -m benchmarks.leaders           the pairs, and the table of docs/leaderboard.md

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

import numpy as np

from recollect.reporting.aggregate import improvement
from recollect.reporting.significance import compare_means, holm

from . import study_tables
from .cells import table
from .leaderboard import NAME, ROOT, Cell, read
from .study_tables import Study, estimate

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
        first, second, *_ = sorted(means.keys() - {NO_MEMORY}, key=means.__getitem__, reverse=True)
        if means[first] <= SOLVED and means[first] - means[NO_MEMORY] >= LEAST_GAIN:
            pairs[task] = first, second
    return pairs


def lines(study: Study) -> list[str]:
    """The two memories of each task, the better mean first, and the test of their means."""
    rows, p_values = [], []
    for task in study.envs:
        labels = sorted(study.labels(task), key=lambda label: -study.of("finals", task, label)["mean"])
        trained = [label for label in labels if study.has("groups", task, label)]
        finals = [study.of("finals", task, label) for label in trained]
        x, y = (np.array(final["scores"]) for final in finals)
        p_values.append(compare_means(x, y))
        wins, (low, high) = improvement([(x, y)])
        row = [task]
        for label, final in zip(trained, finals, strict=True):
            name = study.of("groups", task, label)["settings"]["actor.memory.name"]
            row += [f"`{name}`", estimate(final["mean"], final["mean_interval"])]
        rows.append([*row, f"{wins:.2f} ({low:.2f} to {high:.2f})"])
    header = ["environment", "A", "mean (95 %)", "B", "mean (95 %)", "P(A above B) (95 %)", "adjusted p"]
    adjusted = [f"{p:.2g}" for p in holm(p_values)]
    return table(header, [[*row, p] for row, p in zip(rows, adjusted, strict=True)])


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
    if (ROOT / RESULTS / "report.json").exists():
        print("", *lines(study_tables.read(ROOT / RESULTS.parent, RESULTS.name)), sep="\n")


if __name__ == "__main__":
    main()
