"""A report as one HTML page without external files: text, tables, data, and the script that draws charts."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import Any

from .blocks import Block, Bullets, Chart, Code, Links, Section, Table, Text, charts, slug
from .summary import to_json_data

CHART_DIGITS = 5  # significant digits


def render_page(
    kind: str, title: str, facts: str, sections: Sequence[Section], colours: Mapping[str, int]
) -> str:
    """The whole file.

    kind     the command that made it
    facts    a line below the title
    colours  label -> index of its colour
    """
    folder = files(__package__)
    names = "page.html", "page.css", "elements.js", "page.js"
    template, style, elements, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    # page.html may have no other "$"; the inserted texts may. Each text that is not markup goes through
    # escape: labels and folders come from files, also from archives of unknown origin.
    return Template(template).substitute(
        kind=escape(kind),
        title=escape(title),
        facts=escape(facts),
        css=style,
        js=elements + script,
        nav="\n".join(
            f'<li><a href="#{_id(section)}">{escape(section.title)}</a></li>' for section in sections
        ),
        body="\n".join(_section(section) for section in sections),
        data=_data(sections, colours),
    )


def _section(section: Section) -> str:
    """A heading and its blocks; charts of learning curves are laid out side by side."""
    html: list[str] = []
    for side_by_side, blocks in groupby(
        section.blocks, lambda block: isinstance(block, Chart) and block.kind == "curves"
    ):
        content = "\n".join(_block(block) for block in blocks)
        html.append(f'<div class="charts">\n{content}\n</div>' if side_by_side else content)
    body = "\n".join(html)
    if section.title == "Verdict":
        body = f'<div class="verdict">\n{body}\n</div>'
    return f'<section>\n<h2 id="{_id(section)}">{escape(section.title)}</h2>\n{body}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Text(text, lead):
            bold = f"<strong>{escape(lead)}.</strong> " if lead else ""
            return f"<p>{bold}{escape(text)}</p>"
        case Bullets(items):
            return "<ul>\n" + "\n".join(f"<li>{escape(item)}</li>" for item in items) + "\n</ul>"
        case Links(items):
            lines = (f"<li>{escape(words)} {', '.join(map(_link, links))}</li>" for words, links in items)
            return "<ul>\n" + "\n".join(lines) + "\n</ul>"
        case Code(text):
            return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
        case Table():
            return _table(block)
        case Chart():
            return (
                f'<figure data-chart="{escape(block.name)}" data-kind="{block.kind}">'
                f"<figcaption>{escape(block.title)}</figcaption></figure>"
            )


def _link(link: tuple[str, str]) -> str:
    name, address = link
    return f'<a href="{escape(address)}">{escape(name)}</a>'


def _table(table: Table) -> str:
    longest = [max((row[i] for row in table.rows), key=len, default="") for i in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{_kind(i, table, longest[i])}>{escape(text)}</th>'
        for i, text in enumerate(table.columns)
    )
    rows = "\n".join(f"<tr>{''.join(_cells(row, table))}</tr>" for row in table.rows)
    caption = escape(table.caption)
    # The caption stands outside of the part that scrolls, so that a narrow screen shows all of it.
    return (
        f'<p class="caption">{caption}</p>\n'
        f'<div class="table" role="region" tabindex="0" aria-label="{caption}">'
        f'<table aria-label="{caption}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _cells(row: Sequence[str], table: Table) -> Iterator[str]:
    yield f'<th scope="row">{_breakable_name(row[0])}</th>'
    for i, cell in enumerate(row[1:], 1):
        yield f"<td{_kind(i, table, cell)}>{_breakable(cell)}</td>"


def _kind(column: int, table: Table, cell: str = "") -> str:
    """Names and long lists of numbers are aligned left and may wrap; numbers are aligned right."""
    if not column:
        return ""
    if len(cell) > 28:
        return ' class="long"'
    return ' class="name"' if column < table.names else ' class="number"'


def _breakable(text: str) -> str:
    """Allow line breaks after the dots of a long dotted name, but not in a number."""
    long = ".memory." in text or len(text) > 40
    # Escaped first, because <wbr> is markup.
    return re.sub(r"\.(?=[a-z])", ".<wbr>", escape(text)) if long else escape(text)


def _breakable_name(text: str) -> str:
    """Allow line breaks between the words of an option, so that a narrow screen shows more columns."""
    return re.sub(r"([._])(?=[a-z])", r"\1<wbr>", escape(text))


def _id(section: Section) -> str:
    return slug(section.title).lower()


# Data -----------------------------------------------------------------------------------------


def _data(sections: Sequence[Section], colours: Mapping[str, int]) -> str:
    """The data of all charts as JSON."""
    data = {"charts": {chart.name: _chart(chart, colours) for chart in charts(sections)}}
    # "<" is escaped so that no label can close the <script> element.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _chart(chart: Chart, colours: Mapping[str, int]) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": chart.kind, "title": chart.title, "words": chart.words}
    match chart.kind:
        case "curves":
            assert chart.panel is not None
            data |= to_json_data({"grids": chart.panel.grids, "lines": chart.panel.lines}, CHART_DIGITS)
        case "dots":
            data |= to_json_data({"rows": chart.rows, "zero": chart.zero}, CHART_DIGITS)
        case "lines":
            assert chart.plot is not None
            data |= to_json_data(chart.plot, CHART_DIGITS)
        case "parallel":
            assert chart.parallel is not None
            data |= to_json_data(chart.parallel, CHART_DIGITS)
    for item in data.get("lines", []) + data.get("rows", []):
        item["colour"] = colours[item["label"]]
    return data
