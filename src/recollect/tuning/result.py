"""The result of a study, and the files that hold it: best.yaml, fresh.yaml and tune.json."""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.format import number
from ..common.option_values import Settings as RunSettings
from ..common.option_values import plain
from ..common.output_paths import write_whole_text
from ..common.yaml_text import dump_yaml
from ..config.assembly import import_flags
from ..config.data import to_dict
from ..run.run_folder import write_json
from .option_names import BRANCHES, Settings, format_value, names_first, option_values, to_flags
from .optuna_storage import import_optuna, without_experimental_warnings
from .trials import RUNGS, TuningSpec

if TYPE_CHECKING:
    import optuna

ENOUGH_TRIALS = 10  # to estimate the importance of options
FRESH_SEEDS = 5  # not used in the study, to compare the best trial with the preset
STATES = {"COMPLETE": "finished", "PRUNED": "stopped early", "FAIL": "failed"}
BEGUN = "begun"


@dataclass(frozen=True)
class TrialResult:
    """A trial as the journal holds it."""

    number: int
    state: str
    """finished, stopped early, failed, or begun."""
    score: float | None
    scores: list[float]
    """Of each seed."""
    rungs: dict[int, float]
    """The interquartile mean of the returns after so many ninths of the steps."""
    settings: Settings
    """Those that differ from the preset."""
    params: Settings
    """The chosen values, by the names of the search space."""
    error: str

    @property
    def name(self) -> str:
        """Trial 0 is the preset."""
        return f"trial {self.number}" if self.number else "preset"

    @property
    def scores_text(self) -> str:
        """Its score, and in brackets those of its seeds."""
        return f"{number(self.score)} ({' '.join(map(number, self.scores))})"


def trial_results(study: "optuna.Study") -> list[TrialResult]:
    """All trials so far."""
    return [
        TrialResult(
            trial.number,
            STATES.get(trial.state.name, BEGUN),
            trial.value if trial.state.name == "COMPLETE" else None,
            trial.user_attrs.get("scores", []),
            dict(trial.intermediate_values),
            trial.user_attrs.get("settings", {}),
            dict(trial.params),
            trial.user_attrs.get("error", ""),
        )
        for trial in study.get_trials(deepcopy=False)
        if trial.state.name != "WAITING"
    ]


def best_trial(trials: Sequence[TrialResult]) -> TrialResult | None:
    """The highest score; of equal ones the first, so that no trial equal to the preset beats it."""
    finished = [trial for trial in trials if trial.score is not None]
    return max(finished, key=lambda trial: (trial.score, -trial.number), default=None)


def formatted_settings(settings: Settings) -> dict[str, str]:
    """Settings as text; one entry without the branch where both branches have the same value."""
    formatted: dict[str, str] = {}
    for name, value in settings.items():
        branch, _, rest = name.partition(".")
        both = branch in BRANCHES and all(settings.get(f"{b}.{rest}", settings) == value for b in BRANCHES)
        formatted[rest if both else name] = format_value(value)
    return formatted


def settings_line(settings: Settings) -> str:
    """Settings as one line."""
    return ", ".join(f"{name} {value}" for name, value in formatted_settings(settings).items())


def importances(study: "optuna.Study") -> dict[str, float]:
    """The share of each option in whether a trial is among the best quarter after a ninth of the steps.

    All trials can be compared at that point; too few reach their end to judge by final scores.
    """
    optuna = import_optuna()
    states, step = optuna.trial.TrialState, RUNGS[0]
    judged = [trial for trial in study.get_trials(deepcopy=False) if step in trial.intermediate_values]
    if len(judged) < ENOUGH_TRIALS:
        return {}
    # A study in memory with the early returns as values: the stored study must not change.
    early = optuna.create_study(direction="maximize")
    for trial in judged:
        early.add_trial(
            optuna.trial.create_trial(
                value=trial.intermediate_values[step],
                params=trial.params,
                distributions=trial.distributions,
                state=states.COMPLETE,
            )
        )
    with without_experimental_warnings(), warnings.catch_warnings():
        # Optuna warns where the preset alone has no value for an option, which users cannot change.
        warnings.filterwarnings("ignore", "Some regimes for parameter", UserWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
        shares: dict[str, float] = optuna.importance.get_param_importances(early, evaluator=evaluator)
    return shares


@dataclass(frozen=True)
class TuningResult:
    """Everything that the page and the files of a study show."""

    spec: TuningSpec
    folder: Path
    options: RunSettings
    """Options of train that all trials share."""
    trials: list[TrialResult]
    importance: dict[str, float]

    @property
    def best(self) -> TrialResult | None:
        """The trial with the highest score."""
        return best_trial(self.trials)

    @property
    def preset(self) -> TrialResult | None:
        """The first trial, when it has a score."""
        return next((trial for trial in self.trials if not trial.number and trial.score is not None), None)

    @property
    def verdict(self) -> list[str]:
        """The result in sentences."""
        best, preset = self.best, self.preset
        seeds = f"over seeds {' '.join(map(str, self.spec.seeds))}"
        if best is None or preset is None:
            return ["The preset has no score yet, so no trial can be compared with it."]
        states = [(sum(trial.state == state for trial in self.trials), state) for state in ("failed", BEGUN)]
        unjudged = ", ".join(f"{number} {state}" for number, state in states if number)
        others = f"{len(self.trials) - 1} other trials" + (f" ({unjudged})" if unjudged else "")
        if best is preset and len(self.trials) - 1 == sum(number for number, _ in states):
            return [f"The preset has {preset.scores_text} {seeds}. No other trial has ended so far."]
        if best is preset:
            return [f"None of {others} is better than the preset: {preset.scores_text} {seeds}."]
        return [
            f"The best of the preset and {others} is trial {best.number}: {best.scores_text}, "
            f"the preset {preset.scores_text}, {seeds}.",
            "It was selected by its score on these seeds, so part of its lead is luck, and more of it the "
            "more trials there were. Only seeds that were not used for the selection show what remains.",
        ]

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Options of the best trial, each with its value and the preset's."""
        if self.best is None:
            return []
        settings, preset = self.best.settings, option_values(self.spec.preset)
        before = formatted_settings({k: v for k, v in preset.items() if k in settings})
        return [(name, value, before.get(name, "-")) for name, value in formatted_settings(settings).items()]

    @property
    def commands(self) -> dict[str, str]:
        """Commands to run next, by their purpose."""
        if self.best is None:
            return {}
        # A file alone may not import a module: what it names must be on the command line.
        imports = import_flags(self.spec.build_config(to_flags(self.best.settings)))
        words = ["recollect", "train", "--config", str(self.folder / "best.yaml")]
        train = {"train it": shlex.join(words) + imports}
        if self.best is self.preset:
            return train
        compare = ["recollect", "compare", str(self.folder / "fresh.yaml")]
        return {"compare both over fresh seeds": shlex.join(compare) + imports} | train

    def write(self) -> None:
        """Write all files but the page."""
        write_json(self.folder / "tune.json", self.as_json())
        if self.best is None:
            return
        config = self.spec.build_config(to_flags(self.best.settings))
        comments = [*self.verdict, *(f"{name}: {command}" for name, command in self.commands.items())]
        # The result as comments, so that the file explains itself when it is copied elsewhere.
        head = "".join(f"# {line}\n" for line in comments)
        write_whole_text(self.folder / "best.yaml", head + dump_yaml(to_dict(config)))
        fresh = self.folder / "fresh.yaml"
        fresh.unlink(missing_ok=True)  # it may be of an earlier call, with another best trial
        if self.best is self.preset:
            return
        first_seed = max(self.spec.seeds) + 1
        study = {
            "environments": [config.env.id],
            "models": [config.model, {"model": config.model, **names_first(self.best.settings)}],
            "seeds": list(range(first_seed, first_seed + FRESH_SEEDS)),
            "episodes": self.spec.episodes,
            "options": {setting.name: plain(setting.value) for setting in self.options},
        }
        write_whole_text(fresh, dump_yaml(study))

    def as_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        best = self.best
        return {
            # The key of earlier versions of tune.json.
            "question": self.spec.as_settings(),
            "trials": [asdict(trial) for trial in self.trials],
            "best": best and best.number,
            "importance": self.importance,
            "verdict": self.verdict,
            "commands": self.commands,
        }
