"""Results and progress as HTML, for notebooks."""

import html
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

WIDTH, HEIGHT = 420, 110  # of a curve, in pixels
MOST_POINTS = 200
SECONDS_BETWEEN = 0.25  # two redrawings of one output


class Output:
    """One output of a notebook, which is redrawn in place.

    page: what it shows now, as HTML and as plain text for programs that show no HTML.
    """

    def __init__(self, page: Callable[[], tuple[str, str]]) -> None:
        from IPython.display import display

        self._page, self._next = page, 0.0
        self._handle = display(self._bundle(), raw=True, display_id=True)

    def redraw(self) -> None:
        """Show the present page, unless the last one is less than a quarter of a second old."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN
            self.close()

    def close(self) -> None:
        """Show the last page."""
        self._handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        page, text = self._page()
        return {"text/html": page, "text/plain": text}


def terminal_page(content: RenderableType, width: int) -> str:
    """What a terminal of so many columns would show, as HTML."""
    console = Console(file=io.StringIO(), record=True, width=width, force_jupyter=False)
    console.print(content)
    return console.export_html(inline_styles=True, code_format='<pre style="white-space:pre">{code}</pre>')


def table(rows: Mapping[str, Any]) -> str:
    """Names and values, one pair per row."""
    cells = (
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"


def curve(points: Sequence[tuple[float, float]], title: str) -> str:
    """A line through points (x, y) with the ranges of both axes; empty for fewer than two points."""
    if len(points) < 2:
        return ""
    points = [*points[:: -(-len(points) // MOST_POINTS)], points[-1]]
    xs, ys = zip(*points, strict=True)
    low, high = min(ys), max(ys)
    x_scale, y_scale = WIDTH / (max(xs) - min(xs) or 1), HEIGHT / (high - low or 1)
    path = " ".join(f"{(x - min(xs)) * x_scale:.1f},{(high - y) * y_scale:.1f}" for x, y in points)
    about = html.escape(f"{title}: {low:.4g} to {high:.4g} over {max(xs):,.0f} steps")
    return (
        f'<figure style="margin:0"><svg viewBox="-4 -4 {WIDTH + 8} {HEIGHT + 8}" width="{WIDTH}" role="img" '
        f'aria-label="{about}"><polyline points="{path}" fill="none" stroke="#2a78d6" stroke-width="2"/>'
        "</svg>"
        f"<figcaption>{about}</figcaption></figure>"
    )


def bar(progress: float, text: str) -> str:
    """A progress bar with a line of text."""
    return (
        f'<progress value="{progress:.4f}" max="1" style="width:16em"></progress> '
        f'<code style="white-space:pre">{html.escape(text)}</code>'
    )


def training_returns(folder: Path) -> list[tuple[float, float]]:
    """Steps and mean returns of a run, from metrics.jsonl; empty for a folder without it."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return []
    complete = path.read_text(encoding="utf-8").split("\n")[:-1]  # the last line may be written right now
    lines: Iterable[dict[str, Any]] = map(json.loads, complete)
    return [(line["step"], line["return"]) for line in lines if line["return"] is not None]
