"""Trials: each a choice of settings, run over several seeds, and stopped early where it is behind.

Where a ninth and where a third of the steps are behind, all seeds of a trial must have come so far before
it is judged: by the interquartile mean of their returns, against all other trials at that point, of which
the best third go on (asynchronous successive halving, Li et al., 2020). Of three seeds the luckiest
counts for a sixth.
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import UsageError
from ..common.statistics import iqm
from ..comparison.display import Seeds, score
from ..comparison.executor import Executor
from ..comparison.jobs import Job, plan
from ..config.config import RunConfig
from ..run.build import resolved_config
from .search_space import Base, Settings, Space, differing, flags, meant, propose, settings, spelled

if TYPE_CHECKING:
    import optuna

FACTOR = 3
RUNGS = (1, 3)  # ninths of the steps after which a trial is judged
WHOLE = 9
JOURNAL = "journal.log"


@dataclass(frozen=True)
class Question:
    """What is tuned: settings over a preset, within a space, over seeds."""

    base: Base
    space: Space
    seeds: tuple[int, ...]
    episodes: int

    @property
    def preset(self) -> RunConfig:
        """What all is measured against."""
        return self.base(())

    def runs(self, words: tuple[str, ...]) -> list[RunConfig]:
        """What is run: environments decide the same for all seeds."""
        whole = resolved_config(self.base(words))
        return [replace(whole, seed=seed) for seed in self.seeds]

    def as_settings(self) -> Settings:
        """All that makes it another question if it is another."""
        about = {name: value for name, value in settings(self.preset).items() if name != "seed"}
        space = {f"space of {name}": str(dimension) for name, dimension in self.space.items()}
        return about | space | {"seeds": list(self.seeds), "episodes": self.episodes}


@dataclass
class Trial:
    """A trial that goes on."""

    asked: "optuna.Trial"
    jobs: list[Job]
    rung: int = 0
    """Where it is judged next; after the last it runs to its end."""

    @property
    def number(self) -> int:
        """0 is the preset."""
        return self.asked.number

    @property
    def target(self) -> float:
        """How much of its runs must be behind until anything is decided."""
        return RUNGS[self.rung] / WHOLE if self.rung < len(RUNGS) else 1.0

    @property
    def seeds(self) -> Seeds:
        """Its runs, as a comparison shows them."""
        config = self.jobs[0].config
        return Seeds(config.env.id, str(self.number), self.jobs)

    def there(self, job: Job) -> bool:
        """Whether a run has come as far as it is wanted."""
        return job.state == "done" or (self.rung < len(RUNGS) and job.progress >= self.target)

    def waiting(self) -> Job | None:
        """A run that has some way to go and does not."""
        return next((job for job in self.jobs if job.state in ("new", "begun") and not self.there(job)), None)


# The journal ----------------------------------------------------------------------------------


def library() -> Any:
    """Optuna, which says nothing of its own."""
    try:
        import optuna
    except ImportError as error:
        raise UsageError("recollect tune needs Optuna: pip install 'recollect[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def as_it_is() -> Iterator[None]:
    """What Optuna 4 calls experimental is what Optuna 5 no longer does; nobody here can act on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", library().exceptions.ExperimentalWarning)
        yield


def load(folder: Path, question: Question) -> "optuna.Study":
    """The study of a folder, begun if there is none; refused if it is of another question."""
    optuna = library()
    path = folder / JOURNAL
    try:
        _mend(path)
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        about = {"study_name": "recollect", "direction": "maximize", "load_if_exists": True}
        study: Any = optuna.create_study(storage=storage, **about)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{path} cannot be read or written: {error}") from error
    asked = json.loads(json.dumps(question.as_settings()))
    before = study.user_attrs.get("question")
    if before is None:
        study.set_user_attr("question", asked)
    elif before != asked:
        names = sorted(k for k in {*before, *asked} if before.get(k) != asked.get(k))
        told = [f"{k} {spelled(before.get(k))}, now {spelled(asked.get(k))}" for k in names[:3]]
        more = f", and {len(names) - 3} more" if len(names) > 3 else ""
        raise UsageError(
            f"{folder} holds another study ({'; '.join(told)}{more}): ask the same, or give another --out"
        )
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(_of_preset(question))
    return study


def _mend(path: Path) -> None:
    """Half a line at the end is what a full disk leaves; with a next line after it nothing could be read."""
    data = path.read_bytes() if path.exists() else b""
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def _of_preset(question: Question) -> Settings:
    """The preset as a choice: what of it lies in the space."""
    now = settings(question.preset)
    found: Settings = {}
    for name, dimension in question.space.items():
        values = [spelled(now[x]) if isinstance(now[x], list) else now[x] for x in meant(name, now)]
        if values and all(value == values[0] for value in values) and dimension.holds(values[0]):
            found[name] = values[0]
    return found


# Running them ---------------------------------------------------------------------------------


@dataclass
class Tuning:
    """A study while it goes on."""

    question: Question
    study: "optuna.Study"
    executor: Executor
    out: Path
    total: int
    """Trials that are wanted in all."""
    trials: list[Trial] = field(default_factory=list)
    """Those that go on."""

    def __post_init__(self) -> None:
        """What an earlier call left is gone on with."""
        for frozen in self.study.get_trials(deepcopy=False):
            if frozen.state.name == "RUNNING":
                self._begin(library().trial.Trial(self.study, frozen._trial_id))

    @property
    def over(self) -> bool:
        """Whether all that was asked for is known."""
        return not self.trials and self._begun() >= self.total

    def step(self) -> None:
        """See what ended, judge what can be judged, and fill the places that are free.

        A run stops where its trial is judged if anything else waits for its place: first the oldest trial
        that has a run to do, then a new one. So two cores are never idle over three seeds, and of a trial
        that is behind no more is run than it takes to see that. A run that goes on costs the start of a
        process, about two seconds, and no bit of the result. Were seeds to run on while others catch up,
        on two cores two of three would be at their end before the third had begun.
        """
        self._look()
        for trial in list(self.trials):
            if self._decide(trial):
                self.trials.remove(trial)
        if self._begun() < self.total or any(trial.waiting() for trial in self.trials):
            self._make_room()
        while self.executor.free and (wanted := self._next()):
            self.executor.start(wanted, self.question.episodes)
            wanted.state = "running"

    def _make_room(self) -> None:
        for trial in self.trials:
            for job in trial.jobs:
                if job.state == "running" and trial.there(job):
                    self.executor.stop(job)

    def _look(self) -> None:
        for job, complaint in self.executor.ended():
            job.state, job.error = ("failed", complaint) if complaint else ("begun", "")
            job.look(self.question.episodes)
        for job in (job for trial in self.trials for job in trial.jobs if job.state == "running"):
            job.look_on()

    def _next(self) -> Job | None:
        """A run that waits, of the oldest trial that has one, or of a new trial."""
        while True:
            if job := next(filter(None, (trial.waiting() for trial in self.trials)), None):
                return job
            if (number := self._begun()) >= self.total:
                return None
            # Keyed by the number: after a stop the sampler would else draw again what it has drawn.
            with as_it_is():
                self.study.sampler = library().samplers.TPESampler(seed=number)
            self._begin(self.study.ask())

    def _begun(self) -> int:
        return sum(trial.state.name != "WAITING" for trial in self.study.get_trials(deepcopy=False))

    def _begin(self, asked: "optuna.Trial") -> None:
        """A trial, new or gone on with: what was chosen before is chosen again."""
        question = self.question
        fixed = _of_preset(question) if asked.number == 0 else question.space
        space = {name: dimension for name, dimension in question.space.items() if name in fixed}
        chosen = propose(lambda name, of: of.ask(asked, name), space, question.base)
        words = flags(chosen) if asked.number else ()
        try:
            asked.set_user_attr("settings", differing(question.base(words), question.preset))
            configs = question.runs(words)
        except UsageError as error:  # what single values allow their company may forbid
            if asked.number == 0:
                raise
            asked.set_user_attr("error", str(error))
            self.study.tell(asked, state=library().trial.TrialState.FAIL)
            return
        reported = self.study.get_trials(deepcopy=False)[asked.number].intermediate_values
        rung = sum(step <= max(reported, default=0) for step in RUNGS)
        # Two trials may choose alike, and then they share their runs.
        known = {job.folder: job for trial in self.trials for job in trial.jobs}
        jobs = [known.get(job.folder, job) for job in plan(configs, self.out, question.episodes)]
        self.trials.append(Trial(asked, jobs, rung))

    def _decide(self, trial: Trial) -> bool:
        """Judge a trial as far as it has come; whether it is over."""
        states = library().trial.TrialState
        failed = next((job for job in trial.jobs if job.state == "failed"), None)
        if failed and trial.number == 0:
            raise UsageError(f"the preset fails, and all is measured against it: {failed.error}")
        if failed:
            self._end(trial, states.FAIL, error=failed.error)
            return True
        while trial.rung < len(RUNGS) and all(map(trial.there, trial.jobs)):
            if not self._goes_on(trial):
                self._end(trial, states.PRUNED)
                return True
            trial.rung += 1
        if all(job.state == "done" for job in trial.jobs):
            scores = [score(job.evaluation) for job in trial.jobs if job.evaluation]
            trial.asked.set_user_attr("scores", scores)
            self.study.tell(trial.asked, iqm(scores))
            return True
        return False

    def _goes_on(self, trial: Trial) -> bool:
        """Whether it is among the best third at its rung; the preset is never stopped, only compared with.

        A return is not known before 100 episodes have ended. Where a seed has none yet nothing is judged.
        """
        returns = [return_at(job, trial.target) for job in trial.jobs]
        known = [x for x in returns if x is not None]
        if len(known) < len(returns):
            return True
        step, found = RUNGS[trial.rung], iqm(known)
        trial.asked.report(found, step)
        told = (other.intermediate_values for other in self.study.get_trials(deepcopy=False))
        best = sorted((values[step] for values in told if step in values), reverse=True)
        return found >= best[max(len(best) // FACTOR, 1) - 1] or trial.number == 0

    def _end(self, trial: Trial, state: Any, error: str = "") -> None:
        """Its runs stop; their folders stay, and whoever asks for the same runs goes on with them."""
        for job in trial.jobs:
            if job.state == "running":
                self.executor.stop(job)
        if error:
            trial.asked.set_user_attr("error", error)
        self.study.tell(trial.asked, state=state)


def return_at(job: Job, share: float) -> float | None:
    """The return where a run had so much behind, read from its lines."""
    with (job.folder / "metrics.jsonl").open() as lines:
        for line in lines:
            metrics = json.loads(line)
            if job.config.plan.progress(metrics["iteration"], metrics["step"]) >= share:
                found: float | None = metrics["return"]
                return found
    return None
