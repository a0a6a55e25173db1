"""The command `recollect report`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ..common.errors import UsageError, nearest
from ..common.names import listed

X_AXES = {"steps": "step", "epochs": "iteration", "time": "time", "episodes": "episodes"}


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Compare runs: learning curves, final scores with confidence intervals, and a verdict in words.

      recollect report runs                           every run below runs, into the folder report
      recollect report runs/ppo runs/ppo_lstm -o memory
      recollect report runs --import "SB3@CartPole-v1=logs/progress.csv"

    A run folder is recognised by its config.yaml and metrics.jsonl. Runs whose configs differ only in the
    seed are one model, with curves and scores over its seeds. Folders that cannot be read are skipped and
    listed. The report is report.html (opens in any browser, without a network), report.md with figures/,
    and report.json.
    """

    POSITIONAL: ClassVar = ("runs",)

    command: tuple[str, ...]
    runs: tuple[Path, ...]
    """Run folders, folders above them, or .zip archives."""
    out: Path = Path("report")
    """Output folder."""
    x: Literal["steps", "epochs", "time", "episodes"] = "steps"
    """X axis of the figures in report.md; report.html offers all four."""
    imports: tuple[str, ...] = ()
    """Add a learning curve of another program: LABEL@ENV=PATH, or LABEL=PATH if the runs have one
    environment. PATH is a CSV file with the columns step and return, progress.csv or monitor.csv of SB3, or
    a folder of TensorBoard events. Repeat the option for further curves; equal labels are seeds of one
    curve."""


def report(
    *runs: str | Path,
    out: str | Path = "report",
    x: Literal["steps", "epochs", "time", "episodes"] = "steps",
    imports: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare runs, and write report.html, report.md and report.json into a folder; return report.json.

    data = recollect.report("runs", out="report")
    pandas.DataFrame(data["finals"])

    runs  run folders, folders above them, or .zip archives; the others are options of `recollect report`
    """
    from .report import write_report

    if x not in X_AXES:
        raise UsageError(f"x is {x!r}; {nearest(x, list(X_AXES))}")
    options = [word for name in listed(imports) for word in ("--import", name)]
    command = ["recollect", "report", *map(str, runs), "-o", str(out), "--x", x, *options]
    write_report([Path(run) for run in runs], Path(out), listed(imports), command, X_AXES[x])
    data: dict[str, Any] = json.loads((Path(out) / "report.json").read_text(encoding="utf-8"))
    return data


def run_report(options: ReportOptions) -> int:
    """Write the report; the exit code."""
    from .report import write_report  # not above: usage errors and --help need no numpy

    write_report(options.runs, options.out, options.imports, options.command, X_AXES[options.x])
    return 0
