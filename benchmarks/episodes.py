"""Plot every training episode of several runs beside a random agent.

    python -m benchmarks.episodes RUN... --random FILE -o PICTURE.png [--json NUMBERS.json]

RUN      run folders of one task, one a seed; each has an episodes.jsonl
--random evaluation.json of a random agent, which `recollect compare` keeps in <out>/random/<task>,
         and `recollect eval random -e ENV -ne 500 --json FILE` writes

On the left a dot is a training episode of any seed, and a line the moving mean of one seed over its last
50 episodes, or fewer at the start. On the right a dot is an episode of the random agent, and the line
their mean. Both axes of return are the same.

The numbers of the picture are printed, and written to --json. With them are those of the evaluation of
the last weights, where a run has one: its episodes, and how many of them lasted until the time limit.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from recollect.common.errors import UsageError
from recollect.config.data import read_yaml
from recollect.run.episode_log import read_episodes

Returns = npt.NDArray[np.float64]
WINDOW = 50
COLOUR, GREY = "#1f6fb4", "#777777"  # of PPO and of random; both readable on white
# White behind everything, so that the picture reads the same on a dark page.
STYLE = {"font.size": 9, "figure.facecolor": "white", "axes.spines.top": False, "axes.spines.right": False}


def read_returns(run: Path) -> Returns:
    """Returns of all training episodes of a run, in order."""
    path = run / "episodes.jsonl"
    if not path.is_file():
        raise UsageError(f"{path} does not exist; give run folders, each with an episodes.jsonl")
    return np.array([episode.return_ for episode in read_episodes(path)])


def moving_mean(values: Returns, window: int = WINDOW) -> Returns:
    """The mean of the last `window` values, of all so far where there are fewer."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: Returns = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def limits(seeds: Sequence[Returns], random: Returns) -> tuple[float, float]:
    """The range of returns that is drawn: all but the lowest hundredth, which a few crashes stretch."""
    every = np.concatenate([*seeds, random])
    low, high = float(np.quantile(every, 0.01)), float(every.max())
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def draw(seeds: Sequence[Returns], random: Returns, task: str, path: Path) -> None:
    """The picture of one task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    low, high = limits(seeds, random)
    shown = {"s": 6, "linewidths": 0, "rasterized": True}
    with matplotlib.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, width_ratios=(3, 1))
        for values in seeds:
            at = np.arange(1, len(values) + 1)
            left.scatter(at, values, color=COLOUR, alpha=0.2, **shown)
            left.plot(at, moving_mean(values), color=COLOUR, lw=0.9)
        right.scatter(np.arange(1, len(random) + 1), random, color=GREY, alpha=0.6, **shown)
        right.axhline(float(random.mean()), color=GREY, lw=1.2)
        left.set(title=f"PPO on {task}, {len(seeds)} seeds", xlabel="training episode", ylim=(low, high))
        left.set_ylabel("return of the episode")
        right.set(title=f"random agent, mean {random.mean():.0f}", xlabel="episode")
        figure.tight_layout()
        figure.savefig(path, dpi=100)
        plt.close(figure)


def numbers_of(run: Path, returns: Returns) -> dict[str, Any]:
    """Of a run: the first and the last 100 training episodes, and how evaluation episodes ended."""
    numbers = {
        "seed": seed_of(run),
        "episodes": len(returns),
        "first_100": round(float(returns[:100].mean()), 1),
        "last_100": round(float(returns[-100:].mean()), 1),
    }
    evaluation = run / "evaluation.json"
    if evaluation.is_file():
        lengths, limit = json.loads(evaluation.read_text())["lengths"], limit_of(run)
        numbers |= {"evaluated": len(lengths), "until_limit": sum(length >= limit for length in lengths)}
    return numbers


def limit_of(run: Path) -> float:
    """The time limit of a run's environment."""
    env = read_yaml(run / "config.yaml")["env"]
    return env["time_limit"] or gymnasium.spec(env["id"]).max_episode_steps or math.inf


def text(numbers: Sequence[dict[str, Any]], random: Returns) -> str:
    """The numbers of all runs, as a table."""
    lines = [f"{'seed':>4}  {'episodes':>8}  {'first 100':>9}  {'last 100':>8}  until the time limit"]
    for run in numbers:
        line = f"{run['seed']:>4}  {run['episodes']:>8,}  {run['first_100']:>9.1f}  {run['last_100']:>8.1f}"
        lines.append(f"{line}  {run.get('until_limit', '-')} of {run.get('evaluated', '-')}")
    lines.append(f"random agent: {random.mean():.1f} over {len(random)} episodes")
    return "\n".join(lines)


def task_of(runs: Sequence[Path]) -> str:
    """The one environment of all runs."""
    tasks = {str(read_yaml(run / "config.yaml")["env"]["id"]) for run in runs}
    if len(tasks) > 1:
        raise UsageError(f"one picture shows one task; these runs are of {', '.join(sorted(tasks))}")
    return tasks.pop()


def seed_of(run: Path) -> int:
    """The seed of a run."""
    return int(read_yaml(run / "config.yaml")["seed"])


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.episodes", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--random", required=True, type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs = sorted(options.runs, key=seed_of)
    played: dict[str, Any] = json.loads(options.random.read_text())
    seeds, random = [read_returns(run) for run in runs], np.array(played["returns"])
    draw(seeds, random, task_of(runs), options.out)
    numbers = [numbers_of(run, returns) for run, returns in zip(runs, seeds, strict=True)]
    if options.json:
        contents = {"task": task_of(runs), "runs": numbers, "random": round(float(random.mean()), 1)}
        if all("until_limit" in run for run in numbers):
            contents |= {key: sum(run[key] for run in numbers) for key in ("evaluated", "until_limit")}
        options.json.write_text(json.dumps(contents, indent=1) + "\n")
    print(text(numbers, random))


if __name__ == "__main__":
    main()
