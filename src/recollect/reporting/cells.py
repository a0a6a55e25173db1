"""Table cells of a report: numbers, intervals and p-values as short text."""

import numpy as np

from ..common.format import duration, number
from ..common.intervals import Interval

NOT_REACHED = "not reached"


def interval_cell(interval: Interval | None) -> str:
    """Low to high; "-" without an interval."""
    return "-" if interval is None else f"{number(interval.low)} to {number(interval.high)}"


def probability_cell(interval: Interval) -> str:
    """Low to high of a probability or share, with two decimals."""
    return f"{interval.low:.2f} to {interval.high:.2f}"


def p_cell(p: float) -> str:
    """A p-value; "-" where no test was possible."""
    if np.isnan(p):
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def steps_cell(steps: float) -> str:
    """Steps until a threshold was reached; infinite if it was not."""
    if np.isinf(steps):
        return NOT_REACHED
    return "-" if np.isnan(steps) else f"{steps:,.0f}"


def time_cell(seconds: float) -> str:
    """Time until a threshold was reached; infinite if it was not."""
    if np.isinf(seconds):
        return NOT_REACHED
    return "-" if np.isnan(seconds) else duration(float(seconds))


def range_cell(first: str, last: str) -> str:
    """Two cells as a range."""
    return first if first == last else f"{first} to {last}"
