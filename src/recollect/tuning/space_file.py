"""What is tuned, as a file says it: over what would be tuned anyway.

ppo.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
memory.name: [gru, lstm]
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

from ..common.errors import UsageError, nearest
from ..config.config import UNITS, RunConfig, memory_name, read_yaml
from ..memory import MemoryConfig, find
from .search_space import (
    BRANCHES,
    KIND,
    Base,
    Choices,
    Dimension,
    Range,
    Settings,
    Space,
    Value,
    default,
    flags,
    meant,
    propose,
    settings,
    spelled,
)

# Options of which the one takes the other's place.
PAIRS = [[name.removeprefix("--").replace("-", "_") for name in pair] for pair in UNITS]
# What trials are compared at, so what none of them may choose.
FIXED = ("env.id", "model", "seed", "steps", "rollouts")


def space(base: Base, file: Path | None, given: Sequence[str]) -> Space:
    """The default, with a file over it; given: what the command line sets, which is not tuned."""
    asked = _entries(file) if file else {}
    known = {k: v for kind in _kinds(asked) for k, v in settings(base(flags(kind))).items()}
    for name, dimension in asked.items():
        asked[name] = _placed(name, dimension, known, given, f"space {file}: ")
    _check_apart(asked, known, f"space {file}: ")
    _check(asked, base, f"space {file}: ")
    config = base(())
    usual = default(config, {branch: _memories(asked, branch, config) for branch in BRANCHES})
    taken = {option for name in (*asked, *given) for option in meant(name, known)}
    for one, other in PAIRS:
        if {one, other} <= asked.keys():
            raise UsageError(
                f"space {file}: {one} and {other} say the same in two units: take one of them away"
            )
    taken |= {other for one, other in PAIRS if one in taken}
    return {k: v for k, v in usual.items() if taken.isdisjoint(meant(k, known))} | asked


def _entries(file: Path) -> Space:
    """A file's dimensions, each of which makes sense by itself."""
    return {
        str(name).replace("-", "_"): _dimension(f"space {file}: {name}", said)
        for name, said in read_yaml(file).items()
    }


def _dimension(where: str, said: Any) -> Dimension:
    if isinstance(said, list) and said:
        return Choices(tuple(map(_plain, said)))
    if not isinstance(said, Mapping):
        raise UsageError(f"{where}: {said!r} is neither a list of choices nor {{low, high, log, step}}")
    for key in said:
        if key not in ("low", "high", "log", "step"):
            raise UsageError(f"{where}: unknown {key!r}; {nearest(str(key), ['low', 'high', 'log', 'step'])}")
    low, high, step = (_number(where, key, said.get(key)) for key in ("low", "high", "step"))
    log = said.get("log", False)
    if low is None or high is None or not low < high:
        raise UsageError(f"{where}: low must be below high, they are {low} and {high}")
    if not isinstance(log, bool) or (log and (low <= 0 or step is not None)):
        raise UsageError(f"{where}: log is true or false, and true needs a low above 0 and no step")
    if step is not None and not 0 < step <= high - low:
        raise UsageError(f"{where}: step is {step}, it must be above 0 and at most high - low")
    return Range(low, high, log, step)


def _number(where: str, key: str, said: Any) -> float | None:
    value = _plain(said)
    if isinstance(value, bool | str) or (value is not None and not isfinite(value)):
        raise UsageError(f"{where}: {key} is {said!r}, not a number")
    return value


def _plain(said: Any) -> Value:
    """Numbers also where YAML sees a word, as in 1e-4; widths in a row as one text."""
    if isinstance(said, str):
        with suppress(ValueError):
            return float(said) if set(said) & set(".e") else int(said)
    return said if isinstance(said, bool | int | float | str | None) else spelled(said)


def _placed(name: str, dimension: Dimension, known: Settings, given: Sequence[str], where: str) -> Dimension:
    """A dimension of an option that there is, and that is free; 0 to 1 are all numbers between them."""
    options = meant(name, known)
    if not options:
        short = {option.removeprefix(f"{branch}.") for option in known for branch in BRANCHES}
        raise UsageError(f"{where}unknown option {name!r}; {nearest(name, sorted(short | set(known)))}")
    if set(options) & set(FIXED):
        raise UsageError(f"{where}{name} is the same for all trials")
    if set(options) & {option for flag in given for option in meant(flag, known)}:
        raise UsageError(f"{where}{name} is set by a flag as well: take one of them away")
    if isinstance(dimension, Range) and isinstance(known[options[0]], float):
        return replace(dimension, low=float(dimension.low), high=float(dimension.high))
    return dimension


def _check_apart(asked: Space, known: Settings, where: str) -> None:
    """No option is chosen under two names."""
    by: dict[str, str] = {}
    for name in asked:
        for option in meant(name, known):
            if other := by.get(option):
                raise UsageError(f"{where}{other} and {name} both choose {option}: take one of them away")
            by[option] = name


def _kinds(asked: Space) -> list[Settings]:
    """Every way to choose among the memories that are asked for, as settings."""
    names = [name for name in asked if name.endswith(KIND)]
    known = dict.fromkeys(f"{branch}.{KIND}" for branch in BRANCHES)
    ways = product(*(asked[name].ends for name in names))
    return [
        {option: kind for name, kind in zip(names, way, strict=True) for option in meant(name, known)}
        for way in ways
    ]


def _memories(asked: Space, branch: str, config: RunConfig) -> list[MemoryConfig]:
    """What a branch may remember with: the preset's memory where nothing is said."""
    present: MemoryConfig = getattr(config, branch).memory
    names = {str(kind.get(f"{branch}.{KIND}", memory_name(present))) for kind in _kinds(asked)} - {"shared"}
    return [present if name == memory_name(present) else find(name)() for name in sorted(names)]


def _check(asked: Space, base: Base, where: str) -> None:
    """Every end of every range, with every way to remember."""
    for name, dimension in asked.items():
        kinds = [{}] if name.endswith(KIND) else _kinds(asked)
        for value, kind in product(dimension.ends, kinds):
            only: Space = {k: Choices((v,)) for k, v in {**kind, name: value}.items()}
            try:
                base(flags(propose(lambda _, dimension: dimension.ends[0], only, base)))
            except UsageError as error:
                raise UsageError(f"{where}{name} {spelled(value)}: {error}") from error
