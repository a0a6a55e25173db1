"""An iteration of training as callbacks get it, and training as an iterator of them."""

import math
from collections.abc import Callable, Generator
from contextlib import closing
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from ..common.errors import UsageError
from ..common.signals import Signals, StoppedError
from ..config.config import RunConfig
from ..learn.learner import Learner
from .weights import save_agent

if TYPE_CHECKING:
    from .run import Trained


class Update:
    """An iteration of training: a rollout and the update from it.

    metrics  a line of metrics.jsonl
    agent    acts with the weights after the update; change nothing in it
    config   of the run
    folder   of the run
    """

    def __init__(
        self, metrics: dict[str, float | None], learner: Learner, config: RunConfig, folder: Path
    ) -> None:
        self.metrics, self.agent, self.config, self.folder = metrics, learner.agent, config, folder
        self._learner = learner
        self.stopped = False

    def __repr__(self) -> str:
        value = self.metrics["return"]
        shown = "-" if value is None else f"{value:.4g}"
        return f"Update(step={self._learner.step:,}, iteration={self._learner.iteration:,}, return={shown})"

    @property
    def learning_rate(self) -> float:
        """Of the actor, in the next update. If it is set, the rates of all later updates are multiplied
        by the same factor, which checkpoints contain, so a resumed run continues with it. After the last
        update it changes nothing."""
        return self._scheduled * self._learner.optimizer.rate_factor

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        # A positive condition, which NaN does not fulfil.
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate < math.inf:
            raise UsageError(f"learning_rate is {rate!r}, it must be a finite number of at least 0")
        if self._scheduled > 0:
            self._learner.optimizer.rate_factor = rate / self._scheduled
        elif self._learner.iteration < self.config.init.critic_rollouts:
            raise UsageError("learning_rate: the actor is not trained yet; see init.critic_rollouts")
        elif self.config.plan.progress(self._learner.iteration, self._learner.step) < 1:
            raise UsageError("learning_rate: the schedule of this run has reached 0; see ppo.lr_decay")

    @property
    def _scheduled(self) -> float:
        return self._learner.coefficients(self.config.plan).rates[0]

    def stop(self) -> None:
        """End the run after this iteration, as if its budget were used up."""
        self.stopped = True

    def save(self, path: str | Path) -> None:
        """Save the agent as one file, as `Trained.save` does."""
        save_agent(Path(path), self.agent, self.config, self._learner.rewards)


OnRollout: TypeAlias = Callable[[Update], object]
Updates: TypeAlias = Generator[Update, None, "Trained"]


def run_through(updates: Updates, on_rollout: OnRollout | None) -> "Trained":
    """Train to the end, with a callback after each iteration.

    An error of the callback ends the run as one of its own would, and is raised again from there.
    """
    with closing(updates):
        error: BaseException | None = None
        while True:
            try:
                update = next(updates) if error is None else updates.throw(error)
            except StopIteration as end:
                trained: Trained = end.value
                return trained
            except RuntimeError as raised:
                # What Python makes of a StopIteration in a generator.
                if isinstance(error, StopIteration) and raised.__cause__ is error:
                    raise error from None
                raise
            try:
                if on_rollout is not None:
                    on_rollout(update)
            except (Exception, StoppedError) as raised:
                error = raised


class Training:
    """Training as an iterator: one Update for each iteration.

    trained  the agent with its files, after the last iteration

    A loop that is left early stops the run as a signal does, once the iterator is closed: by `close`, at the
    end of a `with` block, or when it is deleted. Such a run can be resumed from its last checkpoint.
    """

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._signals: Signals | None = None  # of the run, once it has begun
        self._trained: Trained | None = None

    @property
    def trained(self) -> "Trained":
        """The trained agent; only after the last iteration."""
        if self._trained is None:
            raise UsageError("the run has not ended; iterate to its end, or call `stop` of an update")
        return self._trained

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Update:
        if self._signals is not None:
            self._signals.proceed()
        try:
            update = next(self._updates)
        except StopIteration as end:
            # A generator that has ended returns None when it is called again.
            self._trained, self._signals = end.value or self._trained, None
            raise StopIteration from None
        except BaseException:
            self._signals = None  # the run has ended
            raise
        # A signal in the body of the loop is for the loop, however long that takes.
        self._signals = Signals.active
        assert self._signals is not None
        self._signals.suspend()
        return update

    def close(self) -> None:
        """Stop the run, unless it has ended."""
        self._updates.close()
        self._signals = None  # the run has ended, and restored the handlers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
