"""One run, from its beginning or from where it stopped, and what is left of it.

runs/<model>/<env>/<id>/
    config.yaml       everything that was decided
    metrics.jsonl     a line per iteration
    episodes.jsonl    a line per training episode
    events.*          the same for TensorBoard
    checkpoints/      iteration-*.safetensors to resume from; last and best: the weights
    summary.json      how it ended
"""

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agent.agent import Agent
from ..agent.player import Player
from ..common.distributed import Ranks, joined, restarted
from ..common.errors import UsageError
from ..config.config import RunConfig, config_hash, write_yaml
from ..learn.episodes import Episode
from . import checkpoint
from .build import Factory, build, build_learner
from .display import make_display
from .episode_log import read_episodes
from .evaluate import Evaluation, evaluate
from .run_folder import find_unfinished, is_unstarted, locked, new_folder, read_summary, write_json
from .session import Destination, Session, opening_summary
from .weights import load_rewards, save_weights


@dataclass
class Trained:
    """A finished or stopped run: an agent, and where everything about it lies."""

    agent: Agent
    config: RunConfig
    folder: Path
    summary: dict[str, Any]
    factory: Factory | None = None

    def episodes(self) -> list[Episode]:
        """Every finished training episode, in the order in which they ended."""
        path = self.folder / "episodes.jsonl"
        if not path.is_file():
            raise UsageError(f"{path} does not exist; training writes it into the folder of a run")
        return read_episodes(path)

    def evaluate(
        self,
        episodes: int = 100,
        seed: int = 0,
        deterministic: bool = True,
        on_episode: Callable[[float], None] | None = None,
    ) -> Evaluation:
        """Play episodes on seeds that no training ever sees."""
        args = self.agent, self.config.env, episodes, seed, deterministic, str(self.folder)
        return evaluate(*args, factory=self.factory, on_episode=on_episode)

    def save(self, path: str | Path) -> None:
        """The weights and all that is needed to act with them, as one file."""
        rewards = load_rewards(self.folder, self.config, self.config.env.num_envs)
        save_weights(Path(path), self.agent, self.config, rewards)

    def player(self, num_envs: int = 1, deterministic: bool = True, seed: int = 0) -> Player:
        """Something that acts, for your own loop."""
        return self.agent.player(num_envs, deterministic, seed)


# Begin and go on ------------------------------------------------------------------------------


def start(config: RunConfig, where: Destination, factory: Factory | None = None) -> Trained:
    """Train from the beginning in a new folder."""
    if where.wandb_project and importlib.util.find_spec("wandb") is None:
        raise UsageError("--wandb-project needs wandb: pip install 'recollect[wandb]'")
    with joined() as ranks:
        envs, agent, config = build(config, factory, ranks, new=True)
        again = any(ranks.all_reduce_max(restarted()))
        failed = find_unfinished(where.out, config_hash(config)) if again else None
        if failed is not None:
            envs.adapter.close()
            return _resume(failed, config, ranks, where.quiet, factory=factory)
        folder = new_folder(config, where.out, where.run_id)
        if ranks.is_rank_zero:
            _open(folder)
        with _writing(folder, ranks):
            if ranks.is_rank_zero:
                write_yaml(config, folder / "config.yaml")
                write_json(folder / "summary.json", opening_summary(config, where))
            learner = build_learner(config, envs, agent, ranks)
            summary = Session(config, folder, envs, learner, where).go(factory)
            return Trained(agent, config, folder, summary, factory)


def _open(folder: Path) -> None:
    """A new folder."""
    if not is_unstarted(folder):
        raise UsageError(
            f"{folder} exists, and nothing is overwritten: recollect resume {folder}, or another --run-id"
        )
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)


def _writing(folder: Path, ranks: Ranks) -> AbstractContextManager[None]:
    """The process that leads is the one that writes."""
    return locked(folder) if ranks.is_rank_zero else nullcontext()


def resume(
    folder: Path,
    config: RunConfig,
    quiet: bool = False,
    ignore_versions: bool = False,
    factory: Factory | None = None,
) -> Trained:
    """Go on from the newest whole checkpoint, to what the run would have been without the stop."""
    with joined() as ranks:
        return _resume(folder, config, ranks, quiet, ignore_versions, factory)


def _resume(
    folder: Path,
    config: RunConfig,
    ranks: Ranks,
    quiet: bool = False,
    ignore_versions: bool = False,
    factory: Factory | None = None,
) -> Trained:
    summary = read_summary(folder)
    with _writing(folder, ranks):
        envs, agent, resolved = build(config, factory, ranks, new=False)
        if resolved != config:
            raise UsageError(
                f"{folder} was run with backend {config.env.backend}, here it is {resolved.env.backend}"
            )
        where = Destination(**{**summary["logging"], "quiet": quiet})
        if summary["status"] == "finished":
            checkpoint.load_weights(agent, checkpoint.read(folder / "checkpoints" / "last.safetensors")[0])
            display = make_display("", quiet or not ranks.is_rank_zero)
            display.print_line(f"{folder} is finished: {summary['step']:,} steps; nothing to do")
            return Trained(agent, config, folder, summary, factory)
        session = Session(config, folder, envs, build_learner(config, envs, agent, ranks), where)
        session.load(ignore_versions)
        return Trained(agent, config, folder, session.go(factory), factory)
