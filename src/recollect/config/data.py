"""Configs as plain data and back: YAML files, the JSON of checkpoints, and the hash of a run."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml

from ..common.errors import UsageError
from ..common.named import NamedConfig
from ..common.option_values import BOOLEANS, Setting, YamlWord
from ..common.output_paths import write_whole_text
from ..common.yaml_text import Loader, dump_yaml, load_yaml
from .config import RunConfig
from .flags import KWARGS

# Fields that earlier versions lacked, with their defaults. At these they are not in the hash of a run: a
# comparison would repeat runs of earlier versions instead of finding them.
LATER: dict[str, Any] = {
    "amp": None,
    "compile": False,
    "cuda_graphs": False,
    "kernels": "auto",
    "env.action_mask": False,
    "env.on_error": None,
    "env.step_timeout": None,
    "env.hidden": False,
    "env.agent_id": False,
    "env.self_play": 0,
    "env.trial": 1,
    "init": {"path": None, "parts": [], "critic_rollouts": 0},
    "actor.sees": [],
    "critic.sees": [],
    "actor.predict": [],
    "critic.predict": [],
    "actor.value": "scalar",
    "critic.value": "scalar",
    "actor.encoder.shrink": 1,
    "critic.encoder.shrink": 1,
    "ppo.predict_coef": 0.1,
    "ppo.rnd_coef": 0.0,
    "ppo.desired_kl": None,
    "ppo.target_entropy": None,
}


def to_dict(value: Any) -> Any:
    """A config as dicts, lists and scalars; a memory or an encoder includes its name."""
    if isinstance(value, NamedConfig):
        return {"name": value.found_as(), **_fields(value)}
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}


def config_hash(config: RunConfig) -> str:
    """The identity of a run: a hash of its whole resolved config."""
    # The number of cores is in it as well (env.threads), unless it is set, as comparisons do.
    fields = to_dict(config)
    for name, default in LATER.items():
        *groups, option = name.split(".")
        group = reduce(getitem, groups, fields)
        # Not every encoder has those of another.
        if option in group and group[option] == default:
            del group[option]
    if fields["device"] == "auto":
        fields["device"] = "cpu"  # the default, and the only device, of earlier versions
    for branch in (fields["actor"], fields["critic"]):
        # Earlier versions had these encoders alone, as two options.
        if branch["encoder"]["name"] in ("nature", "residual"):
            encoder = branch.pop("encoder")
            branch["pictures"] = encoder.pop("name")
            branch |= {f"picture_{option}": value for option, value in encoder.items()}
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_yaml(config: RunConfig, path: Path) -> None:
    """The config as a file that --config reads."""
    write_whole_text(path, dump_yaml(to_dict(config)))


class _Loader(Loader):
    """YAML 1.1 reads yes, no, on and off as booleans, also where an option takes the word."""


def _boolean(loader: _Loader, node: yaml.ScalarNode) -> bool | YamlWord:
    word = str(loader.construct_scalar(node))
    return BOOLEANS[word.lower()] if word.lower() in BOOLEANS else YamlWord(word)


_Loader.add_constructor("tag:yaml.org,2002:bool", _boolean)


def read_yaml(path: Path) -> dict[str, Any]:
    """A config file as nested dicts."""
    try:
        data = load_yaml(path.read_text(encoding="utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        context = f" ({error.context})" if error.context else ""
        raise UsageError(f"config file {path}: {where}{error.problem}{context}") from error
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"config file {path}: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict):
        raise UsageError(f"config file {path} holds no options")
    return data


def settings_in(data: Mapping[str, Any], source: str, prefix: str = "") -> list[Setting]:
    """Nested data as settings; names may be nested, dotted, or both.

    source  the file, or whatever else errors should name
    """
    settings: list[Setting] = []
    for key, value in data.items():
        name = f"{prefix}{key}"
        name = name if name.startswith(KWARGS) else name.replace("-", "_")
        if isinstance(value, Mapping):
            settings += settings_in(value, source, f"{name}.")
        else:
            settings.append(Setting(name, value, f"{source}: {name}"))
    return settings
