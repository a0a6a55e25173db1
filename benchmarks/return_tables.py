"""Tables of the scores of presets, from the result files of `benchmarks.returns`."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from recollect.common.intervals import band, mean_weights

from . import zoo
from .cells import table
from .returns import ROWS, Result, Row

Kept = tuple[Row, list[Result]]
CARDS = "popgym:"
PLAIN = (
    *("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"),
    *("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4"),
)
MUJOCO = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4")
PUBLISHED = Path("docs/results/published_mujoco.json")
LEARNED = "threshold", "steps to the threshold"


def kept(out: Path, belongs: Callable[[Row], bool]) -> list[Kept]:
    """The measured rows of a table, in order."""
    files = [(row, out / f"returns-{row.name}.json") for row in ROWS if belongs(row)]
    return [(row, json.loads(file.read_text())) for row, file in files if file.exists()]


def is_plain(row: Row) -> bool:
    """Whether it is one of the tasks that need no memory, with the preset's options."""
    return row.env in PLAIN and not row.options


def presets(out: Path) -> list[str]:
    """Plain PPO on the tasks that need no memory."""
    header = ["environment", "steps", "seeds", "mean return of each seed", "mean", "95 % interval"]
    return table([*header, *LEARNED], [_line(*row)[1:] for row in kept(out, is_plain)])


def mujoco(out: Path) -> list[str]:
    """Plain PPO on MuJoCo, beside published scores of the same tasks after as many steps."""
    published = json.loads((out.parents[1] / PUBLISHED).read_text())
    header = ["environment", "mean return of each seed", "mean", "Tianshou", "difference", "RL Zoo", "time"]
    rows = []
    for row, runs in kept(out, lambda row: row.env in MUJOCO):
        ours = np.array([run["mean"] for run in runs], dtype=np.float64)
        theirs = np.array(published["scores"][row.env], dtype=np.float64)
        value, interval = zoo.difference(ours, theirs)
        rows.append(
            [
                row.env,
                ", ".join(f"{score:.0f}" for score in ours),
                *(zoo.mean_cell(scores, 0) for scores in (ours, theirs)),
                f"{value:.0f} ({interval.low:.0f} to {interval.high:.0f})",
                f"{published['single'][row.env]:.0f}",
                f"{statistics.median(run['seconds'] for run in runs):.0f} s",
            ]
        )
    return table(header, rows)


def toy_control(out: Path) -> list[str]:
    """Taxi at the settings of any other environment."""
    header = ["environment", "steps", "seeds", "mean return of each seed", "mean", "95 % interval"]
    rows = kept(out, lambda row: row.variant == "any-other")
    return table([*header, *LEARNED], [_line(*row)[1:] for row in rows])


def memory_tasks(out: Path) -> list[str]:
    """Presets with a memory on tasks that need one, each next to the same agent without memory."""
    rows = kept(out, lambda row: row.env not in PLAIN + MUJOCO and not row.env.startswith(CARDS))
    header = ["model", "task", "steps", "seeds", "score of each seed", "mean", "95 % interval"]
    return table([*header, *LEARNED], [_line(*row) for row in rows])


def _line(row: Row, runs: Sequence[Result]) -> list[str]:
    scores = [run[row.metric] for run in runs]
    digits = 2 if max(map(abs, scores)) < 10 else 1
    low, high = mean_interval(scores)
    if row.metric == "success":  # a share
        low, high = max(low, 0.0), min(high, 1.0)
    steps = [run["learned_at"] for run in runs]
    return [
        f"`{row.model}`",
        f"{row.env}{f' ({row.variant})' if row.variant else ''}",
        f"{row.steps:,}",
        str(len(runs)),
        ", ".join(f"{score:.{digits}f}" for score in scores),
        f"{statistics.mean(scores):.{digits}f}",
        f"{low:.{digits}f} to {high:.{digits}f}",
        f"{row.learned:g}",
        "not reached"
        if not any(steps)
        else ", ".join(f"{x / 1000:.0f} k" if x else "not reached" for x in steps),
    ]


def mean_interval(scores: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean over seeds, as reports compute it."""
    low, high = band(np.array(scores, dtype=np.float64)[:, None], mean_weights(len(scores)))
    return float(low[0]), float(high[0])


def cards(out: Path) -> list[str]:
    """Every memory on every task of POPGym: the return of each seed."""
    rows = kept(out, lambda row: row.env.startswith(CARDS))
    tasks = list(dict.fromkeys(row.env for row, _ in rows))
    scores = {(row.model, row.env): ", ".join(f"{run['mean']:.2f}" for run in runs) for row, runs in rows}
    models = list(dict.fromkeys(row.model for row, _ in rows))
    lines = [
        [
            f"`{model}`{', no memory' if model == 'ppo' else ''}",
            *(scores.get((model, env), "-") for env in tasks),
        ]
        for model in models
    ]
    return table(["memory", *(env.removeprefix(CARDS) for env in tasks)], lines)
