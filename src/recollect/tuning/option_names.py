"""Options by name: the values of a config, the short names of a search space, and their command-line form.

A name without its branch stands for both branches: memory.width sets the width of actor and critic.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..common.errors import UsageError
from ..config.config import RunConfig
from ..config.flags import is_number, values_in

Value: TypeAlias = bool | int | float | str | None
Settings: TypeAlias = dict[str, Any]
BRANCHES = ("actor", "critic")
MEMORY_NAME = "memory.name"
PARTS = ("memory", "encoder")
PART_NAMES = tuple(f"{part}.name" for part in PARTS)


def option_values(config: RunConfig) -> Settings:
    """Every option of a config as a file names it, with the names of memories and encoders."""
    values = values_in(config)
    for branch in BRANCHES:
        for part in PARTS:
            values[f"{branch}.{part}.name"] = getattr(getattr(config, branch), part).found_as()
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def changed_options(config: RunConfig, preset: RunConfig) -> Settings:
    """The settings that make the preset into the config; of another part all options, changed or not."""
    before, after = option_values(preset), option_values(config)
    parts = (f"{branch}.{part}." for branch in BRANCHES for part in PARTS)
    # Naming a part resets its options, and naming a memory makes a shared critic a branch again.
    reset = tuple(part for part in parts if after[f"{part}name"] != before[f"{part}name"])
    reset += ("critic.shared",) if any("memory" in part for part in reset) else ()
    return {k: v for k, v in after.items() if k not in before or before[k] != v or k.startswith(reset)}


def full_names(name: str, known: Mapping[str, Any]) -> list[str]:
    """The options that a name stands for: itself, a memory option without `memory.`, or both branches'."""
    branch, _, rest = name.partition(".")
    for candidates in ([name], [f"{branch}.memory.{rest}"], [f"{branch}.{name}" for branch in BRANCHES]):
        if matches := [option for option in candidates if option in known]:
            return matches
    return []


def format_value(value: Any) -> str:
    """A value as it is written on the command line."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def to_flags(settings: Settings) -> tuple[str, ...]:
    """Settings as arguments of `recollect train`."""
    flags: list[str] = []
    for name, value in names_first(settings).items():
        words = format_value(value).split()
        if flag := next((word for word in words if word.startswith("-") and not is_number(word)), None):
            # A value of a file could set any other option, as a memory that imports a module.
            raise UsageError(f"{name} {value}: a value has no words that begin with a hyphen, as {flag}")
        flags += [f"--{name}", *words]
    return tuple(flags)


def names_first(settings: Settings) -> Settings:
    """Names of memories and encoders before all other settings, because naming one resets its options."""
    # sorted() is stable: the others keep their order, so equal settings give equal command lines.
    return dict(sorted(settings.items(), key=lambda item: not item[0].endswith(PART_NAMES)))
