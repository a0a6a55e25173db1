"""The folder of a run: its place, its summary, and one writer at a time."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .config import RunConfig
from .errors import UsageError


def new_folder(config: RunConfig, out: Path, run_id: str | None) -> Path:
    """<out>/<model>/<env>/<run id>; an id that nobody chose is one that is free."""
    plain = (name.replace("/", "-").replace(":", "-") for name in (config.model, config.env.id))
    home = out.joinpath(*plain)
    if run_id:
        return home / run_id.replace("/", "-").replace(":", "-")
    name = f"s{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    free = (home / f"{name}{suffix}" for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(path for path in free if not path.exists())


def read_summary(folder: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        if summary["status"] and summary["logging"] is not None:
            return summary
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / 'summary.json'} cannot be read: {error!r}") from error
    raise UsageError(f"{folder / 'summary.json'} says nothing of the run")


def unfinished(out: Path, config_hash: str) -> Path | None:
    """The newest run of this config under a folder that has not come to its end."""
    found = []
    for path in out.rglob("summary.json"):
        with contextlib.suppress(UsageError):
            summary = read_summary(path.parent)
            if summary.get("config_hash") == config_hash and summary["status"] != "finished":
                found.append(path)
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None


def write_json(path: Path, data: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=2) + "\n")
    os.replace(temporary, path)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer a folder; the lock goes with the process, however it ends."""
    file: IO[str] = open(folder / ".lock", "w")  # noqa: SIM115 (held, not read)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise UsageError(f"{folder} is in use by another process") from error
    try:
        yield
    finally:
        file.close()
