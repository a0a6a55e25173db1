"""POPGym: small tasks that need memory, each in three difficulties.

All tasks are implemented here, vectorised, and need no package. Each file has one or more families and lists
them in FAMILIES. They equal popgym 1.0.7 step by step, which the backend gymnasium runs (extra `popgym`).

The experiments of POPGym's paper add two entries to the observation: the last action, and a flag that marks
the first step: Antialias(PreviousAction(env)). Here both are off, because a branch can take the previous
action as an input, and a memory is reset at episode starts. The keyword arguments `prev_action` and
`antialias` switch them on.

Terminations and truncations are popgym's. It terminates where the cards, tiles or mines run out, and
truncates where the number of steps does (CartPole, Pendulum, MultiarmedBandit, Battleship, Concentration,
MineSweeper, Labyrinth). Every environment has a largest number of steps, and `time_limit` is that number.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any

from ....common.errors import UsageError, nearest
from ...base import EnvConfig, VecEnv
from .family import Family

WRAPPERS = ("prev_action", "antialias")
LEVELS = ("Easy", "Medium", "Hard")


def make(config: EnvConfig, name: str) -> VecEnv:
    """N environments of an id, as popgym registers it or without popgym- and -v0."""
    # The ids and classes of one family of popgym differ by a letter.
    name = (
        name.removeprefix("popgym-")
        .removesuffix("-v0")
        .replace("VelocityOnlyCartPole", "VelocityOnlyCartpole")
    )
    if config.backend == "envpool":
        raise UsageError(f"env.backend envpool: EnvPool has no popgym:{name}; use auto")
    families = _families()
    names = {family + level: (family, place) for family in families for place, level in enumerate(LEVELS)}
    if name not in names:
        raise UsageError(f"environment popgym:{name} is unknown; {nearest(name, sorted(names))}")
    options = dict(config.kwargs)
    wrappers = []
    for key in WRAPPERS:
        value = options.pop(key, False)
        if type(value) is not bool:
            raise UsageError(f"popgym:{name}: {key} is {value!r}; it must be true or false")
        if value:
            wrappers.append(key)
    if config.backend in ("auto", "own"):
        family, place = names[name]
        return _build(families[family], place, name, options, config, tuple(wrappers))
    from . import package

    return package.make(config, name, options, tuple(wrappers))


def _build(
    family: Family,
    place: int,
    name: str,
    options: dict[str, Any],
    config: EnvConfig,
    wrappers: tuple[str, ...],
) -> VecEnv:
    """Our environments of a family at the level of this place, with these keyword arguments."""
    known = [*family.options, *WRAPPERS]
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"popgym:{name} has no keyword argument {key}; {nearest(key, known)}")
        expected = family.options[key](value)
        if expected:
            raise UsageError(f"popgym:{name}: {key} is {value!r}; it must be {expected}")
    return family.build(config, wrappers, **{**family.levels[place], **options})


@cache
def _families() -> dict[str, Family]:
    """The families of all files of this folder, by name."""
    families: dict[str, Family] = {}
    for file in pkgutil.iter_modules(__path__):
        families |= getattr(importlib.import_module(f"{__name__}.{file.name}"), "FAMILIES", {})
    return dict(sorted(families.items()))


def listing() -> dict[str, str]:
    """Id -> one-line description."""
    return {
        name + level: f"{family.about} ({level.lower()})"
        for name, family in _families().items()
        for level in LEVELS
    }
