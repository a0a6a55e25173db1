"""The names of the metrics of a run."""

import math
from collections.abc import Mapping
from typing import TypeAlias

Metrics: TypeAlias = Mapping[str, float | None]

# The keys of a line of metrics.jsonl, in their order; docs/metrics.md explains them.
# Readers take a missing key as unknown, so keys may be added. A renamed key would be lost in older runs.
METRICS = (
    "step",
    "iteration",
    "episodes",
    "return",
    "length",
    "success",
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
    "clip_fraction",
    "explained_variance",
    "predict_obs",
    "predict_reward",
    "predict_hidden",
    "intrinsic_reward",
    "ratio_error",
    "value_error",
    "state_error",
    "kernel_error",
    "learning_rate",
    "ent_coef",
    "skipped_steps",
    "env_restarts",
    "val_return",
    "time",
    "sps",
)


def is_finite(value: float | None) -> bool:
    """Whether a metric has a finite value."""
    return value is not None and math.isfinite(value)
