"""The tables of docs/reliability.md and docs/security.md name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {page: (ROOT / "docs" / f"{page}.md").read_text() for page in ("reliability", "security")}
# Without the head of each table.
ROWS = {
    page: [line for line in text.splitlines() if line.startswith("| ")][1:] for page, text in PAGES.items()
}


def missing_tests(row: str) -> list[str]:
    """The tests of a row that do not exist; the row itself if it names none."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
    wrong = [] if named else [row]
    for file, test in named:
        path = ROOT / file
        tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
        if test not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            wrong.append(f"{file}::{test}")
    return wrong


@pytest.mark.parametrize("page", ROWS)
def test_every_line_has_a_test(page):
    assert [test for row in ROWS[page] for test in missing_tests(row)] == []


def test_a_line_without_a_test_is_found():
    assert missing_tests("| R1 | a promise | `tests/run/test_run.py::test_of_no_such_name` | passed |")
    assert missing_tests("| R1 | a promise | none | passed |")


def test_there_are_twenty_promises_in_order():
    assert [row.split("|")[1].strip() for row in ROWS["reliability"]] == [f"R{n}" for n in range(1, 21)]
