"""The message that gives one run of a comparison to a worker process.

A Ray worker unpickles it before the process of the run exists, so nothing here may import torch: the
config travels as plain data, and only the process of the run makes a `RunConfig` of it.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from ..common.errors import UsageError

# The fields of RunRequest and ClusterRequest: to_json writes all of them, and _checked takes no others.
REQUEST_TYPES: dict[str, tuple[type, ...]] = {
    "config": (dict,),
    "folder": (str,),
    "episodes": (int,),
    "probe": (bool,),
    "cluster": (dict, NoneType),
}
CLUSTER_TYPES: dict[str, tuple[type, ...]] = {"task": (str,), "lock_folder": (str,), "versions": (dict,)}


@dataclass(frozen=True)
class ClusterRequest:
    """What a run on a cluster needs to know besides."""

    task: str
    """Identifies the Ray task. Processes that it starts one after another, on any machine, share it."""
    lock_folder: Path
    """Locked by the comparison for as long as it waits for the run."""
    versions: dict[str, str]
    """Of the libraries on the machine of the comparison; those of the worker must be equal."""


@dataclass(frozen=True)
class RunRequest:
    """One run: train it to the end or resume it, evaluate it, and probe its memory if asked to."""

    config: Mapping[str, Any]
    """The run's config as in config.yaml."""
    folder: Path
    episodes: int
    """Of the evaluation."""
    probe: bool = False
    cluster: ClusterRequest | None = None
    """None: the run is executed on the machine of the comparison, without Ray."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), default=os.fspath)

    @classmethod
    def from_json(cls, line: str) -> "RunRequest":
        """Read and check a line of `to_json`."""
        try:
            data = _checked(json.loads(line), REQUEST_TYPES)
            cluster = data["cluster"] and _checked(data["cluster"], CLUSTER_TYPES)
        except ValueError as error:
            raise UsageError(f"run request: {error}") from error
        if cluster is not None:
            cluster = ClusterRequest(cluster["task"], Path(cluster["lock_folder"]), cluster["versions"])
        return cls(data["config"], Path(data["folder"]), data["episodes"], data["probe"], cluster)


def _checked(data: Any, types: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The data, if it is an object with exactly these keys and a value of the right type for each."""
    if not isinstance(data, dict) or data.keys() != types.keys():
        raise UsageError(f"expected an object with the keys {', '.join(types)}, got {data!s:.200}")
    for name, kinds in types.items():
        if type(data[name]) not in kinds:  # isinstance would accept true as a number
            raise UsageError(f"{name} must be {kinds[0].__name__}, not {data[name]!r}")
    return data
