"""Everything a report says, as one value; and the same as plain data."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.intervals import Floats
from . import aggregate
from .aggregate import Aggregate, Difference, Family, Improvement, Profile
from .curves import RANDOM, Panel, Track, panels, track, with_random
from .efficiency import Efficiency, Threshold, efficiencies, thresholds
from .groups import Group, group_runs
from .runs import Found, LeftOut, key_of, task
from .scores import Final, Scale, finals, scales
from .verdict import Statement, verdict

MORE = 1.1  # times the steps of another model, which is no longer the same number
CURVE_DIGITS = 6  # that count of a number of a curve, in the file


@dataclass(frozen=True)
class Summary:
    """A report before it is written."""

    verdict: list[Statement]
    notes: list[str]
    """What to mind when reading it."""
    left_out: list[LeftOut]
    groups: list[Group]
    panels: list[Panel]
    finals: list[Final]
    differences: list[Difference]
    scales: list[Scale]
    aggregates: list[Aggregate]
    profile_grid: Floats
    profiles: list[Profile]
    improvements: list[Improvement]
    random: Mapping[str, float]
    """Environment -> what acting at random scores there, where it was evaluated."""
    thresholds: list[Threshold]
    efficiencies: list[Efficiency]

    @property
    def envs(self) -> list[str]:
        """Every environment."""
        return sorted({group.env for group in self.groups})

    @property
    def labels(self) -> list[str]:
        """Every model and imported curve; its place is its colour."""
        own = sorted({group.label for group in self.groups})
        others = sorted({line.label for panel in self.panels for line in panel.lines} - {*own, RANDOM})
        return own + others + [RANDOM]


def summarise(found: Found, imported: Sequence[Track] = ()) -> Summary:
    """All numbers, and what they say."""
    made = group_runs(found.runs)
    ends, scoreless = finals(made)
    tasks = {group.env: key_of(task(group.settings)) for group in made}
    random = {env: found.random[key] for env, key in tasks.items() if key in found.random}
    own_scales = scales(ends, random)
    strata = aggregate.complete(ends, own_scales)
    overall = aggregate.aggregates(strata)
    grid = aggregate.profile_grid(strata)
    ranked = [item.label for item in overall]
    ranked += sorted({final.label for final in ends} - set(ranked))
    family = Family(
        aggregate.differences(ends), aggregate.improvements(ends, ranked) if len(tasks) > 1 else []
    ).adjusted()
    tracks = [*map(track, made), *imported]
    goals = thresholds(tracks, made, random)
    return Summary(
        verdict=verdict(ends, overall, family),
        notes=list(_notes(made, ends, set(ranked) - strata.keys())),
        left_out=[*found.left_out, *scoreless],
        groups=made,
        panels=[with_random(panel, random.get(panel.env, {})) for panel in panels(tracks)],
        finals=ends,
        differences=family.differences,
        scales=own_scales,
        aggregates=overall,
        profile_grid=grid,
        profiles=aggregate.profiles(strata, grid),
        improvements=family.improvements,
        random=_random_scores(ends, random),
        thresholds=goals,
        efficiencies=efficiencies(tracks, goals),
    )


def _random_scores(finals: Sequence[Final], random: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What acting at random scores in each environment, in the unit of its other scores."""
    units = {final.env: "success" if final.source == "success" else "mean" for final in finals}
    scores = {env: random.get(env, {}).get(unit) for env, unit in units.items()}
    return {env: float(score) for env, score in scores.items() if score is not None}


def as_json(summary: Summary) -> dict[str, Any]:
    """All of it as dicts, lists and scalars; what is not finite is null."""
    own = {
        "groups": [_group(group) for group in summary.groups],
        "panels": to_json_data(summary.panels, CURVE_DIGITS),
    }
    names = [field.name for field in dataclasses.fields(summary)]
    return {name: own[name] if name in own else to_json_data(getattr(summary, name)) for name in names}


def to_json_data(value: Any, digits: int | None = None) -> Any:
    """A value of this package as plain data; digits: how many that count are kept of an array."""
    if isinstance(value, np.ndarray):
        return [_finite(x if digits is None else float(f"{x:.{digits}g}")) for x in value.tolist()]
    if dataclasses.is_dataclass(value):
        return {f.name: to_json_data(getattr(value, f.name), digits) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_data(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_data(item, digits) for item in value]
    if isinstance(value, float):
        return _finite(value)
    return str(value) if isinstance(value, Path) else value


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _group(group: Group) -> dict[str, Any]:
    runs = [
        {
            "folder": str(run.folder),
            "seed": run.seed,
            "status": run.status,
            "steps": run.metrics["step"][-1],
            "seconds": _finite(float(run.metrics["time"][-1])),
            "versions": run.summary.get("versions"),
            "processor": run.summary.get("processor"),
        }
        for run in group.runs
    ]
    return {"env": group.env, "label": group.label, "settings": to_json_data(group.settings), "runs": runs}


# What to mind ---------------------------------------------------------------------------------


def _notes(groups: Sequence[Group], finals: Sequence[Final], partial: set[str]) -> Iterator[str]:
    for env in dict.fromkeys(final.env for final in finals):
        here = [final for final in finals if final.env == env]
        yield from _notes_on_seeds(env, here)
        if here[0].source == "training":
            yield (
                f"{env}: scores are the last means of 100 training episodes, because not every run has "
                "an evaluation of its last weights."
            )
        yield from _notes_on_steps(env, [group for group in groups if group.env == env and group.finished])
    for group in groups:
        for run in group.runs:
            if not run.finished:
                how = "goes on, or died" if run.status == "running" else f"was stopped by {run.status}"
                yield f"{run.folder} {how}: it is in no score. recollect resume {run.folder} carries it on."
        if len({str(run.summary.get("versions")) for run in group.finished}) > 1:
            yield f"{group.env}, {group.label}: its runs were made with different versions or processors."
    if partial:
        yield (
            f"Only in some environments, so without a place over all of them: {', '.join(sorted(partial))}."
        )


def _notes_on_steps(env: str, groups: Sequence[Group]) -> Iterator[str]:
    """As many rollouts may be other numbers of steps; a rollout that is not whole makes no difference."""
    steps = {g.label: np.mean([run.metrics["step"][-1] for run in g.finished]) for g in groups}
    if steps and max(steps.values()) > MORE * min(steps.values()):
        told = ", ".join(f"{label} {count:,.0f}" for label, count in steps.items())
        yield f"{env}: the models learned for different numbers of steps: {told}."


def _notes_on_seeds(env: str, finals: Sequence[Final]) -> Iterator[str]:
    if len({final.seeds for final in finals}) > 1:
        told = "; ".join(f"{final.label} has {' '.join(map(str, final.seeds))}" for final in finals)
        yield f"{env}: the models do not have the same seeds: {told}."
    lonely = [final.label for final in finals if len(final.seeds) == 1]
    if lonely:
        yield (
            f"{env}: one seed of {', '.join(lonely)}. There is no interval, and no way to know how much "
            "is chance."
        )
