"""Names that users give as a list."""

from collections.abc import Sequence
from typing import Any


def listed(names: Any) -> list[Any]:
    """Names that were given as a list, or one alone: the letters of a string are no names."""
    return list(names) if isinstance(names, Sequence) and not isinstance(names, str) else [names]
