"""What a tuning study searches, and one trial of it: settings trained over several seeds."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..comparison.display import RunGroup
from ..comparison.jobs import Job
from ..config.config import RunConfig
from ..run.build import resolved_config
from .option_names import Settings, option_values
from .proposals import ConfigBuilder
from .search_space import SearchSpace

if TYPE_CHECKING:
    import optuna

# After 1/9 and 3/9 of the steps a trial is judged, and the best third continue.
RUNGS = (1, 3)
WHOLE = 9
KEPT_FRACTION = 3


@dataclass(frozen=True)
class TuningSpec:
    """A preset, the search space around it, and the seeds and episodes by which trials are scored."""

    build_config: ConfigBuilder
    space: SearchSpace
    seeds: tuple[int, ...]
    episodes: int

    @property
    def preset(self) -> RunConfig:
        """The config that all trials are compared with."""
        return self.build_config(())

    def runs(self, flags: tuple[str, ...]) -> list[RunConfig]:
        """A config for each seed. What depends on the environment is resolved once for all seeds."""
        # Resolving builds an environment, which is expensive.
        config = resolved_config(self.build_config(flags))
        # All trials have the same seeds, so the luck of a seed is not the merit of a trial.
        return [replace(config, seed=seed) for seed in self.seeds]

    def as_settings(self) -> Settings:
        """Everything that two calls must have in common to continue the same study.

        Journals store these names and values, so they must not change.
        """
        preset = {name: value for name, value in option_values(self.preset).items() if name != "seed"}
        space = {f"space of {name}": str(dimension) for name, dimension in self.space.items()}
        return preset | space | {"seeds": list(self.seeds), "episodes": self.episodes}


@dataclass
class Trial:
    """A trial in progress."""

    optuna_trial: "optuna.Trial"
    jobs: list[Job]
    rung: int = 0
    """Index into RUNGS of its next judgement; past the last rung it runs to its end."""

    @property
    def number(self) -> int:
        """0 is the preset."""
        return self.optuna_trial.number

    @property
    def target(self) -> float:
        """The share of the steps after which it is judged next."""
        return RUNGS[self.rung] / WHOLE if self.rung < len(RUNGS) else 1.0

    @property
    def run_group(self) -> RunGroup:
        """Its runs as a comparison displays them."""
        config = self.jobs[0].config
        return RunGroup(config.env.id, str(self.number), self.jobs)

    def at_target(self, job: Job) -> bool:
        """Whether a run has come as far as the next judgement."""
        return job.state == "done" or (self.rung < len(RUNGS) and job.progress >= self.target)

    def waiting_job(self) -> Job | None:
        """A run that is below the target and not executing."""
        waiting = (job for job in self.jobs if job.state in ("new", "begun") and not self.at_target(job))
        return next(waiting, None)
