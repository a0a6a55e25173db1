"""Signals that stop a run: between two iterations if possible, and within ten seconds in any case."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

GRACE = 7.5  # seconds to reach the end of an iteration, where the state can be saved
LAST_GRACE = 1.5  # seconds to leave the code that was interrupted after that

# Called before a process ends without clean-up: they end children that multiprocessing does not know.
AT_EXIT: set[Callable[[], None]] = set()


class StoppedError(KeyboardInterrupt):
    """A signal whose grace has passed, raised wherever the main thread is; as Ctrl-C, not an Exception."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def terminate_this_process() -> None:
    """Send SIGTERM to this process, from any of its threads."""
    if os.name == "nt":
        signal.raise_signal(signal.SIGTERM)  # os.kill would end the process without calling handlers
    else:
        os.kill(os.getpid(), signal.SIGTERM)  # to the main thread, which it wakes


def raise_if_stopping() -> None:
    """Raise StoppedError if a signal has told the run to stop: other processes may have received it too."""
    active = Signals.active
    if active is not None and active.caught:
        raise StoppedError(active.caught)


class Signals:
    """Handlers of SIGINT and SIGTERM: the first is stored in `caught`, a second ends the process at once.

    The run checks `caught` between iterations, where its state can be saved. If it does not get there, as in
    a slow environment or a long validation, StoppedError interrupts it, or else the process ends.

    interrupts  False: nothing is interrupted, as in a comparison, whose runs have a grace of their own
    at_once     True: the first signal raises StoppedError where it arrives, as in a command without a run
    """

    active: ClassVar["Signals | None"] = None

    def __init__(self, interrupts: bool = True, at_once: bool = False) -> None:
        self.caught: int | None = None
        self._interrupts = interrupts
        self._at_once = at_once
        self._overdue = False
        self._timer: threading.Timer | None = None
        self._old: dict[int, Any] = {}
        self._outer: Signals | None = None

    def __enter__(self) -> "Signals":
        self.proceed()
        return self

    def __exit__(self, *_: object) -> None:
        self.suspend()

    def proceed(self) -> None:
        """Signals are those of the run, which executes from now on."""
        self._outer, Signals.active = Signals.active, self  # a run is inside of a command
        with contextlib.suppress(ValueError):  # outside the main thread, where Python allows no handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._store)
        if self.caught and self._interrupts:  # before it was suspended
            self._start_timer(GRACE, self._interrupt)

    def suspend(self) -> None:
        """Until `proceed`, signals are those of whoever had them before: the run does not execute."""
        if Signals.active is self:
            Signals.active = self._outer
        if self._timer is not None:
            self._timer.cancel()
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def _store(self, number: int, frame: FrameType | None) -> None:
        if self._overdue:
            self._overdue = False
            raise StoppedError(self.caught or number)
        if self.caught:
            _exit_at_once(number)
        self.caught = number
        if self._at_once:
            # The clean-up on the way out may hang, as the close of an environment.
            self._start_timer(GRACE, lambda: _exit_at_once(number))
            raise StoppedError(number)
        if self._interrupts:
            self._start_timer(GRACE, self._interrupt)

    def _start_timer(self, seconds: float, then: Any) -> None:
        # Not at the start of the run: in a process with threads, forks of environments would be at risk.
        self._timer = threading.Timer(seconds, then)
        self._timer.daemon = True
        self._timer.start()

    def _interrupt(self) -> None:
        """Raise StoppedError in the main thread; exit if it is not left after that."""
        self._overdue = True
        number = self.caught or signal.SIGTERM
        self._start_timer(LAST_GRACE, lambda: _exit_at_once(number))
        if hasattr(signal, "pthread_kill"):
            # A signal and not only a flag: it ends calls of the system that the thread waits in.
            signal.pthread_kill(threading.main_thread().ident or 0, number)


def _exit_at_once(number: int) -> None:
    """End this process and its children, without any clean-up: that may be what hangs."""
    with contextlib.suppress(Exception):
        for end in tuple(AT_EXIT):
            end()
        for child in multiprocessing.active_children():
            child.kill()
    os._exit(128 + number)
