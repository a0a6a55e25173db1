"""Episodes played with what everybody knew written down: rows, rewards, states, and what was hidden.

Shapes.  T rows of N environments, R rows of them that belong to an episode.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent, Branch
from ..agent.nets import Rows
from ..agent.player import Player
from ..common import rng
from ..common.intervals import Floats
from ..common.tree import Tree, leaves
from ..envs import Array, Envs, Step, VecEnv
from ..learn.rollout import slice_rows
from .evaluate import play_episodes

KeepPicture: TypeAlias = Callable[[Array], Any]

MAX_ENVS = 50  # environments, as recollect eval has them


class EpisodeScores(NamedTuple):
    """One number an episode."""

    returns: Floats
    lengths: Floats
    successes: Floats
    """NaN where none is reported."""


@dataclass(frozen=True)
class Record:
    """What was played, in the order of time; row T was seen and nobody acted in it.

    rows    as the actor read them (T + 1, N, ...)
    valid   whether somebody acted there (T, N), as do all that follow
    hidden  name -> what the observation does not tell (T + 1, N); NaN where it is not hidden
    pictures  what was kept of those of environment 0, as people see it (T + 1); none where nobody asked
    """

    rows: Rows
    valid: Array
    reward: Floats
    terminated: Array
    truncated: Array
    hidden: dict[str, Floats]
    pictures: list[Any]

    @property
    def step(self) -> Array:
        """How many rows the episode had before each (T, N)."""
        opened = self.rows.first[:-1].numpy()
        row = np.arange(len(opened))[:, None]
        return np.asarray(row - np.maximum.accumulate(np.where(opened, row, 0)))

    @property
    def episode(self) -> Array:
        """Which episode each row belongs to (T, N), no number twice."""
        opened = self.rows.first[:-1].numpy()
        return np.asarray(opened.cumsum(0) * opened.shape[1] + np.arange(opened.shape[1]))


class Recorder(VecEnv):
    """Environments that write down what they say and what they hide."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, player: Player, envs: Envs, keep: KeepPicture | None) -> None:
        self.player = player
        self.inside, self.spec = envs.adapter, replace(envs.obs_spec, mask=())
        self.masked = envs.obs_spec.mask
        self.num_envs, self.backend = envs.num_envs, envs.adapter.backend
        self.observation_space, self.action_space = self.inside.observation_space, self.inside.action_space
        self.rows: list[Rows] = []
        self.steps: list[Step] = []
        self.hidden_rows: list[dict[str, Array]] = []
        self.keep, self.pictures = keep, list[Any]()

    def reset(self, seeds: list[int]) -> Any:
        self.obs = self.inside.reset(seeds)
        self._note()
        return self.obs

    def step(self, action: Array) -> Step:
        self.record_inputs()
        step = self.inside.step(action)
        self.obs = step.obs
        # Arrays may be written to by the next step; of the observation the rows tell.
        self.steps.append(Step(None, step.reward.copy(), step.terminated.copy(), step.truncated.copy()))
        self._note()
        return step

    def record_inputs(self) -> None:
        """Copy the inputs of the player's latest step, before the environments write to their arrays."""
        obs, *rest = self.player.inspect().rows
        self.rows.append(Rows({name: x.clone() for name, x in obs.items()}, *(x.clone() for x in rest)))

    def _note(self) -> None:
        """What is hidden now; what a mask hides is still in what the environment says."""
        found = {name: np.array(x, dtype=np.float64) for name, x in self.inside.hidden().items()}
        if self.masked:
            (seen,) = self.spec.split(self.obs).values()
            found |= {f"masked entry {entry}": seen[:, entry].astype(np.float64) for entry in self.masked}
        self.hidden_rows.append(found)
        if self.keep and (picture := self.inside.picture()) is not None:
            self.pictures.append(self.keep(picture))


def play_deterministic(agent: Agent, envs: Envs, episodes: int, seed: int) -> EpisodeScores:
    """Episodes as `recollect eval` plays them: from the same seeds, with the likeliest actions.

    The first episode of each environment begins alike whoever plays; so do later ones where each
    environment draws from a generator of its own, and resets alone draw from it.
    """
    return _played(agent.player(envs.num_envs, True, seed), envs, episodes, _seeds(envs, seed))


def record_deterministic(agent: Agent, envs: Envs, episodes: int, seed: int) -> tuple[EpisodeScores, Record]:
    """The same, with everything written down."""
    return record(agent.player(envs.num_envs, True, seed), envs, episodes, _seeds(envs, seed))


def record(
    player: Player, envs: Envs, episodes: int, seeds: list[int], keep: KeepPicture | None = None
) -> tuple[EpisodeScores, Record]:
    """Episodes of a player from these seeds of the environments, with everything written down.

    keep  what to keep of a picture, whose array is written to again; None: no pictures are made
    """
    recorder = Recorder(player, envs, keep)
    scores = _played(player, Envs(recorder, envs.obs_spec.mask), episodes, seeds)
    valid, first = _kinds(recorder.steps)
    # Row T, which nobody acts in: the critic must see how the last episodes ended.
    player.act(recorder.obs, recorder.steps[-1].reward, first)
    recorder.record_inputs()
    return scores, _record(recorder, valid)


def _seeds(envs: Envs, seed: int) -> list[int]:
    return rng.env_seeds(seed, rng.Purpose.EVALUATE, 0, envs.num_envs)


def _played(player: Player, envs: Envs, episodes: int, seeds: list[int]) -> EpisodeScores:
    columns = play_episodes(envs, player, episodes, seeds)
    return EpisodeScores(*(np.array(column, dtype=np.float64) for column in columns))


def _kinds(steps: list[Step]) -> tuple[Array, Array]:
    """Which rows (T, N) are no tail rows, and which of row T (N,) open an episode."""
    tail = np.zeros_like(steps[0].terminated)
    valid, first = [], tail
    for step in steps:
        valid.append(~tail)
        first, tail = tail, (step.terminated | step.truncated) & ~tail
    return np.stack(valid), first


def _record(recorder: Recorder, valid: Array) -> Record:
    rows = recorder.rows
    names = list(dict.fromkeys(name for found in recorder.hidden_rows for name in found))
    unknown = np.full(recorder.num_envs, np.nan)
    return Record(
        rows=Rows(
            {name: torch.cat([row.obs[name] for row in rows]) for name in rows[0].obs},
            *(torch.cat(column) for column in list(zip(*rows, strict=True))[1:]),
        ),
        valid=valid,
        reward=np.stack([step.reward for step in recorder.steps]).astype(np.float64),
        terminated=np.stack([step.terminated for step in recorder.steps]) & valid,
        truncated=np.stack([step.truncated for step in recorder.steps]) & valid,
        hidden={n: np.stack([found.get(n, unknown) for found in recorder.hidden_rows]) for n in names},
        pictures=recorder.pictures,
    )


# States ---------------------------------------------------------------------------------------


def has_memory(branch: object) -> bool:
    """Whether a branch has a memory: a state that holds any number."""
    if not isinstance(branch, Branch):
        return False
    return any(leaf.numel() for leaf in leaves(branch.memory.initial_state(1)).values())


def memory_states(branch: Branch, rows: Rows) -> Iterator[Tree]:
    """What a branch remembers after each row."""
    state = branch.memory.initial_state(rows.first.shape[1])
    for t in range(len(rows.first)):
        state = branch.features(slice_rows(rows, slice(t, t + 1)), state)[1]
        yield state


def float_leaves(state: Tree) -> dict[str, Tensor]:
    """The leaves that hold floats; counters of steps are none."""
    return {path: leaf for path, leaf in leaves(state).items() if leaf.is_floating_point()}
