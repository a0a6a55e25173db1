"""Sample and time efficiency: steps and seconds until the training return reaches a threshold.

A seed that does not reach it, or whose run failed, counts as later than all others. So reports use the
median seed: a mean would cover only the seeds that succeeded.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..common.intervals import Floats
from .curves import SeedSeries, Series
from .groups import Group
from .scores import rounded

SHARE = 0.9  # of the way from the low end to the best mean


@dataclass(frozen=True)
class Threshold:
    """The training return to reach in an environment."""

    env: str
    value: float
    kind: Literal["target", "random", "lowest"]
    """target: ppo.target_return of the configs. Otherwise 90 % of the way to the best mean, from the score of
    a random agent (random) if some model is better, else from the lowest first return (lowest)."""


@dataclass(frozen=True)
class Efficiency:
    """When each seed of a model reached the threshold; infinite if it did not."""

    env: str
    label: str
    kind: str
    steps: Floats
    """(n,)"""
    seconds: Floats
    """(n,); NaN if an imported curve has no time."""
    pace: float
    """Steps per second, the mean over seeds."""
    budget: float
    """The fewest steps of a seed that ended without reaching it; infinite if there is none. Not that of a
    failed run, which never reaches it."""

    @property
    def reached(self) -> int:
        """Number of seeds that reached it."""
        return int(np.isfinite(self.steps).sum())


def thresholds(
    series: Sequence[SeedSeries], groups: Sequence[Group], random: Mapping[str, Mapping[str, Any]]
) -> list[Threshold]:
    """One threshold per environment that has a return."""
    series = _complete(series)
    result: list[Threshold] = []
    for env in sorted({item.env for item in series}):
        targets = {group.settings.get("ppo.target_return") for group in groups if group.env == env}
        target = targets.pop() if len(targets) == 1 else None
        models = [item for item in series if item.env == env and _known_returns(item)]
        if target is not None:
            result.append(Threshold(env, float(target), "target"))
        elif models:
            top = max(float(np.mean(_known_returns(model))) for model in models)
            # Infinite if unknown, so that the comparison below is false.
            chance = float(random.get(env, {}).get("mean", math.inf))
            bottom = chance if chance < top else min(min(_known_returns(model, 0)) for model in models)
            # Returns fall or stay the same: every seed would begin at the threshold. Rounded, because a mean
            # of equal values may exceed them by its last digit.
            if rounded(top) <= rounded(bottom):
                continue
            value = bottom + SHARE * (top - bottom)
            result.append(Threshold(env, value, "random" if chance < top else "lowest"))
    return result


def efficiencies(series: Sequence[SeedSeries], thresholds: Sequence[Threshold]) -> list[Efficiency]:
    """Every model that has a return, and runs that are not unfinished."""
    value_of = {threshold.env: threshold.value for threshold in thresholds}
    return [
        _efficiency(item, value_of[item.env])
        for item in _complete(series)
        if item.env in value_of and _known_returns(item)
    ]


def _complete(series: Sequence[SeedSeries]) -> list[SeedSeries]:
    """Without unfinished runs: they may reach the threshold yet."""
    return [item for item in series if item.kind != "unfinished"]


def first_reached(series: Series, axis: str, value: float) -> float:
    """Position on an axis where the return first reaches a value; infinite if never, NaN without the axis."""
    if axis not in series:
        return np.nan
    lines = np.flatnonzero(series["return"] >= value)  # False for NaN
    return float(series[axis][lines[0]]) if len(lines) else np.inf


def _efficiency(model: SeedSeries, value: float) -> Efficiency:
    never = [np.inf] * model.failed
    steps, seconds = (
        np.array([*(first_reached(series, axis, value) for series in model.series), *never])
        for axis in ("step", "time")
    )
    paces = [s["step"][-1] / s["time"][-1] for s in model.series if "time" in s and s["time"][-1] > 0]
    pace = float(np.mean(paces)) if paces else np.nan
    # The failed runs, which are last among the steps, have no series.
    ends = [s["step"][-1] for s, at in zip(model.series, steps, strict=False) if np.isinf(at)]
    budget = float(min(ends, default=np.inf))
    return Efficiency(model.env, model.label, model.kind, steps, seconds, pace, budget)


def _known_returns(model: SeedSeries, index: int = -1) -> list[float]:
    """The last (-1) or first (0) known return of each seed that has one."""
    known = (series["return"][np.isfinite(series["return"])] for series in model.series)
    return [float(column[index]) for column in known if len(column)]
