"""`recollect compare`: many runs, as many at a time as there are cores; stopped and gone on with at will."""

import hashlib
import json
import re
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.distributed import CORES
from ..common.errors import UsageError
from ..common.signals import Signals
from ..config.config import tokens
from ..envs import EnvConfig
from ..probing.measure import FEWEST
from ..reporting.report import write_report
from ..run.build import resolved_config
from ..run.evaluate import describe_task, evaluate
from ..run.run_folder import parse_folder, write_json
from .display import ComparisonDisplay
from .executor import Executor
from .jobs import EVALUATION, Job, evaluation, plan
from .local_executor import LocalExecutor
from .ray_executor import Share, cluster
from .study import Study, read

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
TICK = 0.25  # seconds between two looks


@dataclass(frozen=True)
class Place:
    """Where runs are kept, and what runs them."""

    out: Path
    jobs: int
    on: str | None
    """None: this machine; ray, or ray:HOST:PORT."""
    share: Share

    def executor(self) -> AbstractContextManager[Executor]:
        """Where it is run."""
        if self.on is None:
            return nullcontext(LocalExecutor(self.jobs))
        _, _, address = self.on.partition(":")
        return cluster(address or None, self.jobs, self.share, self.out)


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
    """Plan, run what is missing, show the results; the exit code."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(ABOUT, end="")
        return 0 if arguments else 2
    options = parse(arguments)
    study, out = options.study, options.place.out
    jobs = plan([resolved_config(config) for config in study.configs()], out, study.episodes, options.probes)
    display = ComparisonDisplay(jobs, options.place.jobs, options.quiet)
    if options.dry_run:
        display.plan()
        return 0
    random = played_at_random(display.tasks, out, study.episodes)
    # Signals after machines: Ray has ways of its own to end at a SIGTERM, and sets them last.
    with options.place.executor() as executor, Signals() as signals, display.live_table:
        display.slots = executor.slots
        run(jobs, executor, study.episodes, signals, display)
    display.results(random)
    reported(jobs, options, arguments)
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
    study = read([(name, values) for name, values in found if name not in own], file)
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
    share = Share(int(count(own, "--cpus-per-run", "1")), count(own, "--gpus-per-run", "0"))
    return Place(parse_folder(out[0]), int(count(own, "--jobs", str(CORES))), on[0], share)


def count(own: Mapping[str, list[str]], flag: str, default: str) -> float:
    """A count above 0, or of GPUs none or any part of one."""
    given = own.get(flag, [default])
    whole = flag != "--gpus-per-run"
    if len(given) != 1 or not re.fullmatch(r"0*[1-9]\d*" if whole else r"\d+(\.\d+)?", given[0]):
        needed = "a number above 0" if whole else "0 or a number above it"
        raise UsageError(f"{flag} takes {needed}, not {' '.join(given)!r}")
    return float(given[0])


def played_at_random(tasks: Mapping[str, EnvConfig], out: Path, episodes: int) -> dict[str, dict[str, Any]]:
    """What acting at random reaches in each task, kept as <out>/random/<env>/evaluation.json."""
    scores = {}
    for name, env in tasks.items():
        folder = random_folder(out, env)
        found = evaluation(folder)
        if found is None or (found["episodes"], found.get("task")) != (episodes, describe_task(env)):
            found = evaluate(None, env, episodes, name="random").as_json()
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / EVALUATION, found)
        scores[name] = found
    return scores


def random_folder(out: Path, env: EnvConfig) -> Path:
    """Of the same task alone: other limits, masks or arguments are another."""
    name = env.id.replace("/", "-").replace(":", "-")
    own = list(describe_task(env).values())
    other = f"-{hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]}" if any(own) else ""
    return out / "random" / f"{name}{other}"


def reported(jobs: Sequence[Job], options: Options, arguments: Sequence[str]) -> None:
    """A report of these runs alone, whatever else lies in the folder of all runs."""
    if options.report is None:
        return
    folders = [job.folder for job in jobs if job.metrics]
    if not folders:
        print("recollect: no report: no run has written a line yet", file=sys.stderr)
        return
    random = {random_folder(options.place.out, job.config.env) for job in jobs}
    write_report([*folders, *sorted(random)], options.report, command=["recollect", "compare", *arguments])


def run(
    jobs: Sequence[Job], executor: Executor, episodes: int, signals: Signals, display: ComparisonDisplay
) -> None:
    """Run what is not done, until it is done or a signal comes."""
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
        for job, complaint in executor.ended():
            job.state, job.error = ("failed", complaint) if complaint else ("begun", "")
            job.look(episodes)
            if job.state == "begun" and not stopped:
                waiting.append(job)  # somebody else stopped it, as a machine that is taken away does
        for job in jobs:
            if job.state == "running":
                job.look_on()
        display.show()
        time.sleep(TICK)
