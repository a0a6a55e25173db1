"""One run of a comparison, in a process of its own: trained to the end, then evaluated.

    python -m recollect.comparison.worker   reads a line of JSON; closing its input stops it in good order

So a run does not outlive who asked for it, however that ends.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ..common.errors import UsageError
from ..config.config import RunConfig
from ..config.presets import from_dict
from ..probing import probe, write
from ..reporting.runs import PROBE_FILE
from ..run.run import resume, start
from ..run.run_folder import Claim, is_locked, is_unstarted, write_json
from ..run.session import Destination
from ..run.weights import version_mismatch, versions
from .jobs import EVALUATION

PATIENCE = 60.0  # seconds that a run may still be stopping which an earlier comparison began
# The same where a machine is cut off: storage frees its locks after a while, NFS after 90 s.
HANDOVER = 300.0
TICK = 1.0  # seconds between two looks at who is to have the run


def work(
    config: RunConfig, folder: Path, episodes: int, probes: bool = False, patience: float = PATIENCE
) -> str:
    """Train what is left of a run in <out>/<model>/<env>/<id>, evaluate its last weights, perhaps probe
    its memory; its status.
    """
    _wait(folder, patience)
    if is_unstarted(folder):
        trained = start(config, Destination(out=folder.parents[2], run_id=folder.name, quiet=True))
    else:
        trained = resume(folder, config, quiet=True)
    if trained.summary["status"] == "finished":
        found = trained.evaluate(episodes, seed=config.seed)
        write_json(folder / EVALUATION, found.as_json())
        if probes:
            write(probe(trained, episodes, config.seed), (folder / PROBE_FILE).parent)
    return str(trained.summary["status"])


def _wait(folder: Path, patience: float) -> None:
    """Until nobody writes to the folder any more; who comes too late is told by the run itself."""
    end = time.monotonic() + patience
    while folder.exists() and is_locked(folder) and time.monotonic() < end:
        time.sleep(0.1)


def _claim(folder: Path, task: str, sign: Path) -> None:
    """Tell a process that has the run, where the storage is all that it still sees, to stop; and do so.

    sign  a folder that is locked for as long as somebody waits for the task
    """
    mine = Claim.new(task)
    mine.write(folder)

    def stop_when_replaced() -> None:
        while True:
            time.sleep(TICK)
            with contextlib.suppress(OSError):
                if _replaced(Claim.read(folder), mine, sign):
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    threading.Thread(target=stop_when_replaced, daemon=True).start()


def _replaced(claim: Claim | None, mine: Claim, sign: Path) -> bool:
    """Whether the run is another's now: by the same task, or where nobody waits for this one any more."""
    if claim is None or claim == mine:
        return False
    return claim.task == mine.task or not sign.exists() or not is_locked(sign)


def main() -> int:
    """Read what to do, do it, and say how it ended by the exit code."""
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    data = job["config"]
    # Whoever sends a config has read it already: its names are the user's.
    names = [data["env"]["id"], *(data[branch]["memory"]["name"] for branch in ("actor", "critic"))]
    folder, patience = Path(job["folder"]), PATIENCE
    try:
        if "task" in job:
            if complaint := version_mismatch(socket.gethostname(), versions(), job["versions"]):
                raise UsageError(complaint)
            _claim(folder, job["task"], Path(job["sign"]))
            patience = HANDOVER
        status = work(from_dict(data, names), folder, job["episodes"], job["probes"], patience)
    except (UsageError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return {"finished": 0, "SIGINT": 130, "SIGTERM": 143}[status]


def _stop_when_alone() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
