"""The charts of a report as figures drawn by matplotlib."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from ..common.errors import UsageError, install_hint
from ..common.intervals import Floats
from ..common.output_paths import whole_file
from .blocks import Chart, Plot
from .curves import Panel

# As in page.css; distinguishable with every kind of colour vision.
COLOURS = ("#0072b2", "#d1580f", "#6f7c52", "#502742", "#ad7d9b", "#19278a", "#7b1507")
DASHES = ("-", (0, (6, 3)), (0, (1, 3)), (0, (8, 3, 1, 3)))
# Metrics of the figures; the page offers all.
FIGURE_METRICS = {
    "return": "return",
    "length": "episode length",
    "value_loss": "critic loss",
    "explained_variance": "explained variance",
}
UNFINISHED = (0, (1, 2))
INK, SOFT, GRID = "#1c2128", "#59636e", "#e5e8eb"
STYLE = {
    "axes.edgecolor": "#c8ced4",
    "axes.labelcolor": SOFT,
    "text.parse_math": False,  # labels come from files, and may have dollar signs
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
    charts: Sequence[Chart], colours: Mapping[str, int], folder: Path, axis: str = "step"
) -> dict[str, str]:
    """Every chart as SVG and PNG, curves along an axis; its name -> the SVG's path beside the report.

    colours  label -> index of its colour, the same in all figures
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(f"figures need matplotlib: {install_hint('plot')}") from error
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str, str] = {}
    with matplotlib.rc_context(STYLE):
        for chart in charts:
            figure = _figure(chart, colours, axis)
            # Without a date, because equal reports are to be equal files.
            with whole_file(folder / f"{chart.name}.svg") as temporary:
                figure.savefig(temporary, metadata={"Date": None})
            with whole_file(folder / f"{chart.name}.png") as temporary:
                figure.savefig(temporary, dpi=120)
            paths[chart.name] = f"{folder.name}/{chart.name}.svg"
    return paths


def _figure(chart: Chart, colours: Mapping[str, int], axis: str) -> Any:
    # Without pyplot, which keeps figures open and may open windows.
    from matplotlib.figure import Figure

    if chart.kind == "curves":
        assert chart.panel is not None
        return _curves(Figure(layout="constrained"), chart.panel, colours, axis)
    rows = len(chart.rows)
    figure = Figure(figsize=(7.2, 1.0 + 0.5 * rows if rows else 4.0), layout="constrained")
    _title(figure, chart.title)
    axes = figure.subplots()
    axes.grid(axis="x" if rows else "y")
    axes.set_axisbelow(True)
    if chart.kind == "dots":
        _dots(axes, chart, colours)
    else:
        assert chart.plot is not None
        _lines(axes, chart.plot, colours)
        _legend(figure, axes)
    return figure


def _title(figure: Any, text: str) -> None:
    """At the left edge of the figure, in as many lines as its width asks for."""
    inches, _ = figure.get_size_inches()
    figure.suptitle(fill(text, int(12 * inches)), x=0.01, ha="left", fontsize=11, color=INK)


def _curves(figure: Any, panel: Panel, colours: Mapping[str, int], axis: str) -> Any:
    """One plot per metric that some run has."""
    known = {metric for line in panel.lines for metric, along in line.curves.items() if axis in along}
    metrics = [metric for metric in FIGURE_METRICS if metric in known]
    rows, columns = (1, 1) if len(metrics) < 2 else (math.ceil(len(metrics) / 2), 2)
    figure.set_size_inches(7.2 if columns == 1 else 10.0, 4.0 if rows == 1 else 3.1 * rows)
    _title(figure, f"{panel.env}: interquartile mean over seeds with its 95 % confidence interval")
    plots = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    for axes in plots[len(metrics) :]:
        axes.remove()
    for axes, metric in zip(plots, metrics, strict=False):
        _curve(axes, panel, colours, metric, axis)
    figure.supxlabel(X_NAMES[axis], fontsize=9.5, color=SOFT)
    _legend(figure, plots[0])
    return figure


def _curve(axes: Any, panel: Panel, colours: Mapping[str, int], metric: str, axis: str) -> None:
    """One metric along an axis: the interquartile mean with its interval, or the only seed."""
    grid = panel.grids[axis]
    for line in panel.lines:
        curve = line.curves.get(metric, {}).get(axis)
        if curve is not None:
            colour, dash = _style(colours, line.label)
            dash = UNFINISHED if line.kind in ("unfinished", "random") else dash
            label = line.label if line.kind == "random" else f"{line.label} ({line.seeds})"
            middle = curve.mean if curve.iqm is None else curve.iqm
            axes.plot(grid, middle, color=colour, linestyle=dash, label=label)
            if curve.iqm_low is not None and curve.iqm_high is not None:
                _band(axes, grid, curve.iqm_low, curve.iqm_high, colour)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_ylabel(FIGURE_METRICS[metric])
    if metric == "value_loss":  # the first values are hundreds of times larger than the last
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        # Not those of matplotlib, which are formulas: without parse_math they would be shown as their source.
        axes.yaxis.set_major_formatter(_tick)
        axes.yaxis.set_minor_formatter(_tick if high < 10 * low else "")
    elif metric == "explained_variance":  # the first values are far below 0
        axes.set_ylim(-0.1, 1.05)
    axes.xaxis.set_major_formatter(_tick)


def _tick(x: float, _place: int) -> str:
    """12000 -> 12k, 1500000 -> 1.5M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= unit:
            return f"{x / unit:.4g}{letter}"
    return f"{x:.4g}"


def _lines(axes: Any, plot: Plot, colours: Mapping[str, int]) -> None:
    for line in plot.lines:
        colour, dash = _style(colours, line.label)
        middle, how, step = line.middle, "default", None
        if plot.steps:  # the last value has no width: the one before ends the line
            middle, how, step = np.append(middle[:-1], middle[-2]), "steps-post", "post"
        axes.plot(plot.grid, middle, color=colour, linestyle=dash, label=line.label, drawstyle=how)
        if line.low is not None and line.high is not None:
            _band(axes, plot.grid, line.low, line.high, colour, step)
    axes.set(xlabel=plot.x, ylabel=plot.y)


def _band(axes: Any, x: Floats, low: Floats, high: Floats, colour: str, step: str | None = None) -> None:
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, step=step)


def _dots(axes: Any, chart: Chart, colours: Mapping[str, int]) -> None:
    """One row per model: the mean with its interval, and below them a dot for each seed."""
    if chart.zero:
        axes.axvline(0, color=SOFT, linewidth=1)
    for place, row in enumerate(chart.rows):
        colour, _ = _style(colours, row.label)
        below = np.full(len(row.dots), place + 0.25)
        axes.plot(row.dots, below, "o", color=colour, alpha=0.35, markersize=5, markeredgewidth=0)
        if row.interval is not None:
            axes.plot(row.interval, [place, place], color=colour, linewidth=2.2)
        inside = {"markerfacecolor": "white"} if row.hollow else {"markeredgecolor": "white"}
        axes.plot([row.value], [place], "o", color=colour, markersize=8, **inside)
    axes.set_yticks(range(len(chart.rows)), [fill(row.label, 34) for row in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def _style(colours: Mapping[str, int], model: str) -> tuple[str, Any]:
    """Colour and dashes of a model, the same in all figures."""
    cycle, index = divmod(colours[model], len(COLOURS))
    return COLOURS[index], DASHES[cycle % len(DASHES)]


def _legend(figure: Any, axes: Any) -> None:
    """Below the plots, where it hides no curve."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        width, height = figure.get_size_inches()
        columns = max(1, int(13 * width / (6 + max(map(len, labels)))))
        # A long one would leave no room for the plots.
        figure.set_size_inches(width, height + 0.22 * max(0, math.ceil(len(labels) / columns) - 4))
        figure.legend(
            handles,
            labels,
            frameon=False,
            fontsize=8.5,
            loc="outside lower left",
            ncols=min(columns, len(labels)),
        )
