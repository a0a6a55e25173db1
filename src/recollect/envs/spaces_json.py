"""The specs of spaces as data for JSON, as saved agents and recordings have them."""

from dataclasses import asdict
from typing import Any

from .spaces import ActionSpec, Leaf, ObsSpec


def spaces_to_json(obs: ObsSpec, action: ActionSpec) -> dict[str, Any]:
    """Both specs as data for JSON; inverse of spaces_from_json."""
    return {
        "obs": {name: asdict(leaf) for name, leaf in obs.leaves.items()},
        "order": list(obs.leaves),  # of the input features; files sort the keys of a dict
        "mask": list(obs.mask),
        "action": asdict(action),
    }


def spaces_from_json(data: dict[str, Any]) -> tuple[ObsSpec, ActionSpec]:
    """The specs of spaces_to_json."""

    def tuples(entry: dict[str, Any]) -> dict[str, Any]:
        return {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}

    # Files of earlier versions have no order; they kept that of the names.
    leaves = {name: Leaf(**tuples(data["obs"][name])) for name in data.get("order", data["obs"])}
    return ObsSpec(leaves, tuple(data["mask"])), ActionSpec(**tuples(data["action"]))
