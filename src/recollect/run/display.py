"""Progress of a run: a panel on a terminal, a bar in a notebook, plain lines elsewhere."""

import os
import sys
import time
from abc import ABC, abstractmethod

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..common.format import duration, number
from ..common.metrics import Metrics, is_finite
from ..common.notebook import Output, bar


class Display(ABC):
    """Output for the user during a run."""

    @abstractmethod
    def show(self, metrics: Metrics, progress: float) -> None:
        """Show the newest metrics, and the fraction of the run that is complete."""

    @abstractmethod
    def print_line(self, text: str) -> None:
        """Print a line that remains on the screen."""

    def close(self) -> None:  # noqa: B027 (most displays have nothing to release)
        """Stop updating the screen."""


class SilentDisplay(Display):
    """No output."""

    def show(self, metrics: Metrics, progress: float) -> None:
        pass

    def print_line(self, text: str) -> None:
        pass


class LineDisplay(Display):
    """One plain line every few seconds, for files, pipes and batch systems."""

    def __init__(self, every: float = 5.0) -> None:
        self._every, self._next, self._closed = every, 0.0, False

    def show(self, metrics: Metrics, progress: float) -> None:
        now = time.monotonic()
        if now < self._next and progress < 1:
            return
        self._next = now + self._every
        self.print_line(line_of(metrics, progress))

    def print_line(self, text: str) -> None:
        if self._closed:
            return
        try:
            print(text, flush=True)
        except OSError:
            # No reader is left, as in `recollect train ... | head`, or the disk with the log is full. The run
            # has files as well.
            self._closed = True
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)


SHOWN_LOSSES = {
    "actor": ("policy_loss", "entropy", "kl"),
    "critic": ("value_loss", "explained_variance"),
}

BESIDE_BAR = len("  " * 3 + "100%" + "left 99h59m")  # columns of the first line


class PanelDisplay(Display):
    """A panel that is redrawn in place, at most eight times per second."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._returns: list[float] = []
        self._next = 0.0
        # auto_refresh would start a thread, which takes time from training on the same core.
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, metrics: Metrics, progress: float) -> None:
        mean = metrics["return"]
        if mean is not None and is_finite(mean):
            self._returns.append(mean)
        now = time.monotonic()
        if now >= self._next or progress >= 1:
            self._next = now + 0.125
            self._live.update(self._panel(metrics, progress), refresh=True)

    def print_line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._live.stop()

    def _panel(self, metrics: Metrics, progress: float) -> RenderableType:
        # Where the title is long, the bar gives way, so that the time left is not cut off.
        room = self._console.width - len(self._title) - BESIDE_BAR
        head = Table.grid(padding=(0, 2))
        head.add_column(no_wrap=True)
        head.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=1.0, completed=min(progress, 1.0), width=max(1, min(24, room))),
            f"{progress:4.0%}",
            f"[dim]left[/] {duration(seconds_left(metrics, progress))}",
        )
        body = Table.grid(padding=(0, 3))
        trend = self._trend()
        body.add_row("[dim]return[/]", f"[bold]{number(metrics['return'])}[/]  {trend}")
        body.add_row(
            "[dim]steps[/]",
            f"{int(metrics['step'] or 0):,}  [dim]at[/] {int(metrics['sps'] or 0):,}[dim]/s[/]  "
            f"[dim]episodes[/] {int(metrics['episodes'] or 0):,}  [dim]length[/] {number(metrics['length'])}",
        )
        for label, shown in SHOWN_LOSSES.items():
            names = (f"[dim]{name.replace('_', ' ')}[/] {number(metrics[name])}" for name in shown)
            body.add_row(f"[dim]{label}[/]", "  ".join(names))
        return Group(head, body)

    def _trend(self) -> str:
        """The returns so far as a line of blocks, and an arrow for the change over the last ten."""
        if len(self._returns) < 2:
            return "[dim]waiting for the first episode[/]" if not self._returns else ""
        points = self._returns[:: max(1, len(self._returns) // 30)][-32:]
        low, high = min(points), max(points)
        blocks = "▁▂▃▄▅▆▇█"
        scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
        before = self._returns[-min(len(self._returns), 10)]
        arrow = "↑" if self._returns[-1] > before else "↓" if self._returns[-1] < before else "→"
        return "".join(blocks[int((p - low) * scale)] for p in points) + f" {arrow}"


class NotebookDisplay(Display):
    """A bar that is redrawn in place."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._newest = 0.0, title
        self._output = Output(lambda: (bar(*self._newest), self._newest[1]))

    def show(self, metrics: Metrics, progress: float) -> None:
        self._newest = progress, f"{self._title}  {line_of(metrics, progress)}"
        self._output.redraw()

    def print_line(self, text: str) -> None:
        print(text)

    def close(self) -> None:
        self._output.close()


def line_of(metrics: Metrics, progress: float) -> str:
    """Step, return, speed and time left."""
    return (
        f"step {int(metrics['step'] or 0):>10,}  {progress:4.0%}  return {number(metrics['return']):>8}  "
        f"{int(metrics['sps'] or 0):>8,} steps/s  left {duration(seconds_left(metrics, progress))}"
    )


def make_display(title: str, quiet: bool) -> Display:
    """A panel on a terminal, a bar in a notebook, lines elsewhere, nothing if quiet."""
    if quiet:
        return SilentDisplay()
    console = Console()
    if console.is_jupyter:
        return NotebookDisplay(title)
    interactive = console.is_terminal and not console.is_dumb_terminal
    return PanelDisplay(title, console) if interactive else LineDisplay()


def seconds_left(metrics: Metrics, progress: float) -> float | None:
    """Estimated seconds to the end of the run, from its mean speed so far."""
    return (metrics["time"] or 0.0) * (1 - progress) / progress if progress > 0 else None
