"""Policies, which turn the outputs of an actor into actions, and the heads of actors.

Shapes.  T steps, B environments, K components of an action, P parameters of its distribution.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical as CategoricalDistribution
from torch.distributions import Distribution, Independent, Normal

from ..envs.spaces import ActionSpec
from .nets import linear

IMPOSSIBLE = -1e30  # logit of a choice that does not exist or is not allowed: its probability is exactly 0


def masked(params: Tensor, allowed: Tensor) -> Tensor:
    """Logits (..., P) -> the same, but -1e30 where a mask (..., P) is false: probability 0."""
    # Not minus infinity: the entropy would contain 0 times infinity, which is NaN.
    return params.masked_fill(~allowed, IMPOSSIBLE)


class Policy(ABC):
    """The distribution of actions given the P outputs of the actor's head. It has no weights.

    Written out rather than taken from torch.distributions, whose construction costs more than the
    arithmetic (215 us against 96 us for an action of 8 environments).
    """

    num_params: int  # P
    width: int  # K
    discrete: bool
    entropy_range: tuple[float, float]  # between a certain action and uniformly random ones, in nats

    @abstractmethod
    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Random numbers for `sample`, for actions of shape (*shape, K)."""

    @abstractmethod
    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """params (..., P), noise -> action (..., K)."""

    @abstractmethod
    def mode(self, params: Tensor) -> Tensor:
        """The most probable action (..., K)."""

    @abstractmethod
    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """log pi(action) and the entropy of pi, each summed over components: (...)."""

    @abstractmethod
    def distribution(self, params: Tensor) -> Distribution:
        """The distribution over actions (..., K), of which torch has the formulas; slow."""

    @abstractmethod
    def kl(self, old: Tensor, params: Tensor) -> Tensor:
        """KL(old, new) of two sets of parameters (..., P): (...)."""


class Categorical(Policy):
    """One choice out of each of `sizes`: Discrete, MultiDiscrete, MultiBinary."""

    discrete = True

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.width, self.num_params = sizes, len(sizes), sum(sizes)
        self.most = max(sizes)
        self.entropy_range = 0.0, sum(map(math.log, sizes))

    def _logits(self, params: Tensor) -> Tensor:
        """(..., P) -> (..., K, most); padding has a probability of 0."""
        if self.num_params == self.width * self.most:
            return params.unflatten(-1, (self.width, self.most))
        parts = params.split(self.sizes, -1)
        padded = [F.pad(p, (0, self.most - p.shape[-1]), value=IMPOSSIBLE) for p in parts]
        return torch.stack(padded, -2)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return rng.gumbel(size=(*shape, self.width, self.most))

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        # The Gumbel-max trick: a sample by noise that can be drawn before the logits are known, for all steps
        # and ranks at once.
        return (self._logits(params) + noise).argmax(-1)

    def mode(self, params: Tensor) -> Tensor:
        return self._logits(params).argmax(-1)

    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._logits(params).log_softmax(-1)
        chosen = log_probs.gather(-1, action.unsqueeze(-1)).sum((-1, -2))
        return chosen, -(log_probs * log_probs.exp()).sum((-1, -2))

    def distribution(self, params: Tensor) -> Distribution:
        return Independent(CategoricalDistribution(logits=self._logits(params)), 1)

    def kl(self, old: Tensor, params: Tensor) -> Tensor:
        before, now = (self._logits(x).log_softmax(-1) for x in (old, params))
        return (before.exp() * (before - now)).sum((-1, -2))


class Gaussian(Policy):
    """A real vector with independent normal components, in units of [-1, 1]."""

    discrete = False
    entropy_range = -math.inf, math.inf

    def __init__(self, width: int) -> None:
        self.width, self.num_params = width, 2 * width

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return rng.standard_normal((*shape, self.width))

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        return params[..., : self.width]

    def evaluate(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = params.chunk(2, -1)
        # Of the action as sampled: a rollout stores it unclipped (ActionSpec.to_env and to_prev_action clip).
        z = (action - mean) * (-log_std).exp()
        spread = log_std.sum(-1)
        constant = 0.5 * self.width * math.log(2 * math.pi)
        return -0.5 * z.square().sum(-1) - spread - constant, spread + constant + 0.5 * self.width

    def distribution(self, params: Tensor) -> Distribution:
        mean, log_std = params.chunk(2, -1)
        return Independent(Normal(mean, log_std.exp()), 1)

    def kl(self, old: Tensor, params: Tensor) -> Tensor:
        (mean, log_std), (now, now_log_std) = old.chunk(2, -1), params.chunk(2, -1)
        variance, now_variance = (2 * log_std).exp(), (2 * now_log_std).exp()
        distance = (variance + (mean - now).square()) / (2 * now_variance)
        return (now_log_std - log_std + distance - 0.5).sum(-1)


def make_policy(action: ActionSpec) -> Policy:
    """The policy of an action space."""
    return Categorical(action.sizes) if action.kind == "categorical" else Gaussian(action.width)


def compute_log_odds(params: Tensor, action: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """log(p / (1 - p)) of actions (B, C) with C components, from logits (B, sum of sizes): (B,).

    From logits, because a probability of 1 - 1e-12 rounds to 1 in 32 bits.
    """
    misses = params.new_zeros(len(params))  # -log p
    for logits, taken in zip(params.split(sizes, -1), action.long().unbind(-1), strict=True):
        others = logits.scatter(-1, taken[:, None], -torch.inf).logsumexp(-1)
        misses += F.softplus(others - logits.gather(-1, taken[:, None])[:, 0])
    misses = misses.clamp(min=torch.finfo(misses.dtype).tiny)  # with a single choice p is 1
    # expm1, because 1 - exp(-x) loses its digits where x is small, as for a nearly certain action.
    return -misses - torch.log(-torch.expm1(-misses))


# Heads ----------------------------------------------------------------------------------------


class ChoiceHead(nn.Module):
    """Features -> logits (T, B, P); the initial policy is nearly uniform."""

    def __init__(self, in_dim: int, action: ActionSpec) -> None:
        super().__init__()
        self.out = linear(in_dim, sum(action.sizes), gain=0.01)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)


class GaussianHead(nn.Module):
    """Features -> mean and log standard deviation (T, B, 2K); the latter does not depend on the state."""

    def __init__(self, in_dim: int, action: ActionSpec, log_std: float) -> None:
        super().__init__()
        self.out = linear(in_dim, action.width, gain=0.01)
        self.log_std = nn.Parameter(torch.full((action.width,), log_std))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.out(x)
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


def actor_head(in_dim: int, action: ActionSpec, log_std: float) -> nn.Module:
    """The head for an action space."""
    if action.kind == "categorical":
        return ChoiceHead(in_dim, action)
    return GaussianHead(in_dim, action, log_std)
