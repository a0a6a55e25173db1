"""The runs of a comparison: environments x models x seeds, from flags or from a file.

    environments: {LunarLander-v3: {env.time_limit: 500}, Acrobot-v1: }
    models: [ppo, {model: ppo_gpt, critic.context: 25}]
    seeds: 10
    options: {steps: 307200}

The settings of a model override those of an environment, both override `options`, and flags override
the file.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import UsageError, nearest
from ..common.option_values import Setting, Settings, Words, value_of
from ..config.assembly import check_imports, configure, file_settings
from ..config.config import RunConfig
from ..config.data import read_yaml
from ..config.flags import long_name, over, types_in

# One core for each run: more threads than cores slow all runs down, and the thread count changes their bits.
PINNED = (Setting("threads", 1, "threads"), Setting("env.threads", 1, "env.threads"))


MOST_SEEDS = 10_000


class Variant(NamedTuple):
    """An environment or a model, and its settings."""

    name: str
    options: Settings = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """Environments x models x seeds."""

    environments: tuple[Variant, ...] = ()
    models: tuple[Variant, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    episodes: int = 100
    """Of the evaluation of each run's last weights."""
    options: Settings = ()
    """For all runs; environments and models override them."""
    flags: Settings = ()
    """For all runs; they override everything else."""

    def configs(
        self, decide: Callable[[RunConfig], RunConfig] | None = None, others: Iterable[str] = ()
    ) -> list[RunConfig]:
        """All runs, seed by seed, so that an unfinished comparison has equally many seeds of each model.

        decide  as resolved_config; called once for each model in each environment, not for each seed
        others  options of the command, for the error about an unknown one
        """
        if not self.environments:
            raise UsageError("a comparison needs a study file, or at least one environment: -e ID ...")
        if not self.models:
            raise UsageError("a comparison needs at least one model: -m PRESET ...")
        configs = [
            self._config(environment, model, self.seeds[0], others)
            for environment in self.environments
            for model in self.models
        ]
        if decide is not None:
            configs = [decide(config) for config in configs]
        return [replace(config, seed=seed) for seed in self.seeds for config in configs]

    def _config(self, environment: Variant, model: Variant, seed: int, others: Iterable[str]) -> RunConfig:
        # The lowest first. `over` also drops a setting whose quantity a higher layer gives in another unit.
        layers = PINNED, self.options, environment.options, model.options, self.flags
        settings: list[Setting] = reduce(over, layers, [])
        if any(setting.name == "seed" for setting in settings):
            raise UsageError("each model is trained on several seeds: --seeds N or --seeds A B, not --seed")
        named = (
            Setting("env.id", environment.name, "-e"),
            Setting("model", model.name, "-m"),
            Setting("seed", seed, "--seeds"),
        )
        return configure([*named, *settings], others)


def override(
    study: Study,
    environments: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: Sequence[str] = (),
    episodes: int | None = None,
) -> Study:
    """The study, with whatever is given instead of its own; entries that it has keep their settings.

    seeds  words of --seeds: one number is a count, several numbers, and ranges A-B, are seeds
    """
    return replace(
        study,
        environments=_chosen(study.environments, environments),
        models=_chosen(study.models, models),
        seeds=_read_seeds(seeds) if seeds else study.seeds,
        episodes=study.episodes if episodes is None else _episodes(episodes),
    )


def _chosen(entries: tuple[Variant, ...], names: Sequence[str]) -> tuple[Variant, ...]:
    """The entries of these names, plain ones for names that have none; all entries without names."""
    known = {name: [entry for entry in entries if entry.name == name] or [Variant(name)] for name in names}
    return tuple(entry for name in names for entry in known[name]) or entries


def read_study(path: Path, imports: Sequence[str] = ()) -> Study:
    """The study of a file.

    imports  names of the file that may import a module
    """
    data = read_yaml(path)
    keys, options = ["environments", "models", "seeds", "episodes", "options"], types_in(RunConfig())
    for key in data:
        if key not in keys:
            is_option = long_name(str(key), options) in options
            hint = "write options of train below `options:`" if is_option else nearest(str(key), keys)
            raise UsageError(f"study {path}: unknown entry {key!r}; {hint}")
    fields: dict[str, Any] = {"options": _settings(path, "options", data.get("options"))}
    for key, name in (("environments", "env.id"), ("models", "model")):
        fields[key] = tuple(_variant(path, name, entry) for entry in _entries(path, key, data.get(key), name))
    if "seeds" in data:
        words = data["seeds"] if isinstance(data["seeds"], list) else [data["seeds"]]
        is_list = isinstance(data["seeds"], list)
        fields["seeds"] = _read_seeds(list(map(str, words)), f"study {path}: seeds", is_list)
    if "episodes" in data:
        fields["episodes"] = _episodes(_value(path, "episodes", data, int))
    study = Study(**fields)
    for variant in (*study.environments, *study.models, Variant("", study.options)):
        ids = [Setting("env.id", variant.name, "")] if variant in study.environments else []
        check_imports([*ids, *variant.options], imports, f"study {path}")
    return study


def _value(path: Path, key: str, data: Mapping[str, Any], kind: Any) -> Any:
    return value_of(Setting(key, data[key], f"study {path}: {key}"), kind)


def _entries(path: Path, key: str, data: Any, name: str) -> list[Any]:
    """The entries of a list, or of a mapping from names to settings."""
    if isinstance(data, Mapping):
        if not all(value is None or isinstance(value, Mapping) for value in data.values()):
            raise UsageError(f"study {path}: {key} must be names, each with its settings or nothing")
        return [{name: entry, **(options or {})} for entry, options in data.items()]
    if not isinstance(data, list) or not data:
        raise UsageError(f"study {path}: {key} must be a list, or a mapping from names to settings")
    return data


def _variant(path: Path, name: str, entry: Any) -> Variant:
    """An entry: a name alone, or settings that contain the name."""
    if isinstance(entry, str):
        return Variant(entry)
    if not isinstance(entry, Mapping) or not isinstance(entry.get(name), str):
        raise UsageError(f"study {path}: {entry!r} is neither a name nor settings with {name!r}")
    settings = {key: value for key, value in entry.items() if key != name}
    return Variant(entry[name], _settings(path, entry[name], settings))


def _settings(path: Path, where: str, data: Any) -> Settings:
    if not isinstance(data or {}, Mapping):
        raise UsageError(f"study {path}: {where} must be a mapping of settings, not {data!r}")
    return tuple(file_settings(data or {}, f"study {path}: {where}"))


def seed_words(seeds: Any) -> list[Any] | None:
    """Seeds of a call in Python as words of --seeds: a number is a count, a sequence has the seeds."""
    if seeds is None:
        return None
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        return [seeds]
    words = list(map(str, seeds))
    if not words:
        raise UsageError("seeds is empty; give at least one, or None for the default")
    return [f"{words[0]}-{words[0]}"] if len(words) == 1 and words[0].isdigit() else words


def _read_seeds(words: Sequence[str], label: str = "--seeds", is_list: bool = False) -> tuple[int, ...]:
    """The seeds that words name, as numbers and ranges.

    label    where the words stand
    is_list  whether a single number is a seed; else it is a count, 10 for the seeds 1 to 10
    """
    ranges = [re.fullmatch("(.+?)-(.+)", word) for word in words]
    pairs = [part.groups() if part else (word, word) for word, part in zip(words, ranges, strict=True)]
    bounds = [(_seed(first, label), _seed(last, label)) for first, last in pairs]
    text = f"{label} {' '.join(words)}"
    if any(last - first not in range(MOST_SEEDS) for first, last in bounds):
        raise UsageError(f"{text}: a range is A-B with A <= B, of at most {MOST_SEEDS:,} seeds")
    seeds = [seed for first, last in bounds for seed in range(first, last + 1)]
    if not seeds or min(seeds) < 1 or len(set(seeds)) < len(seeds):
        raise UsageError(f"{text}: numbers must be above 0 and each given once")
    if is_list or len(words) > 1 or ranges[0]:
        return tuple(seeds)
    if seeds[0] > MOST_SEEDS:
        raise UsageError(
            f"{text} is the number of seeds, at most {MOST_SEEDS:,}; name single seeds as in --seeds A B"
        )
    return tuple(range(1, seeds[0] + 1))


def _seed(word: str, label: str) -> int:
    number: int = value_of(Setting("seeds", Words([word]), label), int)
    return number


def _episodes(number: int) -> int:
    if number < 1:
        raise UsageError(f"--episodes is {number}, at least 1 is needed")
    return number
