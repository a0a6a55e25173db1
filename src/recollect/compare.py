"""`recollect compare`: many runs, as many at a time as there are cores; stopped and gone on with at will."""

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import tokens
from .errors import UsageError
from .evaluate import evaluate
from .folder import write_json
from .jobs import EVALUATION, Job, evaluation, last_line, plan
from .local import Local
from .probe.measure import FEWEST
from .run import settled
from .signals import Signals
from .standings import Standings
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
  --out FOLDER     where runs are kept and looked for (runs)
  --probe          ask each run whether it uses its memory, as recollect probe does
  --dry-run        show what would be done, and about how long it takes
  --quiet          print the results and nothing before

Every other option of `recollect train` is set for all runs. A file can give environments and models
settings of their own: see docs/studies.md.
"""
OWN = ("--jobs", "--out", "--probe", "--dry-run", "--quiet")
SWITCHES = ("--probe", "--dry-run", "--quiet")
TICK = 0.25  # seconds between two looks


@dataclass(frozen=True)
class Options:
    """How the comparison is run; `study` says what it is."""

    study: Study
    jobs: int
    out: Path
    probes: bool
    dry_run: bool
    quiet: bool


def run_compare(arguments: list[str]) -> int:
    """Plan, run what is missing, show the results; the exit code."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(ABOUT, end="")
        return 0 if arguments else 2
    options = parse(arguments)
    study = options.study
    jobs = plan([settled(config) for config in study.configs()], options.out, study.episodes, options.probes)
    standings = Standings(jobs, options.jobs, options.quiet)
    if options.dry_run:
        standings.plan()
        return 0
    random = played_at_random(jobs, options.out, study.episodes)
    with Signals() as signals, standings:
        run(jobs, Local(options.jobs), study.episodes, signals, standings)
    standings.results(random)
    if signals.caught:
        return 128 + signals.caught
    return int(any(job.state == "failed" for job in jobs))


def parse(arguments: list[str]) -> Options:
    """Flags of the comparison apart from those of its runs."""
    file = None
    if not arguments[0].startswith("-"):
        file, arguments = Path(arguments[0]), arguments[1:]
    own: dict[str, list[str]] = {}
    rest = []
    for name, values in tokens(arguments):
        if name in OWN:
            own[name] = values
        else:
            rest.append((name, values))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = own.get("--jobs", [str(cores)])
    if len(given) != 1 or not given[0].isdigit() or int(given[0]) < 1:
        raise UsageError(f"--jobs takes a number above 0, not {' '.join(given)!r}")
    out = own.get("--out", ["runs"])
    if len(out) != 1:
        raise UsageError(f"--out takes one folder, not {len(out)}")
    study, flags = read(rest, file), (name in own for name in SWITCHES)
    if "--probe" in own and study.episodes < FEWEST:
        raise UsageError(f"--probe needs at least {FEWEST} episodes, not {study.episodes}")
    return Options(study, int(given[0]), Path(out[0]), *flags)


def played_at_random(jobs: Sequence[Job], out: Path, episodes: int) -> dict[str, dict[str, Any]]:
    """What acting at random reaches in each environment, kept as <out>/random/<env>/evaluation.json."""
    scores = {}
    for name, env in {job.config.env.id: job.config.env for job in jobs}.items():
        folder = out / "random" / name.replace("/", "-").replace(":", "-")
        found = evaluation(folder)
        if found is None or found["episodes"] != episodes:
            found = evaluate(None, env, episodes, name="random").as_json()
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / EVALUATION, found)
        scores[name] = found
    return scores


def run(jobs: Sequence[Job], local: Local, episodes: int, signals: Signals, standings: Standings) -> None:
    """Run what is not done, until it is done or a signal comes."""
    waiting = deque(job for job in jobs if job.state != "done")
    stopped = False
    while waiting or not local.idle:
        if signals.caught and not stopped:
            stopped = True
            waiting.clear()
            local.stop()
        while waiting and local.free:
            job = waiting.popleft()
            local.start(job, episodes)
            job.state = "running"
        for job, complaint in local.ended():
            job.state, job.error = ("failed", complaint) if complaint else ("begun", "")
            job.look(episodes)
        for job in jobs:
            if job.state == "running":
                job.metrics = last_line(job.folder / "metrics.jsonl") or job.metrics
        standings.show()
        time.sleep(TICK)
