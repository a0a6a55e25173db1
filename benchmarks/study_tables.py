"""Tables of studies, from the report.json of `recollect compare --report`.

Reports name models by the settings in which they differ. VIEWS has shorter names for some studies.
"""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from recollect.common.intervals import are_equal, describe_equal, iqm_weights, mean_weights
from recollect.common.statistics import iqm
from recollect.reporting.aggregate import Family, improvements, model_differences
from recollect.reporting.scores import SCORE_RANGES, FinalScores, rounded, weighted_mean_interval
from recollect.reporting.significance import fisher, mann_whitney
from recollect.reporting.summary import to_json_data

from .areas import areas
from .cells import table

Entry = dict[str, Any]


@dataclass(frozen=True)
class View:
    """The presentation of a study.

    names   names of models, in order, and the settings that identify each
    pairs   indices in this order: the differences to show; None: all
    pooled  models that are also counted together: (name, indices, index of the model they are compared with)
    """

    names: Sequence[tuple[str, dict[str, Any]]] = ()
    pairs: Sequence[tuple[int, int]] | None = None
    pooled: Sequence[tuple[str, tuple[int, ...], int]] = ()


def _critic(actor: str, critic: str) -> dict[str, Any]:
    return {"actor.memory.name": actor, "critic.memory.name": critic}


FROZEN_ACTOR = {"model": "ppo_gpt_frozen", "actor.trained_encoder": False}

VIEWS = {
    "gpt2ppo": View(
        names=(
            ("`ppo`", {"model": "ppo", "ppo.bptt": None}),
            ("`ppo`, chunks of 16 steps", {"model": "ppo", "ppo.bptt": 16}),
            ("`ppo_gpt`", {"model": "ppo_gpt"}),
        ),
    ),
    "gpt2ppo_critics": View(
        names=(
            ("`ppo`", {"model": "ppo", "actor.hidden": [128, 128]}),
            ("`ppo` with the actor of `ppo_gpt`", {"model": "ppo", "actor.hidden": [128] * 4}),
            ("`ppo_gpt`", {"model": "ppo_gpt", "critic.residual": True}),
            ("a GPT-2 alone", {"model": "ppo_gpt", "critic.residual": False}),
            ("a GPT-2 alone, not trained (`ppo_gpt_frozen`)", {"model": "ppo_gpt_frozen"}),
            ("the same, the actor's first layers not trained", FROZEN_ACTOR),
            ("one GPT-2 for actor and critic (`ppo_gpt_shared`)", {"model": "ppo_gpt_shared"}),
        ),
        pairs=((1, 0), (2, 0), (3, 0), (3, 2), (4, 3), (5, 4), (6, 4)),
    ),
    "gpt2ppo_causes": View(
        names=(
            ("1. 16 environments, five shuffled epochs", {"env.num_envs": 16}),
            ("2. one environment, reset after each rollout", {"env.num_envs": 1, "ppo.shuffle": True}),
            (
                "3. five consecutive steps on each minibatch",
                {"ppo.shuffle": False, "actor.init": "orthogonal"},
            ),
            ("4. their layers and initialisation", {"actor.init": "torch", "ppo.target_lambda": None}),
            ("5. discounted returns as value targets (`ppo_published`)", {"ppo.target_lambda": 1.0}),
        ),
        pairs=((1, 0), (2, 1), (3, 2), (4, 3)),
    ),
    "gpt2ppo_published": View(
        names=(
            ("`ppo_published`", {"model": "ppo_published"}),
            ("`ppo_gpt_published`, as their code ran", {"actor.trained_encoder": False}),
            ("the same, all weights trained", {"model": "ppo_gpt_published", "actor.trained_encoder": True}),
        ),
        pairs=((1, 0), (2, 0), (2, 1)),
    ),
    "gpt2ppo_pretrained": View(
        names=(
            (
                "GPT-2 not trained, random",
                {"model": "ppo_gpt_frozen", "critic.memory.pretrained": None},
            ),
            (
                "GPT-2 not trained, pretrained",
                {"model": "ppo_gpt_frozen", "critic.memory.pretrained": "runs/gpt2_bytes"},
            ),
            ("`ppo_gpt`", {"model": "ppo_gpt", "critic.memory.pretrained": None}),
            ("`ppo_gpt`, pretrained", {"model": "ppo_gpt", "critic.memory.pretrained": "runs/gpt2_bytes"}),
        ),
        pairs=((1, 0), (3, 2)),
    ),
    "gpt2ppo_shared": View(
        names=(
            ("`ppo_published`", {"critic.shared": False}),
            ("one GPT-2 for actor and critic", {"critic.shared": True}),
        ),
    ),
    "gpt2ppo_context": View(
        names=tuple((f"context {length}", {"critic.memory.context": length}) for length in (25, 50, 75)),
    ),
    "gpt2ppo_epochs": View(names=(("`ppo`", {"model": "ppo"}), ("`ppo_gpt`", {"model": "ppo_gpt"}))),
    "gpt2ppo_large": View(
        names=(
            ("`ppo`, chunks of 16 steps", {"model": "ppo"}),
            ("`ppo_gpt`, 2 blocks of width 64", {"model": "ppo_gpt", "critic.memory.width": 64}),
            ("`ppo_gpt`, 4 blocks of width 128", {"model": "ppo_gpt", "critic.memory.width": 128}),
        ),
    ),
    "critic_memory": View(
        names=(
            ("`ppo`, critic without memory", _critic("mlp", "mlp")),
            ("`ppo`, GPT-2 critic", _critic("mlp", "gpt2")),
            ("`ppo_gru`, critic without memory", _critic("gru", "mlp")),
            ("`ppo_gru`, GRU critic", _critic("gru", "gru")),
            ("`ppo_gru`, GPT-2 critic", _critic("gru", "gpt2")),
        ),
        pairs=((1, 0), (2, 0), (3, 2), (4, 2), (4, 3)),
        pooled=(("`ppo_gru`, GRU or GPT-2 critic", (3, 4), 2),),
    ),
    "predictions": View(
        names=(
            ("nothing", {"actor.predict": []}),
            ("hidden velocities", {"actor.predict": ["hidden"]}),
            ("next observation and reward", {"actor.predict": ["obs", "reward"]}),
        ),
        pairs=((1, 0), (2, 0)),
    ),
    "desired_kl": View(
        names=(("constant", {"ppo.desired_kl": None}), ("adapted to the KL", {"ppo.desired_kl": 0.01})),
    ),
    "target_entropy": View(
        names=(
            ("constant coefficient", {"ppo.target_entropy": None}),
            ("target entropy", {"ppo.target_entropy": 2.42}),
        ),
    ),
    "autoencode": View(
        names=tuple(
            (
                f"{name}, discount {discount:g}, entropy bonus {bonus:g}",
                {"model": f"ppo_{name.lower()}", "ppo.gamma": discount, "ppo.ent_coef": bonus},
            )
            for name, discount, bonus in (
                ("GRU", 0.99, 0.0),
                ("GRU", 0.99, 0.02),
                ("GRU", 0.0, 0.0),
                ("GRU", 0.0, 0.02),
                ("LRU", 0.99, 0.02),
                ("LRU", 0.0, 0.02),
            )
        ),
        pairs=((2, 0), (3, 1), (5, 4)),
    ),
    "autoencode_critic": View(
        names=(("GRU, discount 0.99", {"ppo.gamma": 0.99}), ("GRU, discount 0", {"ppo.gamma": 0.0})),
    ),
    "autoencode_long": View(names=(("LRU, discount 0", {"ppo.gamma": 0.0}),)),
    "repeat_previous": View(
        names=(
            ("moduli from 0.97, discount 0", {"actor.memory.r_min": 0.97, "ppo.gamma": 0.0}),
            ("moduli from 0.5, discount 0", {"actor.memory.r_min": 0.5, "ppo.gamma": 0.0}),
            ("moduli from 0.97, discount 0.99", {"actor.memory.r_min": 0.97, "ppo.gamma": 0.99}),
            ("moduli from 0.5, discount 0.99", {"actor.memory.r_min": 0.5, "ppo.gamma": 0.99}),
        ),
        pairs=((0, 2), (0, 1)),
    ),
    "repeat_first": View(
        names=(
            ("GRU, discount 0", {"model": "ppo_gru", "ppo.gamma": 0.0}),
            ("GRU, discount 0.99", {"model": "ppo_gru", "ppo.gamma": 0.99}),
            ("no memory, discount 0", {"model": "ppo"}),
        ),
        pairs=((0, 1), (0, 2)),
    ),
    "discounts": View(
        names=(("discount 0", {"ppo.gamma": 0.0}), ("discount 0.99", {"ppo.gamma": 0.99})),
        pairs=((0, 1),),
    ),
    "exploration": View(
        names=(("none", {"ppo.rnd_coef": 0.0}), ("weight 0.2", {"ppo.rnd_coef": 0.2})),
    ),
    "privileged_critic": View(
        names=(
            ("no memory", {"critic.memory.name": "mlp", "env.hidden": False}),
            ("no memory, sees the hidden variables", {"env.hidden": True}),
            ("GRU", {"critic.memory.name": "gru"}),
            ("GPT-2", {"critic.memory.name": "gpt2"}),
        ),
        pairs=((1, 0), (2, 0), (3, 0), (1, 2)),
    ),
    "value_heads": View(
        names=tuple((f"`{kind}`", {"critic.value": kind}) for kind in ("scalar", "symlog", "hl-gauss")),
        pairs=((1, 0), (2, 0)),
    ),
    "popart": View(
        names=(
            ("`scalar`", {"critic.value": "scalar", "env.normalize_reward": False}),
            ("`popart`", {"critic.value": "popart"}),
            ("`scalar`, normalised rewards", {"env.normalize_reward": True}),
        ),
        pairs=((1, 0), (1, 2)),
    ),
    "critic_value": View(
        names=(
            ("no memory", {"critic.memory.name": "mlp", "env.hidden": False}),
            ("four stacked observations", {"critic.memory.name": "stack"}),
            ("GRU", {"critic.memory.name": "gru"}),
            ("GPT-2", {"critic.memory.name": "gpt2"}),
            ("no memory, sees the hidden variables", {"env.hidden": True}),
        ),
        pairs=((1, 0), (2, 0), (3, 0), (4, 0), (3, 2)),
    ),
}


@dataclass(frozen=True)
class Study:
    """A report with its view."""

    report: Entry
    view: View
    folder: Path  # of docs/results

    @property
    def envs(self) -> list[str]:
        """Environments in the order of the report."""
        return list(dict.fromkeys(final["env"] for final in self.report["finals"]))

    def labels(self, env: str) -> list[str]:
        """Labels of the models of an environment in the order of the view; others in that of the report."""
        labels = [final["label"] for final in self.report["finals"] if final["env"] == env]
        return sorted(labels, key=lambda label: self.place(env, label))

    def place(self, env: str, label: str) -> int:
        """Index in the view of the entry with the most matching settings; after the last if none matches."""
        settings = self.of("groups", env, label)["settings"] if self.has("groups", env, label) else {}
        fits = [
            (-len(known), place)
            for place, (_, known) in enumerate(self.view.names)
            if all(settings.get(name) == value for name, value in known.items())
        ]
        return min(fits)[1] if fits else len(self.view.names)

    def name(self, env: str, label: str) -> str:
        """The name in the view, or the label of the report."""
        place = self.place(env, label)
        return self.view.names[place][0] if place < len(self.view.names) else f"`{label}`"

    def of(self, part: str, env: str, label: str) -> Entry:
        """The entry of a model in a list of the report."""
        return next(x for x in self.report[part] if x["env"] == env and x["label"] == label)

    def has(self, part: str, env: str, label: str) -> bool:
        """Whether a list of the report has an entry of the model; a random agent has only a score."""
        return any(x["env"] == env and x["label"] == label for x in self.report[part])

    def threshold(self, env: str) -> float:
        """The training return, or success rate, at which the task counts as solved."""
        return float(next(x["value"] for x in self.report["thresholds"] if x["env"] == env))

    def pairs(self, env: str) -> list[tuple[str, str]]:
        """Pairs of trained models to compare: (model, the one before it)."""
        labels = [label for label in self.labels(env) if self.has("efficiencies", env, label)]
        if self.view.pairs is None:
            return [(later, earlier) for earlier, later in combinations(labels, 2)]
        by_place = {self.place(env, label): label for label in labels}
        return [(by_place[a], by_place[b]) for a, b in self.view.pairs if a in by_place and b in by_place]


@cache  # several tables show one study, and its intervals take most of their time
def read(results: Path, name: str) -> Study:
    """The study of a folder of docs/results."""
    folder = results / name
    report = _recomputed(json.loads((folder / "report.json").read_text()))
    return Study(report, VIEWS.get(name, View()), folder)


def _recomputed(report: Entry) -> Entry:
    """The report with scores as they are rounded now, and intervals and tests recomputed from them: a stored
    report may be of an older version."""
    finals = [_final(entry) for entry in report["finals"]]
    trained = [final for final in finals if len(final.scores)]
    envs, labels = {final.env for final in trained}, list(dict.fromkeys(final.label for final in trained))
    over_all = improvements(trained, labels) if len(envs) > 1 else []
    family = Family(model_differences(trained), over_all).adjusted()
    return report | {"finals": to_json_data(finals), "differences": to_json_data(family.differences)}


def _final(entry: Entry) -> FinalScores:
    scores = np.array([rounded(score) for score in entry["scores"]])
    intervals = {
        name: weighted_mean_interval(scores, weights(len(scores)), SCORE_RANGES[entry["source"]])
        for name, weights in (("mean_interval", mean_weights), ("iqm_interval", iqm_weights))
    }
    return FinalScores(
        **entry
        | {"seeds": tuple(entry["seeds"]), "failed": tuple(entry.get("failed", ()))}
        | {"scores": scores, "mean": float(scores.mean()), "iqm": iqm(scores)}
        | intervals
    )


# The tables -----------------------------------------------------------------------------------


def scores(study: Study) -> list[str]:
    """Final scores of every model: mean and interquartile mean with intervals, and each seed."""
    rows = []
    for env in study.envs:
        for label in study.labels(env):
            final = study.of("finals", env, label)
            means = [estimate(final[key], final[f"{key}_interval"]) for key in ("mean", "iqm")]
            each = ", ".join(map(short, final["scores"]))
            rows.append([env, study.name(env, label), *means, each])
    equal = {len(x["scores"]) for x in study.report["finals"] if are_equal(np.array(x["scores"]))}
    return _with_envs(study, ["model", "mean (95 %)", "IQM (95 %)", "each seed"], rows) + _notes(equal)


def differences(study: Study) -> list[str]:
    """Pairs of models: differences of means and interquartile means, and the probability of winning."""
    rows: list[list[str]] = []
    equal: set[int] = set()
    for env in study.envs:
        for model, other in study.pairs(env):
            entry, sign = _difference(study, env, model, other)
            if not entry:  # reports of many models set only the best against the others
                continue
            mean = estimate(sign * entry["by"], _signed(entry["interval"], sign))
            names = [study.name(env, label) for label in (model, other)]
            rows.append([env, *names, mean, _iqm_difference(study, env, model, other), _wins(entry, sign)])
            rows[-1] += [_p(entry["p"])] if "p" in entry else []
            groups = [np.array(study.of("finals", env, label)["scores"]) for label in (model, other)]
            if all(map(are_equal, groups)):
                equal.update(map(len, groups))
    header = ["A", "B", "mean A - B (95 %)", "IQM A - B (95 %)", "P(A beats B) (95 %)"]
    header += ["p, adjusted"] if rows and len(rows[0]) > 6 else []
    return _with_envs(study, header, rows) + _notes(equal)


def thresholds(study: Study) -> list[str]:
    """Seeds whose training reached the threshold, and after how many steps."""
    rows = []
    for env in study.envs:
        for label in filter(partial(study.has, "efficiencies", env), study.labels(env)):
            steps = study.of("efficiencies", env, label)["steps"]
            reached = f"{sum(x is not None for x in steps)} of {len(steps)}"
            rows.append([env, short(study.threshold(env)), study.name(env, label), reached, _middle(steps)])
    return _with_envs(study, ["threshold", "model", "seeds that reach it", "steps, median seed"], rows)


def tests(study: Study) -> list[str]:
    """Exact tests of pairs: seeds that reach the threshold, steps to it, and seeds that end below it."""
    rows = []
    for env in study.envs:
        labels = {study.place(env, label): label for label in study.labels(env)}
        groups = [(study.name(env, a), [a], b) for a, b in study.pairs(env)]
        groups += [
            (name, [labels[i] for i in some], labels[other]) for name, some, other in study.view.pooled
        ]
        for name, some, other in groups:
            rows.append([env, name, study.name(env, other), *_test_cells(study, env, some, [other])])
    header = ["A", "B", "seeds that reach the threshold", "p (Fisher)"]
    header += ["steps to it, median seed", "p (Mann-Whitney)", "seeds that end below it", "p (Fisher)"]
    return _with_envs(study, header, rows)


def training(study: Study) -> list[str]:
    """The mean of the last 100 training returns at the last step that all seeds have."""
    rows = []
    for panel in study.report["panels"]:
        curves = {line["label"]: line["curves"]["return"]["step"] for line in panel["lines"]}
        for label in filter(curves.__contains__, study.labels(panel["env"])):
            known = [i for i, mean in enumerate(curves[label]["mean"]) if mean is not None]
            mean, low, high = (short(curves[label][key][known[-1]]) for key in ("mean", "low", "high"))
            step = f"{panel['grids']['step'][known[-1]]:,.0f}"
            rows.append([panel["env"], step, study.name(panel["env"], label), mean, f"{low} to {high}"])
    header = ["after steps", "model", "training return, mean over seeds", "lowest to highest seed"]
    return _with_envs(study, header, rows)


def area_scores(study: Study) -> list[str]:
    """As `scores`, of the areas under the training curves."""
    return scores(_with_areas(study))


def area_differences(study: Study) -> list[str]:
    """As `differences`, of the areas under the training curves."""
    return differences(_with_areas(study))


def _with_areas(study: Study) -> Study:
    """The study with areas in place of final scores."""
    finals, pairs = _areas(study.folder / "runs.zip")
    parts = {"finals": to_json_data(finals), "differences": to_json_data(pairs)}
    return replace(study, report=study.report | parts)


_areas = cache(areas)  # of two tables or more each


TABLES = {
    "scores": scores,
    "differences": differences,
    "area_scores": area_scores,
    "area_differences": area_differences,
    "training": training,
    "thresholds": thresholds,
    "tests": tests,
}


# Their cells ----------------------------------------------------------------------------------


def short(x: float) -> str:
    """Three digits, or the digits before the point where these are more."""
    text = f"{x:.{max(0, 2 - int(math.log10(max(abs(x), 1))))}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def estimate(value: float, interval: Sequence[float] | None) -> str:
    """A number with its interval, three digits each."""
    return short(value) + (f" ({short(interval[0])} to {short(interval[1])})" if interval else "")


def _signed(interval: Sequence[float] | None, sign: int) -> list[float] | None:
    return None if interval is None else sorted(sign * end for end in interval)


def _difference(study: Study, env: str, model: str, other: str) -> tuple[Entry, int]:
    """The report's entry of two models, and the sign that makes it model minus other."""
    for entry in study.report["differences"]:
        if entry["env"] == env and {entry["better"], entry["worse"]} == {model, other}:
            return entry, 1 if entry["better"] == model else -1
    return {}, 1


def _iqm_difference(study: Study, env: str, model: str, other: str) -> str:
    mine, theirs = (study.of("finals", env, label)["iqm"] for label in (model, other))
    entry, sign = _difference(study, env, model, other)
    return estimate(mine - theirs, _signed(entry.get("iqm_interval"), sign))


def _wins(entry: Entry, sign: int) -> str:
    """The share of pairs of seeds in which the model has the higher score."""
    wins, low, high = entry["wins"], *entry["wins_interval"]
    if sign < 0:
        wins, low, high = 1 - wins, 1 - high, 1 - low
    return f"{wins:.2f} ({low:.2f} to {high:.2f})"


def _late(steps: Iterable[float | None]) -> list[float]:
    return [math.inf if step is None else step for step in steps]


def _middle(steps: Iterable[float | None]) -> str:
    """The steps of the median seed."""
    middle = statistics.median(_late(steps))
    return "not reached" if middle == math.inf else f"{middle:,.0f}"


def _test_cells(study: Study, env: str, some: Sequence[str], others: Sequence[str]) -> list[str]:
    """Cells of an exact comparison of two sets of models."""
    steps, ends = [], []
    for labels in (some, others):
        steps.append([x for label in labels for x in study.of("efficiencies", env, label)["steps"]])
        ends.append([x for label in labels for x in study.of("finals", env, label)["scores"]])
    reached = [(sum(x is not None for x in group), len(group)) for group in steps]
    below = [(sum(x < study.threshold(env) for x in group), len(group)) for group in ends]
    fishers = [_p(fisher(*counts[0], *counts[1])) for counts in (reached, below)]
    sooner = [" vs. ".join(map(_middle, steps)), _p(mann_whitney(*map(_late, steps)))]
    return [_counts(reached), fishers[0], *sooner, _counts(below), fishers[1]]


def _counts(pairs: Sequence[tuple[int, int]]) -> str:
    return " vs. ".join(f"{count} of {size}" for count, size in pairs)


def _notes(equal: Iterable[int]) -> list[str]:
    """Lines below a table with intervals of no width, for each number of equal seeds."""
    return [line for n in sorted(equal) for line in ("", f"An interval without width: {describe_equal(n)}.")]


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _with_envs(study: Study, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose first column is the environment if there are several."""
    if len(study.envs) == 1:
        return table(header, [row[1:] for row in rows])
    return table(["environment", *header], rows)
