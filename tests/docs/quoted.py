"""Numbers that pages quote from result files.

A line `<!-- numbers from results/poc/report.md -->` stands directly before a paragraph or a table. It
says that every number there stands in one of the files that it names; their paths start at docs/. The word
`tables` in place of a file means the tables of the same page that `benchmarks.tables` wrote.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

MARKER = re.compile(r"<!-- numbers from ([^>]*?) -->\n+(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
# Code, images, the targets of links, addresses and HTML comments hold digits that are no results.
ASIDE = re.compile(r"`[^`]*`|!\[[^\]]*\]\([^)]*\)|(?<=\])\([^)]*\)|https?://\S+|<!--.*?-->", re.DOTALL)
# Not within a name such as GPT-2 or LunarLander-v3.
NUMBER = re.compile(
    r"(?<![\w.])(?<![\w)]-)(?P<sign>(?<![\w)])[-+\u2212])?"
    r"(?P<digits>\d+(?:,\d{3})*(?:\.\d+)?)(?![^\Wx]|x\w|\.\d)"  # "9.4x" is a number, "4x4" is none
)
UNIT = re.compile(r"\s?(%|k\b|M\b|thousand\b|million\b)")
SCALES = {"k": 1e3, "thousand": 1e3, "M": 1e6, "million": 1e6}
TABLES = re.compile(r"^<!-- table [^\n]+ -->\n(.*?)^<!-- end table -->", re.MULTILINE | re.DOTALL)
LEVEL = re.compile(r"\b95 %")  # of every interval here: a convention, not a result
CURVE = 30  # numbers: of a longer list a reader knows its last


@dataclass(frozen=True)
class Quote:
    """A number as a page writes it."""

    text: str  # its digits, without thousands separators
    unit: str = ""
    sign: str = ""

    @property
    def digits(self) -> int:
        """Digits behind the point."""
        return len(self.text.partition(".")[2])

    def is_rounded_from(self, value: float) -> bool:
        """Whether a number, rounded as finely as this one is written, reads like this one."""
        if self.sign:
            value = -value if self.sign != "+" else value
        elif value < 0:
            value = -value  # prose says "36 lower"
        step = SCALES.get(self.unit, 1.0) * 10.0**-self.digits
        candidates = [value, value * 100] if self.unit == "%" else [value]
        quoted = float(self.text) * SCALES.get(self.unit, 1.0)
        return any(abs(x - quoted) <= step / 2 * (1 + 1e-6) for x in candidates)


def marked(page: str) -> Iterator[tuple[list[str], str]]:
    """(files, text) of every marker of a page."""
    for match in MARKER.finditer(page):
        yield match[1].split(), match[2]


def quotes(text: str) -> list[Quote]:
    """The numbers of a paragraph or a table."""
    text = LEVEL.sub(" ", ASIDE.sub(" ", text))
    numbers = []
    for match in NUMBER.finditer(text):
        unit = UNIT.match(text, match.end())
        numbers.append(Quote(match["digits"].replace(",", ""), unit[1] if unit else "", match["sign"] or ""))
    return numbers


def values(data: Any) -> Iterator[float]:
    """The numbers of a JSON document; those in its texts too."""
    if isinstance(data, dict):
        yield from values(list(data.keys()))
        for item in data.values():
            yield from values(item)
    elif isinstance(data, list):
        for item in _last(data) if len(data) > CURVE else data:
            yield from values(item)
    elif isinstance(data, str):
        yield from (float(f"{'-' if q.sign in ('-', chr(0x2212)) else ''}{q.text}") for q in quotes(data))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield float(data)


def _last(curve: list[Any]) -> list[Any]:
    """The end of a curve, which is open where seeds ended at different steps."""
    return [x for x in curve if x is not None][-1:] if not isinstance(curve[0], dict) else curve


def stale(page: str, folder: Path) -> list[str]:
    """The numbers of a page that no longer stand in the files, below a folder, that it names."""
    tables = "\n".join(TABLES.findall(page))
    numbers = []
    for names, text in marked(page):
        files = [folder / name for name in names if name != "tables"]
        numbers += missing(text, files, tables if "tables" in names else "")
    return numbers


def missing(text: str, files: list[Path], tables: str = "") -> list[str]:
    """The numbers of a text that stand in none of the files, nor in tables."""
    numbers = [value for file in files if file.suffix == ".json" for value in values(_read(file))]
    texts = [tables, *(file.read_text() for file in files if file.suffix == ".md")]
    written = {quote.text for text in texts for quote in quotes(text)}
    return [
        quote.sign + quote.text
        for quote in quotes(text)
        if quote.text not in written and not any(quote.is_rounded_from(value) for value in numbers)
    ]


def _read(file: Path) -> Any:
    return json.loads(file.read_text())


def mismarked(page: str) -> list[str]:
    """Lines that look like a marker and are none."""
    lines = page.splitlines()
    return [
        line
        for line, after in pairwise([*lines, ""])
        if "numbers from" in line and "<!--" in line and (not MARKER.match(f"{line}\n.") or not after.strip())
    ]


class SeedRow(NamedTuple):
    """A row of a table with the score of each seed."""

    scores: list[float]
    mean: str
    interval: str
    shares: bool  # of successes, whose interval stays between 0 and 1


TABLE = re.compile(r"^\|([^\n]* of each seed [^\n]*)\|\n\|[-| ]+\n((?:\|[^\n]*\n)+)", re.MULTILINE)


def seed_rows(page: str) -> Iterator[SeedRow]:
    """The rows of all tables with the score of each seed, a mean and an interval."""
    for header, body in TABLE.findall(page):
        columns = [cell.strip() for cell in header.split("|")]
        if not {"mean", "95 % interval"} <= set(columns):
            continue
        of_seeds = next(i for i, name in enumerate(columns) if "of each seed" in name)
        for line in body.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            mean, interval = (cells[columns.index(name)] for name in ("mean", "95 % interval"))
            scores = [float(score) for score in cells[of_seeds].split(", ")]
            yield SeedRow(scores, mean, interval, "success" in columns[of_seeds])
