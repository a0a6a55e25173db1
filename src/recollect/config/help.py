"""The text of --help, from the docstrings of options classes and of their fields.

Python does not keep docstrings of fields, so they are read from the source, and only here.
"""

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from ..common.option_values import is_list, is_literal, members
from .flags import ALIASES, FILLED_IN, OLDER, RENAMED, SHORT, flag_of, place_of, resolve

WIDTH = 100
INDENT = 28
PLACEHOLDERS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
NAMES = {"env": "ID", "environments": "ID ...", "model": "PRESET", "models": "PRESET ...", "run_id": "NAME"}


class Option(NamedTuple):
    """An option as the help shows it."""

    name: str
    kind: Any
    default: Any
    about: str


def help_text(kind: type, prog: str, config: Any, everything: bool) -> str:
    """The help of a command. config: the run whose values are the defaults; None: it takes none."""
    positional, basic = getattr(kind, "POSITIONAL", ()), getattr(kind, "BASIC", ())
    fields = {option.name: option for option in _fields_of(kind)}
    run = {} if config is None else {option.name: option for option in _options_of_run(config)}
    required = {name for name, option in fields.items() if option.default is dataclasses.MISSING}
    required |= {"env.id"} if "config" in get_type_hints(kind) else set()
    places = [place_of(name) if name in required else f"[{place_of(name)}]" for name in positional]
    lines = [" ".join(["usage:", prog, *places, "[OPTIONS]"]), "", *_about(kind.__doc__ or "")]
    if basic and not everything:
        chosen = {**run, **fields}
        lines += _section("options", [chosen[name] for name in basic], chosen, brief=True)
        lines += ["", f"Defaults are those of {config.model} on {config.env.id}."]
        return "\n".join([*lines, f"{prog} --help-all shows all {len(chosen)} options.", ""])
    known = {**run, **fields}
    arguments = [fields[name] for name in positional if name in fields]
    lines += _section("arguments", arguments, known, places=True)
    lines += _section("options", [fields[name] for name in fields if name not in positional], known)
    if run and not everything:
        lines += ["", f"{prog} --help-all shows the options of recollect train as well."]
    for part in dict.fromkeys(map(_part, run) if everything else ()):
        chosen_part = [option for name, option in run.items() if _part(name) == part]
        lines += _section(f"options of {part}" if part else "options of the run", chosen_part, known)
    return "\n".join([*lines, ""])


def _about(docstring: str) -> list[str]:
    """The docstring of an options class: paragraphs are wrapped, indented examples are not."""
    paragraphs = re.sub(r"^ {4}", "", docstring.rstrip(), flags=re.MULTILINE).split("\n\n")
    wrapped = (text if text.startswith(" ") else textwrap.fill(text, _width()) for text in paragraphs)
    return "\n\n".join(wrapped).splitlines()


def _width() -> int:
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 50)).columns)


def first_sentence(text: str) -> str:
    """The first sentence, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def _part(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _fields_of(kind: type) -> Iterator[Option]:
    """The fields of an options class, before those of the classes above it."""
    hints, about = get_type_hints(kind), descriptions(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in FILLED_IN}
    names = (name for base in kind.__mro__ for name in vars(base).get("__annotations__", ()))
    for name in dict.fromkeys(names):
        if name in fields:
            yield Option(name, hints[name], fields[name].default, about.get(name, ""))


def _options_of_run(config: Any, prefix: str = "") -> Iterator[Option]:
    """Every option of a config, with its value as the default; memories and encoders are chosen by name."""
    hints, about = get_type_hints(type(config)), descriptions(type(config))
    for field in dataclasses.fields(config):
        name, value = prefix + field.name, getattr(config, field.name)
        if not dataclasses.is_dataclass(value):
            yield Option(name, hints[field.name], value, about.get(field.name, ""))
            continue
        if inspect.isabstract(hints[field.name]):
            listed = "memories" if field.name == "memory" else f"{field.name}s"
            text = f"{field.name.capitalize()} of the {_part(prefix)}; recollect list {listed} shows all."
            yield Option(f"{name}.name", str, getattr(value, "name", None), text)
        yield from _options_of_run(value, f"{name}.")


def _section(
    title: str, options: Sequence[Option], known: Iterable[str], brief: bool = False, places: bool = False
) -> list[str]:
    """Lines with flags on the left and, wrapped, what they set on the right."""
    lines = ["", title] if options else []
    for option in options:
        left = f"  {place_of(option.name) if places else _flags(option, known, brief)}"
        about = f"{first_sentence(option.about)}." if brief else option.about
        about = about.replace("None", "none").replace("False:", "false:")  # as flags write them
        about += "" if places else _default(option)
        if len(left) >= INDENT:
            lines.append(left)
            left = ""
        text = textwrap.wrap(about, _width() - INDENT, break_on_hyphens=False)
        lines += [f"{left:<{INDENT}}{text[0]}", *(" " * INDENT + line for line in text[1:])]
    return lines


def _flags(option: Option, known: Iterable[str], brief: bool) -> str:
    """An option with its aliases, the short ones first, and what stands for its value.

    brief  without the full name where an alias is a word
    """
    hidden = (*OLDER, option.name)
    shown = [name for name in ALIASES if name not in hidden and name not in RENAMED]
    aliases = [name for name in shown if resolve(name, known) == option.name]
    short = [f"-{name}" for name in aliases if name in SHORT]
    long = [flag_of(name) for name in (*aliases, option.name) if name not in SHORT]
    return f"{', '.join([*short, *(long[:1] if brief else long)])} {_placeholder(option)}".rstrip()


def _placeholder(option: Option) -> str:
    """The value in a usage line: N, X, PATH, or the words to choose from."""
    if option.name in NAMES:
        return NAMES[option.name]
    if option.name.endswith((".memory.name", ".encoder.name")):
        return option.name.split(".")[1].upper()
    kind = option.kind
    if kind is bool:
        return "true|false" if option.default is True else ""  # a switch that is off needs no value
    types = members(get_args(kind)[0] if is_list(kind) else kind)
    words = [word for member in types if is_literal(member) for word in get_args(member)]
    names = [PLACEHOLDERS[member] for member in types if member in PLACEHOLDERS]
    text = "|".join([*names, *words])
    return f"{text} ..." if is_list(kind) else text


def _default(option: Option) -> str:
    """The default in parentheses; nothing where there is none, or a switch is off."""
    value = option.default
    if value is dataclasses.MISSING or value is None or value is False:
        return ""
    if isinstance(value, bool):
        return " (default true)"
    if isinstance(value, tuple | Mapping):
        value = " ".join(map(str, value))
    return f" (default {value})" if value != "" else ""


# Docstrings of fields -------------------------------------------------------------------------


def descriptions(kind: type) -> dict[str, str]:
    """The docstrings of the fields of a class and of the classes above it, each as one line."""
    texts: dict[str, str] = {}
    # Base classes first, so that the text of a subclass wins.
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            assert isinstance(tree, ast.ClassDef)
            for field, text in zip(tree.body, tree.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    texts[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(text.value)).split())
    return texts
