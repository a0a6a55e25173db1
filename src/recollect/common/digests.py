"""Digests in result files, so that a damaged or edited file is named and never read as another result.

A sealed JSON object has two more entries: `files` has the digests of other files in its folder, and `digest`
is that of the object with `files`. summary.json has the digest of config.yaml, and of metrics.jsonl and
episodes.jsonl once the run is finished and writes no more; evaluation.json has its own alone. Each file is
complete before its digest is written, and a sealed file is replaced as a whole, so no crash leaves a digest
that does not match. Objects without the two entries are of earlier versions and are read as they are.

Digests detect damage and edits, not forgery: whoever writes a file can write its digest as well.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from .errors import UsageError

Digests: TypeAlias = Mapping[str, str]  # file name -> digest

FILES, DIGEST = "files", "digest"  # the entries of a sealed object


class ChangedError(UsageError):
    """A file differs from its digest."""


def digest(content: bytes) -> str:
    """The digest of the content of a file, as `sha256sum` prints it."""
    return hashlib.sha256(content).hexdigest()


def digest_file(path: Path) -> str:
    """The digest of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(data: Mapping[str, Any], files: Digests) -> dict[str, Any]:
    """A JSON object with its digest and those of other files."""
    sealed = {**data, FILES: dict(files)}
    return {**sealed, DIGEST: _digest_entries(sealed)}


def unseal(name: str, data: Mapping[str, Any]) -> tuple[dict[str, Any], Digests]:
    """The entries of an object without its seal, and the digests of other files.

    UsageError if its digest is not that of its entries.

    name  of its file, for the error
    """
    plain = {key: value for key, value in data.items() if key not in (FILES, DIGEST)}
    # Both entries or neither: with a single one, damage to its name would make the object an unsealed one.
    if len(plain) == len(data):
        return plain, {}
    sealed = {key: value for key, value in data.items() if key != DIGEST}
    files = data.get(FILES)
    try:
        intact = data.get(DIGEST) == _digest_entries(sealed)
    except RecursionError:  # a hostile file, nested more deeply than can be written
        intact = False
    if not intact or not isinstance(files, dict):
        raise changed(name, "it")
    return plain, files


def check_digest(name: str, actual: str, files: Digests) -> None:
    """Raise UsageError unless the digest of a file is the one in summary.json, if there is one.

    name  of the file, which may be a path
    """
    if files.get(Path(name).name, actual) != actual:
        raise changed(name, "summary.json")


def check_files(folder: Path, files: Digests) -> None:
    """Raise UsageError unless all files of a folder that exist have their digests in summary.json."""
    for name in files:
        if (folder / name).is_file():  # an archive leaves files out
            check_digest(str(folder / name), digest_file(folder / name), files)


def digest_existing(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The digests of those of some files that exist."""
    return {name: digest_file(folder / name) for name in names if (folder / name).is_file()}


def changed(name: str, sealed: str) -> ChangedError:
    """The error about a file that differs from its digest.

    sealed  the file that has the digest
    """
    return ChangedError(
        f"{name} is not as it was written: restore it, or remove {DIGEST} and {FILES} from {sealed} "
        "to use it as it is"
    )


def _digest_entries(data: Mapping[str, Any]) -> str:
    # Of the data as a reader gets them, in one order and layout: blanks and the order of keys mean nothing.
    read = json.loads(json.dumps(data))
    return digest(json.dumps(read, sort_keys=True).encode())
