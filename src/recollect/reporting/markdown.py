"""A report as text, for readers, repositories and diffs."""

from collections.abc import Mapping, Sequence

from .blocks import Block, Bullets, Chart, Code, Links, Section, Table, Text


def markdown(title: str, facts: str, parts: Sequence[Section], pictures: Mapping[str, str]) -> str:
    """The whole file; pictures: the name of a chart -> the path of its file, for those that have one."""
    pieces = [f"# {_plain(title)}", facts]
    for part in parts:
        pieces.append(f"## {part.title}")
        pieces += [_block(block, pictures) for block in part.blocks]
    return "\n\n".join(pieces) + "\n"


def _block(block: Block, pictures: Mapping[str, str]) -> str:
    match block:
        case Text(text, lead):
            return f"**{_plain(lead)}.** {_plain(text)}" if lead else _plain(text)
        case Bullets(items):
            return "\n".join(f"- {_plain(item)}" for item in items)
        case Links(items):
            lines = (f"- {_plain(words)} {', '.join(map(_link, links))}" for words, links in items)
            return "\n".join(lines)
        case Code(text):
            return f"```bash\n{text}\n```"
        case Table():
            return _table(block)
        case Chart(name, words=words) if name in pictures:
            return f"![{_plain(words)}]({pictures[name]})"
        case Chart(words=words):
            return _plain(words)


def _link(link: tuple[str, str]) -> str:
    name, address = link
    return f"[{_plain(name)}]({address})"


def _table(table: Table) -> str:
    rule = ["---"] * table.names + ["---:"] * (len(table.columns) - table.names)
    lines = [table.columns, rule, *table.rows]
    rows = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{_plain(table.caption)}\n\n{rows}"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text that means no more in Markdown than what it says."""
    for sign in "\\`*[]<>":
        text = text.replace(sign, f"\\{sign}")
    return text
