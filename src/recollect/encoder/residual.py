"""Pictures by a small residual network (Espeholt et al., 2018); other observations as they are."""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from ..envs.spaces import ObsSpec
from . import Encoder
from .leaves import Concatenation
from .nature import NatureConfig
from .pictures import PictureEncoder, orthogonal


@dataclass(frozen=True, kw_only=True)
class ResidualConfig(NatureConfig):
    """A residual network of 15 convolutions for pictures; other observations as they are."""

    name: ClassVar[str] = "residual"

    def build(self, obs: ObsSpec) -> Encoder:
        return Concatenation(obs, lambda leaf: PictureEncoder(leaf, residual, self.features, self.shrink))


class Residual(nn.Module):
    """x plus two convolutions of it; the second has a small gain, so that outputs do not grow with depth."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        gains = math.sqrt(2), 0.5
        convs = [orthogonal(nn.Conv2d(channels, channels, 3, padding=1), gain) for gain in gains]
        self.net = nn.Sequential(nn.ReLU(), convs[0], nn.ReLU(), convs[1])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.net(x)


def residual(channels: int) -> nn.Sequential:
    """Three stages, each half the size, with two residual blocks: (n, channels, H, W) -> (n, F)."""
    parts: list[nn.Module] = []
    for out in (16, 32, 32):
        parts += [orthogonal(nn.Conv2d(channels, out, 3, padding=1), 1.0), nn.MaxPool2d(3, 2, 1)]
        parts += [Residual(out), Residual(out)]
        channels = out
    return nn.Sequential(*parts, nn.ReLU(), nn.Flatten())
