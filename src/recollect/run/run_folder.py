"""The folder of a run: its place, its summary, and one writer at a time."""

import contextlib
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..common.errors import UsageError

if TYPE_CHECKING:  # it brings torch, which who only looks into folders has no use for
    from ..config.config import RunConfig

CLAIM = ".claim"


def new_folder(config: "RunConfig", out: Path, run_id: str | None) -> Path:
    """<out>/<model>/<env>/<run id>; an id that nobody chose is one that is free."""
    plain = (name.replace("/", "-").replace(":", "-") for name in (config.model, config.env.id))
    home = out.joinpath(*plain)
    if run_id:
        return home / run_id.replace("/", "-").replace(":", "-")
    name = f"s{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    free = (home / f"{name}{suffix}" for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(path for path in free if not path.exists())


def parse_folder(text: str) -> Path:
    """A folder as it is named on the command line: a path, or that of a file:// address."""
    kind, mark, rest = text.partition("://")
    if not mark:
        return Path(text)
    if kind != "file" or not rest.startswith("/"):
        raise UsageError(
            f"{text}: runs need locks, appends and renames, which a folder has and {kind}:// has not; "
            "mount the storage where every machine sees it, and give that path or file:///PATH"
        )
    return Path(rest)


def is_unstarted(folder: Path) -> bool:
    """Whether no run began there: it is not there, or was left before it said anything of itself."""
    before = {"config.yaml", "checkpoints", "summary.tmp", ".lock", CLAIM}
    return not folder.exists() or {path.name for path in folder.iterdir()} <= before


@dataclass(frozen=True)
class Claim:
    """Who is to have a run of a cluster."""

    task: str
    """What the processes share that one task began, on one machine after another."""
    process: str
    host: str

    @classmethod
    def new(cls, task: str) -> "Claim":
        """Of this process."""
        return cls(task, uuid.uuid4().hex, socket.gethostname())

    @classmethod
    def read(cls, folder: Path) -> "Claim | None":
        """The last one that was made."""
        try:
            return cls(**json.loads((folder / CLAIM).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Make it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CLAIM).write_text(json.dumps(asdict(self)))


def read_summary(folder: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        if summary["status"] and summary["logging"] is not None:
            return summary
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / 'summary.json'} cannot be read: {error!r}") from error
    raise UsageError(f"{folder / 'summary.json'} says nothing of the run")


def find_unfinished(out: Path, config_hash: str) -> Path | None:
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
    except BlockingIOError as error:
        file.close()
        raise UsageError(f"{folder} is in use by another process") from error
    except OSError as error:
        file.close()
        raise OSError(f"{folder} lies on storage that has no locks: {error}") from error
    try:
        yield
    finally:
        file.close()


def is_locked(folder: Path) -> bool:
    """Whether another process has it now."""
    try:
        with locked(folder):
            return False
    except UsageError:
        return True
