"""A report as files: report.html, report.md, report.json and figures/."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..common.errors import UsageError
from ..common.format import duration, wrapped
from ..common.output_paths import check_out_folder, write_whole_text
from .blocks import Chart, Text, charts
from .external_curves import read_imports
from .figures import draw_figures
from .groups import group_runs, shorten
from .markdown import render_markdown
from .page import render_page
from .popgym_section import popgym_line
from .runs import read_runs
from .sections import rename, report_sections, report_title
from .summary import Summary, as_json, summarise

MAX_LISTED = 10  # folders that were left out, on the screen


def write_report(
    paths: Sequence[Path],
    out: Path,
    imports: Sequence[str] = (),
    command: Sequence[str] = (),
    axis: str = "step",
) -> None:
    """Read runs, and write report.html, report.md, report.json and figures/ into a folder.

    imports  curves of other programs, as LABEL@ENV=PATH
    command  the command to print in the report as the way to reproduce it
    axis     x axis of the figures, one of curves.AXES; the page offers all
    """
    check_out_folder(out, f"-o {out}")
    collection = read_runs(paths)
    if not collection.runs:
        reasons = "; ".join(f"{item.folder} {item.reason}" for item in collection.left_out)
        raise UsageError(f"nothing to report: {reasons}")
    imported = read_imports(imports, sorted({group.env for group in group_runs(collection.runs)}))
    summary = summarise(collection, imported)
    command = command or ["recollect", "report", *map(str, paths), "-o", str(out)]
    names = shorten(sorted({group.label for group in summary.groups}))
    sections = rename(report_sections(summary, command, out), names)
    title, facts = report_title(summary), _describe_size(summary)
    colours = {names.get(label, label): index for index, label in enumerate(summary.labels)}
    out.mkdir(parents=True, exist_ok=True)
    write_whole_text(out / "report.json", json.dumps(as_json(summary), allow_nan=False) + "\n")
    write_whole_text(out / "report.html", render_page("recollect report", title, facts, sections, colours))
    figures = _draw_figures(charts(sections), colours, out / "figures", axis)
    write_whole_text(out / "report.md", render_markdown(title, facts, sections, figures))
    # The verdict with the short names of the page.
    (words,) = (section.blocks for section in sections if section.title == "Verdict")
    _print([block for block in words if isinstance(block, Text)], summary, out)


def _draw_figures(
    charts: Sequence[Chart], colours: Mapping[str, int], folder: Path, axis: str
) -> dict[str, str]:
    """Chart name -> path of its figure; empty without matplotlib, which the page never needs."""
    try:
        return draw_figures(charts, colours, folder, axis)
    except UsageError as error:
        print(f"recollect: {error}; report.html has all charts, report.md has none", file=sys.stderr)
        return {}


def _describe_size(summary: Summary) -> str:
    """The number of runs, environments and seeds, and the training time, in a line."""
    runs = [run for group in summary.groups for run in group.runs]
    # Two tasks of one environment count as two, as in the title.
    envs, seeds = {group.env for group in summary.groups}, {run.seed for run in runs}
    seconds = sum(float(run.metrics["time"][-1]) for run in runs if run.metrics["time"][-1] > 0)
    counts = (len(runs), "run"), (len(envs), "environment"), (len(seeds), "seed")
    words = (f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
    return f"{', '.join(words)}, {duration(seconds)} of training"


def _print(verdict: Sequence[Text], summary: Summary, out: Path) -> None:
    for statement in verdict:
        print(wrapped(f"{statement.lead}: {statement.text}" if statement.lead else statement.text))
    for task in summary.popgym:
        print(wrapped(popgym_line(task)))
    for item in summary.left_out[:MAX_LISTED]:
        print(f"left out {item.folder}: {item.reason}")
    if len(summary.left_out) > MAX_LISTED:
        print(f"left out {len(summary.left_out) - MAX_LISTED} more; {out / 'report.md'} lists them all")
    print(f"{out / 'report.html'}, report.md and report.json are written")
