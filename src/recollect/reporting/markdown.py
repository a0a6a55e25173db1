"""A report as a Markdown file."""

import re
from collections.abc import Mapping, Sequence

from .blocks import Block, Bullets, Chart, Code, Links, Section, Table, Text

# What could be markup: an underscore between letters, as in ppo_gru, is none, and neither is a lone "&".
MARKUP = re.compile(r"[\\`*\[\]<>~#$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
LIST = re.compile(r"^(\d*)([-+.)])(?=[\s-]|$)")  # what begins a list, or a rule, at the start of a line


def render_markdown(title: str, facts: str, sections: Sequence[Section], figures: Mapping[str, str]) -> str:
    """The whole file.

    figures  chart name -> path of its figure, for charts that have one
    """
    paragraphs = [f"# {_escape(title)}", _line(facts)]
    for section in sections:
        paragraphs.append(f"## {_escape(section.title)}")
        paragraphs += [_block(block, figures) for block in section.blocks]
    return "\n\n".join(paragraphs) + "\n"


def _block(block: Block, figures: Mapping[str, str]) -> str:
    match block:
        case Text(text, lead):
            return f"**{_escape(lead)}.** {_escape(text)}" if lead else _line(text)
        case Bullets(items):
            return "\n".join(f"- {_line(item)}" for item in items)
        case Links(items):
            lines = (f"- {_line(words)} {', '.join(map(_link, links))}" for words, links in items)
            return "\n".join(lines)
        case Code(text):
            fence = "`" * max([2, *map(len, re.findall("`+", text))]) + "`"
            return f"{fence}bash\n{text}\n{fence}"
        case Table():
            return _table(block)
        case Chart(name, words=words) if name in figures:
            return f"!{_link((words, figures[name]))}"
        case Chart(words=words):
            return _line(words)


def _link(link: tuple[str, str]) -> str:
    name, address = link
    # In angle brackets an address may have blanks and parentheses.
    return f"[{_escape(name)}]({f'<{address}>' if re.search(r'[ ()]', address) else address})"


def _table(table: Table) -> str:
    rule = ["---"] * table.names + ["---:"] * (len(table.columns) - table.names)
    lines = [table.columns, rule, *table.rows]
    rows = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{_line(table.caption)}\n\n{rows}"


def _cell(text: str) -> str:
    return _escape(text).replace("|", "\\|")


def _line(text: str) -> str:
    """Text at the start of a line, without markup."""
    return LIST.sub(r"\1\\\2", _escape(text))


def _escape(text: str) -> str:
    """Text in one line, without markup."""
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
