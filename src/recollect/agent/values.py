"""Value heads: the features of a critic to values, and the loss of their outputs.

    scalar    V = y                                  squared error of y
    symlog    V = symexp(y)                          squared error of y and symlog(target)
    hl-gauss  V = symexp(mean of a histogram)        cross-entropy of the histogram softmax(y)
    popart    V = s y + m                            squared error of y and (target - m) / s

m and s are the running mean and standard deviation of the value targets.

The algorithms take values and losses from a head and do not know its kind.

Shapes.  L steps, B sequences, F features, K bins.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from .nets import linear
from .normalize import merge, moments

ValueKind: TypeAlias = Literal["scalar", "symlog", "hl-gauss", "popart"]
BINS = 255  # K
LARGEST = 20.0  # centre of the last bin in symlog space, as in DreamerV3: a value of 5e8
WIDTH = 2 * LARGEST / (BINS - 1)  # of a bin, in symlog space
SPREAD = 0.75  # standard deviation of a smeared target, in widths of a bin
DECAY = 0.95  # of the weight of earlier rollouts in the statistics of value targets, per rollout
SMALLEST = 1e-4  # s, as in the paper: a constant target has a deviation of 0


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): about x near 0, logarithmic far from it (Hafner et al., 2023)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


def value_loss(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """(V - target)^2, per step; with `clip` at least that of a value within `clip` of the old one."""
    loss = (value - target).square()
    if clip is None:
        return loss
    clipped = old + (value - old).clamp(-clip, clip)
    return torch.maximum(loss, (clipped - target).square())


class ValueHead(nn.Module, ABC):
    """Features -> V; by default with the squared error of its output and an encoded target.

    resolution  below which values near 0 differ by rounding, however close to each other they are
    """

    resolution = 1e-12

    def __init__(self, in_dim: int, out_dim: int = 1, gain: float = 1.0) -> None:
        super().__init__()
        self.out = linear(in_dim, out_dim, gain)

    def forward(self, x: Tensor) -> Tensor:
        """(L, B, F) -> V (L, B)."""
        return self.decode(self.raw(x))

    def raw(self, x: Tensor) -> Tensor:
        """(L, B, F) -> y: (L, B), or (L, B, K) with bins."""
        return self.out(x)[..., 0]

    @abstractmethod
    def decode(self, raw: Tensor) -> Tensor:
        """Outputs -> values (L, B)."""

    @abstractmethod
    def encode(self, values: Tensor) -> Tensor:
        """Values (L, B) -> the outputs that mean them; with bins, the histograms (L, B, K)."""

    def loss(self, raw: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
        """The loss (L, B) of outputs; old values, targets and `clip` as in value_loss."""
        return value_loss(raw, self.encode(old), self.encode(target), clip)

    def loss_unit(self, unit: float) -> float:
        """The factor from a loss to the metric value_loss, where values are in units of `unit`."""
        return 1.0

    def follow(self, targets: Tensor, values: Tensor) -> tuple[Tensor, float]:
        """Adapt to the value targets (n,) of a rollout, before its first gradient step.

        Returns the values of the rollout as they are then, and the factor by which the gradients of the
        output layer are scaled.
        """
        return values, 1.0


class ScalarHead(ValueHead):
    """V is the output."""

    def decode(self, raw: Tensor) -> Tensor:
        return raw

    def encode(self, values: Tensor) -> Tensor:
        return values

    def loss_unit(self, unit: float) -> float:
        return unit**2


class SymlogHead(ValueHead):
    """The output is V in symlog space, so an error of large values counts by its share of them."""

    def decode(self, raw: Tensor) -> Tensor:
        return symexp(raw)

    def encode(self, values: Tensor) -> Tensor:
        return symlog(values)


class HistogramHead(ValueHead):
    """HL-Gauss (Farebrother et al., 2024): a histogram over bins of equal width in symlog space.

    The histogram of a target is a normal distribution around it, cut to the bins. Its mean is the target, up
    to 5e-6 of the width of a bin and rounding, except in the outermost bins.
    """

    # A hundredth of a bin. Logits have rounding errors of 1e-7 of their size, also where V is 0.
    resolution = 0.01 * WIDTH
    centers: Tensor
    edges: Tensor

    def __init__(self, in_dim: int) -> None:
        # A small gain: the first histogram is nearly uniform, so the first values are near 0.
        super().__init__(in_dim, BINS, gain=0.01)
        places = torch.arange(BINS + 1) - BINS / 2
        # Constants, which no file has to contain.
        self.register_buffer("edges", places * WIDTH, persistent=False)
        self.register_buffer("centers", (places[:-1] + 0.5) * WIDTH, persistent=False)

    def raw(self, x: Tensor) -> Tensor:
        return self.out(x)

    def decode(self, raw: Tensor) -> Tensor:
        p = raw.softmax(-1)
        # The mean of symmetric bins by differences: exactly 0 for a uniform histogram, not 0 up to rounding.
        return symexp(((p - p.flip(-1)) * self.centers).sum(-1) / 2)

    def encode(self, values: Tensor) -> Tensor:
        mean = symlog(values).clamp(-LARGEST, LARGEST)[..., None]
        below = torch.erf((self.edges - mean) / (math.sqrt(2) * SPREAD * WIDTH))
        return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])

    def loss(self, raw: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
        # RunConfig refuses `clip`: a histogram is not a number near the old one.
        return -(self.encode(target) * raw.log_softmax(-1)).sum(-1)


class PopArtHead(ValueHead):
    """PopArt (van Hasselt et al., 2016): values normalised by the statistics of the value targets.

    When the statistics change, the output layer is rewritten so that V is the same function as before. The
    first statistics change V: the outputs of initial weights are kept, as normalised values.
    """

    def __init__(self, in_dim: int) -> None:
        super().__init__(in_dim)
        self.targets = TargetStatistics()

    def decode(self, raw: Tensor) -> Tensor:
        return raw * self.targets.scale + self.targets.shift

    def encode(self, values: Tensor) -> Tensor:
        return (values - self.targets.shift) / self.targets.scale

    def loss_unit(self, unit: float) -> float:
        return (unit * self.targets.scale) ** 2

    @torch.no_grad()
    def follow(self, targets: Tensor, values: Tensor) -> tuple[Tensor, float]:
        is_first, scale, shift = not self.targets.count, self.targets.scale, self.targets.shift
        self.targets.update(targets)
        if is_first:
            # Initial values are arbitrary and near 0. Far from the mean of large targets they would be
            # learned late, and the rounding of s y + m would be larger than their spread.
            return self.decode(values), 1.0
        now, shift_now = self.targets.scale, self.targets.shift
        # In place, because the weights are views of the optimiser's vector.
        self.out.weight.mul_(scale / now)
        self.out.bias.mul_(scale).add_(shift - shift_now).div_(now)
        return values, scale / now


class TargetStatistics(nn.Module):
    """Mean and variance of the value targets of all rollouts, of which older ones count less.

    A weighted mean over steps: the first rollout counts fully, and no initial value is in it.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "var", "count"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TargetStatistics":
        """Stay in the memory of the CPU, where targets are computed, and in float64."""
        return self

    @property
    def scale(self) -> float:
        """s; 1 before the first rollout."""
        return max(math.sqrt(self.var), SMALLEST) if self.count else 1.0

    @property
    def shift(self) -> float:
        """m; 0 before the first rollout."""
        return float(self.mean)

    def update(self, targets: Tensor) -> None:
        """Add the targets (n,) of a rollout."""
        count = torch.tensor(len(targets))
        self.count.mul_(DECAY)
        merge(self.mean, self.var, self.count, count, moments(targets.double()))
        self.count.add_(count)


HEADS: dict[ValueKind, type[ScalarHead | SymlogHead | HistogramHead | PopArtHead]] = {
    "scalar": ScalarHead,
    "symlog": SymlogHead,
    "hl-gauss": HistogramHead,
    "popart": PopArtHead,
}


class CriticOutput(NamedTuple):
    """The outputs of a value head over chunks, for a loss."""

    raw: Tensor  # (L, B) or (L, B, K)
    head: ValueHead

    @property
    def values(self) -> Tensor:
        """V (L, B)."""
        return self.head.decode(self.raw)

    def loss(self, old: Tensor, target: Tensor, clip: float | None = None) -> Tensor:
        """The loss (L, B), from old values and targets (L, B)."""
        return self.head.loss(self.raw, old, target, clip)
