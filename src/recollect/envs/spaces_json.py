"""The specs of spaces as data for JSON, as saved agents and recordings have them."""

from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from .spaces import ActionSpec, Leaf, ObsSpec

Spaces: TypeAlias = tuple[ObsSpec, ActionSpec]

LARGEST = 2**63 - 1
DTYPES = ("float16", "float32", "float64")  # of actions


def spaces_to_json(obs: ObsSpec, action: ActionSpec) -> dict[str, Any]:
    """Both specs as data for JSON; inverse of spaces_from_json."""
    return {
        "obs": {name: asdict(leaf) for name, leaf in obs.leaves.items()},
        "order": list(obs.leaves),  # of the input features; files sort the keys of a dict
        "mask": list(obs.mask),
        "action": asdict(action),
    }


def spaces_from_json(data: Mapping[str, Any]) -> Spaces:
    """The specs of spaces_to_json; a ValueError of one line if the data is anything else."""
    try:
        # Files of earlier versions have no order; they kept that of the names.
        order = [str(name) for name in data.get("order", data["obs"])]
        _check(sorted(order) == sorted(data["obs"]), "order")
        leaves = {name: _spec(Leaf, data["obs"][name], name) for name in order}
        mask = _value(tuple[int, ...], data["mask"], "mask")
        action = _spec(ActionSpec, data["action"], "action")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its spaces are of another form: {error!r}") from error
    for name, leaf in leaves.items():
        _check_leaf(leaf, name)
    _check_action(action)
    entries = max((prod(leaf.shape) for leaf in leaves.values()), default=0)
    _check(all(0 <= index < entries for index in mask), "mask")
    return ObsSpec(leaves, mask), action


def _spec(kind: type[Any], entry: Mapping[str, Any], name: str) -> Any:
    """A spec of this class from its fields, each of which must have its type."""
    types = get_type_hints(kind)
    return kind(**{field: _value(types[field], value, f"{name}.{field}") for field, value in entry.items()})


def _value(kind: Any, value: Any, name: str) -> Any:
    """A value from JSON as one of this type."""
    if get_origin(kind) is tuple:
        _check(isinstance(value, list | tuple), name)
        return tuple(_value(get_args(kind)[0], item, name) for item in value)
    if get_origin(kind) is Literal:
        _check(value in get_args(kind), name)
    elif kind is str:
        _check(value in DTYPES, name)
    else:
        _check(type(value) in ((int,) if kind is int else (int, float)), name)
        _check(kind is float or -LARGEST <= value <= LARGEST, name)
    return value


def _check_leaf(leaf: Leaf, name: str) -> None:
    _check(all(size >= 0 for size in leaf.shape), f"{name}.shape")
    _check(leaf.kind != "picture" or 2 <= len(leaf.shape) <= 4, f"{name}.shape")
    if leaf.kind == "discrete":
        _check(len(leaf.sizes) == len(leaf.start) == prod(leaf.shape), f"{name}.sizes")
    _check(all(size > 0 for size in leaf.sizes), f"{name}.sizes")


def _check_action(action: ActionSpec) -> None:
    width = len(action.sizes)
    _check(all(size > 0 for size in action.sizes) and width > 0, "action.sizes")
    _check(all(size >= 0 for size in action.shape) and prod(action.shape) == width, "action.shape")
    if action.kind == "categorical":
        _check(len(action.start) == width, "action.start")
    else:
        _check(len(action.low) == len(action.high) == width, "action.low or action.high")


def _check(is_right: bool, place: str) -> None:
    if not is_right:
        raise ValueError(f"its spaces are not those of an agent: {place}")
