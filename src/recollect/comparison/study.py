"""The runs of a comparison: environments x models x seeds, from flags or from a file.

    environments: {LunarLander-v3: {env.time_limit: 500}, Acrobot-v1: }
    models: [ppo, {model: ppo_gpt, critic.context: 25}]
    seeds: 10
    options: {steps: 307200}

The settings of a model override those of an environment, both override `options`, and flags override
the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import UsageError, nearest
from ..config.config import Flags, RunConfig, as_flags, over, read_yaml, tokens
from ..config.presets import assemble

# One core for each run: more threads than cores slow all runs down, and the thread count changes their bits.
PINNED = ["--threads", "1", "--env.threads", "1"]


class Variant(NamedTuple):
    """An environment or a model, and its settings."""

    name: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """Environments x models x seeds."""

    environments: tuple[Variant, ...] = ()
    models: tuple[Variant, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    episodes: int = 100
    """Of the evaluation of each run's last weights."""
    options: tuple[str, ...] = ()
    """For all runs, as flags of train; environments and models override them."""
    flags: tuple[str, ...] = ()
    """For all runs; they override everything else."""

    def configs(self) -> list[RunConfig]:
        """All runs, seed by seed, so that an unfinished comparison has equally many seeds of each model."""
        if not self.environments:
            raise UsageError("a comparison needs at least one environment: -e ID ...")
        if not self.models:
            raise UsageError("a comparison needs at least one model: -m PRESET ...")
        if self.episodes < 1:
            raise UsageError(f"{self.episodes} episodes: at least 1 is needed")
        return [
            self._config(environment, model, seed)
            for seed in self.seeds
            for environment in self.environments
            for model in self.models
        ]

    def _config(self, environment: Variant, model: Variant, seed: int) -> RunConfig:
        named = ["--env.id", environment.name, "--model", model.name, "--seed", str(seed)]
        layers = PINNED, self.options, environment.options, model.options, self.flags
        flags: Flags = reduce(over, map(tokens, layers))
        if any(name == "--seed" for name, _ in flags):
            raise UsageError("each model is trained on several seeds: --seeds N or --seeds A B, not --seed")
        settings = [word for name, values in flags for word in (name, *values)]
        config: RunConfig = assemble([*named, *settings], "recollect compare", "")
        return config


def read_study(flags: Flags, file: Path | None) -> Study:
    """The study of a file, overridden by flags; flags that are not of a study are settings of all runs."""
    study = _read_file(file) if file else Study()
    settings: list[str] = []
    for name, values in flags:
        if name == "--env.id":
            study = replace(study, environments=tuple(map(Variant, values)))
        elif name == "--model":
            study = replace(study, models=tuple(map(Variant, values)))
        elif name in ("--seeds", "--episodes"):
            study = replace(study, **_numbers(name.removeprefix("--"), values))
        else:
            settings += [name, *values]
    return replace(study, flags=tuple(settings))


def _read_file(path: Path) -> Study:
    data = read_yaml(path)
    keys = ["environments", "models", "seeds", "episodes", "options"]
    for key in data:
        if key not in keys:
            raise UsageError(f"study {path}: unknown entry {key!r}; {nearest(str(key), keys)}")
    fields: dict[str, Any] = {"options": _flags(path, "options", data.get("options"))}
    for key, name in (("environments", "env.id"), ("models", "model")):
        fields[key] = tuple(_variant(path, name, entry) for entry in _entries(path, key, data.get(key), name))
    for key in ("seeds", "episodes"):
        if key in data:
            is_list = isinstance(data[key], list)
            values = data[key] if is_list else [data[key]]
            fields |= _numbers(key, list(map(str, values)), is_list)
    return Study(**fields)


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
    return Variant(entry[name], _flags(path, entry[name], settings))


def _flags(path: Path, where: str, data: Any) -> tuple[str, ...]:
    if not isinstance(data or {}, Mapping):
        raise UsageError(f"study {path}: {where} must be a mapping of settings, not {data!r}")
    return tuple(as_flags(data or {}))


def _numbers(name: str, values: list[str], is_list: bool = False) -> dict[str, Any]:
    """One number of seeds is a count, 10 for the seeds 1 to 10; several, or the list of a file, are seeds."""
    try:
        numbers = tuple(map(int, values))
    except ValueError as error:
        raise UsageError(f"--{name} takes whole numbers, not {' '.join(values)}") from error
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise UsageError(f"--{name} {' '.join(values)}: numbers must be above 0 and each given once")
    if len(numbers) > 1 and name == "episodes":
        raise UsageError(f"--episodes takes one number, not {len(numbers)}")
    if name == "episodes":
        return {"episodes": numbers[0]}
    return {"seeds": numbers if is_list or len(numbers) > 1 else tuple(range(1, numbers[0] + 1))}
