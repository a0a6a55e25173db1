"""Reads a file that adds to the default search space, or replaces entries of it.

ppo.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
memory.name: [gru, lstm]
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from ..common.errors import UsageError, nearest
from ..common.option_values import LARGEST, Setting, value_of
from ..config.assembly import check_imports
from ..config.config import RunConfig
from ..config.data import read_yaml
from ..config.flags import UNITS, types_in
from ..memory import MemoryConfig, find
from .option_names import (
    BRANCHES,
    MEMORY_NAME,
    PART_NAMES,
    Settings,
    Value,
    format_value,
    full_names,
    option_values,
    to_flags,
)
from .proposals import ConfigBuilder, propose
from .search_space import Choices, Dimension, Range, SearchSpace, default_space

# Options that all trials share, because their scores would not be comparable otherwise.
FIXED = ("env.id", "model", "seed", "steps", "rollouts")
RANGE_KEYS = ["low", "high", "log", "step"]


def build_space(
    build_config: ConfigBuilder, file: Path | None, given: Sequence[str], imports: Sequence[str] = ()
) -> SearchSpace:
    """The default space, overridden by a file.

    given    options of the command line, which are not tuned
    imports  names of the file that may import a module
    """
    prefix = f"space {file}: "
    entries = _read_entries(file) if file else {}
    for parts in _part_choices(entries):
        settings = [Setting(option, str(name), "") for option, name in parts.items()]
        check_imports(settings, imports, f"space {file}")
    # Which options exist depends on memories and encoders, so the options of all in the file are known.
    configs = [build_config(to_flags(parts)) for parts in _part_choices(entries)]
    known = {option: value for config in configs for option, value in option_values(config).items()}
    types = {option: of for config in configs for option, of in types_in(config).items()}
    for name, dimension in entries.items():
        _check_name(name, known, given, prefix)
        entries[name] = _typed(dimension, types.get(full_names(name, known)[0]))
    _check_overlaps(entries, known, prefix)
    _check_values(entries, build_config, prefix)
    for option, alternative in UNITS:
        if {option, alternative} <= entries.keys():
            raise UsageError(f"{prefix}{option} and {alternative} set the same quantity: remove one of them")
    # The memories of the file decide which sizes the default space has.
    config = build_config(())
    default = default_space(config, {branch: _memories(entries, branch, config) for branch in BRANCHES})
    taken = {option for name in (*entries, *given) for option in full_names(name, known)}
    taken |= {alternative for option, alternative in UNITS if option in taken}
    return {k: v for k, v in default.items() if taken.isdisjoint(full_names(k, known))} | entries


def _read_entries(file: Path) -> SearchSpace:
    """The dimensions of a file, each checked by itself."""
    data = read_yaml(file)
    if not data:
        raise UsageError(f"space {file} holds no options")
    return {
        str(name).replace("-", "_"): _parse_dimension(f"space {file}: {name}", entry)
        for name, entry in data.items()
    }


def _parse_dimension(prefix: str, entry: Any) -> Dimension:
    """Choices from a list, or a range from a mapping."""
    if isinstance(entry, list) and entry:
        values = tuple(map(_plain_value, entry))
        texts = list(map(format_value, values))
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise UsageError(f"{prefix}: {twice} is listed twice")
        return Choices(values)
    if not isinstance(entry, Mapping):
        raise UsageError(f"{prefix}: {entry!r} is neither a list of choices nor {{low, high, log, step}}")
    for key in entry:
        if key not in RANGE_KEYS:
            raise UsageError(f"{prefix}: unknown {key!r}; {nearest(str(key), RANGE_KEYS)}")
    low, high, step = (_parse_number(prefix, key, entry.get(key)) for key in ("low", "high", "step"))
    log = value_of(Setting("log", entry.get("log", False), f"{prefix}: log"), bool)
    if low is None or high is None or not low < high:
        raise UsageError(f"{prefix}: low must be below high, they are {low} and {high}")
    if log and (low <= 0 or step is not None):
        raise UsageError(f"{prefix}: log needs a low above 0 and no step")
    if step is not None and not 0 < step <= high - low:
        raise UsageError(f"{prefix}: step is {step}, it must be above 0 and at most high - low")
    return Range(low, high, log, step)


def _parse_number(prefix: str, key: str, entry: Any) -> float | None:
    value = _plain_value(entry)
    if isinstance(value, bool | str) or (value is not None and not -LARGEST <= value <= LARGEST):
        raise UsageError(f"{prefix}: {key} is {entry!r}, not a number")
    return value


def _plain_value(entry: Any) -> Value:
    """Numbers also where YAML reads a string, as for 1e-4; a list of layer widths as one string."""
    if isinstance(entry, str):
        with suppress(ValueError):
            return float(entry) if set(entry) & set(".e") else int(entry)
    return entry if isinstance(entry, bool | int | float | str | None) else format_value(entry)


def _check_name(name: str, known: Settings, given: Sequence[str], prefix: str) -> None:
    """Raise UsageError unless an option exists and is free."""
    options = full_names(name, known)
    if not options:
        short = {option.removeprefix(f"{branch}.") for option in known for branch in BRANCHES}
        raise UsageError(f"{prefix}unknown option {name!r}; {nearest(name, sorted(short | set(known)))}")
    if set(options) & set(FIXED):
        raise UsageError(f"{prefix}{name} must be the same for all trials")
    if set(options) & {option for flag in given for option in full_names(flag, known)}:
        raise UsageError(f"{prefix}{name} is set on the command line as well: remove one of them")


def _typed(dimension: Dimension, option: Any) -> Dimension:
    """The dimension of an option of this type: from 0 to 1 means floats where the option is one."""
    if isinstance(dimension, Range) and float in (option, *get_args(option)):
        return replace(dimension, low=float(dimension.low), high=float(dimension.high))
    return dimension


def _check_overlaps(entries: SearchSpace, known: Settings, prefix: str) -> None:
    """Refuse an option that two names stand for."""
    names: dict[str, str] = {}
    for name in entries:
        for option in full_names(name, known):
            if other := names.get(option):
                raise UsageError(f"{prefix}{other} and {name} both set {option}: remove one of them")
            names[option] = name


def _part_choices(entries: SearchSpace) -> list[Settings]:
    """Every combination of the memories and encoders in the file, as settings."""
    names = [name for name in entries if name.endswith(PART_NAMES)]
    known = dict.fromkeys(f"{branch}.{name}" for branch in BRANCHES for name in PART_NAMES)
    combinations = product(*(entries[name].ends for name in names))
    return [
        {
            option: part
            for name, part in zip(names, combination, strict=True)
            for option in full_names(name, known)
        }
        for combination in combinations
    ]


def _memories(entries: SearchSpace, branch: str, config: RunConfig) -> list[MemoryConfig]:
    """The memories that a branch may have: the preset's where the file names none."""
    preset: MemoryConfig = getattr(config, branch).memory
    choices = (settings.get(f"{branch}.{MEMORY_NAME}") for settings in _part_choices(entries))
    names = {preset.found_as() if name is None else str(name) for name in choices} - {"shared"}
    return [preset if name == preset.found_as() else find(name)() for name in sorted(names)]


def _check_values(entries: SearchSpace, build_config: ConfigBuilder, prefix: str) -> None:
    """Build a config for both ends of each range and for each choice, with each combination of parts."""
    for name, dimension in entries.items():
        combinations = [{}] if name.endswith(PART_NAMES) else _part_choices(entries)
        for value, parts in product(dimension.ends, combinations):
            point: SearchSpace = {k: Choices((v,)) for k, v in {**parts, name: value}.items()}
            try:
                build_config(to_flags(propose(lambda _, choices: choices.ends[0], point, build_config)))
            except UsageError as error:
                raise UsageError(f"{prefix}{name} {format_value(value)}: {error}") from error
