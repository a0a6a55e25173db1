"""Pictures as features; equal pictures are encoded once.

Shapes.  T steps, B environments, n pictures, F features.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_exporting

from ..common.errors import UsageError
from ..envs.spaces import Leaf
from .gallery import Shown

# Without gradients, pictures are encoded in parts of this size on a CPU: their intermediate results stay in
# its cache, which takes a third of the time of 2,048 pictures of 96 x 96 at once.
PART = 256

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


class PictureEncoder(nn.Module):
    """Pictures (T, B, ...) of bytes -> features (T, B, F).

    Grid worlds show the same picture many times. Each distinct picture is encoded once and its features
    are copied: the same numbers for a fraction of the work.
    """

    def __init__(
        self,
        leaf: Leaf,
        layers: Callable[[int], nn.Sequential],
        features: int | None = None,
        shrink: int = 1,
    ) -> None:
        """layers    from the number of channels to layers (n, channels, H, W) -> (n, F)
        features  width of a layer after them; None: no such layer
        shrink    side of the squares of pixels that are replaced by their mean before the layers
        """
        super().__init__()
        self.leaf = leaf
        channels, height, width = leaf.picture_shape
        self.net = layers(channels)
        self.shrink = shrink
        with torch.no_grad():
            try:
                example = torch.zeros(1, channels, height, width, dtype=torch.uint8)
                self.out_dim = self._features(example, torch.float32).shape[1]
            except RuntimeError as error:
                shrunk = f", shrunk {shrink} times," if shrink > 1 else ""
                raise UsageError(
                    f"pictures of {height} x {width}{shrunk} are too small for {layers.__name__} layers"
                ) from error
        if features is not None:
            self.net.extend([orthogonal(nn.Linear(self.out_dim, features)), nn.ReLU()])
            self.out_dim = features

    def forward(self, x: Tensor | Shown, float_type: torch.dtype) -> Tensor:
        """(T, B, *shape) uint8 -> (T, B, F)."""
        if isinstance(x, Shown):
            return x.features(lambda pictures: self._encode(pictures, float_type))
        pictures, place = distinct(x.flatten(0, 1))
        return self._encode(pictures, float_type)[place].unflatten(0, x.shape[:2])

    def _encode(self, pictures: Tensor, float_type: torch.dtype) -> Tensor:
        """(n, *shape) uint8 -> (n, F)."""
        if pictures.ndim > 3 and self.leaf.channels_last:
            pictures = pictures.movedim(-1, -3)
        # Not len(pictures), which an exported graph would have as a number.
        pictures = pictures.reshape(pictures.shape[0], *self.leaf.picture_shape)
        if torch.is_grad_enabled() or not pictures.is_cpu or is_exporting():
            return self._features(pictures, float_type)
        return torch.cat([self._features(part, float_type) for part in pictures.split(PART)])

    def _features(self, pictures: Tensor, float_type: torch.dtype) -> Tensor:
        """(n, channels, H, W) uint8 -> (n, F)."""
        sums = square_sums(pictures, self.shrink) if self.shrink > 1 else pictures
        features: Tensor = self.net(sums.to(float_type) / (255 * self.shrink**2))
        return features


def square_sums(pictures: Tensor, side: int) -> Tensor:
    """The sum of each square of pixels: (n, channels, H, W) uint8 -> (n, channels, H // side, W // side).

    As integers, which takes a third of the time of F.avg_pool2d: only the sums become floats.
    """
    height, width = (length // side * side for length in pictures.shape[-2:])
    rows = pictures[..., 0:height:side, :].to(torch.int32)
    for i in range(1, side):
        rows += pictures[..., i:height:side, :]
    sums = rows[..., 0:width:side].clone()
    for i in range(1, side):
        sums += rows[..., i:width:side]
    return sums


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Pictures (n, ...) of bytes -> the distinct ones (m, ...), and the index of each among them (n,).

    All of them count as distinct on a GPU, because the number of distinct ones is known only after waiting
    for it, and in an exported graph.
    """
    if not x.is_cpu or is_exporting():
        return x, torch.arange(x.shape[0], device=x.device)
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


def orthogonal(layer: Layer, gain: float = math.sqrt(2)) -> Layer:
    """The layer with orthogonal weights and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
