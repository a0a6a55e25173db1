"""What came out of a study, and the files that say it: best.yaml, fresh.yaml and tune.json."""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..common.format import number
from ..config.config import to_dict, tokens
from ..run.run_folder import write_json
from .search_space import BRANCHES, Settings, flags, named_first, settings, spelled
from .trials import RUNGS, Question, as_it_is, library

if TYPE_CHECKING:
    import optuna

ENOUGH = 10  # trials, until it is said which options mattered
FRESH = 5  # seeds that chose nothing, to compare the best with the preset
STATES = {"COMPLETE": "finished", "PRUNED": "stopped early", "FAIL": "failed"}


@dataclass(frozen=True)
class Tried:
    """What is known of a trial, from the journal alone."""

    number: int
    state: str
    """finished, stopped early, failed, or begun."""
    score: float | None
    scores: list[float]
    """Of each seed."""
    rungs: dict[int, float]
    """The interquartile mean of returns after so many ninths of the steps."""
    settings: Settings
    """What differs from the preset."""
    params: Settings
    """What was chosen, by the names of the space."""
    error: str

    @property
    def name(self) -> str:
        """The preset is no number among others."""
        return f"trial {self.number}" if self.number else "preset"

    @property
    def scored(self) -> str:
        """Its score, and those of its seeds."""
        return f"{number(self.score)} ({' '.join(map(number, self.scores))})"


def tried(study: "optuna.Study") -> list[Tried]:
    """All trials so far."""
    return [
        Tried(
            trial.number,
            STATES.get(trial.state.name, "begun"),
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


def best_of(trials: Sequence[Tried]) -> Tried | None:
    """The highest score; of equals the first, so that nothing beats the preset by being like it."""
    finished = [trial for trial in trials if trial.score is not None]
    return max(finished, key=lambda trial: (trial.score, -trial.number), default=None)


def told(chosen: Settings) -> dict[str, str]:
    """Settings as people write them: what both branches have is said once."""
    found: dict[str, str] = {}
    for name, value in chosen.items():
        branch, _, rest = name.partition(".")
        both = branch in BRANCHES and all(chosen.get(f"{b}.{rest}", chosen) == value for b in BRANCHES)
        found[rest if both else name] = spelled(value)
    return found


def sentence(chosen: Settings) -> str:
    """The same in a line."""
    return ", ".join(f"{name} {value}" for name, value in told(chosen).items())


def importances(study: "optuna.Study") -> dict[str, float]:
    """How much each option decided of being among the best quarter after the first ninth, in parts of one.

    There all trials can be compared; so few come to their end that nothing could be said of these alone.
    """
    optuna = library()
    states, step = optuna.trial.TrialState, RUNGS[0]
    judged = [trial for trial in study.get_trials(deepcopy=False) if step in trial.intermediate_values]
    if len(judged) < ENOUGH:
        return {}
    early = optuna.create_study(direction="maximize")
    for trial in judged:
        kept = {"params": trial.params, "distributions": trial.distributions, "state": states.COMPLETE}
        early.add_trial(optuna.trial.create_trial(value=trial.intermediate_values[step], **kept))
    with as_it_is(), warnings.catch_warnings():
        # Where the preset alone has no value for an option, that is said, and nobody can act on it.
        warnings.filterwarnings("ignore", "Some regimes for parameter", UserWarning)
        judge = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
        found: dict[str, float] = optuna.importance.get_param_importances(early, evaluator=judge)
    return found


@dataclass(frozen=True)
class Outcome:
    """All of it."""

    question: Question
    folder: Path
    options: tuple[str, ...]
    """Flags of train that hold for all trials."""
    trials: list[Tried]
    importance: dict[str, float]

    @property
    def best(self) -> Tried | None:
        """The trial with the highest score."""
        return best_of(self.trials)

    @property
    def preset(self) -> Tried | None:
        """The first trial, when it has a score."""
        return next((trial for trial in self.trials if not trial.number and trial.score is not None), None)

    @property
    def verdict(self) -> list[str]:
        """What to think of it, in sentences."""
        best, preset, failed = self.best, self.preset, sum(trial.state == "failed" for trial in self.trials)
        count = f"{len(self.trials)} trials" + (f", of which {failed} failed," if failed else "")
        seeds = f"over seeds {' '.join(map(str, self.question.seeds))}"
        if best is None or preset is None:
            return ["The preset has no score yet, and all is measured against it."]
        if best is preset:
            return [f"Of {count} none is better than the preset: {preset.scored} {seeds}."]
        return [
            f"The best of {count} is trial {best.number}: {best.scored}, "
            f"the preset {preset.scored}, {seeds}.",
            "It was chosen for its score over these very seeds, so luck is part of its lead, the more so the "
            "more trials there were. What is left of it, only seeds that chose nothing can tell.",
        ]

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Options of the best, each with its value and the preset's."""
        if self.best is None:
            return []
        before = told({k: v for k, v in settings(self.question.preset).items() if k in self.best.settings})
        return [(name, value, before.get(name, "-")) for name, value in told(self.best.settings).items()]

    @property
    def commands(self) -> dict[str, str]:
        """What to do next."""
        if self.best is None:
            return {}
        env = self.question.preset.env.id
        # A name that imports a module is said by whoever runs the command, not by a file.
        words = ["recollect", "train", "--config", str(self.folder / "best.yaml")]
        again = {"train it": shlex.join([*words, *(["-e", env] if ":" in env else [])])}
        if self.best is self.preset:
            return again
        compare = ["recollect", "compare", str(self.folder / "fresh.yaml")]
        return {"compare both over fresh seeds": shlex.join(compare)} | again

    def write(self) -> None:
        """The files, but for the page."""
        write_json(self.folder / "tune.json", self.as_json())
        if self.best is None:
            return
        config = self.question.base(flags(self.best.settings))
        about = [*self.verdict, *(f"{name}: {command}" for name, command in self.commands.items())]
        head = "".join(f"# {line}\n" for line in about)
        (self.folder / "best.yaml").write_text(head + _yaml(to_dict(config)), encoding="utf-8")
        fresh = self.folder / "fresh.yaml"
        fresh.unlink(missing_ok=True)  # of an earlier call, with another best
        if self.best is self.preset:
            return
        first = max(self.question.seeds) + 1
        study = {
            "environments": [config.env.id],
            "models": [config.model, {"model": config.model, **named_first(self.best.settings)}],
            "seeds": list(range(first, first + FRESH)),
            "episodes": self.question.episodes,
            "options": {k.removeprefix("--"): v[0] if len(v) == 1 else v for k, v in tokens(self.options)},
        }
        fresh.write_text(_yaml(study), encoding="utf-8")

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        best = self.best
        return {
            "question": self.question.as_settings(),
            "trials": [asdict(trial) for trial in self.trials],
            "best": best and best.number,
            "importance": self.importance,
            "verdict": self.verdict,
            "commands": self.commands,
        }


def _yaml(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False)
