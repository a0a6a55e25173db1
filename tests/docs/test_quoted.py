"""Numbers that pages quote from result files still stand in these files."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from recollect.common.intervals import mean_weights
from recollect.reporting.scores import weighted_mean_interval

from .quoted import marked, mismarked, missing, quotes, seed_rows, stale

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LESSONS = sorted((DOCS / "learn").glob("[0-9]*.md"))
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def written(text):
    return [quote.sign + quote.text for quote in quotes(text)]


def test_numbers_are_read_without_names_code_and_links():
    assert written("LunarLander-v3 and GPT-2 at 61,188 steps, -0.5 (-99 to 35)") == [
        "61188",
        "-0.5",
        "-99",
        "35",
    ]
    assert written("`--seeds 3`, [7 runs](results/9.md), ![8](x10.svg), https://x/11 95 %, 85 %") == [
        "7",
        "85",
    ]
    assert written("| 1.00 | \u221243 |") == ["1.00", "\u221243"]
    assert written("9.4x, 75 k, v2.0, 4x4, 2.3.1") == ["9.4", "75"]


@pytest.fixture
def report(tmp_path):
    numbers = {
        "mean": 181.64,
        "wins": 0.853,
        "low": -12.4,
        "steps": 75184,
        "curve": [*range(1000, 1100), 3.5, None],
    }
    (tmp_path / "report.json").write_text(json.dumps({**numbers, "verdict": "better by 56.3"}))
    (tmp_path / "report.md").write_text("| ppo | 1,234 | 0.50 |\n")
    return [tmp_path / "report.json", tmp_path / "report.md"]


@pytest.mark.parametrize(
    "text",
    [
        "182",
        "181.6",
        "85 %",
        "0.85",
        "-12",
        "12 lower",
        "75 k",
        "75,184",
        "56.3",
        "3.5",
        "1,234",
        "1234",
        "0.50",
    ],
)
def test_a_number_of_the_files_stands_there(report, text):
    assert missing(text, report) == []


@pytest.mark.parametrize("text", ["183", "181.7", "86 %", "0.86", "-182", "74 k", "0.5", "1,050", "56.4"])
def test_a_number_that_is_not_in_the_files_is_missing(report, text):
    assert missing(text, report) == [text.removesuffix(" %").removesuffix(" k").replace(",", "")]


def test_a_marker_covers_the_paragraph_behind_it():
    page = "1 before\n\n<!-- numbers from a.md b.json -->\ntwo 2\nlines 3\n\n4 after\n"
    assert list(marked(page)) == [(["a.md", "b.json"], "two 2\nlines 3")]
    assert mismarked(page) == []
    assert mismarked("<!-- numbers from: a.md\n-->\nx\n") == ["<!-- numbers from: a.md"]


def test_a_marker_without_a_paragraph_is_none():
    assert mismarked("<!-- numbers from a.md -->\n\ntext\n") == ["<!-- numbers from a.md -->"]


def test_a_page_with_a_stale_number_fails(report):
    page = "<!-- numbers from report.json -->\nThe mean is {}.\n\nNot from there: 77.\n"
    assert stale(page.format("182"), report[0].parent) == []
    assert stale(page.format("218"), report[0].parent) == ["218"]


def test_the_tables_of_a_page_can_be_named():
    table = "<!-- table scores poc -->\n| 0.21 |\n<!-- end table -->\n"
    page = "0.35\n\n<!-- numbers from tables -->\n{}\n\n" + table
    assert stale(page.format("p 0.21"), ROOT) == []
    assert stale(page.format("p 0.35"), ROOT) == ["0.35"]
    assert stale(page.format("p 0.21").replace("from tables", "from docs/index.md"), ROOT) == ["0.21"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_quoted_numbers_stand_in_their_files(page):
    text = page.read_text()
    assert mismarked(text) == []
    assert stale(text, DOCS) == []


def mean_and_interval(scores, shares):
    """As lessons write them: four digits, by the present code, from the scores as they are printed there."""
    ends = (0.0, 1.0) if shares else (-math.inf, math.inf)
    low, high = weighted_mean_interval(np.array(scores), mean_weights(len(scores)), ends)
    return f"{np.mean(scores):.4g}", f"{low:.4g} to {high:.4g}"


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_intervals_of_the_lessons_are_those_of_their_scores(page):
    for row in seed_rows(page.read_text()):
        assert mean_and_interval(row.scores, row.shares) == (row.mean, row.interval), row


def test_rows_of_seeds_are_read():
    header = "| a | success of each seed | mean | 95 % interval |\n|---|---|---|---|\n"
    table = header + "| x | 1, 0.5 | 0.75 | 0 to 1 |\n"
    assert list(seed_rows(f"text\n\n{table}\n| b | mean |\n|---|---|\n| 1 | 2 |\n")) == [
        ([1.0, 0.5], "0.75", "0 to 1", True)
    ]
    assert sum(len(list(seed_rows(page.read_text()))) for page in LESSONS) > 15
    assert mean_and_interval([75.44, 266, 106.6, 245.6, 207.2], shares=False)[1] == "75.78 to 284.6"
