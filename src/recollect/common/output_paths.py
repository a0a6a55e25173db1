"""Checks of output paths before the work begins whose result would be lost."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .errors import UsageError

UNFINISHED = ".unfinished-"  # begins the names of files that are being written


def check_out_folder(folder: Path, label: str) -> None:
    """Raise UsageError unless files can be written into a folder; a missing one is created later.

    label  option and value as the user wrote them
    """
    # The nearest that exists. os.path.exists, because Path.exists raises an error where it may not look.
    existing = next((path for path in (folder, *folder.parents) if os.path.exists(path)), Path())
    if not existing.is_dir():
        raise UsageError(f"{label}: {existing} is a file, and a folder is needed; choose another name")
    _check_writable(existing, label)


def check_new_file(file: Path) -> None:
    """Raise UsageError if a file cannot be written as a new one."""
    if file.is_dir():
        raise UsageError(f"{file} is a folder: add the name of the file to write, as in {file / 'NAME'}")
    if os.path.exists(file):
        raise UsageError(f"{file} exists, and nothing is overwritten: remove it, or choose another name")
    check_parent(file)


def check_parent(file: Path) -> None:
    """Raise UsageError unless the folder of a file exists and can be written to."""
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent} is not a folder: create it, or choose another place for {file}")
    _check_writable(file.parent, str(file))


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which gets the name of the file at the end: a stop leaves no half of a file."""
    target = Path(os.path.realpath(path))  # a link keeps its place
    if target.exists() and not target.is_file():
        yield target  # as /dev/null, which a rename would replace
        return
    # In the same folder, because a rename is atomic only within a file system; with the same suffix, which
    # decides the format of figures and films.
    temporary = target.with_name(f"{UNFINISHED}{target.name}")
    try:
        with naming(path):
            yield temporary
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file that is written in errors that name none, as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        problem = f"{error.strerror or error}; it is not written: free space, or choose another place"
        raise OSError(error.errno, problem, str(path)) from error


def write_whole_text(path: Path, text: str) -> None:
    """Write a text file, of which a stop leaves no half."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _check_writable(folder: Path, label: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{label}: no permission to write into {folder}; choose another place")


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
