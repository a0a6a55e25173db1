"""Observations of several kinds: each leaf by a network of its own kind, to the same width."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..envs.spaces import ObsSpec
from . import Encoder, EncoderConfig
from .gallery import Shown
from .leaves import numbers
from .pictures import PictureEncoder, orthogonal
from .residual import residual


@dataclass(frozen=True, kw_only=True)
class MixedConfig(EncoderConfig):
    """For Dict observations: each entry to the same width, pictures by a residual network, vectors by a
    layer, categories by an embedding; side by side.

    So no entry has more weight in the next layer because it has more numbers.
    """

    name: ClassVar[str] = "mixed"
    width: int = 64
    """Features of each entry of the observation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("width")

    def build(self, obs: ObsSpec) -> Encoder:
        return Mixed(obs, self.width)


class Mixed(Encoder):
    """The features of all leaves side by side, `width` of each."""

    takes_shown = True

    def __init__(self, obs: ObsSpec, width: int) -> None:
        super().__init__()
        self.leaves, self.out_dim = obs.leaves, width * len(obs.leaves)
        self.nets = nn.ModuleList(
            PictureEncoder(leaf, residual, width)
            if leaf.kind == "picture"
            # A product with one-hot codes is a table of embeddings.
            else nn.Sequential(orthogonal(nn.Linear(leaf.width, width)), nn.ReLU())
            for leaf in obs.leaves.values()
        )

    def forward(self, obs: Mapping[str, Tensor | Shown], dtype: torch.dtype) -> Tensor:
        """Leaves (T, B, ...) -> (T, B, out_dim)."""
        parts = [
            net(obs[name], dtype) if leaf.kind == "picture" else net(numbers(leaf, obs[name], dtype))
            for (name, leaf), net in zip(self.leaves.items(), self.nets, strict=True)
        ]
        return torch.cat(parts, -1)
