"""The formulas of PPO as pure functions; every mean is weighted, so that tail rows count nothing."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..common.errors import DisagreementError

LARGEST_ERROR = 1e-2  # by which acting and learning may disagree


def mean(weight: Tensor, x: Tensor) -> Tensor:
    """The mean over valid rows, whose weights sum to 1."""
    return (weight * x).sum()


def variance(weight: Tensor, x: Tensor) -> Tensor:
    """The variance over valid rows."""
    return mean(weight, (x - mean(weight, x)).square())


def policy_loss(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """-min(r A, clip(r, 1 - e, 1 + e) A), per row."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def value_loss(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """(V - target)^2, per row; clipped, the worse of this and of a value within `clip` of the old."""
    loss = (value - target).square()
    if clip is None:
        return loss
    near = old + (value - old).clamp(-clip, clip)
    return torch.maximum(loss, (near - target).square())


def standardize(x: Tensor, weight: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over valid rows, whose weights sum to 1; unchanged below 2 of them."""
    if float(weight.max()) > 0.5:  # a single row has all the weight
        return x
    centered = x - mean(weight, x)
    return centered / (mean(weight, centered.square()).sqrt() + 1e-8)


def explained_variance(values: Tensor, target: Tensor, weight: Tensor) -> float:
    """1 - Var(target - V) / Var(target) over valid rows; 1 is perfect, 0 is a constant."""
    return float(1 - variance(weight, target - values) / (variance(weight, target) + 1e-12))


class Losses(NamedTuple):
    """Means over the valid rows of a minibatch."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clip_fraction: Tensor


class Loss(NamedTuple):
    """The loss of a minibatch, and what it was computed from."""

    total: Tensor  # minimised
    means: Losses
    ratio: Tensor  # (L, B) of new to old probabilities, without gradient
    values: Tensor  # (L, B) without gradient


def agreement(ratio: Tensor, values: Tensor, acted: Tensor, valid: Tensor) -> dict[str, float]:
    """Before the first gradient step, learning must compute what acting and valuing computed.

    ratio   of probabilities, which must be 1      values  which must be `acted`
    """
    weight = valid / valid.sum().clamp(min=1)  # none may be this process's own
    spread = variance(weight, acted).sqrt() + 1e-3 * acted.abs().max() + 1e-12
    errors = {
        "ratio_error": float((ratio - 1).abs().max()),
        "value_error": float(((values - acted) * valid).abs().max() / spread),
    }
    for name, error in errors.items():
        if not error < LARGEST_ERROR:
            raise DisagreementError(
                f"acting and learning disagree: {name} is {error:.2g} before the first gradient step, "
                f"{LARGEST_ERROR} is allowed; recollect.testing.check_memory tells which rule is broken"
            )
    return errors
