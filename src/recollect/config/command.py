"""The options of a command, parsed from its arguments.

Each command is a frozen dataclass beside its code. Its docstring is the text of --help, the docstrings of
its fields describe the options, and class variables complete it:

    POSITIONAL  options that may be given without their flag, in this order
    BASIC       options that --help shows; --help-all shows the rest
    ELSEWHERE   options that it does not have, with what to do instead

A field `config` receives the config of one run, and a field `settings` the settings of several, from the
options of train that are not fields. A field `command` receives the command as it was typed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from ..common.errors import UsageError
from ..common.option_values import Setting, describe, is_literal, value_of
from .flags import FILLED_IN, flag_of, options_of, place_of, read_flags, resolve, unknown
from .help import descriptions, first_sentence, help_text

T = TypeVar("T")
REPEATABLE = ("imports",)  # of all other options the last one wins
HELP_FLAGS = {"-h", "--help", "--help-all"}


def parse(kind: type[T], arguments: Sequence[str], prog: str, options: Mapping[str, Any] | None = None) -> T:
    """The options of a command from its arguments; every mistake is a UsageError of one line.

    options  of a call in Python, which replace those among the arguments: as data, whose types words lack
    """
    hints, fields = get_type_hints(kind), options_of(kind)
    positional = getattr(kind, "POSITIONAL", ())
    known = {**_options_of_train(), **fields} if {"config", "settings"} & set(hints) else fields
    data = _data(options) if options else []
    names = {resolve(setting.name, known) for setting in data}
    words = read_flags(arguments, known, positional)
    settings = [*(setting for setting in words if setting.name not in names), *data]
    values: dict[str, Any] = {}
    if "config" in hints:
        needed = "env.id" in positional or getattr(kind, "NEEDS_ENVIRONMENT", False)
        if needed and not {"env.id", "config"} & {setting.name for setting in settings}:
            example = f"{prog} {'' if 'env.id' in positional else '... -e '}CartPole-v1"
            raise UsageError(f"{prog} needs an environment, as in: {example}{_swallowed(settings, known)}")
        # Late, because it imports torch; commands without a config start without it.
        from .assembly import check_effect, configure, with_file

        given, settings = settings, with_file(settings)
        config = configure((setting for setting in settings if setting.name not in fields), fields)
        check_effect(config, (one for one in given if one.name not in {*fields, "config"}))
        values["config"] = config
    rest = tuple(setting for setting in settings if setting.name not in fields)
    if "settings" in hints:
        values["settings"] = rest
    elif rest and "config" not in hints:
        if advice := getattr(kind, "ELSEWHERE", {}).get(rest[0].name):
            raise UsageError(f"{rest[0].label}: {advice}")
        raise unknown(rest[0], known)
    if "command" in hints:
        values["command"] = (*prog.split(), *arguments)
    values |= _values([setting for setting in settings if setting.name in fields], fields)
    _check_complete(kind, values, positional, prog)
    return kind(**values)


def _data(options: Mapping[str, Any]) -> list[Setting]:
    from .data import settings_in  # here, because it needs torch, and reports do not

    return settings_in(options, "options")


def _swallowed(settings: Sequence[Setting], known: Mapping[str, Any]) -> str:
    """What to say of words that an option took which may have been meant as the environment."""
    taken = [one for one in settings if one.name not in known and len(one.value) > 1]
    return "".join(
        f"; {' '.join(one.value)} was read as the value of {one.label}: name the environment before it"
        for one in taken[:1]
    )


def _options_of_train() -> dict[str, Any]:
    from .assembly import OPTIONS  # here, because it needs torch, and reports do not

    return OPTIONS


def _values(settings: Sequence[Setting], fields: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        value = value_of(setting, fields[setting.name])
        values[setting.name] = values.get(setting.name, ()) + value if setting.name in REPEATABLE else value
    return values


def _check_complete(kind: type, values: dict[str, Any], positional: Sequence[str], prog: str) -> None:
    for field in dataclasses.fields(kind):
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            name = place_of(field.name) if field.name in positional else flag_of(field.name)
            accepted = get_type_hints(kind)[field.name]
            about = first_sentence(descriptions(kind)[field.name])
            about = f": {describe(accepted)}" if is_literal(accepted) else f", {about[0].lower()}{about[1:]}"
            raise UsageError(f"{prog} needs {name}{about}; see {prog} --help")


def help_of(kind: type, arguments: Sequence[str], prog: str) -> str:
    """The help of a command; defaults are those of the environment and the model in the arguments.

    Other arguments that cannot be used are ignored, with a line why: help is most needed beside a mistake.
    """
    config, ignored = None, ""
    if {"config", "settings"} & set(get_type_hints(kind)):
        try:
            config = _config_of([word for word in arguments if word not in HELP_FLAGS], kind)
        except UsageError as error:
            config, ignored = _config_of((), kind), f"\nThe other arguments are ignored: {error}\n"
    return help_text(kind, prog, config, "--help-all" in arguments) + ignored


def _config_of(words: Sequence[str], kind: type) -> Any:
    """The config of one run of a command, as far as its arguments give it."""
    from .assembly import configure

    fields = options_of(kind)
    settings = read_flags(words, {**_options_of_train(), **fields}, getattr(kind, "POSITIONAL", ()))
    return configure(
        setting for setting in settings if setting.name not in {*fields, *FILLED_IN} - {"config"}
    )
