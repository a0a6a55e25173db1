"""Texts for the terminal."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.common.format import first_few, number, wrapped


@given(st.lists(st.integers().map(str)), st.integers(1, 9))
def test_the_first_few_and_the_count_of_all_others(items, most):
    named = first_few(items, most)
    assert len(named) <= most + 1
    *first, last = named or [""]
    hidden = int(last.split()[0]) if last.endswith(" others") else 0
    assert named == items if not hidden else hidden > 1 and [*first, *items[len(first) :]] == items
    assert len(first) + hidden == len(items) or not hidden


WORDS = st.lists(st.text("abc-,.%", min_size=1, max_size=12), min_size=1, max_size=30)


@given(WORDS)
def test_lines_end_between_words_and_fit_the_terminal(words):
    text = " ".join(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "30")
        patch.setattr(sys.stdout, "isatty", lambda: True)
        lines = wrapped(text).split("\n")
    assert " ".join(lines) == text and all(len(line) <= 30 for line in lines)


def test_text_for_files_is_one_line(capsys):
    assert wrapped("word " * 100) == "word " * 100


def test_a_large_number_has_as_many_digits_as_a_small_one():
    """With two digits the ends of an interval of large returns would be equal."""
    assert number(118_234.0) == "1.182e+05" and number(-124_321.0) == "-1.243e+05"
    assert number(100_000.0) == "1e+05" and number(0.00012345) == "1.2e-04"
