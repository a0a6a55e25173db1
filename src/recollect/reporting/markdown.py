"""A report as a Markdown file."""

from collections.abc import Mapping, Sequence

from .blocks import Block, Bullets, Chart, Code, Links, Section, Table, Text


def render_markdown(title: str, facts: str, sections: Sequence[Section], figures: Mapping[str, str]) -> str:
    """The whole file.

    figures  chart name -> path of its figure, for charts that have one
    """
    paragraphs = [f"# {_escape(title)}", facts]
    for section in sections:
        paragraphs.append(f"## {section.title}")
        paragraphs += [_block(block, figures) for block in section.blocks]
    return "\n\n".join(paragraphs) + "\n"


def _block(block: Block, figures: Mapping[str, str]) -> str:
    match block:
        case Text(text, lead):
            return f"**{_escape(lead)}.** {_escape(text)}" if lead else _escape(text)
        case Bullets(items):
            return "\n".join(f"- {_escape(item)}" for item in items)
        case Links(items):
            lines = (f"- {_escape(words)} {', '.join(map(_link, links))}" for words, links in items)
            return "\n".join(lines)
        case Code(text):
            return f"```bash\n{text}\n```"
        case Table():
            return _table(block)
        case Chart(name, words=words) if name in figures:
            return f"![{_escape(words)}]({figures[name]})"
        case Chart(words=words):
            return _escape(words)


def _link(link: tuple[str, str]) -> str:
    name, address = link
    return f"[{_escape(name)}]({address})"


def _table(table: Table) -> str:
    rule = ["---"] * table.names + ["---:"] * (len(table.columns) - table.names)
    lines = [table.columns, rule, *table.rows]
    rows = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{_escape(table.caption)}\n\n{rows}"


def _cell(text: str) -> str:
    return _escape(text).replace("|", "\\|")


def _escape(text: str) -> str:
    """Text with the special characters of Markdown escaped."""
    # The backslash first: later characters add backslashes, which must not be escaped again.
    for character in "\\`*[]<>":
        text = text.replace(character, f"\\{character}")
    return text
