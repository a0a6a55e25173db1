"""One run of a comparison: trained or resumed to the end, then evaluated and probed."""

import time
from pathlib import Path

from ..config.config import RunConfig
from ..probing import probe, write
from ..reporting.runs import PROBE_FILE
from ..run.destination import Destination
from ..run.run import resume_run, start_run
from ..run.run_folder import is_locked, is_unstarted
from .jobs import write_evaluation

LOCK_SECONDS = 60.0  # to wait until a run that an earlier comparison started has stopped


def train_and_evaluate(
    config: RunConfig,
    folder: Path,
    episodes: int,
    with_probe: bool = False,
    lock_seconds: float = LOCK_SECONDS,
) -> str:
    """Train or resume the run in <out>/<model>/<env>/<id>, evaluate its last weights; its status."""
    deadline = time.monotonic() + lock_seconds
    while folder.exists() and is_locked(folder) and time.monotonic() < deadline:
        time.sleep(0.1)  # if it is still locked afterwards, start or resume says so
    if is_unstarted(folder):
        trained = start_run(config, Destination(out=folder.parents[2], run_id=folder.name, quiet=True))
    else:
        trained = resume_run(folder, config, quiet=True)
    # Also of a run that was finished before: a worker that was killed here comes back to do this.
    if trained.summary["status"] == "finished":
        # Seeded by the run's seed, so that a repeated evaluation gives the same returns.
        evaluation = trained.evaluate(episodes, seed=config.seed)
        write_evaluation(folder, evaluation, trained.summary.get("config_hash"))
        if with_probe:
            write(probe(trained, episodes, config.seed), (folder / PROBE_FILE).parent)
    return str(trained.summary["status"])
