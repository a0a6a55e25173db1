"""Runs grouped by config, and unique names of the groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .runs import FlatConfig, Run, key_of, task_config, training_config

MAX_NAMED_SETTINGS = 3  # in a label
DERIVED = ("val_check_interval", "barrier")  # follow from other settings unless set, and are named last


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed."""

    env: str
    """The environment id, with the settings that distinguish it from other tasks with this id."""
    label: str
    """The model, with the settings that distinguish it from other groups of this model."""
    settings: FlatConfig
    """The config of its runs by dotted names, without the seed."""
    runs: list[Run]
    """Ordered by seed."""

    @property
    def finished(self) -> list[Run]:
        """The finished runs."""
        return [run for run in self.runs if run.finished]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the finished runs."""
        return tuple(run.seed for run in self.finished)

    @property
    def failed(self) -> tuple[int, ...]:
        """The seeds whose run failed."""
        return tuple(run.seed for run in self.runs if run.status == "failed" and run.seed not in self.seeds)


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Group runs that differ only in the seed; ordered by environment and label."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(key_of(training_config(run)), []).append(run)
    configs = {key: training_config(group[0]) for key, group in members.items()}
    by_task: dict[str, list[str]] = {}
    for key, config in configs.items():
        by_task.setdefault(key_of(task_config(config)), []).append(key)
    families = [[configs[key] for key in keys] for keys in by_task.values()]
    tasks = [task_config(family[0]) for family in families]
    groups: list[Group] = []
    for env, keys, family in zip(
        unique_labels(tasks, "env.id", [tasks]), by_task.values(), families, strict=True
    ):
        for label, key in zip(unique_labels(family, "model", families), keys, strict=True):
            groups.append(Group(env, label, configs[key], sorted(members[key], key=lambda run: run.seed)))
    return sorted(groups, key=lambda group: (group.env, group.label))


def unique_labels(
    configs: Sequence[FlatConfig], by: str, families: Sequence[Sequence[FlatConfig]]
) -> list[str]:
    """A unique name for each config: one of its settings, and the settings that distinguish it from others.

    by        the setting that the name starts with
    families  sets of configs in which names must be unique. A setting that differs in one family is named in
              all, so that a model has the same name in every environment
    """
    # Of each model once: every config of a model is compared with the same others.
    others = {
        name: _Others([[other for other in family if other[by] == name] for family in families])
        for name in dict.fromkeys(config[by] for config in configs)
    }
    names = [_label(config, by, others[config[by]]) for config in configs]
    # Equal names are numbered in the order of their settings, not of folders, which may come in any order.
    equal = [sorted(key_of(c) for c, other in zip(configs, names, strict=True) if other == n) for n in names]
    numbers = [keys.index(key_of(config)) + 1 for config, keys in zip(configs, equal, strict=True)]
    return [
        f"{name} ({number})" if len(keys) > 1 else name
        for name, number, keys in zip(names, numbers, equal, strict=True)
    ]


class _Others:
    """Families of configs with the same name, and the settings in which those of a family differ."""

    def __init__(self, families: Sequence[Sequence[FlatConfig]]) -> None:
        self.families = families
        self.distinguishing = {key for family in families for key in differing_keys(family)}

    def are_told_apart_by(self, keys: Sequence[str]) -> bool:
        """Whether no two configs of a family have the same values of these settings."""
        return all(
            len({key_of([config.get(key) for key in keys]) for config in family}) == len(family)
            for family in self.families
        )


def _label(config: FlatConfig, by: str, others: _Others) -> str:
    keys = [key for key in config if key in others.distinguishing]
    given = [key for key in keys if key not in DERIVED]
    if others.are_told_apart_by(given):
        keys = given
    if len(keys) > MAX_NAMED_SETTINGS + 1:
        family = next(family for family in others.families if any(other is config for other in family))
        keys = [key for key in keys if not _is_majority(config, key, family)]
    shown = keys if len(keys) <= MAX_NAMED_SETTINGS + 1 else _most_distinguishing(keys, others.families)
    parts = [f"{key} {format_value(config[key])}" for key in keys if key in shown]
    more = [f"{len(keys) - len(shown)} more"] if len(shown) < len(keys) else []
    return ", ".join([str(config[by]), *parts, *more])


def _is_majority(config: FlatConfig, key: str, family: Sequence[FlatConfig]) -> bool:
    """Whether more than half of a family have this value, so that it need not be named."""
    # `...` stands for a missing setting, because None is a value.
    values = [key_of(other.get(key, ...)) for other in family]
    return 2 * values.count(key_of(config.get(key, ...))) > len(values)


def _most_distinguishing(keys: Sequence[str], families: Sequence[Sequence[FlatConfig]]) -> list[str]:
    """The few settings that together distinguish the most configs, chosen greedily."""
    chosen: list[str] = []

    def distinct(key: str) -> int:
        named = [*chosen, key]
        return sum(len({key_of([c.get(name) for name in named]) for c in family}) for family in families)

    while len(chosen) < MAX_NAMED_SETTINGS:
        chosen.append(max((key for key in keys if key not in chosen), key=distinct))
    return chosen


def shorten(labels: Sequence[str]) -> dict[str, str]:
    """Each label -> a name for charts and tables: what differs, with the options by their last names."""
    parts = {label: label.split(", ") for label in labels}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    names = {
        # A model without a difference, as the preset among its ablations, keeps its name.
        label: ", ".join(_short_option(part) for part in words if part not in common) or label
        for label, words in parts.items()
    }
    return names if len({*names.values()}) == len(names) else {label: label for label in labels}


def _short_option(part: str) -> str:
    """critic.memory.name gru -> critic gru; critic.memory.width 9 -> critic.width 9; ppo.clip 1 -> clip 1."""
    return (
        part.replace(".memory.name ", " ").replace(".memory.", ".").removeprefix("ppo.").removeprefix("env.")
    )


def differing_keys(configs: Sequence[FlatConfig]) -> list[str]:
    """The settings in which configs differ; options of a memory are compared only for the same memory."""
    if len(configs) < 2:
        return []
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if _differs(key, configs)]


def format_value(value: Any) -> str:
    """A value as written on the command line."""
    if isinstance(value, list):
        return " ".join(map(format_value, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _differs(key: str, configs: Sequence[FlatConfig]) -> bool:
    branch, memory, setting = key.partition(".memory.")
    memories = {key_of(config.get(f"{branch}.memory.name")) for config in configs}
    if not memory or setting == "name" or len(memories) == 1:
        return len({key_of(config.get(key, ...)) for config in configs}) > 1
    families = ([c for c in configs if key_of(c.get(f"{branch}.memory.name")) == name] for name in memories)
    return any(_differs(key, family) for family in families)
