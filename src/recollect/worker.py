"""One run of a comparison, in a process of its own: trained to the end, then evaluated.

    python -m recollect.worker     reads a line of JSON, and stops in good order when its input closes

So a run does not outlive who asked for it, however that ends.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .config import RunConfig
from .errors import UsageError
from .folder import locked, write_json
from .jobs import EVALUATION
from .presets import from_dict
from .probe import probe, write
from .report.runs import PROBE
from .run import Destination, Trained, resume, start

PATIENCE = 60.0  # seconds that a run may still be stopping which an earlier comparison began


def work(config: RunConfig, folder: Path, episodes: int, probes: bool = False) -> str:
    """Train what is left of a run in <out>/<model>/<env>/<id>, evaluate its last weights, perhaps probe
    its memory; its status.
    """
    trained = _trained(config, folder)
    if trained.summary["status"] == "finished":
        found = trained.evaluate(episodes, seed=config.seed)
        write_json(folder / EVALUATION, found.as_json())
        if probes:
            write(probe(trained, episodes, config.seed), (folder / PROBE).parent)
    return str(trained.summary["status"])


def _trained(config: RunConfig, folder: Path) -> Trained:
    if not folder.exists():
        return start(config, Destination(out=folder.parents[2], run_id=folder.name, quiet=True))
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with locked(folder):
                break
        except UsageError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    return resume(folder, config, quiet=True)


def main() -> int:
    """Read what to do, do it, and say how it ended by the exit code."""
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    data = job["config"]
    # Whoever sends a config has read it already: its names are the user's.
    names = [data["env"]["id"], *(data[branch]["memory"]["name"] for branch in ("actor", "critic"))]
    try:
        status = work(from_dict(data, names), Path(job["folder"]), job["episodes"], job["probes"])
    except (UsageError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return {"finished": 0, "SIGINT": 130, "SIGTERM": 143}[status]


def _stop_when_alone() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
