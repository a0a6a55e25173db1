"""Start or resume a run, and the trained agent that it returns.

runs/<model>/<env>/<id>/
    config.yaml       the whole config
    metrics.jsonl     one line per iteration
    episodes.jsonl    one line per training episode
    events.*          metrics for TensorBoard
    checkpoints/      iteration-*.safetensors: to resume from; last and best: weights
    summary.json      status, last metrics, digests of the files above it
"""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from torch.distributions import Distribution

from ..agent.agent import Agent
from ..agent.normalize import RewardScale
from ..agent.player import Player, PlayerState, distribution, value
from ..common import notebook
from ..common.distributed import Ranks, process_group, was_restarted
from ..common.errors import UsageError, install_hint
from ..common.output_paths import check_out_folder
from ..common.threads import only_thread
from ..config.assembly import import_flags
from ..config.config import RunConfig
from ..config.data import config_hash, write_yaml
from ..envs import Array, Envs
from ..learn.episodes import Episode
from . import checkpoint
from .build import Factory, build, build_learner
from .destination import Destination, begun
from .display import make_display
from .episode_log import read_episodes
from .evaluate import Evaluation, evaluate
from .initial import begin_rewards
from .run_folder import (
    check_results,
    find_unfinished,
    is_unstarted,
    locked,
    new_folder,
    read_summary,
)
from .session import Session
from .update import OnRollout, Updates, run_through
from .weights import check_saved, load_rewards, save_agent


@dataclass(repr=False)
class Trained:
    """A trained agent with its config and files.

    folder   the run folder; after `load`, the path that was loaded
    path     the same as an absolute path
    summary  summary.json; empty after `load`
    factory  builds one environment, if the environment was given as a callable
    rewards  their scale, after training; None: read from the folder
    """

    agent: Agent
    config: RunConfig
    folder: Path
    summary: dict[str, Any]
    factory: Factory | None = None
    rewards: RewardScale | None = None

    def __post_init__(self) -> None:
        # A later change of the working folder changes nothing.
        self.path = self.folder.absolute()

    def episodes(self) -> list[Episode]:
        """All finished training episodes, in the order in which they ended."""
        path = self.path / "episodes.jsonl"
        if not path.is_file():
            raise UsageError(f"{path} does not exist; training writes it into the run folder, so load that")
        if (self.path / "summary.json").exists():
            check_results(self.path)
        return read_episodes(path)

    def evaluate(
        self,
        episodes: int = 100,
        seed: int = 0,
        deterministic: bool = True,
        on_episode: Callable[[float], None] | None = None,
    ) -> Evaluation:
        """Evaluate the agent on seeds that training and validation do not use.

        deterministic  take the most likely actions; False: sample from the policy
        on_episode     called with the return of each finished episode
        """
        return evaluate(
            self.agent,
            self.config.env,
            episodes,
            seed,
            deterministic,
            name=str(self.folder),
            factory=self.factory,
            on_episode=on_episode,
        )

    def save(self, path: str | Path) -> None:
        """Save the weights, and everything that is needed to act with them, as one file.

        A name that ends in .onnx saves an ONNX graph, which acts without recollect (onnx.py).
        """
        save_agent(Path(path), self.agent, self.config, self._reward_scale)

    def predict(
        self,
        obs: Any,
        state: PlayerState | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, PlayerState]:
        """Actions and the state for the next call, as in Stable-Baselines3; see Agent.predict."""
        return self.agent.predict(obs, state, episode_start, deterministic, action_masks)

    def value(self, obs: Any, state: PlayerState | None = None, episode_start: Any = None) -> Array:
        """Values (num_envs,) of observations, in units of the rewards; arguments are those of predict.

        In the scale of the critic, if that of the rewards of training is not known. If the critic has a
        memory of its own, `state` must be that of predict: the state of a player lacks it.
        """
        scale = self._reward_scale
        return value(self.agent, obs, state, episode_start) * (1.0 if scale is None else scale.divisor)

    def distribution(
        self,
        obs: Any,
        state: PlayerState | None = None,
        episode_start: Any = None,
        action_masks: Any = None,
    ) -> Distribution:
        """The policy: its probabilities, entropy and samples, as a distribution of torch over (num_envs, K).

        Arguments are those of predict. Components of a Box action are in units of [-1, 1].
        """
        return distribution(self.agent, obs, state, episode_start, action_masks)

    @cached_property
    def _reward_scale(self) -> RewardScale | None:
        return load_rewards(self.path, self.config) if self.rewards is None else self.rewards

    def __repr__(self) -> str:
        env, status = self.config.env.id, self.summary.get("status", "loaded")
        return f"Trained({self.config.model} on {env}, seed {self.config.seed}, {status}, {self.folder})"

    def _repr_html_(self) -> str:
        """The notebook view: the curve of training returns, and a table."""
        rows: dict[str, Any] = {"environment": self.config.env.id, "model": self.config.model}
        rows |= {key: self.summary[key] for key in ("status", "step", "return") if key in self.summary}
        points = notebook.training_returns(self.path)
        page = notebook.table({**rows, "seed": self.config.seed, "folder": self.folder})
        return notebook.curve(points, "training return") + page

    def player(self, num_envs: int = 1, deterministic: bool = True, seed: int = 0) -> Player:
        """A player that acts with this agent in your own loop."""
        return self.agent.player(num_envs, deterministic, seed)


# Start and resume -----------------------------------------------------------------------------


def start_run(
    config: RunConfig,
    destination: Destination,
    factory: Factory | None = None,
    on_rollout: OnRollout | None = None,
) -> Trained:
    """Train from the start, in a new folder."""
    return run_through(iterate_run(config, destination, factory), on_rollout)


def iterate_run(config: RunConfig, destination: Destination, factory: Factory | None = None) -> Updates:
    """Train from the start, in a new folder, iteration by iteration."""
    if destination.wandb_project and importlib.util.find_spec("wandb") is None:
        raise UsageError(f"--wandb-project needs wandb: {install_hint('wandb')}")
    # An environment may change the working folder, on which a relative path depends.
    start = Path.cwd()
    with (
        only_thread(),
        process_group() as ranks,
        _built(config, factory, ranks, new=True) as (envs, agent, config),
    ):
        # torchrun repeats the same command after a failure, so `train` must find the run that failed. All
        # processes ask, because only those that torchrun restarted know of the failure.
        any_restarted = any(ranks.all_reduce_max(was_restarted()))
        failed = find_unfinished(destination.out, config_hash(config)) if any_restarted else None
        if failed is not None:
            envs.adapter.close()
            return (yield from _resume(failed, config, ranks, destination.quiet, factory=factory))
        envs.adapter.check_seed(config.seed)
        # The name may hold the time, so other processes may compute another one; only rank 0 uses it.
        shown = new_folder(config, destination.out, destination.run_id, start)
        folder = start / shown
        if ranks.is_rank_zero:
            check_out_folder(folder, f"--out {destination.out}")
            if not is_unstarted(folder):
                raise UsageError(
                    f"{shown} exists, and nothing is overwritten: recollect resume "
                    f"{quote(str(shown))}{import_flags(config)}, or another --run-id"
                )
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        with _lock(folder, ranks):
            # After the lock, because `is_unstarted` cannot see a run that another process starts right now.
            if ranks.is_rank_zero:
                write_yaml(config, folder / "config.yaml")
            with begun(folder, config, destination) if ranks.is_rank_zero else nullcontext():
                learner = build_learner(config, envs, agent, ranks)
                begin_rewards(learner.rewards, config)
                session = Session(config, folder, envs, learner, destination, factory, shown)
            summary = yield from session.iterate()
            shown = shown if Path.cwd() == start else folder
            return Trained(agent, config, shown, summary, factory, learner.rewards)


@contextmanager
def _built(
    config: RunConfig, factory: Factory | None, ranks: Ranks, new: bool, device: str | None = None
) -> Iterator[tuple[Envs, Agent, RunConfig]]:
    """As `build`; on an error the environments are closed, also where no session had them yet."""
    envs, agent, resolved = build(config, factory, ranks, new, device)
    try:
        yield envs, agent, resolved
    except Exception:
        # Not on a signal, which may have stopped a close() that hangs. They may be closed already, and those
        # of third parties may fail in it.
        with suppress(Exception):
            envs.adapter.close()
        raise


def _lock(folder: Path, ranks: Ranks) -> AbstractContextManager[None]:
    """The lock of the folder, held by rank 0; the other processes write nothing."""
    return locked(folder) if ranks.is_rank_zero else nullcontext()


def resume_run(
    folder: Path,
    config: RunConfig,
    quiet: bool = False,
    ignore_versions: bool = False,
    factory: Factory | None = None,
    device: str | None = None,
    on_rollout: OnRollout | None = None,
    kernels: Literal["torch"] | None = None,
) -> Trained:
    """Resume from the newest intact checkpoint; the result equals that of a run without a stop.

    device   where the networks are, if not on the device of the run; results then differ by rounding
    kernels  torch: not the native kernels of the run; results then differ by rounding
    """
    with process_group() as ranks:
        updates = _resume(folder, config, ranks, quiet, ignore_versions, factory, device, kernels)
        return run_through(updates, on_rollout)


def _resume(
    folder: Path,
    config: RunConfig,
    ranks: Ranks,
    quiet: bool = False,
    ignore_versions: bool = False,
    factory: Factory | None = None,
    device: str | None = None,
    kernels: Literal["torch"] | None = None,
) -> Updates:
    folder, shown = folder.absolute(), folder  # an environment may change the working folder
    summary = read_summary(folder)
    check_saved(folder, config, summary)
    with (
        only_thread(),
        _lock(folder, ranks),
        _built(config, factory, ranks, new=False, device=device) as (envs, agent, resolved),
    ):
        # config.yaml is fully resolved, so it changes only if this machine chooses another backend.
        if resolved != config:
            raise UsageError(
                f"{shown} was run with backend {config.env.backend}, here it is {resolved.env.backend}; "
                "install what the backend of the run needs"
            )
        # The keys in summary.json are fields of Destination: renaming a field would break every older run.
        destination = Destination(**{**summary["logging"], "quiet": quiet})
        if summary["status"] == "finished":
            # Not the newest checkpoint: the run may have ended between two of them.
            checkpoint.load_weights(agent, checkpoint.read(folder / "checkpoints" / "last.safetensors")[0])
            display = make_display("", quiet or not ranks.is_rank_zero)
            more = f"recollect train {config.env.id} --init {shown} --steps N"
            display.print_line(
                f"{shown} is finished: {summary['step']:,} steps; nothing to do. To train its agent further: "
                f"{more}"
            )
            display.close()
            envs.adapter.close()
            return Trained(agent, config, shown, summary, factory)
        learner = build_learner(config, envs, agent, ranks)
        session = Session(config, folder, envs, learner, destination, factory, shown)
        try:
            session.resume(ignore_versions, kernels)
        except Exception:
            session.display.close()
            raise
        summary = yield from session.iterate()
        shown = shown if shown.exists() else folder
        return Trained(agent, config, shown, summary, factory, learner.rewards)
