"""Coverage of every kind of interval that recollect prints, and false differences of unequal distributions.

    python -m benchmarks.coverage [NAME ...]

A study draws scores whose true value is known and computes the interval with the function of the library
that prints it. The coverage is the share of studies whose interval contains the true value. The results are
in docs/results/coverage.json, and the tables of docs/reports.md are written from it. NAME limits the call to
the rows of these intervals; the other rows of the file stay. All rows take ten minutes of one core.

coverage_kinds.py has the intervals over seeds, coverage_probe.py those over episodes, coverage_states.py
those of read-outs and values, coverage_studies.py those that benchmarks/ alone computes.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.reporting.significance import LEVEL, compare_means

from . import coverage_kinds, coverage_probe, coverage_states, coverage_studies
from .cells import table
from .coverage_kinds import Row, Study
from .intervals import SHAPES

RESULTS = Path("docs") / "results" / "coverage.json"
ROWS = (*coverage_kinds.ROWS, *coverage_probe.ROWS, *coverage_states.ROWS, *coverage_studies.ROWS)
UNEQUAL_SIZES = (3, 5, 10, 20, 40)
UNEQUAL_STUDIES = 1000


def simulate(row: Row, study: Study, size: int) -> dict[str, float]:
    """The coverage of each interval of a row with so many seeds or episodes."""
    random = np.random.default_rng(size)
    studies = row.studies if size <= 20 else row.studies // 2
    each = [study(random, size) for _ in range(studies)]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def measure(row: Row) -> list[dict[str, Any]]:
    """The entries of a row: one for each of its intervals."""
    study = row.prepare()
    shares = {size: simulate(row, study, size) for size in row.sizes}
    return [
        {
            "interval": name,
            "scores": row.scores,
            "of": row.of,
            "studies": row.studies,
            "coverage": {str(size): round(shares[size][name], 3) for size in row.sizes},
        }
        for name in shares[row.sizes[0]]
    ]


def unequal_differences(size: int, studies: int = UNEQUAL_STUDIES) -> float:
    """The share of studies of two models with equal means that are called different: one fails in one of ten
    runs, the other is steady."""
    random = np.random.default_rng(size)
    draw = SHAPES["one in ten fails"]
    pairs = ((draw(random, (size,)), random.normal(0.9, 0.02, size)) for _ in range(studies))
    return float(np.mean([compare_means(x, y) < LEVEL for x, y in pairs]))


# Tables ---------------------------------------------------------------------------------------


def read(root: Path) -> dict[str, Any]:
    """The measured shares."""
    results: dict[str, Any] = json.loads((root / RESULTS).read_text())
    return results


def kinds_table(results: dict[str, Any], of: str) -> list[str]:
    """The coverage of every interval over seeds, over episodes or over tasks."""
    entries = [entry for entry in results["kinds"] if entry["of"] == of]
    sizes = sorted({int(size) for entry in entries for size in entry["coverage"]})
    rows = [
        [
            entry["interval"],
            entry["scores"],
            *(_percent(entry["coverage"].get(str(size))) for size in sizes),
        ]
        for entry in entries
    ]
    return table(["interval", "scores", *(f"{size} {of}" for size in sizes)], rows)


def unequal_table(results: dict[str, Any]) -> list[str]:
    """False differences of two models with equal means."""
    shares: dict[str, float] = results["unequal"]
    return table(["seeds of each", *shares], [["called different", *map(_percent, shares.values())]])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}".replace("%", " %")


def main() -> None:
    """Measure the rows and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="intervals to measure; default: all")
    names = parser.parse_args().names
    path = Path(__file__).parents[1] / RESULTS
    results = json.loads(path.read_text()) if path.exists() else {"kinds": [], "unequal": {}}
    for row in ROWS:
        if not names or any(name in names for name in row.names):
            results["kinds"] = _replaced(results["kinds"], measure(row))
            path.write_text(json.dumps(results, indent=1) + "\n")
    if not names or "unequal" in names:
        results["unequal"] = {str(size): unequal_differences(size) for size in UNEQUAL_SIZES}
        path.write_text(json.dumps(results, indent=1) + "\n")


def _replaced(entries: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All entries with the new ones, in the order of ROWS."""
    by_key = {(entry["interval"], entry["scores"]): entry for entry in (*entries, *new)}
    keys = [(name, row.scores) for row in ROWS for name in row.names]
    return [by_key[key] for key in keys if key in by_key]


if __name__ == "__main__":
    main()
