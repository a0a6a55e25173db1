"""A RunConfig from settings: flags over a config file over the preset that they name."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ..agent.agent import BranchConfig
from ..common.errors import UsageError
from ..common.named import NamedConfig
from ..common.option_values import Setting, Words, value_of
from ..encoder import EncoderConfig
from ..envs import is_third_party
from ..memory import MemoryConfig
from ..memory.mlp import MlpConfig
from . import recurrent_ppo
from .config import RunConfig
from .data import read_yaml, settings_in
from .flags import RENAMED, apply, last, long_name, options_of, over, read_flags, resolve, values_in
from .presets import preset

OPTIONS = options_of(RunConfig)
# The parts of an agent that are chosen by name.
PARTS: dict[str, type[NamedConfig]] = {
    "actor.memory.name": MemoryConfig,
    "critic.memory.name": MemoryConfig,
    "actor.encoder.name": EncoderConfig,
    "critic.encoder.name": EncoderConfig,
}
# Options of a critic that are those of its head.
OF_SHARED = {
    f"critic.{name}" for name in ("memory.name", "shared", "value", "head_hidden", "activation", "init")
}


def assemble(arguments: Sequence[str]) -> RunConfig:
    """The config of a run from flags of the command line."""
    return configure(read_flags(arguments, OPTIONS))


def configure(settings: Iterable[Setting], others: Iterable[str] = ()) -> RunConfig:
    """The config of a run from settings, over those of a --config file, over the preset they name.

    others  options of the command that are not of the config, for the error about an unknown one
    """
    settings = list(settings)
    _note_renamed(settings)
    settings = with_file([setting._replace(name=resolve(setting.name, OPTIONS)) for setting in settings])
    model, env_id = last(settings, "model") or "ppo", last(settings, "env.id") or "CartPole-v1"
    config = apply(*_with_parts(preset(model, env_id), settings), others)
    sets_minibatches = any(setting.name == "ppo.num_minibatches" for setting in settings)
    return config if sets_minibatches else _with_fewer_minibatches(config)


def check_effect(config: RunConfig, given: Iterable[Setting]) -> None:
    """Raise UsageError for an option that has no effect because of another one.

    given  what was written for this run alone; a file may list every option, and a study has options of
           several models
    """
    for setting in given:
        name = long_name(resolve(setting.name, OPTIONS), values_in(config))
        branch, _, option = name.partition(".")
        if branch == "critic" and config.critic.shared and name not in OF_SHARED:
            raise UsageError(
                f"{setting.label} has no effect on a shared critic, which takes the features of the actor: "
                f"set actor.{option.removeprefix('memory.')}, or give the critic a memory of its own"
            )
        if name == "critic.log_std":
            raise UsageError(f"{setting.label} has no effect: only an actor has actions; set actor.log_std")
        if config.env.trial > 1 and option in ("prev_action", "prev_reward") and not value_of(setting, bool):
            raise UsageError(
                f"{setting.label} is false, but trials always have the previous action and reward as inputs "
                "(env.trial)"
            )
        if name == "ppo.predict_coef" and not (config.actor.predict or config.critic.predict):
            raise UsageError(
                f"{setting.label} weighs predictions, and the agent makes none: give actor.predict or "
                "critic.predict"
            )


def _with_fewer_minibatches(config: RunConfig) -> RunConfig:
    """The config with at most as many minibatches as chunks: a preset may have more than a memory fills."""
    ppo, branches = config.ppo, (config.actor, config.critic)
    length = ppo.chunk_length(any(branch.memory.name != MlpConfig.name for branch in branches))
    chunks = config.env.num_envs * ppo.num_steps // max(length, 1)
    if ppo.num_minibatches is None or ppo.num_minibatches <= chunks or not chunks:
        return config
    return replace(config, ppo=replace(ppo, num_minibatches=chunks))


def with_file(settings: Sequence[Setting]) -> list[Setting]:
    """Settings over those of the --config file that is among them."""
    file = last(settings, "config")
    if file is None:
        return list(settings)
    path = Path(file)
    data = read_yaml(path)
    if recurrent_ppo.is_theirs(data):
        _announce(f"recollect: {path}: {recurrent_ppo.note(data)}")
        data = recurrent_ppo.translate(data)
    flags = [setting for setting in settings if setting.name != "config"]
    named = [name for setting in flags for name in _names(setting)]
    of_file = file_settings(data, str(path))
    check_imports(of_file, named, str(path))
    _check_model(of_file, flags, str(path))
    return over(of_file, flags)


def _check_model(of_file: Sequence[Setting], flags: Sequence[Setting], file: str) -> None:
    """Refuse a model beside a file with other memories: those of the file would win, under its name."""
    model = last(flags, "model")
    if model is None:
        return
    env = last(flags, "env.id") or last(of_file, "env.id") or "CartPole-v1"
    config = preset(model, env)
    for option, branch in (("actor.memory.name", config.actor), ("critic.memory.name", config.critic)):
        name = last(of_file, option)
        if name not in (None, "shared", branch.memory.found_as()) and last(flags, option) is None:
            raise UsageError(
                f"{file} sets {option} to {name}, and the model {model} has {branch.memory.name}: leave out "
                f"the model, or give --{option.split('.')[0]} as well, or take the memory out of the file"
            )


def _names(setting: Setting) -> Sequence[str]:
    """The names of environments, memories and encoders that a flag gives, which files may then import."""
    if setting.name not in ("imports", "env.id", *PARTS):
        return ()
    return setting.value if isinstance(setting.value, Words) else (str(setting.value),)


def _note_renamed(settings: Iterable[Setting]) -> None:
    """Say which names are those of earlier versions; saved configs are read without a word."""
    for setting in settings:
        if setting.name in RENAMED:
            _announce(f"recollect: {setting.label} is an old name, of {RENAMED[setting.name]}")


@cache
def _announce(text: str) -> None:
    """Print a line once: a comparison reads its file for every run."""
    print(text, file=sys.stderr)


def from_dict(
    data: Mapping[str, Any], imports: Sequence[str] = (), file: str = "config", elsewhere: bool = False
) -> RunConfig:
    """A config that was saved. A name that would import a module counts only if it is in `imports`.

    file       what errors name as the source
    elsewhere  the agent is for another environment, so that of the file is not made
    """
    settings = _in_order(settings_in(data, file))
    checked = [setting for setting in settings if not (elsewhere and setting.name == "env.id")]
    check_imports(checked, imports, "the file")
    # Not over the preset: a saved config is complete, and presets change between versions. An option that an
    # old file lacks gets the default of its class, which must therefore mean what old versions did.
    return apply(*_with_parts(RunConfig(), settings))


def check_imports(settings: Sequence[Setting], allowed: Sequence[str], source: str) -> None:
    """Raise UsageError for a name in a file that would import a module, unless it is allowed.

    So nothing that a stranger's file names is imported or run unless the user names it too.
    """
    refused: dict[str, list[str]] = {"-e": [], "--imports": []}
    for option in ("env.id", *PARTS):
        name = last(settings, option) or ""
        imports = is_third_party(name) if option == "env.id" else ":" in name
        if imports and name not in allowed:
            refused["-e" if option == "env.id" else "--imports"].append(name)
    if names := [name for kind in refused.values() for name in dict.fromkeys(kind)]:
        flags = " ".join(f"{flag} {' '.join(dict.fromkeys(kind))}" for flag, kind in refused.items() if kind)
        raise UsageError(f"{source} names {', '.join(names)}, which imports a module: allow it with {flags}")


def imported_names(config: RunConfig) -> dict[str, list[str]]:
    """The names of a config that import modules, by the option that allows a command to import them."""
    branches = (config.actor, config.critic)
    parts = dict.fromkeys(part.found_as() for b in branches for part in (b.memory, b.encoder))
    env = [config.env.id] if is_third_party(config.env.id) else []
    return {"-e": env, "--imports": [name for name in parts if ":" in name]}


def import_flags(config: RunConfig) -> str:
    """What a command about a run has behind its folder, so that it may import what the config names."""
    return "".join(f" {flag} {' '.join(names)}" for flag, names in imported_names(config).items() if names)


def file_settings(data: Mapping[str, Any], file: str) -> list[Setting]:
    """The settings of a file that a user wrote."""
    settings = settings_in(data, file)
    _note_renamed(settings)
    ordered = _in_order(settings)
    for setting in ordered:
        if setting.name == "imports":  # a study could allow a config file that it names
            raise UsageError(f"{setting.label}: only the command line allows a module to be imported")
    return ordered


def _in_order(settings: Iterable[Setting]) -> list[Setting]:
    """The settings of a file. It has no order, and naming a memory undoes `shared`, so names come first."""
    resolved = [setting._replace(name=resolve(setting.name, OPTIONS)) for setting in settings]
    return sorted(resolved, key=lambda setting: setting.name not in PARTS)


def _with_parts(config: RunConfig, settings: Iterable[Setting]) -> tuple[RunConfig, list[Setting]]:
    """The config with the memories and encoders that settings name; the others then set their fields.

    `--critic shared` names no memory of its own; naming one again undoes it. A file's settings of one
    part are dropped where a flag names another.
    """
    rest: list[Setting] = []
    names: dict[str, str] = {}
    for setting in settings:
        option = setting.name
        if option not in PARTS:
            rest.append(setting)
            continue
        chosen = _given_part(setting, PARTS[option])
        name = (last([setting], option) or "") if chosen is None else chosen.found_as()
        if names.setdefault(option, name) != name:
            # Options of the former part, which the new one may not have.
            rest = [other for other in rest if not other.name.startswith(option.removesuffix("name"))]
            names[option] = name
        shared = option == "critic.memory.name" and name == "shared"
        if option == "critic.memory.name":
            rest.append(Setting("critic.shared", shared, setting.label))
        if not shared:
            config = _with_part(config, option, chosen or PARTS[option].find(name)())
    return config, rest


def _given_part(setting: Setting, kind: type[NamedConfig]) -> NamedConfig | None:
    """The config of a part where Python gives one, or its class, instead of a name."""
    given = setting.value
    if isinstance(given, type) and issubclass(given, kind):
        given = given()
    return given if isinstance(given, kind) else None


def _with_part(config: RunConfig, option: str, chosen: NamedConfig) -> RunConfig:
    """The config with the memory or the encoder of a branch replaced."""
    side, part, _ = option.split(".")
    branch: BranchConfig = getattr(config, side)
    before = isinstance(chosen, MemoryConfig) and chosen.before_encoder
    changes: dict[str, Any] = {part: chosen, "residual": branch.residual and not before}
    changes = {side: replace(branch, **changes)}
    return replace(config, **changes)
