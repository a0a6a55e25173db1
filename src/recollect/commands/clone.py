"""`recollect clone`: an agent that learns the actions of recorded episodes, or of a teacher."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..common.errors import UsageError
from ..common.output_paths import check_new_file
from ..config.config import RunConfig
from ..run import api, dataset, minari
from ..run.teaching import clone_data, clone_teacher
from ..run.weights import check_agent_file, save_agent


@dataclass(frozen=True, kw_only=True)
class CloneOptions:
    """Train an agent by behaviour cloning: the actor learns recorded actions, the critic the returns after
    them. Chunks, resets and all options of the agent are those of train.

      recollect clone episodes.npz -e CartPoleNoVel-v1 -m ppo_lstm -o clone.safetensors
      recollect clone minari:D4RL/pointmaze/open-v2 -e ENV -m ppo_gru
      recollect clone --teacher RUN -e ENV -m ppo_gru --steps 1e5
      recollect train CartPoleNoVel-v1 -m ppo_lstm --init clone.safetensors --init.critic-rollouts 5

    With --teacher the agent acts itself and learns what the teacher would do in its place (DAgger); the
    teacher may see what the agent does not.
    """

    POSITIONAL: ClassVar = ("data",)
    NEEDS_ENVIRONMENT: ClassVar = True

    config: RunConfig
    data: tuple[str, ...] = ()
    """Files of `recollect record`, or minari:ID for a dataset of Minari (extra minari)."""
    teacher: str | None = None
    """A run folder, a checkpoint or a saved agent to learn from instead."""
    out: Path = Path("clone.safetensors")
    """The agent to write; it must not exist."""
    epochs: int = 20
    """Epochs over the recorded episodes; a teacher is followed for --steps."""
    imports: tuple[str, ...] = ()
    """Third-party memories and encoders that the file of the teacher may import."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UsageError(f"--epochs is {self.epochs}, at least 1 is needed")
        if bool(self.data) == (self.teacher is not None):
            given = f"{' '.join(self.data)} and {self.teacher}" if self.data else "neither"
            raise UsageError(f"clone needs either recorded episodes or a --teacher, here is {given}")


def run_clone(options: CloneOptions) -> int:
    """Train and write the agent; the exit code."""
    check_new_file(options.out)
    check_agent_file(options.out)
    out = options.out.absolute()  # the environment may change the working folder
    screen = Screen(options.quiet)
    if options.teacher is not None:
        # The teacher may have learned in the environment that the command names.
        allowed = [*options.imports, options.config.env.id]
        teacher = api.load(options.teacher, imports=allowed).agent
        learner, config = clone_teacher(options.config, teacher, options.teacher, screen)
    else:
        data = dataset.join([_read(name, options.config) for name in options.data])
        screen.line(f"{data.name}: {len(data.bounds)} episodes, mean return {data.returns.mean():.4g}")
        learner, config = clone_data(options.config, data, options.epochs, screen)
    screen.finish()
    save_agent(out, learner.agent, config, learner.rewards)
    screen.line(f"{options.out} is written")
    return 0


def _read(name: str, config: RunConfig) -> dataset.Dataset:
    if name.startswith(minari.PREFIX):
        return minari.read(name, config)
    return dataset.read(Path(name))


class Screen:
    """Prints metrics, at most one line a second, and the last ones."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self._printed = quiet, 0.0
        self._skipped: str | None = None  # the line of the last metrics, where it was not printed

    def line(self, text: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(text)

    def __call__(self, metrics: dict[str, Any]) -> None:
        self._skipped = _describe(metrics)
        if time.monotonic() - self._printed >= 1:
            self._printed = time.monotonic()
            self.finish()

    def finish(self) -> None:
        """Print the last metrics, unless they were printed."""
        if self._skipped is not None:
            self.line(self._skipped)
        self._skipped = None


def _describe(metrics: dict[str, Any]) -> str:
    where = f"epoch {metrics['epoch']:>4}" if "epoch" in metrics else f"step {metrics['step']:>9,}"
    mean = metrics.get("return")
    score = "" if mean is None else f"   return {mean:>8.4g}"
    text = f"log-likelihood of an action {-metrics['policy_loss']:>8.4f}   entropy {metrics['entropy']:.4f}"
    return f"{where}   {text}{score}"
