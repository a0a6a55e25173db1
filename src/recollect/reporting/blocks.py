"""Blocks of content, independent of the output format: text, tables and charts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..common.intervals import Floats, Interval
from .curves import Panel


@dataclass(frozen=True)
class Text:
    """A paragraph, with an optional bold lead."""

    text: str
    lead: str = ""


@dataclass(frozen=True)
class Bullets:
    """A bulleted list."""

    items: list[str]


@dataclass(frozen=True)
class Links:
    """A list of lines; each has a text and links as (name, address)."""

    items: list[tuple[str, list[tuple[str, str]]]]


@dataclass(frozen=True)
class Code:
    """Shell commands."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table: columns of names first, then numbers."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    names: int = 1
    """Number of columns that contain names."""


@dataclass(frozen=True)
class DotRow:
    """One row of a dot plot: the scores of one model, their mean and its interval."""

    label: str
    dots: Floats
    value: float
    interval: Interval | None
    hollow: bool = False
    """Draw the outline of the mean alone, as for a difference that is not detectable."""


@dataclass(frozen=True)
class Line:
    """One line of a plot (P,), with an optional band."""

    label: str
    middle: Floats
    low: Floats | None = None
    high: Floats | None = None
    dots: bool = False
    """Draw points instead of a line: values between them have no meaning."""


@dataclass(frozen=True)
class Plot:
    """Lines over a common grid (P,)."""

    x: str
    """Name of the x axis."""
    y: str
    grid: Floats
    lines: list[Line]
    log: bool = False
    """Logarithmic x axis with a tick at each grid point, for grids that double."""
    steps: bool = False
    """Each value holds up to the next point of the grid; the last one only ends the line."""


@dataclass(frozen=True)
class ParallelAxis:
    """One axis of a parallel-coordinates chart; ticks are (label, position from 0 to 1)."""

    name: str
    ticks: list[tuple[str, float]]


@dataclass(frozen=True)
class ParallelLine:
    """One line of a parallel-coordinates chart: a position from 0 to 1 on each axis, or None."""

    label: str
    """Its class; lines of one class have the same colour."""
    name: str
    words: list[str]
    """Lines of the tooltip."""
    positions: list[float | None]


@dataclass(frozen=True)
class ParallelCoordinates:
    """A parallel-coordinates chart; later lines are drawn above earlier ones."""

    axes: list[ParallelAxis]
    lines: list[ParallelLine]


@dataclass(frozen=True)
class Chart:
    """A chart with its title, and its content in words for readers who do not see it."""

    name: str
    kind: Literal["curves", "dots", "lines", "parallel"]
    title: str
    words: str
    panel: Panel | None = None
    rows: list[DotRow] = field(default_factory=list)
    zero: bool = False
    """Mark 0 in a dot plot, as for differences."""
    plot: Plot | None = None
    parallel: ParallelCoordinates | None = None


Block: TypeAlias = Text | Bullets | Links | Code | Table | Chart


@dataclass(frozen=True)
class Section:
    """A heading and its content."""

    title: str
    blocks: list[Block]


def charts(sections: Sequence[Section]) -> list[Chart]:
    """All charts of a report."""
    return [block for section in sections for block in section.blocks if isinstance(block, Chart)]


def slug(env: str) -> str:
    """The name of an environment as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", env).strip("-")


def slugs(envs: Sequence[str]) -> dict[str, str]:
    """Unique slugs: names that differ only in characters that a slug drops are numbered."""
    names: dict[str, str] = {}
    for env in envs:
        equal = sum(slug(other) == slug(env) for other in names)
        names[env] = f"{slug(env)}-{equal + 1}" if equal else slug(env)
    return names
