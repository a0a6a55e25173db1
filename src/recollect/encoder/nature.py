"""Pictures by three convolutions (Mnih et al., 2015); other observations as they are."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from ..envs.spaces import ObsSpec
from . import Encoder, EncoderConfig
from .leaves import Concatenation
from .pictures import PictureEncoder, orthogonal


@dataclass(frozen=True, kw_only=True)
class NatureConfig(EncoderConfig):
    """Three convolutions for pictures, of at least 36 pixels per side; other observations as they are."""

    name: ClassVar[str] = "nature"
    features: int | None = 256
    """Width of the layer after the convolutions; None: no such layer."""
    shrink: int = 1
    """Side of the squares of pixels that are replaced by their mean first; 2: a quarter of the pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("shrink")
        if self.features is not None:
            self.check_sizes("features")

    def build(self, obs: ObsSpec) -> Encoder:
        return Concatenation(obs, lambda leaf: PictureEncoder(leaf, nature, self.features, self.shrink))


def nature(channels: int) -> nn.Sequential:
    """Three convolutions: (n, channels, H, W) -> (n, F)."""
    parts: list[nn.Module] = []
    for out, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        parts += [orthogonal(nn.Conv2d(channels, out, size, stride)), nn.ReLU()]
        channels = out
    return nn.Sequential(*parts, nn.Flatten())
