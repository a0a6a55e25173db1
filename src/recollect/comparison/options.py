"""Options that compare and tune share: where runs are kept, and what executes them."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..common.distributed import CORES
from ..common.errors import UsageError
from ..run.run_folder import parse_folder
from .executor import Executor
from .local_executor import LocalExecutor
from .ray_executor import RunResources, ray_executor


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Where runs are kept, and what executes them."""

    out: str = "runs"
    """The folder of all runs."""
    episodes: int | None = None
    """Episodes of the evaluation of each run's last weights; None: those of the study file, if there is
    one, or 100."""
    jobs: int = CORES
    """Runs at a time; by default one per core."""
    on: str | None = None
    """ray: start Ray here; ray:HOST:PORT: join a cluster. None: processes of this machine."""
    cpus_per_run: int = 1
    """CPUs that Ray reserves for a run."""
    gpus_per_run: float = 0.0
    """GPUs that Ray reserves for a run, also a fraction of one."""
    dry_run: bool = False
    """Show the planned runs and an estimate of the time, and stop."""
    quiet: bool = False
    """Print only the results."""

    def __post_init__(self) -> None:
        if (self.on or "ray").partition(":")[0] != "ray":
            raise UsageError(f"--on takes ray or ray:HOST:PORT, not {self.on!r}")
        for name, minimum in (("jobs", 1), ("cpus_per_run", 1), ("gpus_per_run", 0)):
            value = getattr(self, name)
            if not value >= minimum:
                raise UsageError(f"--{name.replace('_', '-')} is {value}, at least {minimum} is needed")

    @property
    def folder(self) -> Path:
        """The folder of all runs, also where it is given as an address."""
        return parse_folder(self.out)

    def check_devices(self, devices: Iterable[str]) -> None:
        """Raise UsageError unless Ray reserves a GPU for runs on one, and for no others."""
        if self.on is None:
            return
        on_gpu = {name for name in devices if name != "cpu"}
        if on_gpu and not self.gpus_per_run:
            raise UsageError(
                f"--device {min(on_gpu)}: Ray shows a run only the GPUs that it reserves; add "
                "--gpus-per-run 1, or a fraction"
            )
        if self.gpus_per_run and not on_gpu:
            raise UsageError(
                f"--gpus-per-run {self.gpus_per_run:g}: all runs are on the CPU, where `auto` puts them if "
                "this machine has no GPU or their networks are small; add --device cuda"
            )

    def executor(self) -> AbstractContextManager[Executor]:
        """Processes of this machine, or a cluster."""
        if self.on is None:
            return nullcontext(LocalExecutor(self.jobs))
        _, _, address = self.on.partition(":")
        resources = RunResources(self.cpus_per_run, self.gpus_per_run)
        return ray_executor(address or None, self.jobs, resources, self.folder)
