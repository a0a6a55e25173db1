"""`recollect report`: run folders to a page, a text and numbers. Needs no torch.

runs.py reads folders, and archives of them as archive.py unpacks them; groups.py groups seeds; scores.py,
curves.py, efficiency.py and aggregate.py make numbers of them, with the intervals of intervals.py and the
tests of significance.py; verdict.py says what they mean; summary.py holds all of it; contents.py puts it in
order; page.py, markdown.py and figures.py write it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..common.errors import UsageError
from ..common.format import duration

if TYPE_CHECKING:
    from .blocks import Chart
    from .runs import Run
    from .summary import Summary

ABOUT = """Compare runs: curves, final scores with intervals, and a verdict in words.

  recollect report runs                           every run below runs, into the folder report
  recollect report runs/ppo runs/ppo_lstm -o memory
  recollect report runs --import "SB3@CartPole-v1=logs/progress.csv"

A run is known by its config.yaml and metrics.jsonl. Runs whose configs differ in nothing but the
seed are one model; its curves and scores are over its seeds. What cannot be read is named and left
out. Written are report.html (open it in any browser; it needs no network), report.md with figures/,
and report.json."""

IMPORT = """a curve of another program to draw beside ours: LABEL@ENV=PATH, or LABEL=PATH where there is one
environment. PATH is a CSV file with the columns step and return, SB3's progress.csv or monitor.csv, or a
folder of TensorBoard events. Repeat it, with the same label for further seeds"""

X_AXES = {"steps": "step", "epochs": "iteration", "time": "time", "episodes": "episodes"}
NAMED = 10  # of what is left out, on the screen


def run_report(arguments: Sequence[str]) -> int:
    """recollect report"""
    options = _parser().parse_args(list(arguments))
    command = ["recollect", "report", *arguments]
    write_report(options.runs, options.out, options.imports, command, X_AXES[options.x])
    return 0


def write_report(
    paths: Sequence[Path],
    out: Path,
    imports: Sequence[str] = (),
    command: Sequence[str] = (),
    axis: str = "step",
) -> None:
    """Read runs, and write report.html, report.md, report.json and figures/ into a folder.

    command  what to write down as the way to make it again
    axis     what the curves of the text are drawn over, one of curves.AXES; the page offers all
    """
    from .blocks import charts
    from .groups import groups
    from .imports import read_imports
    from .markdown import markdown
    from .page import page
    from .runs import read
    from .sections import sections, title
    from .summary import as_json, summarise

    if out.exists() and not out.is_dir():
        raise UsageError(f"-o {out}: it is a file; a report is a folder")
    found = read(paths)
    if not found.runs:
        raise UsageError(f"nothing to report: {'; '.join(f'{x.folder} {x.reason}' for x in found.left_out)}")
    imported = read_imports(imports, sorted({group.env for group in groups(found.runs)}))
    summary = summarise(found, imported)
    parts = sections(summary, command or ["recollect", "report", *map(str, paths), "-o", str(out)], out)
    name, facts = title(summary), _facts(found.runs)
    colours = {label: place for place, label in enumerate(summary.labels)}
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "report.json", json.dumps(as_json(summary), allow_nan=False) + "\n")
    _write(out / "report.html", page("recollect report", name, facts, parts, colours))
    pictures = _figures(charts(parts), summary, out / "figures", axis)
    _write(out / "report.md", markdown(name, facts, parts, pictures))
    _say(summary, out)


def _figures(charts: "Sequence[Chart]", summary: "Summary", folder: Path, axis: str) -> dict[str, str]:
    """The text goes without figures where there is no matplotlib; the page never needs it."""
    from .figures import draw

    try:
        return draw(charts, summary, folder, axis)
    except UsageError as error:
        print(f"recollect: {error}; the page has its charts all the same", file=sys.stderr)
        return {}


def _facts(runs: "Sequence[Run]") -> str:
    """How much there is, in a line."""
    envs, seeds = {run.env for run in runs}, {run.seed for run in runs}
    spent = sum(float(run.metrics["time"][-1]) for run in runs if run.metrics["time"][-1] > 0)
    counts = (len(runs), "run"), (len(envs), "environment"), (len(seeds), "seed")
    told = (f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)
    return f"{', '.join(told)}, {duration(spent)} of training"


def _say(summary: "Summary", out: Path) -> None:
    for said in summary.verdict:
        print(f"{said.about}: {said.text}" if said.about else said.text)
    for item in summary.left_out[:NAMED]:
        print(f"left out {item.folder}: {item.reason}")
    if len(summary.left_out) > NAMED:
        print(f"left out {len(summary.left_out) - NAMED} more, named in {out / 'report.md'}")
    print(f"{out / 'report.html'}, report.md and report.json are written")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class _Parser(argparse.ArgumentParser):
    """Whose mistakes are one line, as those of every command."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; recollect report --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="recollect report",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, help="run folders, folders above them, or a .zip of them"
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("report"), help="where it is written: report")
    about_x = "what the curves of the text are drawn over; the page offers all"
    parser.add_argument("--x", choices=list(X_AXES), default="steps", help=about_x)
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="X", help=IMPORT)
    return parser
