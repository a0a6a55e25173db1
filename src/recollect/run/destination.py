"""Where the files and metrics of a run go, and the summary that it begins with."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals as Signal
from typing import Any

from ..common.signals import StoppedError
from ..config.config import RunConfig
from ..config.data import config_hash
from .run_folder import write_summary
from .weights import processor_name, versions


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where the files and metrics of a run go."""

    out: Path = Path("runs")
    """Folder of all runs; the folder of this run is <out>/<model>/<env>/<run id>."""
    run_id: str | None = None
    """Name of the run's folder; None: the seed and the time."""
    wandb_project: str | None = None
    """Weights & Biases project to log to; None: no logging to Weights & Biases."""
    wandb_entity: str | None = None
    """Weights & Biases account of the project; None: the default account."""
    quiet: bool = False
    """Print nothing."""


def initial_summary(config: RunConfig, destination: Destination) -> dict[str, Any]:
    """summary.json of a run that has just started."""
    return {
        "status": "running",
        "config_hash": config_hash(config),
        "versions": versions(),
        "processor": processor_name(),
        "logging": {
            "wandb_project": destination.wandb_project,
            "wandb_entity": destination.wandb_entity,
        },
    }


@contextmanager
def begun(folder: Path, config: RunConfig, destination: Destination) -> Iterator[None]:
    """Write summary.json of a run that begins, and what ends the run within this context."""
    summary = initial_summary(config, destination)
    write_summary(folder, summary)
    try:
        yield
    except (Exception, StoppedError) as error:
        status = Signal(error.number).name if isinstance(error, StoppedError) else "failed"
        with suppress(OSError):
            write_summary(folder, {**summary, "status": status})
        raise
