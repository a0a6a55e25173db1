"""Where metrics go: metrics.jsonl, TensorBoard, Weights & Biases, and a screen."""

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Metrics: TypeAlias = Mapping[str, float | None]

# Every key of a line of metrics.jsonl; docs/metrics.md says what each means.
METRICS = (
    "step",
    "iteration",
    "episodes",
    "return",
    "length",
    "success",
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
    "clip_fraction",
    "explained_variance",
    "ratio_error",
    "value_error",
    "state_error",
    "learning_rate",
    "skipped_steps",
    "val_return",
    "time",
    "sps",
)


# Files ----------------------------------------------------------------------------------------


class JsonLines:
    """A file of one JSON object a line; on resume it is cut to where the checkpoint was."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = open(path, "ab")  # noqa: SIM115 (open for the life of the run)
        self._file.truncate(offset)

    def write(self, metrics: Metrics) -> None:
        """Append one line of metrics; what is not finite is null."""
        finite = {k: metrics[k] if is_finite(metrics[k]) else None for k in METRICS}
        self.append(json.dumps(finite) + "\n")

    def append(self, lines: str) -> None:
        """Append whole lines; other processes can read them at once."""
        self._file.write(lines.encode())
        self._file.flush()

    @property
    def offset(self) -> int:
        """Bytes so far: where a resumed run goes on."""
        self._file.seek(0, os.SEEK_END)
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """An event file with every metric; on resume, events from the step on are purged."""

    def __init__(self, folder: Path, purge_from: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(folder))
        if purge_from is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=purge_from, session_log=start))

    def write(self, metrics: Metrics) -> None:
        """One event that holds all metrics."""
        values = [
            self._summary.Summary.Value(tag=key, simple_value=value)
            for key, value in metrics.items()
            if value is not None and key != "step"
        ]
        summary = self._summary.Summary(value=values)
        event = self._event.Event(wall_time=time.time(), step=int(metrics["step"] or 0), summary=summary)
        self._writer.add_event(event)

    def close(self) -> None:
        """Write out what is queued."""
        self._writer.close()


class Wandb:
    """Weights & Biases, when a project is named; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, project: str, entity: str | None, run_id: str, folder: Path, config: Any) -> None:
        import wandb

        self._run = wandb.init(
            project=project, entity=entity, id=run_id, resume="allow", dir=folder, config=config
        )

    def write(self, metrics: Metrics) -> None:
        """One row; a step that was logged before a resume is not logged again."""
        self._run.log({k: v for k, v in metrics.items() if v is not None}, step=int(metrics["step"] or 0))

    def close(self) -> None:
        """End the upload."""
        self._run.finish()


def is_finite(value: float | None) -> bool:
    """Whether a metric is a number that can be drawn."""
    return value is not None and math.isfinite(value)


# Screens --------------------------------------------------------------------------------------


class Display(ABC):
    """What a user sees while a run goes on."""

    @abstractmethod
    def show(self, metrics: Metrics, progress: float) -> None:
        """The newest metrics and the fraction of the run that is behind."""

    @abstractmethod
    def say(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:  # noqa: B027 (most have nothing to leave)
        """Leave the screen as it is."""


class Silent(Display):
    """Nothing at all."""

    def show(self, metrics: Metrics, progress: float) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class Lines(Display):
    """Plain lines, a few a minute: for files, pipes and batch systems."""

    def __init__(self, every: float = 5.0) -> None:
        self._every, self._next = every, 0.0

    def show(self, metrics: Metrics, progress: float) -> None:
        now = time.monotonic()
        if now < self._next and progress < 1:
            return
        self._next = now + self._every
        print(
            f"step {int(metrics['step'] or 0):>10,}  {progress:4.0%}  return {number(metrics['return']):>8}  "
            f"{int(metrics['sps'] or 0):>8,} steps/s  left {duration(left(metrics, progress))}",
            flush=True,
        )

    def say(self, text: str) -> None:
        print(text, flush=True)


SHOWN_LOSSES = {
    "actor": ("policy_loss", "entropy", "kl"),
    "critic": ("value_loss", "explained_variance"),
}


class Screen(Display):
    """A panel that is redrawn in place, at most eight times a second."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._returns: list[float] = []
        self._next = 0.0
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

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def close(self) -> None:
        self._live.stop()

    def _panel(self, metrics: Metrics, progress: float) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        head.add_column(no_wrap=True)
        head.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=1.0, completed=min(progress, 1.0), width=24),
            f"{progress:4.0%}",
            f"[dim]left[/] {duration(left(metrics, progress))}",
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
        """The return so far as a row of blocks, and whether it still climbs."""
        if len(self._returns) < 2:
            return "[dim]waiting for 100 episodes[/]" if not self._returns else ""
        points = self._returns[:: max(1, len(self._returns) // 30)][-32:]
        low, high = min(points), max(points)
        blocks = "▁▂▃▄▅▆▇█"
        scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
        before = self._returns[-min(len(self._returns), 10)]
        arrow = "↑" if self._returns[-1] > before else "↓" if self._returns[-1] < before else "→"
        return "".join(blocks[int((p - low) * scale)] for p in points) + f" {arrow}"


def make_display(title: str, quiet: bool) -> Display:
    """A panel on a terminal, lines elsewhere, nothing on request."""
    if quiet:
        return Silent()
    console = Console()
    return Screen(title, console) if console.is_terminal and not console.is_dumb_terminal else Lines()


def left(metrics: Metrics, progress: float) -> float | None:
    """Seconds to the end at the pace so far."""
    return (metrics["time"] or 0.0) * (1 - progress) / progress if progress > 0 else None


def number(value: float | None) -> str:
    """Short enough to read at a glance."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0 or 0.001 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.1e}"


def duration(seconds: float | None) -> str:
    """12s, 3m05s, 2h10m."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
