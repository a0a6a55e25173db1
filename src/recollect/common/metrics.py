"""The names of metrics, and how numbers are printed."""

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


def number(value: float | None) -> str:
    """Short enough to read at a glance."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0 or 0.001 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.1e}"


def duration(seconds: float | None) -> str:
    """12s, 3m05s, 2h10m."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
