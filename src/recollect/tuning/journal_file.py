"""The journal of a tuning study: Optuna's lines of JSON, each with a checksum.

A line that was damaged would change the result of a study without a word, so it is an error. The checksum is
one more key of a line, which Optuna and its dashboard ignore.
"""

import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..common.errors import UsageError
from ..common.output_paths import naming

Log = dict[str, Any]
CHECKSUM = re.compile(rb',"crc32":(\d+)\}$')


class Journal:
    """A journal file with one writer, as a backend of Optuna's JournalStorage.

    read_only  leave the file as it is: another process may be writing it
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._path = path
        self._logs: list[Log] = []
        self._written = 0  # lines with a checksum, which contains their number: none is lost, moved or twice
        data = path.read_bytes() if path.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and not read_only:
            # The incomplete last line that a full disk or a kill leaves: the next line would be joined to it.
            os.truncate(path, whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            self._read(line, number)

    def read_logs(self, log_number_from: int) -> Iterable[Log]:
        """The logs from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: Sequence[Log]) -> None:
        """Append logs, which are on the disk afterwards."""
        texts = [json.dumps(log, separators=(",", ":")).encode() for log in logs]
        lines = [self._with_checksum(text, self._written + i) for i, text in enumerate(texts)]
        with naming(self._path), open(self._path, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        self._written += len(lines)
        self._logs += [json.loads(text) for text in texts]

    def _read(self, line: bytes, number: int) -> None:
        match = CHECKSUM.search(line)
        # Journals of earlier versions, and lines that the dashboard writes, have no checksum.
        text = line if match is None else line[: match.start()] + b"}"
        try:
            if match is not None and int(match[1]) != _checksum(text, self._written):
                raise ValueError
            log = json.loads(text)
            is_log = isinstance(log, dict) and isinstance(log["op_code"], int)
            if not is_log or not isinstance(log["worker_id"], str):
                raise ValueError
        except (ValueError, KeyError, RecursionError) as error:
            raise UsageError(
                f"{self._path}: line {number} is damaged; restore the file, or use another --out"
            ) from error
        self._written += match is not None
        self._logs.append(log)

    @staticmethod
    def _with_checksum(text: bytes, number: int) -> bytes:
        return text[:-1] + b',"crc32":%d}\n' % _checksum(text, number)


def _checksum(text: bytes, number: int) -> int:
    return zlib.crc32(b"%d %s" % (number, text))
