"""The formulas of PPO as pure functions. Every mean is weighted: tail rows have weight 0."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..common.errors import DisagreementError

LARGEST_ERROR = 1e-2  # of ratio_error and value_error; beyond it the run stops
ROUNDINGS = 5_000  # machine epsilons: the least spread that values are compared with
LARGEST_BF16_ERROR = 0.2  # the same with products in bfloat16, which has 8 bits


def mean(weight: Tensor, x: Tensor) -> Tensor:
    """The weighted mean; weights sum to 1."""
    return (weight * x).sum()


def variance(weight: Tensor, x: Tensor) -> Tensor:
    """The weighted variance."""
    return mean(weight, (x - mean(weight, x)).square())


def policy_loss(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """-min(r A, clip(r, 1 - e, 1 + e) A), per step."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def standardize(x: Tensor, weight: Tensor) -> Tensor:
    """Chunks (..., L, B) with mean 0 and deviation 1 by weights that sum to 1, over two steps or more."""
    average = (weight * x).sum((-2, -1), keepdim=True)
    centered = x - average
    deviation = (weight * centered.square()).sum((-2, -1), keepdim=True).sqrt()
    # That of equal values is the rounding error of their mean, and 1 would be made of it.
    return centered.masked_fill(deviation <= 1e-6 * average.abs(), 0.0) / (deviation + 1e-8)


def explained_variance(values: Tensor, target: Tensor, weight: Tensor) -> float:
    """1 - Var(target - V) / Var(target); 1: perfect, 0: no better than a constant."""
    return float(1 - variance(weight, target - values) / (variance(weight, target) + 1e-12))


class Losses(NamedTuple):
    """Means over the steps of a minibatch."""

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
    predictions: Mapping[str, Tensor] = {}  # losses of the prediction heads by their metrics


def agreement(
    ratio: Tensor,
    values: Tensor,
    acted: Tensor,
    valid: Tensor,
    bf16: bool = False,
    resolution: float = 1e-12,
) -> dict[str, float]:
    """ratio_error and value_error, before the first gradient step; a DisagreementError if one is too large.

    ratio       of new to old probabilities (L, B), 1 where acting and learning agree
    values      (L, B), equal to `acted`, those of the rollout, where they agree
    resolution  of values near 0 (ValueHead)
    """
    weight = valid / valid.sum().clamp(min=1)  # a rank may have no valid step in a minibatch
    # Relative to the spread of values. If they are nearly constant, 0.001 of their size is allowed for
    # instead, and `resolution` where all are 0. But a sum near 0 is rounded like its parts, whose size is
    # about 1: with this least spread, a run warns of five machine epsilons, and stops at fifty.
    rounding = ROUNDINGS * torch.finfo(acted.dtype).eps
    spread = (variance(weight, acted).sqrt() + 1e-3 * acted.abs().max() + resolution).clamp(min=rounding)
    largest = (ratio - 1).abs().max(), ((values - acted) * valid).abs().max() / spread
    # Both numbers at once: a GPU is waited for once per update here.
    errors = dict(zip(("ratio_error", "value_error"), torch.stack(largest).tolist(), strict=True))
    limit = LARGEST_BF16_ERROR if bf16 else LARGEST_ERROR
    for name, error in errors.items():
        # Not `>=`, because NaN must stop the run as well.
        if not error < limit:
            raise DisagreementError(
                f"acting and learning disagree: {name} is {error:.2g} before the first gradient step, "
                f"{limit} is allowed; recollect.testing.check_memory names the broken rule"
            )
    return errors
