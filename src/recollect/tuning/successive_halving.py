"""Executes the trials of a study, and stops early those that fall behind.

After a ninth and after a third of the steps a trial is judged, once all its seeds have come that far: by the
interquartile mean of their returns, among all trials that reached that point. The best third continue
(asynchronous successive halving, Li et al., 2020). Of three seeds, the luckiest has a weight of one sixth.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import UsageError
from ..common.statistics import iqm
from ..comparison.display import choose_score
from ..comparison.executor import Executor
from ..comparison.jobs import Job, plan_jobs
from .option_names import changed_options, to_flags
from .optuna_storage import import_optuna, preset_params, without_experimental_warnings
from .proposals import propose
from .trials import KEPT_FRACTION, RUNGS, Trial, TuningSpec

if TYPE_CHECKING:
    import optuna


@dataclass
class SuccessiveHalving:
    """A study in progress."""

    spec: TuningSpec
    study: "optuna.Study"
    executor: Executor
    out: Path
    total: int
    """Number of trials, those of earlier calls included."""
    trials: list[Trial] = field(default_factory=list)
    """Those in progress."""

    def __post_init__(self) -> None:
        """Resume the trials that an earlier call left unfinished."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING":
                # get_trials returns frozen copies, which store no reports. A Trial needs the id of the
                # storage, which is not the trial's number.
                self._start_trial(import_optuna().trial.Trial(self.study, trial._trial_id))

    @property
    def over(self) -> bool:
        """Whether all trials have ended."""
        return not self.trials and self._count_started() >= self.total

    def step(self) -> None:
        """Collect what ended, judge what can be judged, and fill the free slots.

        A run stops where its trial is judged if anything else waits for its slot: first the oldest trial
        that has a run waiting, then a new trial. So two cores are never idle over three seeds, and no more
        is computed for a weak trial than it takes to see that it is weak. To resume a run later costs the
        start of a process, about two seconds, and no bit of the result. If seeds went on while others catch
        up, on two cores two of three would be finished before the third had started.
        """
        self._update_jobs()
        for trial in list(self.trials):  # a copy, because ended trials are removed
            if self._judge(trial):
                self.trials.remove(trial)
        if self._count_started() < self.total or any(trial.waiting_job() for trial in self.trials):
            for trial in self.trials:
                for job in trial.jobs:
                    if job.state == "running" and trial.at_target(job):
                        self.executor.stop(job)
        while self.executor.free and (waiting := self._next_job()):
            self.executor.start(waiting, self.spec.episodes)
            waiting.state = "running"

    def _update_jobs(self) -> None:
        for job, error in self.executor.ended():
            job.state, job.error = ("failed", error) if error else ("begun", "")
            job.read_results(self.spec.episodes)
        for trial in self.trials:
            for job in trial.jobs:
                if job.state == "running":
                    job.read_metrics()

    def _next_job(self) -> Job | None:
        """A waiting run of the oldest trial that has one, or of a new trial."""
        while True:
            if job := next(filter(None, (trial.waiting_job() for trial in self.trials)), None):
                return job
            if (number := self._count_started()) >= self.total:
                return None
            # Seeded by the number: a sampler with a fixed seed would repeat its draws after a restart.
            with without_experimental_warnings():
                self.study.sampler = import_optuna().samplers.TPESampler(seed=number)
            self._start_trial(self.study.ask())

    def _count_started(self) -> int:
        return sum(trial.state.name != "WAITING" for trial in self.study.get_trials(deepcopy=False))

    def _start_trial(self, trial: "optuna.Trial") -> None:
        """Start or resume a trial; Optuna repeats the values that it chose before."""
        spec = self.spec
        # Of the preset only the options that lie in the space: Optuna would draw the others at random.
        names = preset_params(spec) if trial.number == 0 else spec.space
        space = {name: dimension for name, dimension in spec.space.items() if name in names}
        chosen = propose(lambda name, dimension: dimension.suggest(trial, name), space, spec.build_config)
        flags = to_flags(chosen) if trial.number else ()
        try:
            trial.set_user_attr("settings", changed_options(spec.build_config(flags), spec.preset))
            configs = spec.runs(flags)
        except UsageError as error:  # each value is valid on its own, but this combination is not
            if trial.number == 0:
                raise
            trial.set_user_attr("error", str(error))
            self.study.tell(trial, state=import_optuna().trial.TrialState.FAIL)
            return
        judged = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        rung = sum(step <= max(judged, default=0) for step in RUNGS)
        # Two trials may have equal settings. They share their jobs, so that no run has two writers.
        running = {job.folder: job for trial in self.trials for job in trial.jobs}
        jobs = [running.get(job.folder, job) for job in plan_jobs(configs, self.out, spec.episodes)]
        self.trials.append(Trial(trial, jobs, rung))

    def _judge(self, trial: Trial) -> bool:
        """Judge a trial as far as it has come; whether it has ended."""
        states = import_optuna().trial.TrialState
        failed = next((job for job in trial.jobs if job.state == "failed"), None)
        if failed and trial.number == 0:
            raise UsageError(f"the preset failed, so trials have nothing to compare with: {failed.error}")
        if failed:
            self._end(trial, states.FAIL, error=failed.error)
            return True
        # A resumed trial may pass several rungs at once.
        while trial.rung < len(RUNGS) and all(map(trial.at_target, trial.jobs)):
            if not self._continues(trial):
                self._end(trial, states.PRUNED)
                return True
            trial.rung += 1
        if all(job.state == "done" for job in trial.jobs):
            scores = self._scores([job.evaluation for job in trial.jobs if job.evaluation])
            trial.optuna_trial.set_user_attr("scores", scores)
            self.study.tell(trial.optuna_trial, iqm(scores))
            return True
        return False

    def _scores(self, evaluations: Sequence[Mapping[str, Any]]) -> list[float]:
        """The score of each evaluation, of one kind in the whole study: that of the trial that ended first.

        Where that is the success rate, an episode that reports no success counts as a failure.
        """
        key = self.study.user_attrs.get("score")
        if key is None:
            key = choose_score(evaluations)
            self.study.set_user_attr("score", key)
        if key == "success":
            return [float(np.mean([success or 0.0 for success in one["successes"]])) for one in evaluations]
        return [float(one["mean"]) for one in evaluations]

    def _continues(self, trial: Trial) -> bool:
        """Whether a trial is among the best third at its rung; the preset always continues.

        A return is unknown until 100 episodes have ended. A trial with an unknown return is not judged.
        """
        returns = [return_at(job, trial.target) for job in trial.jobs]
        known = [value for value in returns if value is not None]
        if len(known) < len(returns):
            return True
        step, value = RUNGS[trial.rung], iqm(known)
        # Before the ranking, which reads the study: the trial is one of those that it is compared with.
        trial.optuna_trial.report(value, step)
        # Only returns after equal numbers of steps can be compared: later ones are higher.
        judged = (other.intermediate_values for other in self.study.get_trials(deepcopy=False))
        ranked = sorted((values[step] for values in judged if step in values), reverse=True)
        # Below 2 KEPT_FRACTION trials at a rung only the best so far continues.
        return value >= ranked[max(len(ranked) // KEPT_FRACTION, 1) - 1] or trial.number == 0

    def _end(self, trial: Trial, state: Any, error: str = "") -> None:
        """Stop its runs. Their folders stay, and a later trial with equal settings resumes them."""
        for job in trial.jobs:
            if job.state == "running":
                self.executor.stop(job)
        if error:
            trial.optuna_trial.set_user_attr("error", error)
        self.study.tell(trial.optuna_trial, state=state)


def return_at(job: Job, share: float) -> float | None:
    """The training return when a run had completed this share of its steps; None: not known."""
    # Not the newest metrics: a run may be far beyond the rung by the time its slowest seed reaches it.
    with (job.folder / "metrics.jsonl").open() as lines:
        for line in lines:
            # The last line may not be complete yet.
            with contextlib.suppress(ValueError, TypeError, KeyError):
                metrics = json.loads(line)
                if job.config.plan.progress(metrics["iteration"], metrics["step"]) >= share:
                    value: float | None = metrics["return"]
                    return value
    return None
