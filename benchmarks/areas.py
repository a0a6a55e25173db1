"""Areas under the training curves of a study: the mean training return over the steps of a run.

The return of each seed (the mean of its last 100 episodes) is interpolated at equidistant steps, from the
first to the last one at which every seed of a task has a return, and averaged. So runs that learn earlier
have a higher score, whatever they end with.
"""

from pathlib import Path

import numpy as np

from recollect.common.intervals import iqm_weights, mean_weights
from recollect.common.statistics import iqm
from recollect.reporting.aggregate import Family, ModelDifference, model_differences
from recollect.reporting.curves import Series, resample
from recollect.reporting.groups import Group, group_runs
from recollect.reporting.runs import read_runs
from recollect.reporting.scores import FinalScores, weighted_mean_interval

POINTS = 400


def areas(archive: Path) -> tuple[list[FinalScores], list[ModelDifference]]:
    """The areas of the finished runs of an archive, and their differences with adjusted p-values."""
    groups = [group for group in group_runs(read_runs([archive]).runs) if group.finished]
    scores = [
        score
        for env in sorted({group.env for group in groups})
        for score in task_areas([group for group in groups if group.env == env])
    ]
    return scores, Family(model_differences(scores), []).adjusted().differences


def task_areas(groups: list[Group]) -> list[FinalScores]:
    """The areas of the models of one environment."""
    ends = [_known_range(run.metrics) for group in groups for run in group.finished]
    grid = np.linspace(max(first for first, _ in ends), min(last for _, last in ends), POINTS)
    return [_group_areas(group, grid) for group in groups]


def _known_range(series: Series) -> tuple[float, float]:
    """The first and the last step with a return."""
    steps = series["step"][np.isfinite(series["return"])]
    return float(steps[0]), float(steps[-1])


def _group_areas(group: Group, grid: np.ndarray) -> FinalScores:
    curves = [resample(run.metrics["step"], run.metrics["return"], grid) for run in group.finished]
    scores = np.array([curve.mean() for curve in curves])
    weights = mean_weights(len(scores)), iqm_weights(len(scores))
    mean_interval, iqm_interval = (weighted_mean_interval(scores, x) for x in weights)
    mean = float(scores.mean())
    return FinalScores(
        group.env,
        group.label,
        "training",
        group.seeds,
        scores,
        mean=mean,
        iqm=iqm(scores),
        mean_interval=mean_interval,
        iqm_interval=iqm_interval,
        mean_return=mean,
        failed=group.failed,
    )
