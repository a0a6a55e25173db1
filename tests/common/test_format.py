"""Texts for the terminal."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.common.format import wrapped

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
