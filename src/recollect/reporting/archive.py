"""A .zip of run folders, read as data: the text files that a report needs, and nothing else.

An archive may come from anywhere. Its names decide where files are unpacked, and its sizes are claims, so
both are checked before and while it is unpacked.
"""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

FILES = ("config.yaml", "summary.json", "evaluation.json", "metrics.jsonl", "episodes.jsonl")
MOST_FILES = 20_000
MOST_BYTES = 512 * 2**20  # of all files, unpacked
PIECE = 2**20  # bytes read at a time, so that a false size is noticed early

UNREADABLE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,  # an unknown compression
    RuntimeError,  # a password
    EOFError,
    OSError,  # among others: a file where another name needs a folder
    ValueError,
)


class BadArchive(Exception):
    """Why an archive cannot be read."""


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder to look for runs in: the path itself, or what a .zip holds, unpacked for this long."""
    if path.suffix != ".zip" or not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="recollect-") as scratch:
        folder = Path(scratch)
        try:
            _unpack(path, folder)
        except UNREADABLE as error:
            raise BadArchive(f"is not a readable archive: {error}") from error
        yield folder


def _unpack(path: Path, folder: Path) -> None:
    """Every file of an archive into a folder; BadArchive if it holds anything else than files of runs."""
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        names = [entry.filename for entry in entries]
        if len(names) > MOST_FILES:
            raise BadArchive(f"holds {len(names):,} files; at most {MOST_FILES:,} are read")
        if len(set(names)) < len(names):
            raise BadArchive("holds two files of one name")
        for name in names:
            _check_name(name)
        left = MOST_BYTES
        for entry in entries:
            left -= _unpack_file(archive, entry, folder, left)


def _check_name(name: str) -> None:
    """A name must stay within the folder on every system, and be that of a file of a run."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(sign in name for sign in "\\:\0"):
        raise BadArchive(f"holds {name!r}, which is not a path within it")
    if PurePosixPath(name).name not in FILES:
        raise BadArchive(f"holds {name!r}; only {', '.join(FILES)} are read")


def _unpack_file(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, left: int) -> int:
    """One file, of at most so many bytes -> how many it has, counted and not as claimed."""
    target = folder / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with archive.open(entry) as source, target.open("xb") as file:
        while piece := source.read(PIECE):
            size += len(piece)
            if size > left:
                raise BadArchive(f"holds more than {MOST_BYTES // 2**20} MB")
            file.write(piece)
    return size
