"""Checks of output paths before the work begins whose result would be lost."""

import os
from pathlib import Path

from .errors import UsageError


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


def _check_writable(folder: Path, label: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{label}: no permission to write into {folder}; choose another place")
