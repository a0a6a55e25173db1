"""A .zip archive of run folders, read as data: the text files that a report needs, and nothing else.

An archive is untrusted: its names decide where files are unpacked, and its declared sizes may be false. Both
are checked, names before and sizes while it is unpacked.
"""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

FILES = ("config.yaml", "summary.json", "evaluation.json", "metrics.jsonl", "episodes.jsonl")
MAX_FILES = 20_000
MAX_BYTES = 512 * 2**20  # of all files, unpacked
BLOCK_SIZE = 2**20  # bytes read at a time, so that a false size is detected early

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
    """The reason why an archive cannot be read."""


@contextmanager
def open_archive(path: Path) -> Iterator[Path]:
    """The folder to search for runs: the path itself, or for a .zip a temporary folder with its content."""
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
    """Unpack all files into a folder; BadArchive if there is any file that is not of a run."""
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        names = [entry.filename for entry in entries]
        if len(names) > MAX_FILES:
            raise BadArchive(f"has {len(names):,} files; the limit is {MAX_FILES:,}")
        if len(set(names)) < len(names):
            raise BadArchive("has two files of the same name")
        # All names before the first file: nothing is unpacked from an archive that is refused for its names.
        for name in names:
            _check_name(name)
        remaining = MAX_BYTES
        for entry in entries:
            remaining -= _unpack_file(archive, entry, folder, remaining)


def _check_name(name: str) -> None:
    """A name must stay within the folder on every operating system, and be the name of a file of a run."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(character in name for character in "\\:\0"):
        raise BadArchive(f"has the file name {name!r}, which is not a path inside the archive")
    if PurePosixPath(name).name not in FILES:
        raise BadArchive(f"has the file {name!r}; allowed are {', '.join(FILES)}")


def _unpack_file(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, limit: int) -> int:
    """Unpack one file of at most `limit` bytes -> its size as counted, not as declared."""
    target = folder / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    # "x": where the file system ignores case, two names that passed the check may still be one file.
    with archive.open(entry) as source, target.open("xb") as file:
        while block := source.read(BLOCK_SIZE):
            size += len(block)
            if size > limit:
                raise BadArchive(f"has more than {MAX_BYTES // 2**20} MB unpacked")
            file.write(block)
    return size
