"""Coefficients that are adapted after each update: the learning rate by the KL, the entropy coefficient by
the entropy. Both are off by default.

An adaptation takes the place of a schedule. It is one number, which checkpoints contain, so a resumed run
continues with it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from ..agent.policies import Policy
from ..common.errors import UsageError
from .settings import COEF_RANGE, RATE_RANGE, Coefficients, PPOConfig

RATE_FACTOR = 1.5  # between the rates of two updates
ENTROPY_RATE = 1.0  # step size of the logarithm of the coefficient; with less it lags behind the entropy


class Adaptation(ABC):
    """A coefficient that is adapted after each update.

    value  all that it carries from one update to the next
    """

    value: float

    @abstractmethod
    def apply(self, now: Coefficients) -> Coefficients:
        """Replace the scheduled coefficient by the adapted one."""

    @abstractmethod
    def adapt(self, metrics: Mapping[str, float]) -> None:
        """Adapt to the metrics of an update; numbers that are not finite change nothing."""


class AdaptiveRate(Adaptation):
    """Learning rate of the actor; that of the critic keeps its proportion.

    Divided by 1.5 after an update with a mean KL above 2 x desired, multiplied by 1.5 after one below half of
    it, as in rsl_rl.
    """

    def __init__(self, initial: float, desired_kl: float) -> None:
        self.initial, self.desired_kl, self.value = initial, desired_kl, initial

    def apply(self, now: Coefficients) -> Coefficients:
        scale = self.value / self.initial
        actor, critic = now.rates
        return now._replace(rates=(actor * scale, critic * scale))

    def adapt(self, metrics: Mapping[str, float]) -> None:
        kl = metrics["kl"]
        if 2 * self.desired_kl < kl < math.inf:
            self.value = max(self.value / RATE_FACTOR, RATE_RANGE[0])
        elif 0 < kl < self.desired_kl / 2:  # exactly 0: there was nothing to learn
            self.value = min(self.value * RATE_FACTOR, RATE_RANGE[1])


class AdaptiveEntropy(Adaptation):
    """Logarithm of the entropy coefficient, by gradient steps on log(coefficient) (entropy - target).

    The loss is that of the temperature in soft actor-critic: an entropy above the target lowers the
    coefficient, one below it raises it.
    """

    def __init__(self, initial: float, target: float) -> None:
        self.target, self.value = target, math.log(initial)

    def apply(self, now: Coefficients) -> Coefficients:
        return now._replace(entropy=math.exp(self.value))

    def adapt(self, metrics: Mapping[str, float]) -> None:
        slope = metrics["entropy"] - self.target
        if math.isfinite(slope):
            lowest, highest = map(math.log, COEF_RANGE)
            self.value = min(max(self.value - ENTROPY_RATE * slope, lowest), highest)


def adaptations(cfg: PPOConfig) -> dict[str, Adaptation]:
    """The adaptations that a config turns on, by the names of their options."""
    chosen: dict[str, Adaptation] = {}
    if cfg.desired_kl is not None:
        chosen["desired_kl"] = AdaptiveRate(cfg.learning_rate, cfg.desired_kl)
    if cfg.target_entropy is not None:
        chosen["target_entropy"] = AdaptiveEntropy(cfg.ent_coef, cfg.target_entropy)
    return chosen


def check_target(cfg: PPOConfig, policy: Policy) -> None:
    """Raise UsageError for a target entropy that no policy of this kind can have."""
    lowest, highest = policy.entropy_range
    if cfg.target_entropy is not None and not lowest < cfg.target_entropy < highest:
        raise UsageError(
            f"ppo.target_entropy is {cfg.target_entropy}, with these actions it must be above {lowest:g} and "
            f"below {highest:.4g} nats, the entropy of uniformly random actions"
        )
