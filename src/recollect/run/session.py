"""A run while it goes on: loop over train(), validate, log, checkpoint, and stop in good order."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals as Signal
from typing import Any

import numpy as np
import torch

from ..common import rng
from ..common.errors import CheckpointError, UsageError
from ..common.format import duration
from ..common.metrics import is_finite
from ..common.signals import Signals
from ..config.config import RunConfig, config_hash, to_dict
from ..envs import Envs, make_for_evaluation
from ..learn.algorithms import UPDATES
from ..learn.learner import Learner
from ..learn.ppo import train
from . import checkpoint
from .build import Factory, begin_memories
from .display import make_display
from .episode_log import lines_of
from .evaluate import play_episodes
from .log import JsonLines, TensorBoard, Wandb
from .run_folder import write_json
from .weights import agent_metadata, processor_name, save_weights, versions

WARN_ERROR = 1e-3  # of ratio_error and value_error; at 1e-2 the run stops (ppo.py)
NEAR_BARRIER = 5.0  # seconds a signal waits for the next barrier


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where a run is kept and who is told."""

    out: Path = Path("runs")
    """The folder of all runs."""
    run_id: str | None = None
    """Names the run's folder; None: the seed and the time."""
    wandb_project: str | None = None
    """Log to this project of Weights & Biases too."""
    wandb_entity: str | None = None
    """The account the project belongs to."""
    quiet: bool = False
    """Print nothing."""


def opening_summary(config: RunConfig, where: Destination) -> dict[str, Any]:
    logging = {"wandb_project": where.wandb_project, "wandb_entity": where.wandb_entity}
    return {
        "status": "running",
        "config_hash": config_hash(config),
        "versions": versions(),
        "processor": processor_name(),
        "logging": logging,
    }


class Session:
    """A run while it goes on."""

    def __init__(
        self, config: RunConfig, folder: Path, envs: Envs, learner: Learner, where: Destination
    ) -> None:
        self.config, self.folder, self.where = config, folder, where
        self.envs, self.learner = envs, learner
        self.checkpoints = folder / "checkpoints"
        self.elapsed, self.offset, self.best = 0.0, 0, -np.inf
        self.episodes_offset = 0
        self.purge_from: int | None = None
        self.validator: Envs | None = None
        self.jsonl: JsonLines | None = None
        self.episodes: JsonLines | None = None
        self.leads = learner.ranks.is_rank_zero
        title = f"{config.model}  {config.env.id}  seed {config.seed}"
        self.display = make_display(title, where.quiet or not self.leads)
        if envs.adapter.note:
            self.display.print_line(envs.adapter.note)
        if self.leads:
            checkpoint.prune(self.checkpoints, config.keep)

    def load(self, ignore_versions: bool) -> None:
        """The newest checkpoint that is whole; without any, the run begins again."""
        self.purge_from = 0
        for path in reversed(checkpoint.existing(self.checkpoints)):
            try:
                meta = checkpoint.restore(path, self.learner, self.envs, self.config.seed)
            except CheckpointError as error:
                self.display.print_line(f"passed over: {error}")
                continue
            different = {k: v for k, v in meta["versions"].items() if versions().get(k) != v}
            if different and not ignore_versions:
                raise UsageError(
                    f"{path} was written with {different}, here it is {versions()}; --ignore-versions "
                    "goes on without the promise of equality"
                )
            self.elapsed, self.offset, self.best = meta["time"], meta["offset"], meta["best"]
            self.episodes_offset = meta.get("episodes_offset", 0)  # older versions kept no episodes
            self.purge_from = self.learner.step + 1
            self.learner.ranks.check_equal(self.learner.optimizer.flats)
            self.display.print_line(f"resumed {path.name} at step {self.learner.step:,}")
            before, now = meta.get("processes", 1), self.learner.ranks.size
            if before != now:
                self.display.print_line(
                    f"processes: {before} before, {now} now; all is equal but for rounding"
                )
            return
        self.display.print_line("no whole checkpoint: beginning again from the seed")
        if self.leads:  # the highest iterations are kept, so what was passed over would outlive the new ones
            checkpoint.clear(self.checkpoints)
        begin_memories(self.learner.agent)
        self.learner.restart(self.envs, self.config.seed)

    def go(self, factory: Factory | None) -> dict[str, Any]:
        """Train to the end or to a signal; the summary of the run."""
        sinks = self._sinks() if self.leads else []
        try:
            with Signals() as signals:
                status = self._loop(sinks, signals, factory)
        except Exception:
            self._summarize("failed")
            raise
        finally:
            for sink in (*sinks, *([self.episodes] if self.episodes else []), self.display):
                sink.close()
            for envs in (self.envs, self.validator):
                if envs is not None:
                    envs.adapter.close()
        return self._finish(status)

    def _sinks(self) -> list[Any]:
        """Where metrics are written."""
        self.jsonl = JsonLines(self.folder / "metrics.jsonl", self.offset)
        self.episodes = JsonLines(self.folder / "episodes.jsonl", self.episodes_offset)
        sinks: list[Any] = [self.jsonl, TensorBoard(self.folder, self.purge_from)]
        if self.where.wandb_project:
            account = self.where.wandb_project, self.where.wandb_entity
            name = "-".join(self.folder.parts[-3:])
            sinks.append(Wandb(*account, name, self.folder, to_dict(self.config)))
        return sinks

    def _loop(self, sinks: list[Any], signals: Signals, factory: Factory | None) -> str:
        plan, learner, config = self.config.plan, self.learner, self.config
        interval = config.val_check_interval or 0
        started = time.perf_counter() - self.elapsed
        before, step_before = self.elapsed, learner.step
        for metrics in train(self.envs, learner, plan, UPDATES[config.algorithm]):
            due = self.leads and interval > 0 and learner.iteration % interval == 0
            metrics["val_return"] = self._validate(factory) if due else None
            self.elapsed = time.perf_counter() - started
            metrics["time"] = self.elapsed
            metrics["sps"] = (learner.step - step_before) / max(self.elapsed - before, 1e-9)
            pace, before, step_before = self.elapsed - before, self.elapsed, learner.step
            if self.episodes:
                self.episodes.append(lines_of(learner.episodes.latest))
            for sink in sinks:
                sink.write(metrics)
            self._warn(metrics)
            self.display.show(metrics, plan.progress(learner.iteration, learner.step))
            if config.save_interval and learner.iteration % config.save_interval == 0:
                self._save()
            caught, slowest = learner.ranks.all_reduce_max(signals.caught or 0, pace)
            if caught and self._may_stop(slowest):
                return Signal(int(caught)).name
        return "finished"

    def _may_stop(self, pace: float) -> bool:
        """After a signal: at once where the state can be saved, or where no barrier is near."""
        barrier = self.config.barrier
        to_go = -self.learner.iteration % barrier if barrier else 0
        if to_go and to_go * pace <= NEAR_BARRIER:
            return False
        if not to_go and self.config.save_interval:
            self._save()
        return True

    def _validate(self, factory: Factory | None) -> float:
        """The mean return of a few episodes in environments of their own."""
        config, episodes = self.config, self.config.val_episodes
        torch.set_num_threads(1)
        if self.validator is None:
            self.validator = make_for_evaluation(replace(config.env, num_envs=episodes), factory)
        seeds = rng.env_seeds(config.seed, rng.Purpose.VALIDATE, self.learner.iteration, episodes)
        player = self.learner.agent.player(episodes)
        mean = float(np.mean(play_episodes(self.validator, player, episodes, seeds)[0]))
        if mean >= self.best:
            self.best = mean
            self._guarded(lambda: self._keep("best"))
        return mean

    def _save(self) -> None:
        meta = {
            **agent_metadata(self.learner.agent, self.config),
            "offset": self.jsonl.offset if self.jsonl else 0,
            "episodes_offset": self.episodes.offset if self.episodes else 0,
            "time": self.elapsed,
            "best": self.best,
        }
        path = checkpoint.path_of(self.checkpoints, self.learner.iteration)

        def write() -> None:
            checkpoint.save(path, self.learner, self.envs, meta)
            if self.leads:
                self._keep("last")
                checkpoint.prune(self.checkpoints, self.config.keep)

        self._guarded(write)

    def _keep(self, name: str) -> None:
        """The agent as it is, as a file of weights."""
        learner = self.learner
        save_weights(self.checkpoints / f"{name}.safetensors", learner.agent, self.config, learner.rewards)

    def _guarded(self, write: Callable[[], None]) -> None:
        """A full disk costs a checkpoint, not the run: the older ones stand."""
        try:
            write()
        except OSError as error:
            self.display.print_line(
                f"not saved at step {self.learner.step:,}: {error}; older checkpoints stand, training goes on"
            )

    def _warn(self, metrics: dict[str, float | None]) -> None:
        for name in ("ratio_error", "value_error"):
            error = metrics[name]
            if error is not None and error > WARN_ERROR:
                text = f"{name} is {error:.2g}: acting and learning disagree more than rounding explains"
                warnings.warn(text, stacklevel=2)

    def _finish(self, status: str) -> dict[str, Any]:
        """Keep the weights of a finished run, and say how it ended."""
        if status == "finished" and self.leads:
            self._keep("last")
            if not (self.checkpoints / "best.safetensors").exists():
                self._keep("best")
        summary = self._summarize(status)
        if status == "finished":
            self.display.print_line(
                f"{summary['step']:,} steps in {duration(self.elapsed)}, kept in {self.folder}"
            )
        else:
            self.display.print_line(f"stopped by {status}; recollect resume {self.folder}")
        return summary

    def _summarize(self, status: str) -> dict[str, Any]:
        """Write summary.json as things stand."""
        learner = self.learner
        summary = {
            **opening_summary(self.config, self.where),
            "status": status,
            **learner.progress(),
            "time": self.elapsed,
            "sps": learner.step / max(self.elapsed, 1e-9),
            "best_val_return": self.best if is_finite(self.best) else None,
        }
        if self.leads:
            write_json(self.folder / "summary.json", summary)
        return summary
