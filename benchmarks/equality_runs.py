"""The runs of one checkout; benchmarks/equality.py starts this module and compares the results.

    PYTHONPATH=CHECKOUT/src python -m benchmarks.equality_runs JOB.json

Only the public API is called, so the package may be laid out differently in both checkouts. Each case has a
folder with its run folder, evaluation.json, and record.json, which is written last.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium

from .equality_cases import CASES, SMALL, Case, Options

SEED = 5
LIMIT = 120.0  # seconds for a command


@dataclass(frozen=True)
class Job:
    """The cases of one checkout, and changes to their options."""

    checkout: str
    folder: str
    cases: tuple[str, ...]
    updates: int
    extra: Options
    """Options on top of every case's own."""
    names: dict[str, str]
    """Old names of options and their values -> new names."""

    @classmethod
    def read(cls, path: Path) -> "Job":
        """Read the file that write() wrote."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write a JSON file."""
        path.write_text(json.dumps(asdict(self)))


def timed_cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole with a Dict observation: the vector and the time."""
    return gymnasium.wrappers.TimeAwareObservation(gymnasium.make("CartPole-v1"), flatten=False)


def renamed(name: Any, names: dict[str, str]) -> Any:
    """A dotted name, renamed as a whole or part by part; values that are no text stay as they are."""
    if not isinstance(name, str):
        return name
    return names.get(name) or ".".join(names.get(part, part) for part in name.split("."))


def options_of(case: Case, job: Job) -> Options:
    """The options of a run; a config file is that of the checkout."""
    options = {**SMALL, "rollouts": job.updates, **case.options, **job.extra}
    if "config" in options:
        options["config"] = str(Path(job.checkout).resolve() / options["config"])
    return {renamed(key, job.names): renamed(value, job.names) for key, value in options.items()}


def train(case: Case, job: Job, folder: Path) -> None:
    """Train by recollect.train, then evaluate with the most likely actions and with sampled ones."""
    import recollect

    env, model = renamed(case.env, job.names), renamed(case.model, job.names)
    env, options = globals().get(env, env), options_of(case, job)
    trained = recollect.train(env, model, seed=SEED, options=options, out=folder, quiet=True)
    returns = [trained.evaluate(2, deterministic=most_likely).returns for most_likely in (True, False)]
    (folder / "evaluation.json").write_text(json.dumps(returns))


def stopping(env: str, steps: int) -> Callable[[], gymnasium.Env[Any, Any]]:
    """A function that makes environments of which one sends SIGTERM, once, after this many steps of all.

    The method of the object is replaced, because a wrapper would hide that the state can be saved; so
    would Gymnasium's checker.
    """
    count = itertools.count(1)

    def make() -> gymnasium.Env[Any, Any]:
        instance = gymnasium.make(env, disable_env_checker=True)
        step = instance.unwrapped.step

        def counted(action: Any) -> Any:
            if next(count) == steps:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(action)

        instance.unwrapped.step = counted
        return instance

    return make


def resume(case: Case, job: Job, folder: Path) -> None:
    """Train with a signal in the second rollout, and resume."""
    import recollect

    options, model = options_of(case, job), renamed(case.model, job.names)
    options["rollouts"] = job.updates + 2
    env = stopping(case.env, SMALL["env.num_envs"] * SMALL["ppo.num_steps"] * 3 // 2)
    run = recollect.train(env, model, seed=SEED, options=options, out=folder, quiet=True).folder
    lines = (run / "metrics.jsonl").read_text().count("\n")
    if lines != 2:
        raise RuntimeError(f"the run stopped after {lines} rollouts, not 2")
    recollect.resume(run, env=env, quiet=True)


def flags(case: Case, job: Job, folder: Path) -> list[str]:
    """The arguments of `recollect train`."""
    words = [renamed(case.env, job.names), "--model", renamed(case.model, job.names)]
    words += ["--seed", str(SEED), "--out", str(folder), "--quiet"]
    for name, value in options_of(case, job).items():
        words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def torchrun(case: Case, job: Job, folder: Path) -> None:
    """Train on two processes."""
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "recollect", "train"]
    subprocess.run([sys.executable, "-m", *launch, *flags(case, job, folder)], check=True, timeout=LIMIT)


RUNS = {"train": train, "resume": resume, "torchrun": torchrun}


def record(name: str, job: Job) -> None:
    """Run one case and record its time and its error."""
    folder, began, error = Path(job.folder) / name, time.perf_counter(), ""
    try:
        folder.mkdir(parents=True)
        RUNS[CASES[name].run](CASES[name], job, folder)
    except Exception as failure:  # any error of the checkout; the other cases still run
        traceback.print_exc()
        error = f"{type(failure).__name__}: {failure}"
    temporary = folder / "record.tmp"
    temporary.write_text(json.dumps({"seconds": time.perf_counter() - began, "error": error}))
    os.replace(temporary, folder / "record.json")


def main() -> None:
    """Run all cases of a job in order."""
    import recollect

    job = Job.read(Path(sys.argv[1]))
    place = Path(recollect.__file__).resolve()
    if not place.is_relative_to(Path(job.checkout).resolve()):
        raise SystemExit(f"recollect was imported from {place}, not from {job.checkout}")
    for name in job.cases:
        record(name, job)


if __name__ == "__main__":
    main()
