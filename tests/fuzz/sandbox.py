"""Executes a command in a child process that may not do harm, and says what it did."""

import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60  # of a case
MEMORY = 4 * 2**30  # bytes that a case may allocate
LARGEST_FILE = 2**28
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
STARTS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect", "webbrowser.open"}


class Outcome(NamedTuple):
    """What a command did; status is the exit code, or minus the number of the signal that ended it."""

    status: int
    out: str
    err: str
    deeds: list[str]

    def faults(self) -> list[str]:
        """What a user must never see."""
        found = list(self.deeds)
        lines = [line for line in self.err.splitlines() if not line.startswith("recollect: warning: ")]
        if self.status < 0:
            found.append(f"ended by {signal.Signals(-self.status).name}")
        elif self.status not in (0, 1, 2):
            found.append(f"exit code {self.status}")
        elif self.status and (len(lines) != 1 or not lines[0].startswith("recollect: ")):
            found.append(f"{len(lines)} lines of error")
        if "Traceback" in self.err + self.out:
            found.append("traceback")
        return found


def execute(command: Sequence[str], folder: Path, allowed: Sequence[Path]) -> Outcome:
    """The outcome of a command in this folder; other places to which it may write are `allowed`."""
    report = folder.with_name(folder.name + "-report")
    report.mkdir()
    child = os.fork()
    if not child:
        status = 99
        try:
            status = _in_child(command, folder, report, allowed)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status or 0)
    # The time is that of the clock: a command that waits without computing stalls too.
    end = time.monotonic() + SECONDS
    while (result := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    texts = [(report / name).read_text(errors="replace") for name in ("out", "err", "deeds")]
    return Outcome(os.waitstatus_to_exitcode(result[1]), texts[0], texts[1], texts[2].splitlines())


def _in_child(command: Sequence[str], folder: Path, report: Path, allowed: Sequence[Path]) -> int:
    from recollect import cli

    deeds = os.open(report / "deeds", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(report / name, os.O_CREAT | os.O_WRONLY), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", errors="replace"), os.fdopen(2, "w", errors="replace")
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # which the first import of a module would do in the package
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    places = [place.resolve() for place in (Path("/dev"), Path("/proc"), folder, *allowed)]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            touched = [one for one in arguments[:1] if isinstance(one, str | bytes | os.PathLike)]
        elif event in CHANGES:
            touched = [one for one in arguments[:2] if isinstance(one, str | bytes | os.PathLike)]
        elif event in STARTS:
            os.write(deeds, f"{event} {arguments!r}\n".encode(errors="replace")[:300])
            return
        else:
            return
        for one in touched:
            path = Path(os.path.realpath(os.fsdecode(one)))
            if not any(path.is_relative_to(place) for place in places):
                os.write(deeds, f"{event} {path}\n".encode(errors="replace")[:300])

    sys.addaudithook(watch)
    # The filters of Python, so that warnings are lines here, as for a user.
    warnings.resetwarnings()
    for unseen in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", unseen)
    return cli.main(list(command))
