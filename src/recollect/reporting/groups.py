"""Runs put into groups of seeds, and names that tell the groups apart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .runs import Run, Settings, key_of, settings, task

SHOWN_SETTINGS = 3  # in a label


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    env: str
    """The environment's id, with the settings that tell it from others of this id."""
    label: str
    """The model, with the settings that tell it from others of this model in this environment."""
    settings: Settings
    """What its runs have in common, by dotted names."""
    runs: list[Run]
    """By seed."""

    @property
    def finished(self) -> list[Run]:
        """The runs that came to their end."""
        return [run for run in self.runs if run.finished]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the finished runs."""
        return tuple(run.seed for run in self.finished)


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Runs that differ in nothing but the seed, together; by environment and label."""
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(key_of(settings(run)), []).append(run)
    shared = {key: settings(members[0]) for key, members in together.items()}
    by_task: dict[str, list[str]] = {}
    for key, own in shared.items():
        by_task.setdefault(key_of(task(own)), []).append(key)
    here = [[shared[key] for key in keys] for keys in by_task.values()]
    tasks = [task(members[0]) for members in here]
    envs = labels(tasks, "env.id", [tasks])
    made: list[Group] = []
    for env, keys, members in zip(envs, by_task.values(), here, strict=True):
        names = labels(members, "model", here)
        for label, key in zip(names, keys, strict=True):
            made.append(Group(env, label, shared[key], sorted(together[key], key=lambda run: run.seed)))
    return sorted(made, key=lambda group: (group.env, group.label))


def labels(configs: Sequence[Settings], by: str, families: Sequence[Sequence[Settings]]) -> list[str]:
    """A name for each config: one of its settings, and what tells it from others of that name.

    families  configs that must be told apart within each; what tells any of them apart is named in
              all, so that a model has one name in all environments
    """
    found = [_label(config, by, families) for config in configs]
    # Names that stay alike are numbered by settings and not by place: folders come in any order.
    alike = [sorted(key_of(c) for c, name in zip(configs, found, strict=True) if name == n) for n in found]
    places = [same.index(key_of(config)) + 1 for config, same in zip(configs, alike, strict=True)]
    return [
        f"{label} ({place})" if len(same) > 1 else label
        for label, place, same in zip(found, places, alike, strict=True)
    ]


def _label(config: Settings, by: str, families: Sequence[Sequence[Settings]]) -> str:
    same = [[other for other in family if other[by] == config[by]] for family in families]
    telling = {key for family in same for key in differing(family)}
    keys = [key for key in config if key in telling]
    if len(keys) > SHOWN_SETTINGS + 1:
        own = next(family for family in same if any(other is config for other in family))
        keys = [key for key in keys if not _usual(config, key, own)]
    shown = keys if len(keys) <= SHOWN_SETTINGS + 1 else _most_telling(keys, same)
    parts = [f"{key} {spelled(config[key])}" for key in keys if key in shown]
    more = [f"{len(keys) - len(shown)} more"] if len(shown) < len(keys) else []
    return ", ".join([str(config[by]), *parts, *more])


def _usual(config: Settings, key: str, family: Sequence[Settings]) -> bool:
    """Whether more than half of a family have a setting so: what goes without saying."""
    values = [key_of(other.get(key, ...)) for other in family]
    return 2 * values.count(key_of(config.get(key, ...))) > len(values)


def _most_telling(keys: Sequence[str], families: Sequence[Sequence[Settings]]) -> list[str]:
    """The few settings that tell the most configs apart."""
    chosen: list[str] = []

    def kinds(key: str) -> int:
        named = [*chosen, key]
        return sum(len({key_of([c.get(name) for name in named]) for c in family}) for family in families)

    while len(chosen) < SHOWN_SETTINGS:
        chosen.append(max((key for key in keys if key not in chosen), key=kinds))
    return chosen


def differing(configs: Sequence[Settings]) -> list[str]:
    """The settings in which configs differ; those of a memory only beside the same memory."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if _differs(key, configs)]


def spelled(value: Any) -> str:
    """A setting as the command line takes it."""
    if isinstance(value, list):
        return " ".join(map(spelled, value)) or "none"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _differs(key: str, configs: Sequence[Settings]) -> bool:
    branch, memory, setting = key.partition(".memory.")
    kinds = {key_of(config.get(f"{branch}.memory.name")) for config in configs}
    if not memory or setting == "name" or len(kinds) == 1:
        return len({key_of(config.get(key, ...)) for config in configs}) > 1
    kin = ([c for c in configs if key_of(c.get(f"{branch}.memory.name")) == kind] for kind in kinds)
    return any(_differs(key, family) for family in kin)
