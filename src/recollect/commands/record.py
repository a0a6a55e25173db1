"""`recollect record`: the episodes of an agent as a file, for cloning."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..common.errors import UsageError
from ..common.output_paths import check_new_file
from ..config.options import Playing
from ..run import api, dataset
from ..run.teaching import record_episodes


@dataclass(frozen=True, kw_only=True)
class RecordOptions(Playing):
    """Play episodes with a trained agent and write them as one .npz file, from which agents can be cloned.

      recollect record RUN -o episodes.npz
      recollect record RUN -o episodes.npz --episodes 50 --sample

    The file has observations, actions, rewards and ends, episode after episode (docs/starting_points.md).
    """

    POSITIONAL: ClassVar = ("run",)

    run: str
    """A run folder, a checkpoint or a saved agent."""
    out: Path = Path("episodes.npz")
    """The file to write; it must not exist."""
    episodes: int = 100
    """Episodes to play."""
    sample: bool = False
    """Sample actions from the policy instead of taking the most likely."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes < 1:
            raise UsageError(f"--episodes is {self.episodes}, at least 1 is needed")


def run_record(options: RecordOptions) -> int:
    """Play and write; the exit code."""
    check_new_file(options.out)
    out = options.out.absolute()  # the environment may change the working folder
    trained = api.load(options.run, env=options.env, imports=options.imports, device=options.device)
    data = record_episodes(trained, options.episodes, options.seed, not options.sample)
    dataset.write(out, data)
    played = int(data.first.sum())  # of several agents, more than one for each episode
    print(
        f"{options.out}: {played} episodes of {trained.config.env.id}, {len(data.first) - played:,} steps, "
        f"mean return {data.returns.mean():.4g}"
    )
    return 0
