"""`recollect compare`: many runs, as many at a time as there are cores; it can be stopped and resumed."""

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from ..common.errors import UsageError
from ..common.names import listed
from ..common.option_values import Settings
from ..common.output_paths import check_out_folder
from ..common.signals import Signals
from ..config.calls import arguments
from ..config.command import parse
from ..config.flags import options_of
from ..envs.given import check_id
from ..probing.measure import FEWEST
from ..reporting.popgym_iterations import is_popgym
from ..reporting.report import write_report
from ..run.build import resolved_config
from .display import ComparisonDisplay
from .executor import Executor
from .jobs import Job, plan_jobs
from .options import ExecutorOptions
from .random_baselines import baseline_folder, random_baselines
from .study import Study, override, read_study, seed_words

POLL_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ExecutorOptions):
    """Train models on environments over seeds, and compare them. Unfinished runs are resumed; finished runs
    are skipped.

      recollect compare -e LunarLander-v3 Acrobot-v1 -m ppo ppo_gpt --seeds 10 --steps 3e5
      recollect compare studies/gpt2ppo.yaml
      recollect compare studies/gpt2ppo.yaml --dry-run
      recollect compare -e popgym:RepeatPreviousEasy -m ppo_gru --steps 2e6 --protocol popgym

    Every other option of recollect train is set for all runs. A study file can set options for single
    environments and models: see docs/studies.md.
    """

    POSITIONAL: ClassVar = ("file",)

    file: Path | None = None
    """A study file; options override it."""
    environments: tuple[str, ...] = ()
    """Environments."""
    models: tuple[str, ...] = ()
    """Models (presets)."""
    seeds: tuple[str, ...] = ()
    """One number N: the seeds 1 to N; several, or ranges A-B: these; none: those of the study file, or 5."""
    imports: tuple[str, ...] = ()
    """Third-party environments, memories and encoders named in the study file, which may then be imported."""
    report: Path | None = None
    """Write a report of these runs into this folder, as recollect report does."""
    protocol: Literal["popgym"] | None = None
    """popgym: the report must have the evaluation of the POPGym paper (MMER) beside ours, so the runs need a
    task of POPGym, and the report is written into the folder report unless --report names another one."""
    probe: bool = False
    """Test whether each agent uses its memory, as recollect probe does."""
    command: tuple[str, ...]
    settings: Settings

    @property
    def report_folder(self) -> Path | None:
        """The folder of the report; None: no report is written."""
        return Path("report") if self.report is None and self.protocol is not None else self.report


def compare(
    environments: str | Sequence[str] = (),
    models: str | Sequence[str] = (),
    *,
    file: str | Path | None = None,
    seeds: int | Sequence[int] | None = None,
    steps: int | None = None,
    options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **others: Any,
) -> list[dict[str, Any]]:
    """Train models on environments over seeds, evaluate them, and return a row for each run.

    rows = recollect.compare(["CartPole-v1", "Acrobot-v1"], ["ppo", "ppo_gru"], seeds=5, steps=100_000)
    pandas.DataFrame(rows)

    environments, models         as in `recollect compare`
    seeds                        a number N: the seeds 1 to N; a sequence: these
    file                         a study file, which the others override
    steps, options               for all runs, as in train
    others                       options of `recollect compare --help` by name: out, episodes, jobs, ...

    Unfinished runs are resumed, and finished ones are read from their folders. A random agent is a row of
    each environment. quiet: print nothing. dry_run: no run is executed, and the rows are those of the planned
    runs, without random agents.
    """
    for env in listed(environments):
        check_id("compare", env)
    given = {"environments": environments or None, "models": models or None, "seeds": seed_words(seeds)}
    words = arguments(
        [] if file is None else [file], {**given, "steps": steps, "quiet": quiet, **others}, options
    )
    parsed = parse(CompareOptions, words, "recollect compare", options)
    compared = execute(parsed)
    if parsed.dry_run:
        if not quiet:
            compared.display.plan()
        return compared.display.rows({})
    if not quiet:
        compared.display.results(compared.baselines)
    if not compared.signal:
        write_run_report(compared.jobs, parsed)
    return compared.display.rows(compared.baselines)


def run_compare(options: CompareOptions) -> int:
    """Execute unfinished runs and print the results; the exit code."""
    compared = execute(options)
    if options.dry_run:
        compared.display.plan()
        return 0
    compared.display.results(compared.baselines)
    if compared.signal:
        # The runs may have used most of the ten seconds, and a report of many runs takes as long again.
        if options.report_folder is not None:
            print("recollect: no report: the comparison was stopped", file=sys.stderr)
        return 128 + compared.signal
    write_run_report(compared.jobs, options)
    return int(any(job.state == "failed" for job in compared.jobs))


class Compared(NamedTuple):
    """All runs of a comparison, the evaluations of random agents, and the signal that stopped it."""

    jobs: list[Job]
    display: ComparisonDisplay
    baselines: Mapping[str, Mapping[str, Any]]
    signal: int | None


def execute(options: CompareOptions) -> Compared:
    """Execute unfinished runs; with dry_run only list them."""
    study, out = study_of(options), options.folder
    check_out_folder(out, f"--out {options.out}")
    if options.report is not None:
        check_out_folder(options.report, f"--report {options.report}")
    # Resolved, because the hashes in run folders are of resolved configs.
    configs = study.configs(resolved_config, options_of(CompareOptions))
    options.check_devices(config.device for config in configs)
    jobs = plan_jobs(configs, out, study.episodes, options.probe)
    display = ComparisonDisplay(jobs, options.jobs, options.quiet)
    if options.dry_run:
        return Compared(jobs, display, {}, None)
    baselines = random_baselines(display.tasks, out, study.episodes)
    # Signals after the executor: Ray installs its own SIGTERM handler, which ours must replace.
    with options.executor() as executor, Signals(interrupts=False) as signals, display.live_table:
        display.slots = executor.slots
        run_jobs(jobs, executor, study.episodes, signals, display)
    return Compared(jobs, display, baselines, signals.caught)


def study_of(options: CompareOptions) -> Study:
    """The study of the file, overridden by the options."""
    allowed = *options.imports, *options.environments
    study = read_study(options.file, allowed) if options.file else Study()
    study = override(study, options.environments, options.models, options.seeds, options.episodes)
    if options.probe and study.episodes < FEWEST:
        raise UsageError(f"--probe needs at least {FEWEST} episodes, not {study.episodes}")
    if options.protocol == "popgym":
        _check_popgym([environment.name for environment in study.environments])
    return replace(study, flags=options.settings)


def _check_popgym(tasks: Sequence[str]) -> None:
    """Raise UsageError unless some task is one of POPGym."""
    if tasks and not any(map(is_popgym, tasks)):
        raise UsageError(
            f"--protocol popgym: no task of this comparison is one of POPGym (popgym:NAME); the tasks are "
            f"{', '.join(dict.fromkeys(tasks))}"
        )


def write_run_report(jobs: Sequence[Job], options: CompareOptions) -> None:
    """Write the report of `--report`: of these runs only, even if the folder contains more."""
    if options.report_folder is None:
        return
    folders = [job.folder for job in jobs if job.metrics]
    if not folders:
        print("recollect: no report: no run has written metrics yet", file=sys.stderr)
        return
    baselines = {baseline_folder(options.folder, job.config.env) for job in jobs}
    # Sorted, because the order of a set of paths differs between processes.
    write_report([*folders, *sorted(baselines)], options.report_folder, command=options.command)


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
            # A second signal ends this process at once (Signals); its runs then stop because their stdin
            # closes.
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
