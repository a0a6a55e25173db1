"""Signals that stop a run between two iterations."""

import contextlib
import os
import signal
from types import FrameType
from typing import Any


def terminate_this_process() -> None:
    """Send SIGTERM to this process, from any of its threads."""
    if os.name == "nt":
        signal.raise_signal(signal.SIGTERM)  # os.kill would end the process without calling handlers
    else:
        os.kill(os.getpid(), signal.SIGTERM)  # to the main thread, which it wakes


class Signals:
    """Handlers of SIGINT and SIGTERM: the first is stored in `caught`, a second ends the process at once.

    The run checks `caught` between iterations, where its state can be saved.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self._old: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        with contextlib.suppress(ValueError):  # outside the main thread, where Python allows no handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._store)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _store(self, number: int, frame: FrameType | None) -> None:
        if self.caught:
            # Not sys.exit, whose exception would run the clean-up first, which may be what hangs.
            os._exit(128 + number)
        self.caught = number
