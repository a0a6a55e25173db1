"""Where a run writes metrics: metrics.jsonl, episodes.jsonl, TensorBoard and Weights & Biases.

No sink can end a run. One that fails, as on a full disk, is reported once; its lines stay in memory and are
written as soon as that works again.
"""

import contextlib
import io
import itertools
import json
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..common.digests import digest_existing
from ..common.errors import UsageError, install_hint
from ..common.metrics import METRICS, Metrics, is_finite
from ..config.config import RunConfig
from ..config.data import to_dict
from .destination import Destination

FILES = itertools.count()  # numbers the event files of this process


class Sink(Protocol):
    """Something to which metrics are written."""

    name: str

    def write(self, metrics: Metrics) -> None:
        """Write the metrics of one iteration."""

    def close(self) -> None:
        """Release files and connections."""


class Appender:
    """A file to whose end bytes are written. Those that the system refuses are kept for the next write.

    offset  bytes to keep of an existing file; a shorter one keeps its complete lines
    lost    bytes before the offset that the file does not have
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        # Not buffered: after an error, a buffer could not be distinguished from the file.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open for the life of the run)
        size = os.fstat(self._file.fileno()).st_size
        self._length = offset if size >= offset else _complete_lines(path)
        self.lost = offset - self._length
        self._file.truncate(self._length)
        self._pending = b""

    def append(self, data: bytes) -> None:
        """Write all that is pending, then these bytes: all of it, or nothing."""
        self._pending += data
        rest = memoryview(self._pending)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._length)
            raise
        self._length += len(self._pending)
        self._pending = b""

    def sync(self) -> None:
        """Wait until the disk has the file: a checkpoint that counts on it must not outlive it."""
        os.fsync(self._file.fileno())

    @property
    def offset(self) -> int:
        """The length of the file in bytes, with those that are pending."""
        return self._length + len(self._pending)

    def close(self) -> None:
        """Close the file, after a last attempt to write what is pending."""
        try:
            self.append(b"")
        finally:
            self._file.close()


def _complete_lines(path: Path) -> int:
    """The length of a file up to the end of its last complete line."""
    return path.read_bytes().rfind(b"\n") + 1


class JsonLines:
    """A file with one JSON object per line."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.name, self.folder = path.name, path.parent
        self.file = Appender(path, offset)

    def write(self, metrics: Metrics) -> None:
        """Append one line of metrics; values that are not finite are null."""
        finite = {k: metrics[k] if is_finite(metrics[k]) else None for k in METRICS}
        self.append(json.dumps(finite) + "\n")

    def append(self, lines: str) -> None:
        """Append complete lines, which other processes can read immediately."""
        self.file.append(lines.encode())

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class TensorBoard:
    """An event file of TensorBoard with every metric.

    Its own writer has a thread, whose errors end with a traceback; this one writes each event at once.

    purge_from  first step whose earlier events TensorBoard is to discard, after a resume; None: none
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, purge_from: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._records = event_pb2, summary_pb2, RecordWriter
        host, process = socket.gethostname(), os.getpid()
        name = f"events.out.tfevents.{int(time.time()):010d}.{host}.{process}.{next(FILES)}"
        self._file = Appender(folder / name)
        # What a full disk refuses is written before the first metrics, with which it is reported.
        with contextlib.suppress(OSError):
            self._add(file_version="brain.Event:2")
        if purge_from is not None:
            # On a START event TensorBoard discards all earlier events from this step on.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            with contextlib.suppress(OSError):
                self._add(step=purge_from, session_log=start)

    def write(self, metrics: Metrics) -> None:
        """Write one event with all metrics."""
        values = [
            self._summary.Summary.Value(tag=key, simple_value=value)
            for key, value in metrics.items()
            if value is not None and key != "step"
        ]
        self._add(summary=self._summary.Summary(value=values), step=int(metrics["step"] or 0))

    def _add(self, **fields: Any) -> None:
        record = io.BytesIO()
        event = self._event.Event(wall_time=time.time(), **fields)
        self._records(record).write(event.SerializeToString())
        self._file.append(record.getvalue())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Wandb:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    name = "Weights & Biases"

    def __init__(self, project: str, entity: str | None, run_id: str, folder: Path, config: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UsageError(
                f"the run logs to the project {project} of Weights & Biases, which is not installed; "
                f"{install_hint('wandb')}"
            ) from error

        # The id comes from the run folder, so a resumed run continues its earlier page instead of a new one.
        where = {"project": project, "entity": entity, "id": run_id, "resume": "allow", "dir": folder}
        try:
            self._run = wandb.init(**where, config=config)
        except Exception as error:  # its own, as where nobody is logged in
            raise UsageError(
                f"Weights & Biases refuses the project {project}: {error}; log in with `wandb login`, set "
                "WANDB_MODE=offline, or leave out --wandb-project"
            ) from error

    def write(self, metrics: Metrics) -> None:
        """Log one row. Weights & Biases ignores steps that were logged before a resume."""
        self._run.log({k: v for k, v in metrics.items() if v is not None}, step=int(metrics["step"] or 0))

    def close(self) -> None:
        """End the upload."""
        self._run.finish()


class Logs:
    """All sinks of a run. Their errors are printed once, and never raised."""

    def __init__(
        self,
        metrics: JsonLines,
        episodes: JsonLines,
        others: list[Sink],
        print_line: Callable[[str], None],
    ) -> None:
        self._metrics, self._episodes = metrics, episodes
        self._sinks: list[Sink] = [metrics, *others]
        self._print_line = print_line
        self._failing: set[str] = set()
        for file in (metrics, episodes):
            if file.file.lost:
                print_line(
                    f"{file.name} lacks {file.file.lost:,} bytes that it had at the checkpoint; its complete "
                    "lines are kept"
                )

    @property
    def lost(self) -> int:
        """The bytes that the files had at the checkpoint, and have no more."""
        return self._metrics.file.lost + self._episodes.file.lost

    @property
    def offsets(self) -> dict[str, int]:
        """The lengths of the files, from which a resumed run continues."""
        return {"offset": self._metrics.file.offset, "episodes_offset": self._episodes.file.offset}

    def complete(self) -> dict[str, str]:
        """Write all that is pending, wait until the disk has it, and return the digests of the files.

        An OSError is raised: a digest must not be written before what it is of.
        """
        for file in (self._metrics, self._episodes):
            file.file.append(b"")
            file.file.sync()
        return digest_existing(self._metrics.folder, (self._metrics.name, self._episodes.name))

    def write(self, metrics: Metrics, episodes: str) -> None:
        """Write the metrics and the episodes of one iteration to all sinks."""
        self._try(self._episodes.name, lambda: self._episodes.append(episodes))
        for sink in self._sinks:
            self._try(sink.name, partial(sink.write, metrics))

    def sync(self) -> None:
        """Wait until the disk has the files that a checkpoint counts on."""
        for file in (self._metrics, self._episodes):
            with contextlib.suppress(OSError):
                file.file.sync()

    def close(self) -> None:
        """Close all sinks."""
        for sink in (*self._sinks, self._episodes):
            self._try(sink.name, sink.close)

    def _try(self, name: str, write: Callable[[], object]) -> None:
        try:
            write()
        # Whatever a logging service raises: no metric is worth a run.
        except Exception as error:
            if name not in self._failing:
                self._failing.add(name)
                self._print_line(f"{name} is not written: {error}; training continues, and it is retried")
            return
        if name in self._failing:
            self._failing.remove(name)
            self._print_line(f"{name} is written again")


def open_logs(
    folder: Path,
    config: RunConfig,
    destination: Destination,
    offsets: tuple[int, int],
    purge_from: int | None,
    print_line: Callable[[str], None],
) -> Logs:
    """Open the files and services to which a run writes metrics.

    offsets     lengths of metrics.jsonl and episodes.jsonl that are kept
    purge_from  as in TensorBoard
    """
    others: list[Sink] = []
    project, entity = destination.wandb_project, destination.wandb_entity
    if project:  # before any file is open, because it may refuse
        wandb_id = "-".join(folder.parts[-3:])
        others.append(Wandb(project, entity, wandb_id, folder, to_dict(config)))
    others.append(TensorBoard(folder, purge_from))
    metrics = JsonLines(folder / "metrics.jsonl", offsets[0])
    episodes = JsonLines(folder / "episodes.jsonl", offsets[1])
    return Logs(metrics, episodes, others, print_line)
