"""Which runs a comparison consists of: environments x models x seeds, from flags or a file.

    environments: {LunarLander-v3: {env.time_limit: 500}, Acrobot-v1: }
    models: [ppo, {model: ppo_gpt, critic.context: 25}]
    seeds: 10
    options: {steps: 307200}

What is said of a model wins over what is said of an environment, both win over `options`, and flags win
over the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import UsageError, nearest
from ..config.config import Flags, RunConfig, as_flags, over, read_yaml, tokens
from ..config.presets import assemble

# Every run has one core: neighbours must not change each other's pace.
PINNED = ["--threads", "1", "--env.threads", "1"]


class Variant(NamedTuple):
    """An environment or a model, and what is set for it."""

    name: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """Environments x models x seeds."""

    environments: tuple[Variant, ...] = ()
    models: tuple[Variant, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    episodes: int = 100
    """Of the evaluation of the last weights."""
    options: tuple[str, ...] = ()
    """Set for all runs, as flags of train, where an environment or a model says nothing else."""
    flags: tuple[str, ...] = ()
    """Set for all runs, whatever else is said."""

    def configs(self) -> list[RunConfig]:
        """Seed by seed, so that a comparison that is cut short has as many seeds of each model."""
        for what, found in (
            ("environment: -e ID ...", self.environments),
            ("model: -m PRESET ...", self.models),
        ):
            if not found:
                raise UsageError(f"a comparison needs at least one {what}")
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
        found: Flags = reduce(over, map(tokens, layers))
        if any(name == "--seed" for name, _ in found):
            raise UsageError("every model is run over several seeds: --seeds N or --seeds A B, not --seed")
        settings = [word for name, values in found for word in (name, *values)]
        config: RunConfig = assemble([*named, *settings], "recollect compare", "")
        return config


def read(found: Flags, file: Path | None) -> Study:
    """A file's study, with flags over it; flags that are not of a study are set for all runs."""
    study = _from_file(file) if file else Study()
    rest: list[str] = []
    for name, values in found:
        if name == "--env.id":
            study = replace(study, environments=tuple(map(Variant, values)))
        elif name == "--model":
            study = replace(study, models=tuple(map(Variant, values)))
        elif name in ("--seeds", "--episodes"):
            study = replace(study, **_numbers(name.removeprefix("--"), values))
        else:
            rest += [name, *values]
    return replace(study, flags=tuple(rest))


def _from_file(path: Path) -> Study:
    data = read_yaml(path)
    known = "environments", "models", "seeds", "episodes", "options"
    for key in data:
        if key not in known:
            raise UsageError(f"study {path}: unknown entry {key!r}; {nearest(str(key), list(known))}")
    fields: dict[str, Any] = {"options": _flags(path, "options", data.get("options"))}
    for key, name in (("environments", "env.id"), ("models", "model")):
        fields[key] = tuple(_variant(path, name, entry) for entry in _entries(path, key, data.get(key), name))
    for key in ("seeds", "episodes"):
        if key in data:
            listed = isinstance(data[key], list)
            values = data[key] if listed else [data[key]]
            fields |= _numbers(key, list(map(str, values)), listed)
    return Study(**fields)


def _entries(path: Path, key: str, data: Any, name: str) -> list[Any]:
    """A list as it is; names with settings as one entry each."""
    if isinstance(data, Mapping):
        if not all(value is None or isinstance(value, Mapping) for value in data.values()):
            raise UsageError(f"study {path}: {key} are names, each with its settings or none")
        return [{name: entry, **(options or {})} for entry, options in data.items()]
    if not isinstance(data, list) or not data:
        raise UsageError(f"study {path}: {key} must be a list, or names with their settings")
    return data


def _variant(path: Path, name: str, entry: Any) -> Variant:
    """A name, or settings one of which is the name."""
    if isinstance(entry, str):
        return Variant(entry)
    if not isinstance(entry, Mapping) or not isinstance(entry.get(name), str):
        raise UsageError(f"study {path}: {entry!r} is neither a name nor settings with {name!r}")
    rest = {key: value for key, value in entry.items() if key != name}
    return Variant(entry[name], _flags(path, entry[name], rest))


def _flags(path: Path, where: str, data: Any) -> tuple[str, ...]:
    if not isinstance(data or {}, Mapping):
        raise UsageError(f"study {path}: {where} holds {data!r}, not settings")
    return tuple(as_flags(data or {}))


def _numbers(name: str, values: list[str], listed: bool = False) -> dict[str, Any]:
    """--seeds 10: the seeds 1 to 10; --seeds 3 5 8, and what a file lists: these."""
    try:
        numbers = tuple(map(int, values))
    except ValueError as error:
        raise UsageError(f"--{name} takes whole numbers, not {' '.join(values)}") from error
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise UsageError(f"--{name} {' '.join(values)}: give numbers above 0, each once")
    if len(numbers) > 1 and name == "episodes":
        raise UsageError(f"--episodes takes one number, not {len(numbers)}")
    if name == "episodes":
        return {"episodes": numbers[0]}
    return {"seeds": numbers if listed or len(numbers) > 1 else tuple(range(1, numbers[0] + 1))}
