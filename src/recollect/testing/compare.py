"""What the rules of the contract are made of: a demand with its mending, and comparisons."""

from typing import Any

import torch
from torch import Tensor, nn

from ..common import tree
from ..common.tree import Tree

TOLERANCE = 1e-10  # float64 rounds at 1e-16; a memory may add in another order, but not much more


def demand(holds: bool, rule: str, found: str, mend: str) -> None:
    if not holds:
        raise AssertionError(f"contract, {rule}: {found}. To mend it: {mend}.")


def close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    return a.shape == b.shape and distance(a, b) <= tolerance * (1 + float(b.abs().max()))


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def equal(a: Tree, b: Tree) -> bool:
    """Whether two trees are the same to the last bit."""
    left, right = tree.leaves(a), tree.leaves(b)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def index(state: Tree, rows: Tensor) -> Tree:
    return tree.map_leaves(lambda leaf: leaf[rows], state)


def structure(state: Any) -> Any:
    """A state with every tensor replaced by its shape behind the batch axis and its type."""
    if isinstance(state, Tensor):
        return tuple(state.shape[1:]), str(state.dtype)
    if isinstance(state, dict):
        return {key: structure(value) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(structure(value) for value in state)
    return type(state).__name__


def contents(module: nn.Module) -> dict[str, Any]:
    """Everything a module and its parts hold, by name; tensors copied."""
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            found[f"{path}.{key}" if path else key] = _copied(value)
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(part) for part in value]
    return value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or bool(a == b)
