"""Flags of the command line as settings of options, and settings applied to frozen dataclasses.

One table of aliases serves every command: an alias stands for the first of its meanings that the command
has as an option.
"""

import dataclasses
import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from ..common.errors import UsageError, nearest
from ..common.option_values import SWITCHES, Setting, Words, is_list, is_mapping, is_none, value_of
from ..common.options import types_of

T = TypeVar("T")
# Fields that parsing fills in, which are no options: the run, settings of runs, the command as typed.
FILLED_IN = ("config", "settings", "command")
# Names of earlier versions, which are read with a note.
RENAMED = {
    "actor.pictures": "actor.encoder.name",
    "critic.pictures": "critic.encoder.name",
    "actor.picture_features": "actor.encoder.features",
    "critic.picture_features": "critic.encoder.features",
}
# Config files and scripts of users have these names, so none is ever removed. The order of meanings counts.
ALIASES = {
    "e": ("environments", "env", "env.id"),
    "env": ("environments", "env", "env.id"),
    "env.id": ("environments", "env", "env.id"),
    "m": ("models", "model", "run"),
    "model": ("models", "model", "run"),
    "model_name": ("models", "model", "run"),
    "f": ("run",),
    "file_path": ("run",),
    "o": ("out",),
    "v": ("verbose",),
    "ne": ("rollouts", "episodes"),
    "num_epochs": ("rollouts", "episodes"),
    "rollouts": ("rollouts", "episodes"),
    "num_episodes": ("episodes",),
    "import": ("imports",),
    "actor": ("actor.memory.name",),
    "critic": ("critic.memory.name",),
    "actor.encoder": ("actor.encoder.name",),
    "critic.encoder": ("critic.encoder.name",),
    **{old: (new,) for old, new in RENAMED.items()},
    "init": ("init.path",),
    "num_envs": ("env.num_envs",),
    "lr": ("ppo.learning_rate",),
    "gamma": ("ppo.gamma",),
    "entropy": ("ppo.ent_coef",),
}
# Spellings of earlier versions and of other programs, which keep working and are not shown.
OLDER = ("env.id", "f", "file_path", "model_name", "num_epochs", "num_episodes", "rollouts")
SHORT = ("e", "m", "f", "o", "v", "ne")  # with one hyphen
KWARGS = "env.kwargs."  # names behind it are the environment's and keep their spelling
# Options that set one thing in two units: giving the one replaces the other.
UNITS = (
    ("rollouts", "steps"),
    ("steps", "rollouts"),
    ("ppo.batch_size", "ppo.num_minibatches"),
    ("ppo.num_minibatches", "ppo.batch_size"),
)


def options_of(kind: type) -> dict[str, Any]:
    """The options of a class by their dotted names, with their types; an abstract part has a name."""
    # A memory or an encoder: its class, and with it its options, is known only when it is named.
    if inspect.isabstract(kind):
        return {"name": str}
    options: dict[str, Any] = {}
    for field, part in types_of(kind).items():
        if field in FILLED_IN:
            continue
        if dataclasses.is_dataclass(part):
            assert isinstance(part, type)
            options |= {f"{field}.{name}": x for name, x in options_of(part).items()}
        else:
            options[field] = part
    return options


def types_in(config: Any, prefix: str = "") -> dict[str, Any]:
    """The options of a config by their dotted names, with their types; of a memory its own."""
    options: dict[str, Any] = {}
    for field, kind in types_of(config.__class__).items():
        value, name = getattr(config, field), prefix + field
        options |= types_in(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: kind}
    return options


def values_in(config: Any, prefix: str = "") -> dict[str, Any]:
    """The options of a config by their dotted names, with their values."""
    options: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        options |= values_in(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return options


# From the command line ------------------------------------------------------------------------


def read_flags(
    arguments: Sequence[str], known: Mapping[str, Any], positional: Sequence[str] = ()
) -> list[Setting]:
    """Arguments as settings. A word that belongs to no option is the next positional argument."""
    flags: list[tuple[str, str, list[str]]] = []
    loose: list[str] = []
    for argument in arguments:
        # -1e-3 is a value.
        if argument.startswith("-") and not is_number(argument):
            argument = "--device=cpu" if argument == "--cpu" else argument
            flag, equals, value = argument.partition("=")
            flags.append((flag, equals, [value] if equals else []))
        else:
            # How many words belong to a flag depends on its type; those that do not become positional below.
            (flags[-1][-1] if flags else loose).append(argument)
    settings = []
    for flag, equals, words in flags:
        name = resolve(_field_name(flag), known)
        kind = known.get(name)
        taken = len(words) if kind is None or is_list(kind) or is_mapping(kind) else 1
        if kind is bool and not equals:
            taken = int(bool(words) and words[0].lower() in SWITCHES)
        # One value each time, so that run folders or the environment may follow.
        if flag in ("--import", "--config"):
            taken = min(len(words), 1)
        settings.append(Setting(name, Words(words[:taken]), flag))
        loose += words[taken:]
    by_place = _positionals(loose, known, positional)
    _check_once(by_place, settings)
    return [*by_place, *settings]


def _check_once(by_place: Sequence[Setting], settings: Sequence[Setting]) -> None:
    """UsageError if an option has one value by its place and another by its flag: one was meant otherwise."""
    for one, other in itertools.product(by_place, settings):
        if one.name == other.name and other.value and one.value != other.value:
            a, b = (" ".join(setting.value) for setting in (one, other))
            hint = "; a model is named by --model" if one.name == "env.id" else ""
            raise UsageError(f"{one.label} is {a}, and {other.label} is {b}: give one of them{hint}")


def resolve(name: str, known: Iterable[str]) -> str:
    """The option that a name stands for: the first meaning of an alias that is known, or its only one."""
    meanings = ALIASES.get(name, (name,))
    return next(
        (meaning for meaning in meanings if meaning in known), meanings[0] if len(meanings) == 1 else name
    )


def flag_of(name: str) -> str:
    """An option or an alias as a flag."""
    if name in SHORT:
        return f"-{name}"
    return f"--{name if name.startswith(KWARGS) else name.replace('_', '-')}"


def place_of(name: str) -> str:
    """A positional argument as usage lines call it: ENV of env.id."""
    return name.partition(".")[0].upper()


def _field_name(flag: str) -> str:
    """--ppo.gae-lambda -> ppo.gae_lambda; a single hyphen is for short aliases alone."""
    name = flag.removeprefix("--")
    if name.startswith("-"):
        return name[1:] if name[1:] in SHORT else name
    return name if name.startswith(KWARGS) else name.replace("-", "_")


def _positionals(words: Sequence[str], known: Mapping[str, Any], names: Sequence[str]) -> list[Setting]:
    """Words by their order; the last name takes all that are left if it is a list."""
    settings = [
        Setting(name, Words((word,)), place_of(name)) for name, word in zip(names, words, strict=False)
    ]
    extra = words[len(names) :]
    if extra and names and is_list(known[names[-1]]):
        last = settings[-1]
        return [*settings[:-1], last._replace(value=Words((*last.value, *extra)))]
    if extra:
        takes = " ".join(map(place_of, names)) or "nothing"
        raise UsageError(f"unexpected argument {extra[0]!r}: this command takes {takes}, and options")
    return settings


def is_number(text: str) -> bool:
    """Whether a word of the command line is a number, also where it begins with a hyphen."""
    try:
        float(text)
    except ValueError:
        return False
    return True


# Settings over settings, and over a config ----------------------------------------------------


def last(settings: Iterable[Setting], name: str) -> str | None:
    """The text that an option ends up with, if it is given."""
    given = [setting for setting in settings if setting.name == name]
    return value_of(given[-1], str) if given else None


def over(below: Iterable[Setting], above: Sequence[Setting]) -> list[Setting]:
    """Settings of a file, say, and others that win over them: also where they use another unit."""
    replaced = _replaced(above)
    return [setting for setting in below if setting.name not in replaced] + list(above)


def _replaced(settings: Iterable[Setting]) -> list[str]:
    """The options that these settings give in another unit, and do not set themselves."""
    given = {setting.name for setting in settings if not is_none(setting.value)}
    return [other for unit, other in UNITS if unit in given and other not in given]


def apply(config: T, settings: Iterable[Setting], others: Iterable[str] = ()) -> T:
    """A config with settings applied; --critic.width stands for --critic.memory.width.

    others  options of the command that are not of the config, for the error about an unknown one
    """
    known = types_in(config)
    settings = [setting._replace(name=long_name(setting.name, known)) for setting in settings]
    # The preset's value in the other unit would otherwise remain, and end the run early or contradict this
    # one.
    settings += [Setting(name, None, name) for name in _replaced(settings) if name in known]
    values = values_in(config)
    changes: dict[str, Any] = {}
    for setting in settings:
        name = setting.name
        parent, _, key = name.rpartition(".")
        if name in known:
            changes[name] = value_of(setting, known[name])
        elif is_mapping(known.get(parent)):
            kind = get_args(known[parent])[1]
            changes[parent] = {**changes.get(parent, values[parent]), key: value_of(setting, kind)}
        else:
            # Of the class too: it has the options that name the memories and encoders.
            raise unknown(setting, {*known, *options_of(type(config)), *others})
    return _changed(config, changes)


def unknown(setting: Setting, known: Iterable[str]) -> UsageError:
    """The error for an option that does not exist, with the nearest that do."""
    spell = flag_of if setting.label.startswith("-") else str
    known = set(known)
    branch, _, option = setting.name.partition(".")
    if f"{branch}.memory.name" in known and (having := _memories_with(option.removeprefix("memory."))):
        example = "gru" if "gru" in having else having[0]
        return UsageError(
            f"{setting.label} is an option of {', '.join(having)}, and the {branch} has another memory: name "
            f"one of these, as in --{branch} {example}"
        )
    names = {name.replace(".memory.", ".") for name in known if not name.endswith(".memory.name")}
    # An older spelling is not what an option of a part, as --ppo.num-epochs, was meant to be.
    hidden = OLDER if "." in setting.name else ()
    aliases = {alias for alias in ALIASES if alias not in hidden and resolve(alias, known) in known}
    guess = nearest(
        setting.label.rpartition(" ")[2], sorted({spell(name) for name in known | names | aliases})
    )
    return UsageError(f"unknown option {setting.label}; {guess}")


def _memories_with(option: str) -> list[str]:
    """The memories that have an option."""
    from ..memory import MemoryConfig  # here, because it needs torch, and only an error needs it

    return [name for name, kind in sorted(MemoryConfig.available().items()) if option in types_of(kind)]


def long_name(name: str, known: Mapping[str, Any]) -> str:
    """The name of an option; --critic.width stands for --critic.memory.width."""
    branch, _, option = name.partition(".")
    long = f"{branch}.memory.{option}"
    return long if name not in known and long in known else name


def _changed(config: Any, changes: Mapping[str, Any], prefix: str = "") -> Any:
    """A config with values by dotted names; parts that nothing changes stay the same objects."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        name, part = prefix + field.name, getattr(config, field.name)
        if name in changes:
            values[field.name] = changes[name]
        elif dataclasses.is_dataclass(part) and any(key.startswith(f"{name}.") for key in changes):
            values[field.name] = _changed(part, changes, f"{name}.")
    # At once, so that __post_init__ checks the changes of a part together: one alone may be invalid.
    return dataclasses.replace(config, **values) if values else config
