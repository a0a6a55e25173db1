"""The folder of a run: its path, its summary, its lock and its claim."""

import contextlib
import json
import re
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

from ..common.digests import Digests, check_files, digest_existing, seal, unseal
from ..common.errors import UsageError
from ..common.locks import lock
from ..common.output_paths import UNFINISHED, write_whole_text

if TYPE_CHECKING:  # at run time it would import torch, which tools that only read folders do not need
    from ..config.config import RunConfig

CLAIM = ".claim"


def new_folder(config: "RunConfig", out: Path, run_id: str | None, start: Path = Path()) -> Path:
    """<out>/<model>/<env>/<run id>; without a run id, a name from seed and time that does not exist yet.

    start  the folder that a relative `out` is in
    """
    from ..config.presets import filed_as  # as above; whoever has a config has imported torch already

    # Ids such as ALE/Pong-v5 must be one folder: `compare` and `list` rely on the depth
    # <out>/<model>/<env>/<run id>.
    names = (_folder_name(name) for name in (filed_as(config), config.env.id))
    parent = _folder_of_runs(out).joinpath(*names)
    if run_id is not None:
        # Refused instead of changed: the user looks for the run under the name that was given.
        if not isinstance(run_id, str) or not run_id or _folder_name(run_id) != run_id:
            raise UsageError(
                f"--run-id {run_id!r} is not the name of one folder: choose a name without /, \\ and :"
            )
        return parent / run_id
    name = f"s{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (parent / f"{name}{suffix}" for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(path for path in paths if not (start / path).exists())


def _folder_of_runs(out: Path) -> Path:
    """The folder of all runs, which may have been an address before it became a path."""
    # A path has lost slashes of an address: s3://runs is s3:/runs, and file:///runs is file:/runs.
    return parse_folder(re.sub(r"^file:/+", "file:///", re.sub(r"^(\w{2,}):/+", r"\1://", str(out))))


def _folder_name(text: str) -> str:
    """The id of an environment or a model as the name of one folder, which leads nowhere else."""
    return "-" if text in (".", "..") else re.sub(r"[/:\\\x00]", "-", text)


def parse_folder(text: str) -> Path:
    """The path of a folder on the command line, which may be a file:// address."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text)
    if scheme != "file" or not rest.startswith("/"):
        raise UsageError(
            f"{text}: runs need locks, appends and renames, which {scheme}:// does not offer; "
            "mount the storage on every machine, and give that path or file:///PATH"
        )
    return Path(rest)


def is_unstarted(folder: Path) -> bool:
    """Whether no run has started in a folder: it does not exist, or has no summary.json and no results."""
    # What `start_run` writes before summary.json; a process that was killed in between leaves these.
    # Earlier versions left summary.tmp.
    early = {"config.yaml", "checkpoints", "summary.tmp", ".lock", CLAIM}
    names = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
    return all(name in early or name.startswith(UNFINISHED) for name in names)


@dataclass(frozen=True)
class Claim:
    """The process of a cluster that owns a run.

    A machine that was cut off may still hold the lock of a run that was given to another machine. The new
    owner writes a claim, and the old one stops when it reads it.

    task     the same for all processes that one task of the cluster started, on one machine or another
    process  unique for each process
    """

    task: str
    process: str
    host: str

    @classmethod
    def new(cls, task: str) -> "Claim":
        """A claim of this process."""
        return cls(task, uuid.uuid4().hex, socket.gethostname())

    @classmethod
    def read(cls, folder: Path) -> "Claim | None":
        """The newest claim on a folder; None if there is no readable one."""
        try:
            return cls(**json.loads((folder / CLAIM).read_text()))
        # A claim is not written atomically. Half of one counts as none; the next look reads it.
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Write this claim to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CLAIM).write_text(json.dumps(asdict(self)))


LOGGING = {"wandb_project", "wandb_entity"}  # fields of Destination that summary.json keeps


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a run that has started; UsageError if it is missing, damaged or edited."""
    return _read_summary(folder)[0]


def check_results(folder: Path) -> None:
    """Raise UsageError if a file of a finished run is not as the run wrote it."""
    check_files(folder, _read_summary(folder)[1])


def _read_summary(folder: Path) -> tuple[dict[str, Any], Digests]:
    """summary.json without its seal, and the digests in it."""
    file = folder / "summary.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        status, logging = data["status"], dict(data["logging"])
    except FileNotFoundError as error:
        raise UsageError(f"{file} does not exist; restore it, or train again with --config") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{file} is not the summary of a run; restore it, or train again with --config"
        ) from error
    names = [name for name in logging.values() if name is not None]
    if status and logging.keys() <= LOGGING and all(isinstance(name, str) for name in (status, *names)):
        return unseal(str(file), data)
    raise UsageError(f"{file} has no status of the run; restore the file, or train again")


def check_config(config: "RunConfig", saved: Mapping[str, Any], file: Path) -> None:
    """Raise UsageError if the config of a run is not the one that its checkpoint was written with."""
    from ..config.assembly import from_dict  # as above
    from ..config.flags import values_in

    # Names that the file may import are those that the user has allowed for config.yaml already.
    branches = (config.actor, config.critic)
    names = [config.env.id, *(part.found_as() for b in branches for part in (b.memory, b.encoder))]
    before, now = values_in(from_dict(saved, names, str(file))), values_in(config)
    changed = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    if changed:
        parts = (f"{name} is {now.get(name)!r}, was {before.get(name)!r}" for name in changed[:4])
        raise UsageError(
            f"config.yaml differs from the config in {file.name}: {'; '.join(parts)}; restore it, or start a "
            "new run from it with --config"
        )


def find_unfinished(out: Path, config_hash: str) -> Path | None:
    """The folder of the newest unfinished run of a config under `out`, or None."""
    matches = []
    for path in _folder_of_runs(out).rglob("summary.json"):
        with contextlib.suppress(UsageError):
            summary = read_summary(path.parent)
            if summary.get("config_hash") == config_hash and summary["status"] != "finished":
                matches.append(path)
    return max(matches, key=lambda path: path.stat().st_mtime).parent if matches else None


def write_summary(folder: Path, summary: Mapping[str, Any], results: Digests | None = None) -> None:
    """Write summary.json with its digest and those of files that the run does not write any more.

    results  the digests of the files of a finished run, beside that of config.yaml
    """
    files = digest_existing(folder, ["config.yaml"]) | dict(results or {})
    write_json(folder / "summary.json", seal(summary, files))


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write JSON, of which other processes never read half."""
    write_whole_text(path, json.dumps(data, indent=2) + "\n")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; UsageError if another process holds it.

    The system releases the lock when the process ends, in whatever way, so no stale lock can remain.
    """
    # The file is never removed: another process could lock a new file of that name at the same time.
    file: IO[str] = open(folder / ".lock", "w")  # noqa: SIM115 (must stay open while the lock is held)
    try:
        lock(file)
    # First, because it is an OSError as well.
    except BlockingIOError as error:
        file.close()
        raise UsageError(f"{folder} is in use by another process; wait for it, or stop it") from error
    except OSError as error:
        file.close()
        raise OSError(f"{folder} lies on storage that has no locks: {error}; use another --out") from error
    try:
        yield
    finally:
        file.close()


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder now."""
    try:
        with locked(folder):
            return False
    # No OSError: storage without locks must not look like a folder that nobody has locked.
    except UsageError:
        return True


def refuse_restart(checkpoints: Path) -> None:
    """Raise UsageError if a run without an intact checkpoint has weights, which a restart would replace."""
    last = checkpoints / "last.safetensors"
    if last.exists():  # it is written after a checkpoint
        raise UsageError(
            f"no checkpoint in {checkpoints} is intact, and a restart from the seed would replace the "
            f"weights in {last}: continue from these in a new run with --init {quote(str(last))}, or move "
            "them away to restart"
        )
