"""Values of options: from words of the command line, or from data of a file, to the type of a field.

Types are bool, int, float, str, Path, Literal, tuple[X, ...], Mapping[str, X] and unions of them with None.
"""

from collections.abc import Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

from .errors import UsageError, nearest

BOOLEANS = {"true": True, "false": False}
SWITCHES = {**BOOLEANS, "yes": True, "no": False, "on": True, "off": False}
NONE = ("none", "null")
LARGEST = 2**63 - 1
NOUNS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    NoneType: "none",
}


class Words(tuple[str, ...]):
    """A value as it stands on the command line: text, until the type of its option is known."""


class YamlWord(str):
    """yes, no, on or off in a YAML file: the word where an option takes words, else a boolean."""


class Setting(NamedTuple):
    """An option and the value that it is given."""

    name: str
    """As a field: ppo.gae_lambda."""
    value: Any
    """Words of the command line, or data."""
    label: str
    """As the user wrote it, for errors: --ppo.gae-lambda, or FILE: ppo.gae_lambda."""


Settings: TypeAlias = tuple[Setting, ...]


def value_of(setting: Setting, kind: Any) -> Any:
    """The value of a setting as the type of its option."""
    words = setting.value if isinstance(setting.value, Words) else None
    try:
        return _from_data(kind, setting.value) if words is None else _from_words(kind, words)
    except ValueError:
        if words is not None and not words:
            raise UsageError(f"{setting.label} needs a value: {describe(kind)}") from None
        shown = repr(setting.value) if words is None else repr(" ".join(words))
        hint = _hint(kind, setting.value)
        raise UsageError(f"{setting.label} takes {describe(kind)}, not {shown}{hint}") from None


def plain(value: Any) -> Any:
    """A value as data, also where it is words of the command line: one of them, or a list."""
    if not isinstance(value, Words):
        return value
    items = [_from_text(bool | int | float | str | None, word) for word in value]
    return items[0] if len(items) == 1 else items


def is_list(kind: Any) -> bool:
    """Whether an option takes several values."""
    return get_origin(kind) is tuple


def is_mapping(kind: Any) -> bool:
    """Whether an option holds values by name."""
    return get_origin(kind) is Mapping


def is_readable(kind: Any) -> bool:
    """Whether values of a type can be read, as those of all options of recollect."""
    item = get_args(kind)[0] if is_list(kind) else kind
    return all(is_literal(member) or member in NOUNS for member in members(item))


def is_none(value: Any) -> bool:
    """Whether a value, of whichever source, is none."""
    return value is None or (isinstance(value, Words) and len(value) == 1 and value[0].lower() in NONE)


def describe(kind: Any) -> str:
    """What an option takes, for errors and for the help."""
    if is_list(kind):
        words = {int: "whole numbers", float: "numbers"}
        return f"{words.get(get_args(kind)[0], 'one or more words')}, or none for an empty list"
    if is_mapping(kind):
        return "none, or values by name: --env.kwargs.NAME VALUE"
    groups = (get_args(member) if is_literal(member) else (NOUNS[member],) for member in members(kind))
    *others, last = (noun for group in groups for noun in group)
    return f"{', '.join(others)} or {last}" if others else last


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of another type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _from_words(kind: Any, words: Words) -> Any:
    if is_list(kind):
        items = () if is_none(words) else words
        return tuple(_from_text(get_args(kind)[0], word) for word in items)
    if is_mapping(kind) and is_none(words):
        return {}
    if kind is bool and not words:
        return True
    if len(words) != 1:
        raise ValueError
    return _from_text(kind, words[0])


def _from_text(kind: Any, text: str) -> Any:
    """Text as the first type of a union that it can be read as; none comes first, text last."""
    types = members(kind)
    order = [member for member in (NoneType, bool, int, float) if member in types]
    # Where any scalar may stand, as in env.kwargs, 1e5 is no whole number and off is a word.
    any_scalar = not isinstance(text, YamlWord) and {bool, int, float, str} <= set(types)
    for member in [*order, *(member for member in types if member not in order)]:
        with suppress(ValueError, KeyError, OverflowError):
            return _read(member, text, any_scalar)
    raise ValueError


def _read(kind: Any, text: str, any_scalar: bool) -> Any:
    """Text as one type, or a ValueError or KeyError."""
    if kind is NoneType and text.lower() in NONE:
        return None
    if kind is bool:
        return (BOOLEANS if any_scalar else SWITCHES)[text.lower()]
    if kind is int:
        return _in_range(int(text) if any_scalar or "e" not in text.lower() else _whole(float(text)))
    if is_literal(kind) and text in get_args(kind):
        return str(text)
    if kind in (float, str, Path):
        return kind(text)
    raise ValueError


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def _in_range(value: Any) -> Any:
    """A value, unless it is a whole number that takes more than 64 bits: no size or count does."""
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise ValueError
    return value


def _from_data(kind: Any, value: Any) -> Any:
    if is_list(kind):
        items = [] if value is None else value if isinstance(value, list | tuple) else [value]
        return tuple(_from_data(get_args(kind)[0], item) for item in items)
    if is_mapping(kind) and not value:
        return {}
    types = tuple(member for member in members(kind) if isinstance(member, type))
    if isinstance(value, str):
        is_text = str in types and not isinstance(value, YamlWord)
        # YAML reads 1e-4 as text, so text may stand for a number, unless the option takes text.
        return value if is_text else _from_text(kind, value)
    # True is an int for Python, but `steps: true` is a mistake.
    if isinstance(value, types) and isinstance(value, bool) <= (bool in types):
        return _in_range(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        if float in types:
            return float(_in_range(value))
        if int in types:
            return _in_range(_whole(float(value)))  # YAML reads 1.0e+5 as a float
    raise ValueError


def _hint(kind: Any, value: Any) -> str:
    """What may have been meant."""
    text = " ".join(value) if isinstance(value, Words) else value
    if is_list(kind) and isinstance(value, Words) and "," in text:
        return f"; separate values by spaces: {' '.join(text.strip('[]()').replace(',', ' ').split())}"
    choices = [word for member in members(kind) if is_literal(member) for word in get_args(member)]
    if choices and isinstance(text, str):
        guess = nearest(text, choices)
        return f"; {guess}" if guess.startswith("did") else ""
    quotable = str in members(kind) and isinstance(value, bool | int | float)
    return "; write text that looks like something else in quotes" if quotable else ""
