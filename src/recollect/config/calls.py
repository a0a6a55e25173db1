"""Calls from Python as arguments of a command: the same options, checks and errors as on the command line."""

from collections.abc import Iterable, Mapping
from typing import Any


def arguments(
    positional: Iterable[object], options: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> list[str]:
    """The words of a command line.

    options   options of the command by name; None: not given
    settings  options of a run by dotted or nested name; None is a value
    """
    words = [str(value) for value in positional]
    for name, value in options.items():
        if value is not None:
            words += _option(name, value)
    for name, value in (settings or {}).items():
        words += _setting(name, value)
    return words


def _setting(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [word for key, part in value.items() for word in _setting(f"{name}.{key}", part)]
    return _option(name, value)


def _option(name: str, value: Any) -> list[str]:
    # A string is a sequence as well, but one word.
    several = isinstance(value, Iterable) and not isinstance(value, str)
    words = [_word(part) for part in value] if several else [_word(value)]
    return [f"--{name.replace('_', '-')}", *(words or ["none"])]


def _word(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
