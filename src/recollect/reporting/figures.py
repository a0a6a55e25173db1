"""The charts of a report as figures drawn by matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from ..common.errors import UsageError, install_hint
from ..common.intervals import Floats
from .blocks import Chart, Plot
from .curves import Panel
from .summary import Summary

# As in page.css; distinguishable with every kind of colour vision.
COLOURS = ("#0072b2", "#d1580f", "#6f7c52", "#502742", "#ad7d9b", "#19278a", "#7b1507")
DASHES = ("-", (0, (6, 3)), (0, (1, 3)), (0, (8, 3, 1, 3)))
# Metrics of the figures; the page offers all.
FIGURE_METRICS = {
    "return": "return",
    "length": "episode length",
    "value_loss": "critic loss",
    "policy_loss": "actor loss",
}
UNFINISHED = (0, (1, 2))
INK, SOFT, GRID = "#1c2128", "#59636e", "#e5e8eb"
STYLE = {
    "axes.edgecolor": "#c8ced4",
    "axes.labelcolor": SOFT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "grid.color": GRID,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",  # text stays text: sharp at any size, and searchable
    "svg.hashsalt": "recollect",  # fixed ids: equal reports are equal files
    "xtick.color": SOFT,
    "ytick.color": SOFT,
}


X_NAMES = {"step": "steps", "iteration": "epochs (rollouts)", "time": "seconds", "episodes": "episodes"}


def draw_figures(
    charts: Sequence[Chart], summary: Summary, folder: Path, axis: str = "step"
) -> dict[str, str]:
    """Every chart as SVG and PNG, curves along an axis; its name -> the SVG's path beside the report."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(f"figures need matplotlib: {install_hint('plot')}") from error
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str, str] = {}
    with matplotlib.rc_context(STYLE):
        for chart in charts:
            figure = _figure(chart, summary, axis)
            # Without a date, because equal reports are to be equal files.
            figure.savefig(folder / f"{chart.name}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{chart.name}.png", dpi=120)
            paths[chart.name] = f"{folder.name}/{chart.name}.svg"
    return paths


def _figure(chart: Chart, summary: Summary, axis: str) -> Any:
    # Without pyplot, which keeps figures open and may open windows.
    from matplotlib.figure import Figure

    if chart.kind == "curves":
        assert chart.panel is not None
        return _curves(Figure(layout="constrained"), chart.panel, summary, axis)
    rows = len(chart.rows)
    figure = Figure(figsize=(7.2, 1.0 + 0.5 * rows if rows else 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_title(chart.title)
    axes.grid(axis="x" if rows else "y")
    axes.set_axisbelow(True)
    if chart.kind == "dots":
        _dots(axes, chart, summary)
    else:
        assert chart.plot is not None
        _lines(axes, chart.plot, summary)
    return figure


def _curves(figure: Any, panel: Panel, summary: Summary, axis: str) -> Any:
    """One plot per metric that some run has."""
    known = {metric for line in panel.lines for metric, along in line.curves.items() if axis in along}
    metrics = [metric for metric in FIGURE_METRICS if metric in known]
    rows, columns = (1, 1) if len(metrics) < 2 else (math.ceil(len(metrics) / 2), 2)
    figure.set_size_inches(7.2 if columns == 1 else 10.0, 4.0 if rows == 1 else 3.1 * rows)
    figure.suptitle(panel.env, x=0.01, ha="left", fontsize=11, color=INK)
    plots = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    for axes in plots[len(metrics) :]:
        axes.remove()
    for axes, metric in zip(plots, metrics, strict=False):
        _curve(axes, panel, summary, metric, axis)
    figure.supxlabel(X_NAMES[axis], fontsize=9.5, color=SOFT)
    _legend(plots[0])
    return figure


def _curve(axes: Any, panel: Panel, summary: Summary, metric: str, axis: str) -> None:
    """One metric along an axis: the mean, and a band from the lowest to the highest seed."""
    grid = panel.grids[axis]
    for line in panel.lines:
        curve = line.curves.get(metric, {}).get(axis)
        if curve is not None:
            colour, dash = _style(summary, line.label)
            dash = UNFINISHED if line.kind in ("unfinished", "random") else dash
            label = line.label if line.kind == "random" else f"{line.label} ({line.seeds})"
            axes.plot(grid, curve.mean, color=colour, linestyle=dash, label=label)
            if curve.low is not None and curve.high is not None:
                _band(axes, grid, curve.low, curve.high, colour)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_ylabel(FIGURE_METRICS[metric])
    if metric == "value_loss":  # the first values are hundreds of times larger than the last
        axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _lines(axes: Any, plot: Plot, summary: Summary) -> None:
    for line in plot.lines:
        colour, dash = _style(summary, line.label)
        axes.plot(plot.grid, line.middle, color=colour, linestyle=dash, label=line.label)
        if line.low is not None and line.high is not None:
            _band(axes, plot.grid, line.low, line.high, colour)
    axes.set(xlabel=plot.x, ylabel=plot.y)
    _legend(axes)


def _band(axes: Any, x: Floats, low: Floats, high: Floats, colour: str) -> None:
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _dots(axes: Any, chart: Chart, summary: Summary) -> None:
    """One row per model: a dot for each seed, the mean, and its interval."""
    for place, row in enumerate(chart.rows):
        colour, _ = _style(summary, row.label)
        axes.plot(row.dots, np.full(len(row.dots), place), "o", color=colour, alpha=0.3, markersize=6)
        if row.interval is not None:
            axes.plot(row.interval, [place, place], color=colour, linewidth=2.2)
        axes.plot([row.value], [place], "o", color=colour, markersize=8, markeredgecolor="white")
    axes.set_yticks(range(len(chart.rows)), [fill(row.label, 34) for row in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def _style(summary: Summary, model: str) -> tuple[str, Any]:
    """Colour and dashes of a model, the same in all figures."""
    cycle, index = divmod(summary.labels.index(model), len(COLOURS))
    return COLOURS[index], DASHES[cycle % len(DASHES)]


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8.5, loc="best")
