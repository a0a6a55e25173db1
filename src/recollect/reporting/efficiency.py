"""How soon runs got somewhere: in steps, and in seconds.

What never got there is not left out of a mean but counted as later than all: so medians.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..common.intervals import Floats
from .curves import Series, Track
from .groups import Group

SHARE = 0.9  # of the way up


@dataclass(frozen=True)
class Threshold:
    """The training return that has to be reached in an environment."""

    env: str
    value: float
    kind: Literal["target", "random", "lowest"]
    """What the configs ask for (ppo.target_return), or most of the way up from what acting at random reaches,
    where some model is better, or else from the lowest first return."""


@dataclass(frozen=True)
class Efficiency:
    """When each seed of a track reached the threshold; infinite where it never did."""

    env: str
    label: str
    kind: str
    steps: Floats
    """(n,)"""
    seconds: Floats
    """(n,); NaN where an imported curve knows no time."""
    pace: float
    """Steps a second, the mean over seeds."""

    @property
    def reached(self) -> int:
        """How many seeds did."""
        return int(np.isfinite(self.steps).sum())


def thresholds(
    tracks: Sequence[Track], groups: Sequence[Group], random: Mapping[str, Mapping[str, Any]]
) -> list[Threshold]:
    """One for each environment in which any return is known."""
    made: list[Threshold] = []
    for env in sorted({track.env for track in tracks}):
        targets = {group.settings.get("ppo.target_return") for group in groups if group.env == env}
        target = targets.pop() if len(targets) == 1 else None
        here = [track for track in tracks if track.env == env and _ends(track)]
        if target is not None:
            made.append(Threshold(env, float(target), "target"))
        elif here:
            top = max(float(np.mean(_ends(track))) for track in here)
            chance = float(random.get(env, {}).get("mean", math.inf))
            bottom = chance if chance < top else min(min(_ends(track, 0)) for track in here)
            value = bottom + SHARE * (top - bottom)
            made.append(Threshold(env, value, "random" if chance < top else "lowest"))
    return made


def efficiencies(tracks: Sequence[Track], thresholds: Sequence[Threshold]) -> list[Efficiency]:
    """Every track of which a return is known."""
    value_of = {threshold.env: threshold.value for threshold in thresholds}
    return [
        _efficiency(track, value_of[track.env]) for track in tracks if track.env in value_of and _ends(track)
    ]


def reached(series: Series, axis: str, value: float) -> float:
    """Where along an axis the return first gets to a value; infinite if never, NaN without the axis."""
    if axis not in series:
        return np.nan
    there = np.flatnonzero(series["return"] >= value)  # NaN is not
    return float(series[axis][there[0]]) if len(there) else np.inf


def _efficiency(track: Track, value: float) -> Efficiency:
    steps, seconds = (
        np.array([reached(series, axis, value) for series in track.series]) for axis in ("step", "time")
    )
    paces = [s["step"][-1] / s["time"][-1] for s in track.series if "time" in s and s["time"][-1] > 0]
    pace = float(np.mean(paces)) if paces else np.nan
    return Efficiency(track.env, track.label, track.kind, steps, seconds, pace)


def _ends(track: Track, place: int = -1) -> list[float]:
    """The last known return of each seed that has one, or the first."""
    known = (series["return"][np.isfinite(series["return"])] for series in track.series)
    return [float(column[place]) for column in known if len(column)]
