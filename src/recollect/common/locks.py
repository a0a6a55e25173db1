"""Locks of files between processes. The system releases a lock when its process ends, in whatever way."""

import importlib
from types import ModuleType
from typing import IO


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Linux and macOS have one of them, Windows the other.
fcntl, msvcrt = _module("fcntl"), _module("msvcrt")


def lock(file: IO[str]) -> None:
    """Lock an open file; BlockingIOError if another process has locked it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    assert msvcrt is not None, "every system has one of the two modules"
    try:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # the first byte, which need not exist
    except PermissionError as error:
        raise BlockingIOError(*error.args) from error
