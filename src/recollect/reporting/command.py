"""The command line of `recollect report`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ..common.errors import UsageError

ABOUT = """Compare runs: learning curves, final scores with confidence intervals, and a verdict in words.

  recollect report runs                           every run below runs, into the folder report
  recollect report runs/ppo runs/ppo_lstm -o memory
  recollect report runs --import "SB3@CartPole-v1=logs/progress.csv"

A run folder is recognised by its config.yaml and metrics.jsonl. Runs whose configs differ only in the seed
are one model, with curves and scores over its seeds. Folders that cannot be read are skipped and listed.
The report is report.html (opens in any browser, without a network), report.md with figures/, and
report.json."""

IMPORT = """add a learning curve of another program: LABEL@ENV=PATH, or LABEL=PATH if the runs have one
environment. PATH is a CSV file with the columns step and return, progress.csv or monitor.csv of SB3, or a
folder of TensorBoard events. Repeat the option for further curves; equal labels are seeds of one curve"""

X_AXES = {"steps": "step", "epochs": "iteration", "time": "time", "episodes": "episodes"}


def run_report(arguments: Sequence[str]) -> int:
    """recollect report"""
    from .report import write_report  # not above: --help needs no numpy

    options = _parser().parse_args(list(arguments))
    command = ["recollect", "report", *arguments]
    write_report(options.runs, options.out, options.imports, command, X_AXES[options.x])
    return 0


class _Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, like every other command."""

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
        "runs", nargs="+", type=Path, help="run folders, folders above them, or .zip archives"
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("report"), help="output folder (default: report)"
    )
    about_x = "x axis of the figures in report.md (default: steps); report.html offers all four"
    parser.add_argument("--x", choices=list(X_AXES), default="steps", help=about_x)
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="X", help=IMPORT)
    return parser
