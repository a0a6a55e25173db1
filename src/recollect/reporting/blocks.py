"""What a report is made of, whatever it is written as: words, tables, charts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..common.intervals import Floats, Interval
from .curves import Panel


@dataclass(frozen=True)
class Text:
    """A paragraph, perhaps with the words that it begins with set off."""

    text: str
    lead: str = ""


@dataclass(frozen=True)
class Bullets:
    """Short paragraphs."""

    items: list[str]


@dataclass(frozen=True)
class Links:
    """Lines of words, each with the names and the addresses of what is behind it."""

    items: list[tuple[str, list[tuple[str, str]]]]


@dataclass(frozen=True)
class Code:
    """Lines for a shell."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells: names first, then numbers."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    names: int = 1
    """Columns that hold names."""


@dataclass(frozen=True)
class DotRow:
    """One model in a chart of scores."""

    label: str
    dots: Floats
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Line:
    """One line of a plot (P,), and what lies around it."""

    label: str
    middle: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False
    """Whether what lies between two points means nothing."""


@dataclass(frozen=True)
class Plot:
    """Lines over one grid (P,)."""

    x: str
    """What the grid counts."""
    y: str
    grid: Floats
    lines: list[Line]
    log: bool = False
    """Whether every point of the grid is as far from the next as any other, for grids that double."""


@dataclass(frozen=True)
class ParallelAxis:
    """One of several axes side by side: words at places between 0 and 1."""

    name: str
    ticks: list[tuple[str, float]]


@dataclass(frozen=True)
class ParallelLine:
    """What runs across such axes: a place on each, or None where it has none."""

    label: str
    """What it is like; threads of a label are drawn alike."""
    name: str
    words: list[str]
    """What is said where it is pointed at."""
    positions: list[float | None]


@dataclass(frozen=True)
class ParallelCoordinates:
    """ParallelCoordinates across axes; what comes last lies above."""

    axes: list[ParallelAxis]
    lines: list[ParallelLine]


@dataclass(frozen=True)
class Chart:
    """A picture: what it is of, and what it shows in words."""

    name: str
    kind: Literal["curves", "dots", "lines", "parallel"]
    title: str
    words: str
    panel: Panel | None = None
    rows: list[DotRow] = field(default_factory=list)
    plot: Plot | None = None
    parallel: ParallelCoordinates | None = None


Block: TypeAlias = Text | Bullets | Links | Code | Table | Chart


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: list[Block]


def charts(parts: Sequence[Section]) -> list[Chart]:
    """Every chart of a report."""
    return [block for part in parts for block in part.blocks if isinstance(block, Chart)]


def slug(env: str) -> str:
    """An environment's name as a file's."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", env).strip("-")


def slugs(envs: Sequence[str]) -> dict[str, str]:
    """The same for several, no two alike: signs that a file's name has no place for may tell them apart."""
    found: dict[str, str] = {}
    for env in envs:
        alike = [name for name in (slug(other) for other in found) if name == slug(env)]
        found[env] = f"{slug(env)}-{len(alike) + 1}" if alike else slug(env)
    return found
