"""Encoders of pictures; equal pictures are encoded once.

Shapes.  T steps, B environments, n pictures, F features.
"""

import math
from typing import Literal, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_exporting

from ..common.errors import UsageError
from ..envs.spaces import Leaf

Pictures: TypeAlias = Literal["nature", "residual"]
Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


class ImageEncoder(nn.Module):
    """Pictures (T, B, ...) of bytes -> features (T, B, F).

    Grid worlds show the same picture many times. Each distinct picture is encoded once and its features
    are copied: the same numbers for a fraction of the work.
    """

    def __init__(self, leaf: Leaf, kind: Pictures, features: int | None = None) -> None:
        super().__init__()
        self.leaf = leaf
        channels, height, width = leaf.picture_shape
        self.net = nature(channels) if kind == "nature" else residual(channels)
        with torch.no_grad():
            try:
                self.out_dim = self.net(torch.zeros(1, channels, height, width)).shape[1]
            except RuntimeError as error:
                raise UsageError(f"pictures of {height} x {width} are too small for {kind} layers") from error
        if features is not None:
            self.net.extend([_orthogonal(nn.Linear(self.out_dim, features)), nn.ReLU()])
            self.out_dim = features

    def forward(self, x: Tensor, float_type: torch.dtype) -> Tensor:
        """(T, B, *shape) uint8 -> (T, B, F)."""
        pictures, place = distinct(x.flatten(0, 1))
        if pictures.ndim > 3 and self.leaf.channels_last:
            pictures = pictures.movedim(-1, -3)
        pictures = pictures.reshape(len(pictures), *self.leaf.picture_shape)
        features = self.net(pictures.to(float_type) / 255)
        return features[place].unflatten(0, x.shape[:2])


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Pictures (n, ...) of bytes -> the distinct ones (m, ...), and the index of each among them (n,).

    All of them count as distinct on a GPU, because the number of distinct ones is known only after waiting
    for it, and in an exported graph.
    """
    if not x.is_cpu or is_exporting():
        return x, torch.arange(len(x), device=x.device)
    flat = x.flatten(1)
    # Eight bytes as one number; zeros complete the last.
    words = F.pad(flat, (0, -flat.shape[1] % 8)).view(torch.int64)
    # A hash of the bytes: a sum of products with odd numbers. After a collision, all pictures are encoded.
    # The constant is 2^64 / golden ratio as a signed number. Overflow wraps around, as intended.
    weights = torch.arange(1, words.shape[1] + 1).mul_(-0x61C8864680B583EB).bitwise_or_(1)
    _, place = torch.unique((words * weights).sum(1), return_inverse=True)
    example = torch.empty(int(place.max()) + 1, dtype=torch.int64)
    # Which of several equal pictures is written last does not matter: each one can be the example.
    example[place] = torch.arange(len(x))
    if len(example) == len(x) or not torch.equal(flat[example[place]], flat):
        return x, torch.arange(len(x))
    return x[example], place


def nature(channels: int) -> nn.Sequential:
    """Three convolutions (Mnih et al., 2015): (n, channels, H, W) -> (n, F)."""
    parts: list[nn.Module] = []
    for out, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        parts += [_orthogonal(nn.Conv2d(channels, out, size, stride)), nn.ReLU()]
        channels = out
    return nn.Sequential(*parts, nn.Flatten())


class Residual(nn.Module):
    """x plus two convolutions of it; the second has a small gain, so that outputs do not grow with depth."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        gains = math.sqrt(2), 0.5
        convs = [_orthogonal(nn.Conv2d(channels, channels, 3, padding=1), gain) for gain in gains]
        self.net = nn.Sequential(nn.ReLU(), convs[0], nn.ReLU(), convs[1])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.net(x)


def residual(channels: int) -> nn.Sequential:
    """Three stages, each half the size, with two residual blocks (Espeholt et al., 2018)."""
    parts: list[nn.Module] = []
    for out in (16, 32, 32):
        parts += [_orthogonal(nn.Conv2d(channels, out, 3, padding=1), 1.0), nn.MaxPool2d(3, 2, 1)]
        parts += [Residual(out), Residual(out)]
        channels = out
    return nn.Sequential(*parts, nn.ReLU(), nn.Flatten())


def _orthogonal(layer: Layer, gain: float = math.sqrt(2)) -> Layer:
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
