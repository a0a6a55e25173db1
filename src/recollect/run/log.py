"""Sinks of metrics: metrics.jsonl, TensorBoard and Weights & Biases."""

import json
import os
import time
from pathlib import Path
from typing import Any

from ..common.metrics import METRICS, Metrics, is_finite


class JsonLines:
    """A file with one JSON object per line.

    offset  bytes to keep of an existing file: its length when the checkpoint was saved
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        # Appending, so every write goes to the end of the file, wherever truncate() put it.
        self._file = open(path, "ab")  # noqa: SIM115 (open for the life of the run)
        self._file.truncate(offset)

    def write(self, metrics: Metrics) -> None:
        """Append one line of metrics; values that are not finite are null."""
        finite = {k: metrics[k] if is_finite(metrics[k]) else None for k in METRICS}
        self.append(json.dumps(finite) + "\n")

    def append(self, lines: str) -> None:
        """Append complete lines; flushed, so other processes can read them immediately."""
        self._file.write(lines.encode())
        # No fsync: a power cut may lose lines, but `resume` cuts those after the checkpoint anyway.
        self._file.flush()

    @property
    def offset(self) -> int:
        """The length of the file in bytes, from which a resumed run continues."""
        self._file.seek(0, os.SEEK_END)  # before the first write, tell() of an appended file may be 0
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """An event file of TensorBoard with every metric.

    purge_from  first step whose earlier events TensorBoard is to discard, after a resume; None: none
    """

    def __init__(self, folder: Path, purge_from: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(folder))
        if purge_from is not None:
            # On a START event TensorBoard discards all earlier events from this step on.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=purge_from, session_log=start))

    def write(self, metrics: Metrics) -> None:
        """Write one event with all metrics."""
        values = [
            self._summary.Summary.Value(tag=key, simple_value=value)
            for key, value in metrics.items()
            if value is not None and key != "step"
        ]
        summary = self._summary.Summary(value=values)
        event = self._event.Event(wall_time=time.time(), step=int(metrics["step"] or 0), summary=summary)
        self._writer.add_event(event)

    def close(self) -> None:
        """Write queued events and close the file."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, project: str, entity: str | None, run_id: str, folder: Path, config: Any) -> None:
        import wandb

        # The id comes from the run folder, so a resumed run continues its earlier page instead of a new one.
        self._run = wandb.init(
            project=project, entity=entity, id=run_id, resume="allow", dir=folder, config=config
        )

    def write(self, metrics: Metrics) -> None:
        """Log one row. Weights & Biases ignores steps that were logged before a resume."""
        self._run.log({k: v for k, v in metrics.items() if v is not None}, step=int(metrics["step"] or 0))

    def close(self) -> None:
        """End the upload."""
        self._run.finish()
