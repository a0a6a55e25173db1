"""Numbers and durations as short texts, for screens, pages and tables."""

import math
import shutil
import sys
from collections.abc import Sequence
from textwrap import fill


def number(value: float | None) -> str:
    """At most four significant digits, or two below 0.001; "-" if there is no finite value."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1e}" if 0 < abs(value) < 0.001 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """A duration as 12s, 3m05s or 2h10m; "-" if it is unknown."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def first_few(items: Sequence[str], most: int = 5) -> list[str]:
    """The first items and the number of the rest; all items where that is 1."""
    if len(items) <= most + 1:
        return list(items)
    return [*items[:most], f"{len(items) - most} others"]


def wrapped(text: str) -> str:
    """Text with line breaks between words for the terminal; unchanged where there is none."""
    if not sys.stdout.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return fill(text, columns, break_long_words=False, break_on_hyphens=False)
