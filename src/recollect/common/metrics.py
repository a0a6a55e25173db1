"""The names of the metrics of a run."""

import math
from collections.abc import Mapping
from typing import TypeAlias

Metrics: TypeAlias = Mapping[str, float | None]

# Every key of a line of metrics.jsonl; docs/metrics.md says what each means.
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
    "ratio_error",
    "value_error",
    "state_error",
    "learning_rate",
    "skipped_steps",
    "val_return",
    "time",
    "sps",
)


def is_finite(value: float | None) -> bool:
    """Whether a metric is a number that can be drawn."""
    return value is not None and math.isfinite(value)
