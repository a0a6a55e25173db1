"""`recollect tune`: hyperparameter search for a model on an environment, over several seeds."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..common.errors import UsageError
from ..common.option_values import Settings
from ..common.output_paths import check_out_folder, write_whole_text
from ..common.signals import Signals
from ..comparison.display import RESUME_HINT
from ..comparison.options import ExecutorOptions
from ..comparison.study import Study, override, seed_words
from ..config.assembly import OPTIONS
from ..config.calls import arguments
from ..config.command import parse
from ..config.config import RunConfig
from ..config.flags import options_of, read_flags
from ..envs.given import check_id
from ..reporting.page import render_page
from ..run.build import resolved_config
from ..run.run_folder import locked, new_folder
from .display import TuningDisplay
from .optuna_storage import JOURNAL, import_optuna, load_study, read_study
from .result import TuningResult, importances, trial_results
from .space_file import build_space
from .successive_halving import SuccessiveHalving
from .trials import TuningSpec
from .tuning_page import colours, facts, sections, title

POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class TuneOptions(ExecutorOptions):
    """Search hyperparameters of a model on an environment. Every trial is run over several seeds, and is
    stopped early if all of them together are behind; the first trial is the preset itself. Unfinished
    searches are resumed.

      recollect tune -e CartPoleMasked -m ppo_gru --trials 30 --steps 5e4
      recollect tune -e CartPoleMasked -m ppo_gru --trials 60 --steps 5e4      30 more
      recollect tune -e CartPoleMasked -m ppo_gru --space my_space.yaml --dry-run

    Every other option of recollect train is set for all trials, and is not tuned.
    """

    env: str
    """The environment."""
    model: str
    """The model (preset) to tune."""
    trials: int = 30
    """Trials in total, those of earlier calls included."""
    seeds: tuple[str, ...] = ("3",)
    """Seeds of each trial. One number N: the seeds 1 to N; several, or ranges A-B: these."""
    space: Path | None = None
    """A file with the options to tune and their values, over the default ones: see docs/tuning.md."""
    imports: tuple[str, ...] = ()
    """Third-party memories and encoders named in the space file, which may then be imported."""
    episodes: int | None = None
    """Episodes of the evaluation of each run's last weights; None: 100."""
    out: str = "tune"
    """The folder of all searches; this one is kept in OUT/MODEL/ENV."""
    command: tuple[str, ...]
    settings: Settings

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trials < 1:
            raise UsageError(f"--trials is {self.trials}, at least 1 is needed")


def tune(
    env: str,
    model: str = "ppo",
    *,
    trials: int = 30,
    steps: int | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Search hyperparameters of a model on an environment; the content of tune.json.

    trials          in total, those of earlier calls included
    steps, options  for all trials, as in train; they are not tuned
    others          options of `recollect tune --help` by name: seeds, space, out, jobs, quiet, ...

    dry_run: the plan is printed, no trial is run, and the result is empty.
    """
    check_id("tune", env)
    given = {"env": env, "model": model, "trials": trials, "steps": steps, **others}
    given["seeds"] = seed_words(others.get("seeds"))
    parsed = parse(TuneOptions, arguments([], given, options), "recollect tune", options)
    run_tune(parsed)
    if parsed.dry_run:
        return {}  # tune.json is missing, or that of an earlier search
    path = study_folder(spec_of(parsed), parsed) / "tune.json"
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def run_tune(options: TuneOptions) -> int:
    """Search, and print the result; the exit code."""
    import_optuna()
    spec = spec_of(options)
    options.check_devices([resolved_config(spec.preset).device])
    folder, display = study_folder(spec, options), TuningDisplay(options.quiet)
    if options.dry_run:
        study = read_study(folder, spec)
        trials = trial_results(study) if study else []
        ended = sum(trial.state != "begun" for trial in trials)
        display.plan(spec, options.trials, ended, options.jobs)
        return 0
    check_out_folder(folder, f"--out {options.out}")
    folder.mkdir(parents=True, exist_ok=True)
    # Two processes would each count and start the remaining trials.
    with locked(folder):
        study = load_study(folder, spec)
        with options.executor() as executor, Signals(interrupts=False) as signals, display.live_table:
            search = SuccessiveHalving(spec, study, executor, options.folder, options.trials)
            run_trials(search, signals, display)
        result = TuningResult(spec, folder, options.settings, trial_results(study), importances(study))
        write_results(result, options.command)
    display.results(result, shlex.join(["optuna-dashboard", str(folder / JOURNAL)]))
    best = ", best.yaml" if result.best else ""  # the preset has no score before its runs are finished
    print(f"{folder / 'tune.html'}{best} and tune.json are written")
    if signals.caught:
        print(RESUME_HINT)
        return 128 + signals.caught
    return 0


def spec_of(options: TuneOptions) -> TuningSpec:
    """The search: the preset, its search space, the seeds and the evaluation."""
    study = override(Study(), [options.env], [options.model], options.seeds, options.episodes)

    others = options_of(TuneOptions)

    # Display, proposals and results ask for the same few configs many times.
    @cache
    def build_config(words: tuple[str, ...]) -> RunConfig:
        flags = (*options.settings, *read_flags(words, OPTIONS))
        return replace(study, flags=flags, seeds=(1,)).configs(others=others)[0]

    fixed = [setting.name for setting in options.settings]
    space = build_space(build_config, options.space, fixed, options.imports)
    spec = TuningSpec(build_config, space, study.seeds, study.episodes)
    if spec.preset.rollouts:
        raise UsageError("trials with rollouts of different lengths are compared by steps: use --steps N")
    return spec


def study_folder(spec: TuningSpec, options: TuneOptions) -> Path:
    """The folder of the study, OUT/MODEL/ENV."""
    # Any run id: only the folder above it counts.
    return new_folder(spec.preset, options.folder, "x").parent


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
    write_whole_text(result.folder / "tune.html", html)
