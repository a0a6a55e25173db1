"""Tools for the rules of the contract: requirements with a fix, and comparisons of trees and modules."""

from typing import Any

import torch
from torch import Tensor, nn

from ..common import tree
from ..common.named import NamedConfig
from ..common.tree import Tree

TOLERANCE = 1e-10  # float64 rounds at 1e-16; sums in another order may differ, and little else


def require(condition: bool, rule: str, problem: str, fix: str) -> None:
    """Raise an AssertionError with the rule, the problem and its fix, unless the condition holds."""
    if not condition:
        raise AssertionError(f"contract, {rule}: {problem}. Fix: {fix}.")


def require_fields(config: NamedConfig) -> None:
    """The options of a config are fields of a dataclass: config.yaml and saved agents store fields."""
    kind = type(config)
    require(
        "__dataclass_fields__" in vars(kind),
        "options",
        f"{kind.__name__} is no dataclass, so its options would not be saved",
        "decorate it with @dataclass(frozen=True, kw_only=True)",
    )


def close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    return a.shape == b.shape and distance(a, b) <= tolerance * (1 + float(b.abs().max()))


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def equal(a: Tree, b: Tree) -> bool:
    """Whether two trees are equal bit for bit."""
    left, right = tree.leaves(a), tree.leaves(b)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def index(state: Tree, rows: Tensor) -> Tree:
    """The state of some rows of the batch."""
    return tree.map_leaves(lambda leaf: leaf[rows], state)


def structure(state: Any) -> Any:
    """A state with every tensor replaced by its dtype and its shape without the batch axis."""
    if isinstance(state, Tensor):
        return tuple(state.shape[1:]), str(state.dtype)
    if isinstance(state, dict):
        return {key: structure(value) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(structure(value) for value in state)
    return type(state).__name__


def contents(module: nn.Module) -> dict[str, Any]:
    """All attributes of a module and its submodules by name, with tensors copied."""
    attributes: dict[str, Any] = {}
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            attributes[f"{path}.{key}" if path else key] = _copy(value)
    return attributes


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(part) for part in value]
    return value


def same(a: Any, b: Any) -> bool:
    """Whether two copies of an attribute are equal; tensors bit for bit."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or bool(a == b)
