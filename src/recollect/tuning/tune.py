"""`recollect tune`: hyperparameter search for a model on an environment, over several seeds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..common.errors import UsageError
from ..common.signals import Signals
from ..comparison.compare import PLACE, Place, count, place, switches
from ..comparison.study import read
from ..config.config import RunConfig, tokens
from ..reporting.page import render_page
from ..run.run_folder import locked, new_folder
from .display import TuningDisplay
from .result import Outcome, importances, tried
from .space_file import space
from .trials import JOURNAL, Question, Tuning, library, load
from .tuning_page import colours, facts, sections, title

ABOUT = """Search for settings of a model on an environment. Every trial is run over several seeds, and is
stopped early where all of them together are behind; the first trial is the preset itself. What an earlier
call left undone is gone on with.

  recollect tune -e CartPoleMasked -m ppo_gru --trials 30 --steps 50000
  recollect tune -e CartPoleMasked -m ppo_gru --trials 60 --steps 50000      30 more
  recollect tune -e CartPoleMasked -m ppo_gru --trials 30 --space my_space.yaml --dry-run

  -e ID            the environment
  -m PRESET        the model whose settings are tuned
  --trials N       trials in all, those of earlier calls among them (30)
  --seeds N        of each trial the seeds 1 to N (3); or several numbers: these
  --space FILE     what is tuned, option by option, over what is tuned anyway: see docs/tuning.md
  --episodes N     of the evaluation of each run's last weights (100)
  --jobs N         runs at a time (one a core)
  --on ray         run tasks of Ray: ray begins one here, ray:HOST:PORT joins a cluster
  --cpus-per-run N, --gpus-per-run X    what of a machine of Ray a run has (1 and 0)
  --out FOLDER     where it is kept, as FOLDER/MODEL/ENV (tune)
  --dry-run        show what would be tuned, and about how long it takes
  --quiet          print the results and nothing before

Every other option of `recollect train` is set for all trials, and is not tuned.
"""
VALUES = (*PLACE, "--trials", "--space")
SWITCHES = ("--dry-run", "--quiet")
TICK = 0.1  # seconds between two looks


@dataclass(frozen=True)
class Options:
    """How the study is run; `question` says what it is."""

    question: Question
    flags: tuple[str, ...]
    """Set for all trials."""
    trials: int
    place: Place
    dry_run: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        """Of the study."""
        return new_folder(self.question.preset, self.place.out, "x").parent


def run_tune(arguments: list[str]) -> int:
    """Search, and show what came out; the exit code."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(ABOUT, end="")
        return 0 if arguments else 2
    library()
    options = parse(arguments)
    question, folder, display = options.question, options.folder, TuningDisplay(options.quiet)
    if options.dry_run:
        over = tried(load(folder, question)) if (folder / JOURNAL).exists() else []
        ended = sum(trial.state != "begun" for trial in over)
        display.plan(question, options.trials, ended, options.place.jobs)
        return 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {options.place.out}: {error}") from error
    with locked(folder):
        study = load(folder, question)
        with options.place.executor() as executor, Signals() as signals, display.live_table:
            run(Tuning(question, study, executor, options.place.out, options.trials), signals, display)
        found = tried(study)
        outcome = Outcome(question, folder, options.flags, found, importances(study))
        written(outcome, ["recollect", "tune", *arguments])
    display.results(outcome, f"optuna-dashboard {folder / JOURNAL}")
    best = ", best.yaml" if outcome.best else ""  # before the preset has a score nothing is the best
    print(f"{folder / 'tune.html'}{best} and tune.json are written")
    if signals.caught:
        print("not all is done; the same command goes on")
        return 128 + signals.caught
    return 0


def parse(arguments: list[str]) -> Options:
    """Flags of the study apart from those of its runs."""
    found = tokens(arguments)
    own = {name: values for name, values in found if name in VALUES + SWITCHES}
    rest = [(name, values) for name, values in found if name not in own]
    if not any(name == "--seeds" for name, _ in rest):
        rest.append(("--seeds", ["3"]))
    study = read(rest, None)
    for flag, variants in (("-e ENV", study.environments), ("-m MODEL", study.models)):
        if len(variants) != 1:
            raise UsageError(f"recollect tune takes one {flag}, not {len(variants)}")
    files = own.get("--space", [])
    if "--space" in own and len(files) != 1:
        raise UsageError(f"--space takes one file, not {len(files)}")

    @cache
    def base(words: tuple[str, ...]) -> RunConfig:
        return replace(study, flags=(*study.flags, *words), seeds=(1,)).configs()[0]

    given = [name.removeprefix("--").replace("-", "_") for name, _ in tokens(study.flags)]
    tuned = space(base, Path(files[0]) if files else None, given)
    question = Question(base, tuned, study.seeds, study.episodes)
    if question.preset.rollouts:
        raise UsageError("trials are compared after as many steps, however long a rollout is: --steps N")
    trials = int(count(own, "--trials", "30"))
    return Options(question, study.flags, trials, place(own, "tune"), *switches(own, SWITCHES))


def run(tuning: Tuning, signals: Signals, display: TuningDisplay) -> None:
    """Until all is known or a signal comes."""
    while not (signals.caught or tuning.over):
        tuning.step()
        display.show(tuning)
        time.sleep(TICK)
    tuning.executor.stop()
    while not tuning.executor.idle:
        tuning.executor.ended()
        time.sleep(TICK)


def written(outcome: Outcome, words: Sequence[str]) -> None:
    """best.yaml, fresh.yaml, tune.json and tune.html."""
    outcome.write()
    shown = render_page(
        "recollect tune", title(outcome), facts(outcome), sections(outcome, words), colours(outcome)
    )
    (outcome.folder / "tune.html").write_text(shown, encoding="utf-8")
