"""One run from its first rollout to its last: train, validate, log, save checkpoints, stop on a signal.

`Session.iterate` is the outline. It drives `train`, the generator of the algorithm, and is the only place
where training meets files, the screen and the clock. Where a run is split over processes, all of them execute
this file: rank 0 writes the files and the screen, and validates.
"""

import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from shlex import quote
from signal import Signals as Signal
from typing import Any

import numpy as np
import torch

from ..agent.speed import full_precision
from ..common.devices import announcement
from ..common.errors import CheckpointError
from ..common.format import duration
from ..common.metrics import METRICS, is_finite
from ..common.signals import Signals, StoppedError
from ..config.assembly import import_flags
from ..config.config import RunConfig
from ..envs import Envs, VecEnv
from ..learn.algorithms import UPDATES
from ..learn.learner import Learner
from ..learn.ppo import train
from . import checkpoint
from .build import Factory, training_mode
from .destination import Destination, initial_summary
from .display import Display, make_display
from .episode_log import format_episodes
from .initial import begin_again
from .kernels import computed_by, end_engine, engine, resume_with, warn_of_disagreement
from .log import Logs, open_logs
from .run_folder import check_config, refuse_restart, write_summary
from .slow_steps import slow_steps
from .update import Update
from .validation import Validation
from .weights import agent_metadata, check_versions, save_weights

STEERED = "a callback multiplied the learning rates by {:.4g}; equal results need it again (on_rollout)"
NEAR_BARRIER = 5.0  # seconds for which a signal waits for the next barrier


class Session:
    """A run in progress.

    shown       the folder as the user gave it, for messages
    elapsed     seconds of training so far, summed over resumes
    best        best validation return so far
    offsets     bytes of metrics.jsonl and episodes.jsonl that belong to the checkpoint resumed from
    purge_from  first step whose TensorBoard events are discarded; None: it is a new run
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        envs: Envs,
        learner: Learner,
        destination: Destination,
        factory: Factory | None,
        shown: Path | None = None,
    ) -> None:
        self.config, self.folder, self.checkpoints = config, folder, folder / "checkpoints"
        self.shown = shown or folder
        self.envs, self.learner, self.destination = envs, learner, destination
        self.validation = Validation(config, learner.agent, factory)
        self.elapsed, self.best, self.offsets = 0.0, -np.inf, (0, 0)
        self.purge_from: int | None = None
        self.logs: Logs | None = None
        self.is_rank_zero = learner.ranks.is_rank_zero
        quiet = destination.quiet or not self.is_rank_zero
        self.display = make_display(f"{config.model}  {config.env.id}  seed {config.seed}", quiet)
        for line in filter(None, (announcement(learner.agent.device), envs.adapter.note)):
            self.display.print_line(line)
        learner.engine = engine(config, learner.agent, self.display.print_line)
        if self.is_rank_zero:
            checkpoint.prune(self.checkpoints, config.keep)  # also removes what a killed process left over

    # Resume ---------------------------------------------------------------------------------------

    def resume(self, ignore_versions: bool, kernels: str | None = None) -> None:
        """Restore the newest intact checkpoint. Without any, the run restarts from its seed."""
        self.purge_from = 0  # of a run without an intact checkpoint, which repeats all of its events
        for path in reversed(checkpoint.existing(self.checkpoints)):
            try:
                meta = checkpoint.restore(path, self.learner, self.envs, self.config.seed)
            except CheckpointError as error:
                self.display.print_line(f"skipped: {error}")
                continue
            check_config(self.config, meta["config"], path)
            if not ignore_versions:
                check_versions(path, meta["versions"])
            self.elapsed = meta["time"]
            self.offsets = meta["offset"], meta.get("episodes_offset", 0)  # older versions wrote no episodes
            self.best = meta["best"]
            self.learner.optimizer.rate_factor = meta.get("rate_factor", 1.0)
            self.purge_from = self.learner.step + 1
            if self.learner.optimizer.rate_factor != 1:
                self.display.print_line(STEERED.format(self.learner.optimizer.rate_factor))
            # Processes on several machines may have read different files.
            self.learner.ranks.check_equal(self.learner.optimizer.flats)
            self.display.print_line(f"resumed {path.name} at step {self.learner.step:,}")
            for line in resume_with(self.learner, meta, kernels):
                self.display.print_line(line)
            return
        refuse_restart(self.checkpoints)
        self.display.print_line("no intact checkpoint: restarting from the seed")
        if self.is_rank_zero:  # the damaged files would outlive the new ones, which have lower numbers
            checkpoint.prune(self.checkpoints, 0)
        begin_again(self.learner, self.envs, self.config, kernels)

    # Run ------------------------------------------------------------------------------------------

    def iterate(self) -> Generator[Update, None, dict[str, Any]]:
        """Train to the end or to a signal, iteration by iteration; return the summary of the run."""
        threads, text = torch.get_num_threads(), ""
        with Signals() as signals:
            try:
                if self.is_rank_zero:
                    # The files are cut to the checkpoint: the iterations after it will be written again.
                    places = self.folder, self.config, self.destination
                    self.logs = open_logs(*places, self.offsets, self.purge_from, self.display.print_line)
                    if self.logs.lost:  # a later resume would take new lines for them
                        path = checkpoint.path_of(self.checkpoints, self.learner.iteration)
                        self._guard(partial(checkpoint.amend, path, self.logs.offsets))
                with training_mode(self.learner.agent, self.config):
                    status = yield from self._train(signals)
                # Before anything is closed, which may fail: the weights of a finished run are worth more.
                summary, text = self._finish(status)
            except StoppedError as stop:
                summary, text = self._interrupted(Signal(stop.number).name)
            except GeneratorExit:
                self._write_summary("stopped")
                raise
            except (Exception, SystemExit):
                # Not for SIGKILL or a power cut: then the summary says "running", and `resume` works as well.
                self._write_summary("failed")
                raise
            finally:
                self._close(text)
                torch.set_num_threads(threads)  # training has set its own
                end_engine(self.learner)
        return summary

    def _close(self, text: str) -> None:
        """Print how the run ended, and release all that it holds; errors are printed.

        In this order: after a signal the process ends if something hangs while it is closed.
        """
        self._release(self.display)
        if text:
            self.display.print_line(text)
        for part in (self.logs, self.envs.adapter, self.validation):
            self._release(part)

    def _release(self, part: Display | Logs | VecEnv | Validation | None) -> None:
        try:
            if part is not None:
                part.close()
        except Exception as error:  # of third-party environments and services
            self.display.print_line(f"closing {type(part).__name__} failed: {error}")

    def _train(self, signals: Signals) -> Generator[Update, None, str]:
        """Train; return "finished", or the name of the signal that stopped the run."""
        config, learner, plan = self.config, self.learner, self.config.plan
        started = time.perf_counter() - self.elapsed  # as if the earlier sessions had just happened
        time_before, step_before = self.elapsed, learner.step
        for learned in train(self.envs, learner, plan, UPDATES[config.algorithm]):
            # Every metric: what this update does not measure, as predictions that nothing makes, is unknown.
            metrics = {**dict.fromkeys(METRICS), **learned}
            # The other ranks wait in their next message meanwhile, for at most distributed.PATIENCE.
            validate = self.is_rank_zero and self.validation.is_due(learner.iteration)
            metrics["val_return"] = self._validate() if validate else None
            metrics["env_restarts"] = self.envs.adapter.restarts
            self.elapsed = time.perf_counter() - started
            seconds = self.elapsed - time_before
            metrics |= {"time": self.elapsed, "sps": (learner.step - step_before) / max(seconds, 1e-9)}
            time_before, step_before = self.elapsed, learner.step

            if self.logs:
                self.logs.write(metrics, format_episodes(learner.episodes.latest))
            warn_of_disagreement(metrics, self.config)
            # On the screen from the first episode; in files from 100, below which a mean is mostly noise.
            shown = {**metrics, **learner.episodes.means(fewest=1)}
            self.display.show(shown, plan.progress(learner.iteration, learner.step))
            if learner.iteration == 1 and (advice := slow_steps(self.envs, seconds, learner.ranks.size)):
                self.display.print_line(advice)
            update = Update(metrics, learner, config, self.folder)
            yield update
            # Saved after the metrics are written, because the checkpoint records the length of the files.
            if config.save_interval and learner.iteration % config.save_interval == 0:
                self._save_checkpoint()

            # All processes must stop in the same iteration: one that stopped alone would leave the others
            # waiting for its gradients. So they share the signal, and the time that decides below.
            ended, signal, slowest = learner.ranks.all_reduce_max(
                update.stopped, signals.caught or 0, seconds
            )
            if ended or learner.has_ended(plan):
                break
            if signal and self._may_stop(slowest):
                return Signal(int(signal)).name
        return "finished"

    def _validate(self) -> float:
        """The mean return of a validation; saves the weights if it is the best."""
        with full_precision(self.learner.agent):
            mean = self.validation.play(self.learner.iteration)
        if mean >= self.best and self._guard(lambda: self._save_weights("best")):
            self.best = mean  # of equal returns that of the later agent, which has trained longer
        return mean

    def _may_stop(self, pace: float) -> bool:
        """Whether to stop after this iteration, given a signal; saves a checkpoint if that is possible.

        Barrier environments can only be saved at a barrier, where they are reset. So the run continues to
        the next barrier if it is near, and otherwise stops with the last checkpoint that it has.

        pace  seconds per iteration of the slowest process
        """
        barrier = 0 if self.envs.adapter.tier == "native" else self.config.barrier
        # Iterations to the next multiple of `barrier`; 0 at one.
        to_go = -self.learner.iteration % barrier if barrier else 0
        if to_go and to_go * pace <= NEAR_BARRIER:
            return False
        if not to_go and self.config.save_interval:
            self._save_checkpoint()
        return True

    # Save -----------------------------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        meta = {
            **agent_metadata(self.learner.agent, self.config),
            **(self.logs.offsets if self.logs else {}),
            "time": self.elapsed,
            "best": self.best,
            "rate_factor": self.learner.optimizer.rate_factor,
            **computed_by(self.learner),
        }
        path = checkpoint.path_of(self.checkpoints, self.learner.iteration)

        # Every rank must call `save`, which gathers; after that only rank 0 can fail to write.
        def write() -> None:
            if self.logs:
                self.logs.sync()
            checkpoint.save(path, self.learner, self.envs, meta)
            if self.is_rank_zero:
                checkpoint.prune(self.checkpoints, self.config.keep)

        if self._guard(write) and self.is_rank_zero:
            self._guard(lambda: self._save_weights("last"))

    def _save_weights(self, name: str) -> None:
        """Save the weights of the agent as checkpoints/<name>.safetensors."""
        learner = self.learner
        save_weights(self.checkpoints / f"{name}.safetensors", learner.agent, self.config, learner.rewards)

    def _guard(self, write: Callable[[], None]) -> bool:
        """Whether a file was written. If not, training continues and the older checkpoints remain."""
        try:
            write()
        except OSError as error:
            older = checkpoint.existing(self.checkpoints)
            kept = f"{older[-1].name} remains" if older else "there is no checkpoint yet"
            self.display.print_line(
                f"not saved at step {self.learner.step:,}: {error}; {kept}, and training continues"
            )
            return False
        return True

    # Finish ---------------------------------------------------------------------------------------

    def _finish(self, status: str) -> tuple[dict[str, Any], str]:
        """Save the weights of a finished run, and write its summary; the summary, and a line about it."""
        if status != "finished":
            return self._write_summary(status), f"stopped by {status}; {self.resume_command}"
        summary = self._summary(status)
        if self.is_rank_zero:
            try:
                self._save_weights("last")
                if not (self.checkpoints / "best.safetensors").exists():
                    self._save_weights("best")
                write_summary(self.folder, summary, self.logs.complete() if self.logs else None)
            except OSError as error:
                raise OSError(
                    f"the run has finished, but it cannot be saved: {error}; free space, then "
                    f"{self.resume_command}"
                ) from error
        return summary, f"{summary['step']:,} steps in {duration(self.elapsed)}, saved in {self.shown}"

    def _interrupted(self, signal: str) -> tuple[dict[str, Any], str]:
        """The summary of a run that a signal ended within an iteration, and a line about it."""
        saved = checkpoint.existing(self.checkpoints)
        kept = f"the last checkpoint is {saved[-1].name}" if saved else "there is no checkpoint yet"
        text = f"stopped by {signal} within an iteration, which is not saved: {kept}"
        return self._write_summary(signal), f"{text}; {self.resume_command}"

    @property
    def resume_command(self) -> str:
        return f"recollect resume {quote(str(self.shown))}{import_flags(self.config)}"

    def _write_summary(self, status: str) -> dict[str, Any]:
        """Write summary.json of a run that ends early, if the disk takes it; the summary."""
        summary = self._summary(status)
        if self.is_rank_zero:
            try:
                write_summary(self.folder, summary)
            except OSError as error:
                self.display.print_line(f"summary.json is not written: {error}")
        return summary

    def _summary(self, status: str) -> dict[str, Any]:
        """The content of summary.json for the present state."""
        learner = self.learner
        return {
            **initial_summary(self.config, self.destination),
            "status": status,
            "kernels": learner.engine.name,
            **learner.progress(),
            "time": self.elapsed,
            "sps": learner.step / max(self.elapsed, 1e-9),
            "best_val_return": self.best if is_finite(self.best) else None,
        }
