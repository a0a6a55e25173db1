"""Names of environments that users give as Python objects, for folders and reports.

Reports take runs whose environments have one name, and the same options, as runs of one environment. So a
name contains what distinguishes environments, and nothing that differs between processes, as addresses do.
A function or class is callable-NAME; the arguments of a partial or an instance follow.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import gymnasium

from ..common.digests import digest

READABLE = re.compile(r"[A-Za-z0-9_./+-]{1,32}")  # an argument that is shown; no colon: ids have suites
MAX_LENGTH = 120  # of a name; file systems allow 255 bytes


def name_of(env: object) -> str:
    """The name of an environment, or of a callable that builds it."""
    name = f"callable-{'-'.join(_layers(env))}"
    return name if len(name) <= MAX_LENGTH else f"{name[: MAX_LENGTH - 9]}-{_short(name)}"


def _layers(env: Any) -> Iterator[str]:
    """The environment without wrappers, and the wrappers from the innermost to the outermost."""
    if isinstance(env, gymnasium.Wrapper):
        yield from _layers(env.env)
        if not isinstance(env, gymnasium.wrappers.OrderEnforcing | gymnasium.wrappers.PassiveEnvChecker):
            # Wrappers of Gymnasium record their arguments; those of users mostly do not.
            yield _with_arguments(type(env).__name__, (), getattr(env, "_saved_kwargs", {}))
    elif isinstance(env, gymnasium.Env):
        kwargs = {} if env.spec is None else dict(env.spec.kwargs)
        kwargs.pop("render_mode", None)
        yield _with_arguments(type(env).__name__, (), kwargs)
    else:
        yield _name_of_callable(env)


def _name_of_callable(env: Any) -> str:
    if isinstance(env, partial):
        return _with_arguments(_name_of_callable(env.func), env.args, env.keywords)
    if isinstance(env, FunctionType) and env.__name__ == "<lambda>":
        # Only the place distinguishes lambdas. The file without its folder: that differs between machines.
        place = f"{Path(env.__code__.co_filename).stem.strip('<>')}-{env.__code__.co_firstlineno}"
        return f"lambda-{re.sub(r'[^A-Za-z0-9_.-]', '-', place)}"
    if hasattr(env, "__name__"):
        return str(env.__name__).strip("<>")
    # An object: what it prints has the fields of a dataclass, and the name of an environment of PettingZoo.
    return _with_arguments(type(env).__name__, (str(env),), {})


def _with_arguments(name: str, values: Sequence[object], named: Mapping[str, object]) -> str:
    """A name with the arguments that can be written so that they are the same in every process."""
    texts = [("", _text(value)) for value in values]
    texts += [(f"{key}=", _text(value)) for key, value in sorted(named.items())]
    # The default text of an object contains its address.
    written = [
        f"{key}{text if READABLE.fullmatch(text) else _short(text)}"
        for key, text in texts
        if " at 0x" not in text
    ]
    return "-".join([name, ",".join(written)]) if written else name


def _text(value: object) -> str:
    """The text of an argument; sets have another order in each process, and dicts that of the user."""
    match value:
        case str():
            return value
        case list() | tuple():
            return f"({', '.join(map(_text, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(_text, value)))}}}"
        case dict():
            return f"{{{', '.join(sorted(f'{_text(key)}: {_text(x)}' for key, x in value.items()))}}}"
    return _name_of_callable(value) if callable(value) else repr(value)


def _short(text: str) -> str:
    return digest(text.encode())[:8]
