"""Classes of options whose values are read when an object is created."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from .errors import UsageError
from .option_values import Setting, is_mapping, is_readable, members, value_of


class Options:
    """A dataclass of options, each of which has a value of its type: read as in a YAML file, or refused.

    A subclass with a `__post_init__` begins it with that of this class.
    """

    def __post_init__(self) -> None:
        kind: Any = self.__class__
        for name, check in _checks(kind).items():
            value, label = getattr(self, name), f"{kind.__name__}: {name}"
            if type(value) in check.read:
                continue
            if check.part is None:
                object.__setattr__(self, name, value_of(Setting(name, value, label), check.option))
            elif not isinstance(value, check.part):
                raise UsageError(f"{label} takes {check.part.__name__}, not {value!r:.80}")


@cache
def types_of(kind: type) -> dict[str, Any]:
    """The types of the fields of a dataclass; to evaluate them takes most of the time of a config."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


class _Check(NamedTuple):
    """How the value of a field is checked."""

    option: Any
    """The type that it is read as."""
    read: frozenset[Any] = frozenset()
    """Types of values that are right as they are, to save time."""
    part: type | None = None
    """Of a part, or of values by name: the class that it must have."""


@cache
def _checks(kind: type) -> dict[str, _Check]:
    checks = {}
    for name, option in types_of(kind).items():
        if is_mapping(option) or dataclasses.is_dataclass(option):
            checks[name] = _Check(option, part=Mapping if is_mapping(option) else option)
        elif is_readable(option):
            # Not int: a number of more than 64 bits is refused.
            checks[name] = _Check(option, read=frozenset(members(option)) - {int})
    return checks
