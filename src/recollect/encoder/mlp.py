"""Every observation as numbers, for the layers of `hidden`: pictures without convolutions."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..envs.spaces import Leaf, ObsSpec
from . import Encoder, EncoderConfig
from .gallery import Shown
from .leaves import Concatenation


@dataclass(frozen=True, kw_only=True)
class MlpEncoderConfig(EncoderConfig):
    """No convolutions: the pixels of a picture are inputs of the layers `hidden`, as vectors are."""

    name: ClassVar[str] = "mlp"

    def build(self, obs: ObsSpec) -> Encoder:
        return Concatenation(obs, Pixels)


class Pixels(nn.Module):
    """Pictures (T, B, ...) of bytes -> numbers (T, B, F) in [0, 1]."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.out_dim = leaf.width

    def forward(self, x: Tensor | Shown, dtype: torch.dtype) -> Tensor:
        if isinstance(x, Shown):
            return x.features(lambda pictures: pictures.flatten(1).to(dtype) / 255)
        return x.flatten(2).to(dtype) / 255
