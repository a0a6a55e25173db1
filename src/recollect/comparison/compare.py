"""`recollect compare`: many runs, as many at a time as there are cores; stopped and gone on with at will."""

import re
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..common.distributed import CORES
from ..common.errors import UsageError
from ..common.signals import Signals
from ..config.config import tokens
from ..probing.measure import FEWEST
from ..reporting.report import write_report
from ..run.build import resolved_config
from ..run.run_folder import parse_folder
from .display import ComparisonDisplay
from .executor import Executor
from .jobs import Job, plan_jobs
from .local_executor import LocalExecutor
from .random_baselines import baseline_folder, random_baselines
from .ray_executor import RunResources, ray_executor
from .study import Study, read_study

ABOUT = """Compare models on environments over seeds. What an earlier call left undone is gone on with, and
what is done is not done again.

  recollect compare -e LunarLander-v3 Acrobot-v1 -m ppo ppo_gpt --seeds 10 --steps 300000
  recollect compare studies/gpt2ppo.yaml
  recollect compare studies/gpt2ppo.yaml --dry-run

  -e ID ...        environments
  -m PRESET ...    models
  --seeds N        the seeds 1 to N (5); or several numbers: these
  --episodes N     of the evaluation of each run's last weights (100)
  --jobs N         runs at a time (one a core)
  --on ray         run tasks of Ray: ray begins one here, ray:HOST:PORT joins a cluster
  --cpus-per-run N, --gpus-per-run X    what of a machine of Ray a run has (1 and 0)
  --out FOLDER     where runs are kept and looked for (runs)
  --report FOLDER  write a report of these runs there, as recollect report does
  --probe          ask each run whether it uses its memory, as recollect probe does
  --dry-run        show what would be done, and about how long it takes
  --quiet          print the results and nothing before

Every other option of `recollect train` is set for all runs. A file can give environments and models
settings of their own: see docs/studies.md.
"""
PLACE = ("--jobs", "--out", "--on", "--cpus-per-run", "--gpus-per-run")
VALUES = (*PLACE, "--report")
SWITCHES = ("--probe", "--dry-run", "--quiet")
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Place:
    """The folder of all runs, and the machines that execute them."""

    out: Path
    jobs: int
    on: str | None
    """None: this machine; ray, or ray:HOST:PORT."""
    resources: RunResources

    def executor(self) -> AbstractContextManager[Executor]:
        """This machine, or a Ray cluster."""
        if self.on is None:
            return nullcontext(LocalExecutor(self.jobs))
        _, _, address = self.on.partition(":")
        return ray_executor(address or None, self.jobs, self.resources, self.out)


@dataclass(frozen=True)
class Options:
    """How the comparison is run; `study` says what it is."""

    study: Study
    place: Place
    report: Path | None
    probes: bool
    dry_run: bool
    quiet: bool


def run_compare(arguments: list[str]) -> int:
    """Execute unfinished runs and print the results; the exit code."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(ABOUT, end="")
        return 0 if arguments else 2
    options = parse(arguments)
    study, out = options.study, options.place.out
    jobs = plan_jobs(
        [resolved_config(config) for config in study.configs()], out, study.episodes, options.probes
    )
    display = ComparisonDisplay(jobs, options.place.jobs, options.quiet)
    if options.dry_run:
        display.plan()
        return 0
    baselines = random_baselines(display.tasks, out, study.episodes)
    # Signals after the executor: Ray installs its own SIGTERM handler, which ours must replace.
    with options.place.executor() as executor, Signals() as signals, display.live_table:
        display.slots = executor.slots
        run_jobs(jobs, executor, study.episodes, signals, display)
    display.results(baselines)
    write_run_report(jobs, options, arguments)
    if signals.caught:
        return 128 + signals.caught
    return int(any(job.state == "failed" for job in jobs))


def parse(arguments: list[str]) -> Options:
    """Flags of the comparison apart from those of its runs."""
    file = None
    if not arguments[0].startswith("-"):
        file, arguments = Path(arguments[0]), arguments[1:]
    found = tokens(arguments)
    own = {name: values for name, values in found if name in VALUES + SWITCHES}
    study = read_study([(name, values) for name, values in found if name not in own], file)
    if "--probe" in own and study.episodes < FEWEST:
        raise UsageError(f"--probe needs at least {FEWEST} episodes, not {study.episodes}")
    report = own.get("--report")
    if report is not None and len(report) != 1:
        raise UsageError(f"--report takes one folder, not {len(report)}")
    flags = switches(own, SWITCHES)
    return Options(study, place(own, "runs"), Path(report[0]) if report else None, *flags)


def switches(own: Mapping[str, list[str]], names: Sequence[str]) -> list[bool]:
    """Which are on: those that are named, unless false is said."""
    for name in names:
        said = own.get(name, [])
        if said not in ([], ["True"], ["False"]):
            words = " ".join(said)
            raise UsageError(f"{name} takes true, false or nothing, not {words!r}; a file's name comes first")
    return [name in own and own[name] != ["False"] for name in names]


def place(own: Mapping[str, list[str]], folder: str) -> Place:
    """The flags of PLACE; folder: where runs are kept if nothing is said."""
    on = own.get("--on", [None])
    if len(on) != 1 or (on[0] or "ray").partition(":")[0] != "ray":
        raise UsageError(f"--on takes ray or ray:HOST:PORT, not {' '.join(map(str, on))!r}")
    out = own.get("--out", [folder])
    if len(out) != 1:
        raise UsageError(f"--out takes one folder, not {len(out)}")
    resources = RunResources(int(count(own, "--cpus-per-run", "1")), count(own, "--gpus-per-run", "0"))
    return Place(parse_folder(out[0]), int(count(own, "--jobs", str(CORES))), on[0], resources)


def count(own: Mapping[str, list[str]], flag: str, default: str) -> float:
    """A count above 0, or of GPUs none or any part of one."""
    given = own.get(flag, [default])
    whole = flag != "--gpus-per-run"
    if len(given) != 1 or not re.fullmatch(r"0*[1-9]\d*" if whole else r"\d+(\.\d+)?", given[0]):
        needed = "a number above 0" if whole else "0 or a number above it"
        raise UsageError(f"{flag} takes {needed}, not {' '.join(given)!r}")
    return float(given[0])


def write_run_report(jobs: Sequence[Job], options: Options, arguments: Sequence[str]) -> None:
    """Write the report of `--report`: of these runs alone, not of others in the same folder."""
    if options.report is None:
        return
    folders = [job.folder for job in jobs if job.metrics]
    if not folders:
        print("recollect: no report: no run has written metrics yet", file=sys.stderr)
        return
    baselines = {baseline_folder(options.place.out, job.config.env) for job in jobs}
    write_report([*folders, *sorted(baselines)], options.report, command=["recollect", "compare", *arguments])


def run_jobs(
    jobs: Sequence[Job], executor: Executor, episodes: int, signals: Signals, display: ComparisonDisplay
) -> None:
    """Execute all unfinished runs; a signal stops them."""
    waiting = deque(job for job in jobs if job.state != "done")
    stopped = False
    while waiting or not executor.idle:
        if signals.caught and not stopped:
            stopped = True
            waiting.clear()
            executor.stop()
        while waiting and executor.free:
            job = waiting.popleft()
            executor.start(job, episodes)
            job.state = "running"
        for job, error in executor.ended():
            job.state, job.error = ("failed", error) if error else ("begun", "")
            job.read_results(episodes)
            if job.state == "begun" and not stopped:
                waiting.append(job)  # another process stopped it, as when its machine is shut down
        for job in jobs:
            if job.state == "running":
                job.read_metrics()
        display.show()
        time.sleep(POLL_SECONDS)
