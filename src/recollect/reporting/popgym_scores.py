"""MMER of the models of a report in the tasks of POPGym, beside their final scores and published values.

Shapes.  n seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..common.format import first_few
from ..common.intervals import Floats, Interval, mean_weights
from .groups import Group
from .popgym_iterations import PREFIX, is_popgym
from .popgym_published import PublishedScore, published_scores
from .runs import FlatConfig, Run, task_config
from .scores import SCORE_RANGES, UNBOUNDED, FinalScores, ScoreSource, weighted_mean_interval

# The wrappers of the paper, which do not change its tasks.
WRAPPERS = ("env.kwargs.prev_action", "env.kwargs.antialias")


@dataclass(frozen=True)
class PopgymScores:
    """MMER of one model in one task."""

    label: str
    seeds: tuple[int, ...]
    mmer: Floats
    """One per seed (n,)."""
    mean: float
    std: float | None
    """Sample standard deviation over seeds; None for one seed."""
    interval: Interval | None
    """95 % confidence interval of the mean; None for one seed."""
    steps: float
    """Training steps, mean over seeds."""
    source: ScoreSource | None
    """The kind of final scores, as in FinalScores; None: there are none."""
    final_mean: float | None
    """Mean of the final scores of the same seeds."""
    final_interval: Interval | None


@dataclass(frozen=True)
class PopgymTask:
    """One task of POPGym: the models of the report, the highest mean first, and the published scores."""

    env: str
    task: str
    """The name of the task in POPGym."""
    models: list[PopgymScores]
    without: list[str]
    """Runs without MMER, in words."""
    published: list[PublishedScore]


def popgym_tasks(groups: Sequence[Group], finals: Sequence[FinalScores]) -> list[PopgymTask]:
    """The POPGym tasks of a report that have a finished run."""
    of_popgym = [group for group in groups if is_popgym(str(group.settings["env.id"])) and group.finished]
    return [
        _task([group for group in of_popgym if group.env == env], finals)
        for env in dict.fromkeys(group.env for group in of_popgym)
    ]


def _task(groups: Sequence[Group], finals: Sequence[FinalScores]) -> PopgymTask:
    settings = groups[0].settings
    name = str(settings["env.id"]).removeprefix(PREFIX).removeprefix("popgym-").removesuffix("-v0")
    by_label = {final.label: final for final in finals if final.env == groups[0].env}
    scores = [_scores(group, runs, by_label.get(group.label)) for group in groups if (runs := _scored(group))]
    return PopgymTask(
        groups[0].env,
        name,
        sorted(scores, key=lambda item: -item.mean),
        list(_without(groups)),
        published_scores(name) if _is_unchanged(settings) else [],
    )


def _scored(group: Group) -> list[Run]:
    return [run for run in group.finished if run.iterations is not None and not run.iterations.problem]


def _scores(group: Group, runs: Sequence[Run], final: FinalScores | None) -> PopgymScores:
    scores = np.array([run.iterations.mmer for run in runs if run.iterations is not None])
    seeds = tuple(run.seed for run in runs)
    # Of the same seeds, because two means over different seeds are not comparable.
    pairs = () if final is None else zip(final.seeds, final.scores, strict=True)
    finals = np.array([score for seed, score in pairs if seed in seeds])
    source = final.source if final is not None and len(finals) else None
    return PopgymScores(
        group.label,
        seeds,
        scores,
        mean=float(scores.mean()),
        std=float(scores.std(ddof=1)) if len(scores) > 1 else None,
        interval=_interval(scores, UNBOUNDED),
        steps=float(np.mean([run.metrics["step"][-1] for run in runs])),
        source=source,
        final_mean=float(finals.mean()) if source else None,
        final_interval=_interval(finals, SCORE_RANGES[source]) if source else None,
    )


def _interval(scores: Floats, ends: tuple[float, float]) -> Interval | None:
    return weighted_mean_interval(scores, mean_weights(len(scores)), ends)


def _without(groups: Sequence[Group]) -> Iterator[str]:
    """One line for each reason, with the models and seeds that it concerns."""
    reasons: dict[str, list[str]] = {}
    for group in groups:
        seeds: dict[str, list[int]] = {}
        for run in group.finished:
            if run.iterations is not None and run.iterations.problem:
                seeds.setdefault(run.iterations.problem, []).append(run.seed)
        for problem, numbers in seeds.items():
            word = "seed" if len(numbers) == 1 else "seeds"
            reasons.setdefault(problem, []).append(f"{group.label} ({word} {' '.join(map(str, numbers))})")
    for problem, models in reasons.items():
        yield f"{', '.join(first_few(models))}: {problem}"


def _is_unchanged(settings: FlatConfig) -> bool:
    """Whether the task is that of POPGym, without other arguments, masks, time limits or trials."""
    task = {key: value for key, value in task_config(settings).items() if key not in ("env.id", *WRAPPERS)}
    return all(value is None or value in ([], {}) for value in task.values())
