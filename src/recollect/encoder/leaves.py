"""Leaves of an observation as features: numbers as they are, categories as one-hot codes, side by side."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from ..envs.spaces import Leaf, ObsSpec
from . import Encoder
from .gallery import Shown


class Concatenation(Encoder):
    """The features of all leaves side by side, in the order of the observation space."""

    takes_shown = True

    def __init__(self, obs: ObsSpec, picture: Callable[[Leaf], nn.Module]) -> None:
        """picture  an encoder of one leaf of pictures, with an `out_dim`"""
        super().__init__()
        # Leading underscores: modules below have the names of leaves.
        self._leaves, self.out_dim = obs.leaves, 0
        for name, leaf in obs.leaves.items():
            if leaf.kind == "picture":
                encoder = picture(leaf)
                self.add_module(module_name(name), encoder)
                self.out_dim += int(encoder.out_dim)  # type: ignore[arg-type]
            else:
                self.out_dim += leaf.width

    def forward(self, obs: Mapping[str, Tensor | Shown], dtype: torch.dtype) -> Tensor:
        """Leaves (T, B, ...) -> (T, B, out_dim)."""
        # This order of features is that of the input weights, so saved agents depend on it.
        parts = [self._encode(name, leaf, obs[name], dtype) for name, leaf in self._leaves.items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _encode(self, name: str, leaf: Leaf, x: Tensor | Shown, dtype: torch.dtype) -> Tensor:
        if leaf.kind == "picture":
            features: Tensor = self.get_submodule(module_name(name))(x, dtype)
            return features
        return numbers(leaf, x, dtype)


def module_name(leaf: str) -> str:
    """The name of the module of a leaf: names of modules must not contain dots."""
    return leaf.replace(".", "/")


def numbers(leaf: Leaf, x: Tensor | Shown, dtype: torch.dtype) -> Tensor:
    """One leaf that is no picture (T, B, ...) -> (T, B, width): one-hot codes of categories, else itself."""
    assert isinstance(x, Tensor)
    if leaf.kind == "discrete":
        return one_hot(x, leaf.sizes, dtype)
    return x.reshape(*x.shape[:2], -1).to(dtype)


def one_hot(x: Tensor, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Groups of choices (T, B, K) -> (T, B, sum of sizes)."""
    hot = x.new_zeros(*x.shape[:-1], sum(sizes), dtype=dtype)
    return hot.scatter_(-1, x.long() + _starts(tuple(sizes), x.device), 1.0)


@cache
def _starts(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Offset of each group; cached, because acting needs it at every step."""
    return torch.tensor([0, *itertools.accumulate(sizes[:-1])], device=device)
