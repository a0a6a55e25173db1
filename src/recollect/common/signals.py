"""Signals that stop a run in good order."""

import contextlib
import os
import signal
from types import FrameType
from typing import Any


class Signals:
    """The first SIGINT or SIGTERM is noted and acted on between iterations; a second ends at once."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        with contextlib.suppress(ValueError):  # not the main thread: signals are not ours to handle
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.caught:
            os._exit(128 + number)
        self.caught = number
