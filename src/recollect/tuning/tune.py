"""`recollect tune`: hyperparameter search for a model on an environment, over several seeds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..common.errors import UsageError
from ..common.signals import Signals
from ..comparison.compare import PLACE, Place, count, place, switches
from ..comparison.display import RESUME_HINT
from ..comparison.study import read_study
from ..config.config import RunConfig, tokens
from ..reporting.page import render_page
from ..run.run_folder import locked, new_folder
from .display import TuningDisplay
from .optuna_storage import JOURNAL, import_optuna, load_study
from .result import TuningResult, importances, trial_results
from .space_file import build_space
from .successive_halving import SuccessiveHalving
from .trials import TuningSpec
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
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Options:
    """What is searched, and where it is executed."""

    spec: TuningSpec
    flags: tuple[str, ...]
    """Settings that all trials share."""
    trials: int
    place: Place
    dry_run: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        """The folder of the study."""
        return new_folder(self.spec.preset, self.place.out, "x").parent


def run_tune(arguments: list[str]) -> int:
    """Search, and print the result; the exit code."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(ABOUT, end="")
        return 0 if arguments else 2
    import_optuna()
    options = parse(arguments)
    spec, folder, display = options.spec, options.folder, TuningDisplay(options.quiet)
    if options.dry_run:
        trials = trial_results(load_study(folder, spec)) if (folder / JOURNAL).exists() else []
        ended = sum(trial.state != "begun" for trial in trials)
        display.plan(spec, options.trials, ended, options.place.jobs)
        return 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {options.place.out}: {error}") from error
    with locked(folder):
        study = load_study(folder, spec)
        with options.place.executor() as executor, Signals() as signals, display.live_table:
            search = SuccessiveHalving(spec, study, executor, options.place.out, options.trials)
            run_trials(search, signals, display)
        result = TuningResult(spec, folder, options.flags, trial_results(study), importances(study))
        write_results(result, ["recollect", "tune", *arguments])
    display.results(result, f"optuna-dashboard {folder / JOURNAL}")
    best = ", best.yaml" if result.best else ""  # the preset has no score before its runs are finished
    print(f"{folder / 'tune.html'}{best} and tune.json are written")
    if signals.caught:
        print(RESUME_HINT)
        return 128 + signals.caught
    return 0


def parse(arguments: list[str]) -> Options:
    """Flags of the study apart from those of its runs."""
    found = tokens(arguments)
    own = {name: values for name, values in found if name in VALUES + SWITCHES}
    rest = [(name, values) for name, values in found if name not in own]
    if not any(name == "--seeds" for name, _ in rest):
        rest.append(("--seeds", ["3"]))
    study = read_study(rest, None)
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
    space = build_space(base, Path(files[0]) if files else None, given)
    spec = TuningSpec(base, space, study.seeds, study.episodes)
    if spec.preset.rollouts:
        raise UsageError("trials with rollouts of different lengths are compared by steps: use --steps N")
    trials = int(count(own, "--trials", "30"))
    return Options(spec, study.flags, trials, place(own, "tune"), *switches(own, SWITCHES))


def run_trials(search: SuccessiveHalving, signals: Signals, display: TuningDisplay) -> None:
    """Execute trials until all have ended or a signal comes; then wait until all runs have stopped."""
    while not (signals.caught or search.over):
        search.step()
        display.show(search)
        time.sleep(POLL_SECONDS)
    search.executor.stop()  # runs of trials that ended early may still be executing
    while not search.executor.idle:
        search.executor.ended()
        time.sleep(POLL_SECONDS)


def write_results(result: TuningResult, words: Sequence[str]) -> None:
    """Write best.yaml, fresh.yaml, tune.json and tune.html; words: the command line."""
    result.write()
    html = render_page(
        "recollect tune", title(result), facts(result), sections(result, words), colours(result)
    )
    (result.folder / "tune.html").write_text(html, encoding="utf-8")
