"""Foreign strings in a report as Markdown, such as ids of environments and labels, are shown as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from recollect.reporting.blocks import Bullets, Chart, Code, Links, Section, Table, Text
from recollect.reporting.markdown import render_markdown

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = [
    *("a|b", "| a | b |", "a\\|b", "\\", "a\\"),
    *("`code`", "*bold* _thin_ ~~gone~~", "a_b_c", "snake_case_", "$x$ and $y$"),
    *("[link](http://x)", "![picture](x)", "http://[x](y)", "<script>alert(1)</script>", "&lt;b&gt;"),
    *("two\nlines", "a\n\n# heading", "# heading", "> quote", "---", "===", "~~~", "```", "    code"),
    *("- item", "+ item", "1. item", "1)", "-", "-1.5 to 2"),
]
ADDRESS = "a (b).html"


def report(text: str) -> str:
    """A report with each kind of block, which says the text wherever it can."""
    blocks = [
        Text(text, lead=text),
        Bullets([text]),
        Table(text, ["name", text], [[text, text]]),
        Links([(text, [(text, ADDRESS)])]),
        Chart("chart", "dots", "", text),
        Code(text),
    ]
    return render_markdown(text, text, [Section(text, blocks)], {"chart": ADDRESS})


def check(text: str) -> None:
    """The report has the blocks that are asked for and no others, and each shows the text."""
    tokens = READER.parse(report(text))
    table = "table thead tr th th tbody tr td td"
    assert opened(tokens) == f"heading heading bullet_list list_item {table} bullet_list list_item".split()
    inline = [token for token in tokens if token.type == "inline"]
    words = joined(text)
    said = [words, words, words, f"{words}. {words}", words]
    said += [words, "name", words, words, words]
    assert [joined(visible(token)) for token in inline] == [
        *said,
        joined(f"{words} {words}"),
        words,
    ]
    children = [child for token in inline for child in token.children]
    links = "link_open", "link_close", "image"
    assert {child.type for child in children} == {"text", "strong_open", "strong_close", *links}
    (link,) = (child for child in children if child.type == "link_open")
    assert link.attrs["href"] == children[-1].attrs["src"] == "a%20(b).html"
    (code,) = (token for token in tokens if token.type == "fence")
    assert code.content == text + "\n"


def opened(tokens: list[Token]) -> list[str]:
    kinds = [token.type.removesuffix("_open") for token in tokens if token.nesting == 1]
    return [kind for kind in kinds if kind != "paragraph"]


def visible(token: Token) -> str:
    """What is shown of a token, of a picture its words."""
    return "".join(map(visible, token.children)) if token.children else token.content


def joined(text: str) -> str:
    """What a page shows of a text: blanks and line ends are all the same."""
    return " ".join(text.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_in_a_string_is_text(text):
    check(text)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12))
def test_any_string_is_text(text):
    check(text)
