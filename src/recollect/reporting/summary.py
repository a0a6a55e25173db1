"""The content of a report as one value, and as JSON data."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from ..common.intervals import Floats
from . import aggregate
from .aggregate import Aggregate, Family, Improvement, ModelDifference, Profile
from .curves import RANDOM, Panel, SeedSeries, panels, seed_series, with_random
from .efficiency import Efficiency, Threshold, efficiencies, thresholds
from .groups import Group, group_runs
from .popgym_scores import PopgymTask, popgym_tasks
from .runs import LeftOut, RunCollection, is_number, key_of, task_config
from .scores import FinalScores, Scale, final_scores, scales
from .verdict import Statement, verdict

UNEQUAL_STEPS = 1.1  # ratio of the training steps of two models from which the report warns
CURVE_DIGITS = 6  # significant digits of curves in report.json


@dataclass(frozen=True)
class Summary:
    """The content of a report. report.json has one key per field, of the same name."""

    verdict: list[Statement]
    notes: list[str]
    """Caveats."""
    left_out: list[LeftOut]
    groups: list[Group]
    panels: list[Panel]
    finals: list[FinalScores]
    differences: list[ModelDifference]
    scales: list[Scale]
    aggregates: list[Aggregate]
    profile_grid: Floats
    profiles: list[Profile]
    improvements: list[Improvement]
    random: Mapping[str, float]
    """Environment -> score of a random agent, if one was evaluated."""
    thresholds: list[Threshold]
    efficiencies: list[Efficiency]
    popgym: list[PopgymTask]
    """MMER in the tasks of POPGym; without such a task, report.json has no key for it."""

    @property
    def envs(self) -> list[str]:
        """All environments, sorted."""
        return sorted({group.env for group in self.groups})

    @property
    def labels(self) -> list[str]:
        """All models, then imported curves; the index of a label is that of its colour."""
        models = sorted({group.label for group in self.groups})
        imported = sorted({line.label for panel in self.panels for line in panel.lines} - {*models, RANDOM})
        # Last, so that an evaluation of a random agent does not change the colours of the models.
        published = [item.label for task in self.popgym for item in task.published]
        return models + imported + [RANDOM, *dict.fromkeys(published)]


def summarise(collection: RunCollection, imported: Sequence[SeedSeries] = ()) -> Summary:
    """Compute all numbers of a report, and its verdict."""
    groups = group_runs(collection.runs)
    finals, scoreless = final_scores(groups)
    tasks = {group.env: key_of(task_config(group.settings)) for group in groups}
    random = {env: collection.random[key] for env, key in tasks.items() if key in collection.random}
    env_scales = scales(finals, random)
    strata = aggregate.complete_strata(finals, env_scales)
    aggregates = aggregate.aggregate_scores(strata)
    grid = aggregate.profile_grid(strata)
    ranked = [item.label for item in aggregates]
    ranked += sorted({final.label for final in finals} - set(ranked))
    # In one environment they would repeat the differences, and more tests raise the adjusted p-values.
    improvements = aggregate.improvements(finals, ranked) if len(tasks) > 1 else []
    family = Family(aggregate.model_differences(finals), improvements).adjusted()
    series = [*map(seed_series, groups), *imported]
    env_thresholds = thresholds(series, groups, random)
    return Summary(
        verdict=verdict(finals, aggregates, family, groups),
        notes=list(_notes(groups, finals, set(ranked) - strata.keys())),
        left_out=[*collection.left_out, *scoreless],
        groups=groups,
        panels=[with_random(panel, random.get(panel.env, {})) for panel in panels(series)],
        finals=finals,
        differences=family.differences,
        scales=env_scales,
        aggregates=aggregates,
        profile_grid=grid,
        profiles=aggregate.profiles(strata, grid),
        improvements=family.improvements,
        random=_random_scores(finals, random),
        thresholds=env_thresholds,
        efficiencies=efficiencies(series, env_thresholds),
        popgym=popgym_tasks(groups, finals),
    )


def _random_scores(
    finals: Sequence[FinalScores], random: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """The score of a random agent in each environment, of the same kind as the scores of its models."""
    units = {final.env: "success" if final.source == "success" else "mean" for final in finals}
    scores = {env: random.get(env, {}).get(unit) for env, unit in units.items()}
    return {env: float(score) for env, score in scores.items() if score is not None}


def as_json(summary: Summary) -> dict[str, Any]:
    """The content of report.json; numbers that are not finite become null."""
    special = {
        "groups": [_group(group) for group in summary.groups],
        "panels": to_json_data(summary.panels, CURVE_DIGITS),
        "efficiencies": [_efficiency(item) for item in summary.efficiencies],
    }
    names = [field.name for field in dataclasses.fields(summary) if field.name != "popgym" or summary.popgym]
    return {
        name: special[name] if name in special else to_json_data(getattr(summary, name)) for name in names
    }


def to_json_data(value: Any, digits: int | None = None) -> Any:
    """Convert dataclasses, mappings, sequences and arrays to JSON data; non-finite numbers become None.

    digits  significant digits of array entries; None: all
    """
    if isinstance(value, np.ndarray):
        return [_finite(x if digits is None else float(f"{x:.{digits}g}")) for x in value.tolist()]
    if dataclasses.is_dataclass(value):
        # Names of fields become keys of report.json and of pages: to rename one breaks their readers.
        return {f.name: to_json_data(getattr(value, f.name), digits) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_data(item, digits) for key, item in value.items()}
    # A NamedTuple becomes a list as well: readers take an interval by position.
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
            "seconds": float(run.metrics["time"][-1]),
            "versions": run.summary.get("versions"),
            "processor": run.summary.get("processor"),
        }
        for run in group.runs
    ]
    return to_json_data({"env": group.env, "label": group.label, "settings": group.settings, "runs": runs})


def _efficiency(item: Efficiency) -> dict[str, Any]:
    """Without the budget, which is for the tests of a report."""
    return {key: value for key, value in to_json_data(item).items() if key != "budget"}


# Caveats --------------------------------------------------------------------------------------


def _notes(groups: Sequence[Group], finals: Sequence[FinalScores], partial: set[str]) -> Iterator[str]:
    for env in dict.fromkeys(final.env for final in finals):
        env_finals = [final for final in finals if final.env == env]
        yield from _notes_on_seeds(env, env_finals)
        if env_finals[0].source == "training":
            yield (
                f"{env}: scores are mean returns of the last 100 training episodes, because not every run "
                "has an evaluation of its final weights."
            )
        of_env = [group for group in groups if group.env == env and group.finished]
        yield from _notes_on_steps(env, of_env)
        yield from _notes_on_evaluations(env, of_env)
    for group in groups:
        for run in group.runs:
            if run.status == "failed":
                effect = "and in tests below all scores" if group.finished else "and its model in no test"
                yield f"{run.folder} failed: it is in no mean, {effect}."
            elif not run.finished:
                state = (
                    "is running or has died" if run.status == "running" else f"was stopped by {run.status}"
                )
                resume = f"recollect resume {quote(str(run.folder))}"
                yield f"{run.folder} {state} and has no score. Resume it with: {resume}"
        if len({str(run.summary.get("versions")) for run in group.finished}) > 1:
            yield f"{group.env}, {group.label}: the runs used different package versions or processors."
    if partial:
        yield (
            "Without a score in every environment, and so not in the aggregate scores: "
            f"{', '.join(sorted(partial))}."
        )
    yield from _notes_on_weights([final for final in finals if final.label not in partial])


def _notes_on_weights(finals: Sequence[FinalScores]) -> Iterator[str]:
    """Warn if models have different shares of their runs in the environments; each has a score in all."""
    counts: dict[str, dict[str, int]] = {}
    for final in finals:
        counts.setdefault(final.label, {})[final.env] = len(final.scores)
    shares = {
        tuple((env, Fraction(n, sum(of_model.values()))) for env, n in sorted(of_model.items()))
        for of_model in counts.values()
    }
    if len(shares) > 1:
        yield (
            "The models have different shares of their runs in the environments, and the interquartile mean "
            "over all environments weights an environment by its runs. Compare the means over all "
            "environments, in which each has the same weight."
        )


def _notes_on_evaluations(env: str, groups: Sequence[Group]) -> Iterator[str]:
    """Warn if some took the most likely actions and others drew them, and if some had fewer episodes."""
    evaluations = [run.evaluation or {} for group in groups for run in group.finished]
    if len({evaluation.get("deterministic") for evaluation in evaluations} - {None}) > 1:
        yield f"{env}: some evaluations took the most likely actions, and others drew them."
    episodes = {x["episodes"] for x in evaluations if is_number(x.get("episodes"))}
    if len(episodes) > 1:
        counts = ", ".join(f"{count:,}" for count in sorted(episodes))
        yield f"{env}: the runs have different numbers of evaluation episodes: {counts}."


def _notes_on_steps(env: str, groups: Sequence[Group]) -> Iterator[str]:
    """Warn about unequal numbers of training steps, but not about a part of a rollout."""
    steps = {g.label: np.mean([run.metrics["step"][-1] for run in g.finished]) for g in groups}
    if steps and max(steps.values()) > UNEQUAL_STEPS * min(steps.values()):
        counts = ", ".join(f"{label} {count:,.0f}" for label, count in steps.items())
        yield f"{env}: the models were trained for different numbers of steps: {counts}."


def _notes_on_seeds(env: str, finals: Sequence[FinalScores]) -> Iterator[str]:
    if len({final.seeds for final in finals}) > 1:
        seeds = "; ".join(f"{final.label} has {' '.join(map(str, final.seeds))}" for final in finals)
        yield f"{env}: the models have different seeds: {seeds}."
    single = [final.label for final in finals if len(final.seeds) == 1]
    if single:
        yield (
            f"{env}: only one seed of {', '.join(single)}. There is no interval, and no estimate of the "
            "variance between seeds."
        )
