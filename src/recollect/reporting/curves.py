"""Learning curves of several seeds on one grid, of steps, seconds or episodes, and what lies around them.

Shapes.  n seeds, P points of the grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from ..common.intervals import Floats, band, iqm_weights
from .groups import Group

Series: TypeAlias = Mapping[str, Floats]  # columns of one run (lines,): step, time and metrics

METRICS = (
    "return",
    "success",
    "length",
    "value_loss",
    "policy_loss",
    "entropy",
    "explained_variance",
)
AXES = ("step", "iteration", "time", "episodes")
POINTS, ALL_POINTS = 80, 4000  # of one curve; of all curves of a report, which must stay small


@dataclass(frozen=True)
class Track:
    """The seeds of one curve."""

    env: str
    label: str
    kind: Literal["finished", "unfinished", "imported"]
    series: Sequence[Series]


@dataclass(frozen=True)
class Curve:
    """One metric along one axis (P,); NaN where not every seed is known."""

    mean: Floats
    low: Floats | None
    """The worst seed; None for one seed."""
    high: Floats | None
    iqm: Floats | None
    iqm_low: Floats | None
    iqm_high: Floats | None


@dataclass(frozen=True)
class Lines:
    """All curves of one track."""

    label: str
    kind: Literal["finished", "unfinished", "imported", "random"]
    seeds: int
    curves: Mapping[str, Mapping[str, Curve]]
    """Metric -> axis -> curve, where anything is known."""


@dataclass(frozen=True)
class Panel:
    """The curves of one environment."""

    env: str
    grids: Mapping[str, Floats]
    """Axis -> (P,)."""
    lines: list[Lines]


def track(group: Group) -> Track:
    """What is drawn of a group: its finished runs, or those that are not where it has no others."""
    runs = group.finished or group.runs
    kind: Literal["finished", "unfinished"] = "finished" if group.finished else "unfinished"
    return Track(group.env, group.label, kind, [run.metrics for run in runs])


def panels(tracks: Sequence[Track]) -> list[Panel]:
    """One for each environment."""
    points = min(POINTS, max(20, ALL_POINTS // max(1, len(tracks))))
    envs = sorted({track.env for track in tracks})
    return [_panel(env, [track for track in tracks if track.env == env], points) for env in envs]


RANDOM = "random agent"


def with_random(panel: Panel, evaluation: Mapping[str, Any]) -> Panel:
    """The panel with a horizontal line for the scores of an agent that acts at random."""
    scores = {"return": evaluation.get("mean"), "success": evaluation.get("success")}
    drawn = {metric for line in panel.lines for metric in line.curves}
    curves = {
        metric: {
            axis: Curve(np.full(len(grid), float(score)), *[None] * 5) for axis, grid in panel.grids.items()
        }
        for metric, score in scores.items()
        if score is not None and metric in drawn
    }
    return replace(panel, lines=[*panel.lines, Lines(RANDOM, "random", 1, curves)]) if curves else panel


def resample(x: Floats, y: Floats, grid: Floats) -> Floats:
    """A series (lines,) at the points of a grid (P,), in straight lines; nothing is made up outside."""
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return np.full(grid.shape, np.nan)
    return np.interp(grid, x[known], y[known], left=np.nan, right=np.nan)


def summarise(values: Floats) -> Curve:
    """Seeds on a grid (n, P) -> their mean and what lies around it."""
    mean = values.mean(0)
    if len(values) < 2:
        return Curve(mean, None, None, None, None, None)
    whole = np.isfinite(mean)
    iqm, low, high = (np.full(mean.shape, np.nan) for _ in range(3))
    weights = iqm_weights(len(values))
    iqm[whole] = weights @ np.sort(values[:, whole], axis=0)
    low[whole], high[whole] = band(values[:, whole], weights)
    return Curve(mean, values.min(0), values.max(0), iqm, low, high)


def _panel(env: str, tracks: Sequence[Track], points: int) -> Panel:
    grids = {axis: _grid(axis, tracks, points) for axis in AXES}
    return Panel(env, grids, [_lines(track, grids) for track in tracks])


def _grid(axis: str, tracks: Sequence[Track], points: int) -> Floats:
    """From the first line of any seed to the last (P,)."""
    columns = [series[axis] for track in tracks for series in track.series if axis in series]
    known = [column[np.isfinite(column)] for column in columns]
    ends = [(column[0], column[-1]) for column in known if len(column)]
    if not ends:
        return np.empty(0)
    first, last = zip(*ends, strict=True)
    return np.linspace(min(first), max(last), points)


def _lines(track: Track, grids: Mapping[str, Floats]) -> Lines:
    """All metrics along all axes are summarised at once: they share the resamples of the seeds."""
    parts: dict[tuple[str, str], Floats] = {}
    for metric in METRICS:
        for axis, grid in grids.items():
            if all({metric, axis} <= series.keys() for series in track.series):
                values = np.stack([resample(s[axis], s[metric], grid) for s in track.series])
                if np.isfinite(values).all(0).any():
                    parts[metric, axis] = values
    curves: dict[str, dict[str, Curve]] = {}
    if parts:
        whole = summarise(np.concatenate(list(parts.values()), axis=1))
        ends = np.cumsum([values.shape[1] for values in parts.values()])
        for (metric, axis), end in zip(parts, ends, strict=True):
            curves.setdefault(metric, {})[axis] = _cut(whole, slice(end - len(grids[axis]), end))
    return Lines(track.label, track.kind, len(track.series), curves)


def _cut(curve: Curve, part: slice) -> Curve:
    around = (curve.low, curve.high, curve.iqm, curve.iqm_low, curve.iqm_high)
    return Curve(curve.mean[part], *(None if column is None else column[part] for column in around))
