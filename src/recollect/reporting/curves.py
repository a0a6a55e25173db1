"""Learning curves of several seeds on one grid of steps, iterations, seconds or episodes, with bands.

Shapes.  n seeds, P points of the grid.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from ..common.intervals import Floats, band, iqm_weights
from .groups import Group

Series: TypeAlias = Mapping[str, Floats]  # columns of one run (lines,): step, time and metrics

CURVE_METRICS = (
    "return",
    "success",
    "length",
    "value_loss",
    "policy_loss",
    "entropy",
    "explained_variance",
)
RANGES = {"success": (0.0, 1.0), "explained_variance": (-math.inf, 1.0)}  # of metrics that are bounded
AXES = ("step", "iteration", "time", "episodes")
POINTS, ALL_POINTS = 80, 4000  # of one curve; of all curves of a report, to bound the size of the page


@dataclass(frozen=True)
class SeedSeries:
    """The training series of all seeds of one model, or of one imported curve."""

    env: str
    label: str
    kind: Literal["finished", "unfinished", "imported"]
    series: Sequence[Series]
    failed: int = 0
    """Runs that failed, which have no series."""


@dataclass(frozen=True)
class Curve:
    """One metric along one axis (P,); NaN where a seed has no value."""

    mean: Floats
    low: Floats | None
    """The lowest seed; None for one seed."""
    high: Floats | None
    iqm: Floats | None
    iqm_low: Floats | None
    iqm_high: Floats | None


@dataclass(frozen=True)
class ModelCurves:
    """The curves of one model or imported program over all metrics and axes."""

    label: str
    kind: Literal["finished", "unfinished", "imported", "random"]
    seeds: int
    curves: Mapping[str, Mapping[str, Curve]]
    """Metric -> axis -> curve; without those that have no value."""


@dataclass(frozen=True)
class Panel:
    """The curves of one environment."""

    env: str
    grids: Mapping[str, Floats]
    """Axis -> (P,)."""
    lines: list[ModelCurves]


def seed_series(group: Group) -> SeedSeries:
    """The finished runs of a group; the unfinished ones if it has no others."""
    runs = group.finished or group.runs
    kind: Literal["finished", "unfinished"] = "finished" if group.finished else "unfinished"
    return SeedSeries(group.env, group.label, kind, [run.metrics for run in runs], len(group.failed))


def panels(series: Sequence[SeedSeries]) -> list[Panel]:
    """One panel per environment."""
    points = min(POINTS, max(20, ALL_POINTS // max(1, len(series))))
    envs = sorted({item.env for item in series})
    return [_panel(env, [item for item in series if item.env == env], points) for env in envs]


RANDOM = "random agent"


def with_random(panel: Panel, evaluation: Mapping[str, Any]) -> Panel:
    """The panel with a horizontal line for the score of a random agent."""
    scores = {"return": evaluation.get("mean"), "success": evaluation.get("success")}
    metrics = {metric for line in panel.lines for metric in line.curves}
    curves = {
        metric: {
            axis: Curve(np.full(len(grid), float(score)), *[None] * 5) for axis, grid in panel.grids.items()
        }
        for metric, score in scores.items()
        if score is not None and metric in metrics
    }
    return replace(panel, lines=[*panel.lines, ModelCurves(RANDOM, "random", 1, curves)]) if curves else panel


def resample(x: Floats, y: Floats, grid: Floats) -> Floats:
    """A series (lines,) interpolated linearly at a grid (P,); NaN outside of its range: no extrapolation."""
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return np.full(grid.shape, np.nan)
    return np.interp(grid, x[known], y[known], left=np.nan, right=np.nan)


def summarise_seeds(values: Floats) -> Curve:
    """Values of seeds on a grid (n, P) -> mean, range, and interquartile mean with its interval."""
    # NaN where any seed has no value: a mean of fewer seeds would jump where a run starts or ends.
    mean = values.mean(0)
    if len(values) < 2:
        return Curve(mean, None, None, None, None, None)
    complete = np.isfinite(mean)  # points at which every seed has a value
    iqm, low, high = (np.full(mean.shape, np.nan) for _ in range(3))
    weights = iqm_weights(len(values))
    # The weights are those of sorted values.
    iqm[complete] = weights @ np.sort(values[:, complete], axis=0)
    low[complete], high[complete] = band(values[:, complete], weights)
    return Curve(mean, values.min(0), values.max(0), iqm, low, high)


def _panel(env: str, series: Sequence[SeedSeries], points: int) -> Panel:
    grids = {axis: _grid(axis, series, points) for axis in AXES}
    return Panel(env, grids, [_model_curves(item, grids) for item in series])


def _grid(axis: str, series: Sequence[SeedSeries], points: int) -> Floats:
    """Equidistant points from the first value of any seed to the last (P,)."""
    columns = [seed[axis] for item in series for seed in item.series if axis in seed]
    known = [column[np.isfinite(column)] for column in columns]
    ends = [(column[0], column[-1]) for column in known if len(column)]
    if not ends:
        return np.empty(0)
    first, last = zip(*ends, strict=True)
    return np.linspace(min(first), max(last), points)


def _model_curves(model: SeedSeries, grids: Mapping[str, Floats]) -> ModelCurves:
    """All metrics along all axes."""
    columns: dict[tuple[str, str], Floats] = {}
    for metric in CURVE_METRICS:
        for axis, grid in grids.items():
            if all({metric, axis} <= series.keys() for series in model.series):
                values = np.stack([resample(s[axis], s[metric], grid) for s in model.series])
                if np.isfinite(values).all(0).any():
                    columns[metric, axis] = values
    curves: dict[str, dict[str, Curve]] = {}
    if columns:
        # One call for all of them: they share the resamples of the seeds, which take most of the time.
        joined = summarise_seeds(np.concatenate(list(columns.values()), axis=1))
        ends = np.cumsum([values.shape[1] for values in columns.values()])
        for (metric, axis), end in zip(columns, ends, strict=True):
            points = slice(end - len(grids[axis]), end)
            curves.setdefault(metric, {})[axis] = _slice(joined, points, RANGES.get(metric))
    return ModelCurves(model.label, model.kind, len(model.series), curves)


def _slice(curve: Curve, points: slice, ends: tuple[float, float] | None) -> Curve:
    """The points of one metric, its band within the range of the metric."""
    bounds = (curve.low, curve.high, curve.iqm, curve.iqm_low, curve.iqm_high)
    columns = (None if column is None else column[points] for column in bounds)
    # The factor for few seeds widens a band beyond the scores, past the largest possible one at a ceiling.
    return Curve(
        curve.mean[points], *(x if x is None or ends is None else np.clip(x, *ends) for x in columns)
    )
