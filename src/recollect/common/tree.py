"""Trees: nested tuples and dicts of tensors, such as observations and memory states."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Tree: TypeAlias = "Tensor | tuple[Tree, ...] | dict[str, Tree]"


def map_leaves(fn: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """A tree of the same structure with fn applied to every tensor."""
    if isinstance(tree, Tensor):
        return fn(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(fn, value) for key, value in tree.items()}
    return tuple(map_leaves(fn, value) for value in tree)


def leaves(tree: Tree, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a tree by path: {"actor.0": ..., "actor.1": ...}."""
    if isinstance(tree, Tensor):
        return {prefix: tree}
    # These paths are the names of tensors in checkpoints: another format would make older files unreadable.
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    tensors: dict[str, Tensor] = {}
    for key, value in items:
        tensors |= leaves(value, f"{prefix}.{key}" if prefix else str(key))
    return tensors


def unflatten(tree: Tree, tensors: dict[str, Tensor], prefix: str = "") -> Tree:
    """A tree of the same structure with the tensors of these paths: the inverse of `leaves`."""
    if isinstance(tree, Tensor):
        return tensors[prefix].to(tree.device)
    path = f"{prefix}." if prefix else ""
    if isinstance(tree, dict):
        return {key: unflatten(value, tensors, f"{path}{key}") for key, value in tree.items()}
    return tuple(unflatten(value, tensors, f"{path}{i}") for i, value in enumerate(tree))


def stack(trees: list[Tree]) -> Tree:
    """A tree whose leaves are the leaves of many trees, stacked along a new first axis."""
    head = trees[0]
    if isinstance(head, Tensor):
        return torch.stack([t for t in trees if isinstance(t, Tensor)])
    if isinstance(head, dict):
        return {key: stack([t[key] for t in trees if isinstance(t, dict)]) for key in head}
    columns = zip(*(t for t in trees if isinstance(t, tuple)), strict=True)
    return tuple(stack(list(column)) for column in columns)
