"""Record episodes: the inputs of the agent, rewards, ends, hidden variables and images.

Shapes.  T rows of N environments, and a row T at the end in which no action is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent, Branch
from ..agent.critic import SharedCritic
from ..agent.nets import Rows
from ..agent.player import Player
from ..common import rng
from ..common.intervals import Floats
from ..common.tree import Tree, leaves
from ..envs import Array, Envs, Step, VecEnv
from ..learn.rollout import slice_rows
from .playing import aborted_by, play_episodes, read_ends

KeepPicture: TypeAlias = Callable[[Array], Any]


class EpisodeScores(NamedTuple):
    """One number per episode each; successes are NaN where the environment reports none."""

    returns: Floats
    lengths: Floats
    successes: Floats


@dataclass(frozen=True)
class Record:
    """Recorded episodes, time-major.

    rows        inputs of the actor (T + 1, N, ...) on the CPU; row T is an observation without an action
    valid       whether the agent acted, in an episode that counts (T, N): false on tail rows, and in episodes
                that a failure of the environment ended
    reward      after the action (T, N)
    terminated  whether the step ended the episode by the task (T, N)
    truncated   whether the step ended the episode by a limit (T, N)
    hidden      name -> variable that the observation does not show (T + 1, N); NaN where it shows it
    pictures    what `keep` returned for the images of environment 0 (T + 1); empty if none were kept
    agents      of each environment: consecutive entries of N
    """

    rows: Rows
    valid: Array
    reward: Floats
    terminated: Array
    truncated: Array
    hidden: dict[str, Floats]
    pictures: list[Any]
    agents: int = 1

    @property
    def step(self) -> Array:
        """Steps since the start of the episode (T, N)."""
        first = self.rows.first[:-1].numpy()
        row = np.arange(len(first))[:, None]
        # The running maximum is the row of the latest start of an episode.
        return np.asarray(row - np.maximum.accumulate(np.where(first, row, 0)))

    @property
    def episode(self) -> Array:
        """A number of the episode of each row (T, N), the same for all agents of an environment.

        Episodes that do not count have none: their rows have that of the episode before.
        """
        first = self.rows.first[:-1].numpy() & self.valid
        shape = len(first), first.shape[1] // self.agents, self.agents
        # Agents of one environment begin together, or join later.
        begins, acts = (np.asarray(x.reshape(shape).any(axis=2)) for x in (first, self.valid))
        begins = np.concatenate([begins[:1], begins[1:] & ~acts[:-1]])
        numbers = begins.cumsum(0) * shape[1] + np.arange(shape[1])
        return np.asarray(numbers.repeat(self.agents, axis=1))

    def alone(self, entry: int) -> "Record":
        """The first episode of one entry of the batch that counts, with its final observation."""
        start = int(np.argmax(self.valid[:, entry]))
        stop = int(np.argmax((self.terminated | self.truncated)[:, entry])) + 1
        steps, rows = (slice(start, stop), [entry]), slice(start, stop + 1)
        return Record(
            rows=self.rows.map(lambda x: x[rows, [entry]]),
            valid=self.valid[steps],
            reward=self.reward[steps],
            terminated=self.terminated[steps],
            truncated=self.truncated[steps],
            hidden={name: x[rows, [entry]] for name, x in self.hidden.items()},
            pictures=self.pictures[rows],
        )


class Recorder(VecEnv):
    """Environments that record the inputs of a player, rewards, ends, hidden variables and images."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, player: Player, envs: Envs, keep: KeepPicture | None) -> None:
        self.player = player
        self.inside = envs.adapter
        self.num_envs = envs.num_envs
        self.backend = self.inside.backend
        self.observation_space = self.inside.observation_space
        self.action_space = self.inside.action_space
        self.agents = self.inside.agents
        self.mask = envs.obs_spec.mask
        # The agent does not get masked entries, but read-outs try to recover them, so they are recorded here.
        self.unmasked_spec = replace(envs.obs_spec, mask=())
        self.rows: list[Rows] = []
        self.steps: list[Step] = []
        self.hidden_rows: list[dict[str, Array]] = []
        self.keep = keep
        self.pictures: list[Any] = []

    def waiting(self) -> Array | None:
        return self.inside.waiting()

    def reset(self, seeds: list[int]) -> Any:
        self.obs = self.inside.reset(seeds)
        self.waits_first = copied(self.inside.waiting())
        self._record_row()
        return self.obs

    def step(self, action: Array) -> Step:
        self.record_inputs()
        step = self.inside.step(action)
        self.obs = step.obs
        # Observations are in the inputs.
        self.steps.append(outcome_of(step, self.inside.waiting()))
        self._record_row()
        return step

    def record_inputs(self) -> None:
        """Record the inputs of the player's latest step."""
        # Copies, because inputs may share memory with the environments, whose next step overwrites it.
        self.rows.append(self.player.inspect().rows.map(lambda x: x.to("cpu", copy=True)))

    def _record_row(self) -> None:
        """Record hidden variables, masked entries and the image of the present row."""
        variables = {name: np.array(x, dtype=np.float64) for name, x in self.inside.hidden().items()}
        if self.mask:
            vector = self.unmasked_spec.split(self.obs)["obs"]
            variables |= {f"masked entry {i}": vector[:, i].astype(np.float64) for i in self.mask}
        self.hidden_rows.append(variables)
        if self.keep and (picture := self.inside.render()) is not None:
            self.pictures.append(self.keep(picture))


def copied(x: Array | None) -> Array | None:
    """A copy, because the next step may overwrite an array in place."""
    return None if x is None else x.copy()


def outcome_of(step: Step, waiting: Array | None) -> Step:
    """A step without its observation, as copies."""
    ends = step.terminated.copy(), step.truncated.copy()
    aborted, waiting = copied(step.aborted), copied(waiting)
    return Step(None, step.reward.copy(), *ends, aborted=aborted, waiting=waiting)


def play_deterministic(agent: Agent, envs: Envs, episodes: int, seed: int) -> EpisodeScores:
    """Play episodes as `recollect eval` does: on the same seeds, with the most likely actions.

    The first episodes start equally for all agents. So do later ones, where every environment has its own
    random generator and only resets draw from it.
    """
    return _play(agent.player(envs.num_envs, True, seed), envs, episodes, _seeds(envs, seed))


def record_deterministic(agent: Agent, envs: Envs, episodes: int, seed: int) -> tuple[EpisodeScores, Record]:
    """Play episodes as `play_deterministic` does, and record them."""
    return record(agent.player(envs.num_envs, True, seed), envs, episodes, _seeds(envs, seed))


def record(
    player: Player, envs: Envs, episodes: int, seeds: list[int], keep: KeepPicture | None = None
) -> tuple[EpisodeScores, Record]:
    """Play episodes with a player, from these seeds of the environments, and record them.

    keep  image -> what to keep of it, which must be a copy: renderers may reuse the array;
          None: nothing is rendered
    """
    recorder = Recorder(player, envs, keep)
    scores = _play(player, envs.around(recorder), episodes, seeds)
    valid, first = row_kinds(recorder.steps, recorder.waits_first, max(1, len(envs.agents)))
    # One more call for row T, whose action is not used: the final observations of the last episodes are in
    # it, and the critic needs them for bootstrapping.
    player.act(recorder.obs, recorder.steps[-1].reward, first[-1])
    recorder.record_inputs()
    return scores, _assemble(recorder, valid[:-1])


def _seeds(envs: Envs, seed: int) -> list[int]:
    return rng.env_seeds(seed, rng.Purpose.EVALUATE, 0, envs.num_envs)


def _play(player: Player, envs: Envs, episodes: int, seeds: list[int]) -> EpisodeScores:
    columns = play_episodes(envs, player, episodes, seeds)[:3]
    return EpisodeScores(*(np.array(column, dtype=np.float64) for column in columns))


def row_kinds(steps: list[Step], waits_first: Array | None, agents: int) -> tuple[Array, Array]:
    """`valid` and `first` of all rows (T + 1, N), without and with episodes that a failure ended.

    waits_first  which entries wait in row 0; None: none
    agents       of each environment
    """
    idle = np.zeros_like(steps[0].terminated) if waits_first is None else waits_first
    valid, firsts = [~idle], [~idle]
    for step in steps:
        _, first, idle = read_ends(step, idle, step.waiting)
        valid.append(~idle)
        firsts.append(first)
    acted = np.stack(valid)
    return acted & ~_aborted_rows(steps, acted, agents), np.stack(firsts)


def _aborted_rows(steps: list[Step], acted: Array, agents: int) -> Array:
    """The rows (T + 1, N) of episodes that a failure ended, of all agents of the environment."""
    playing = np.asarray(acted.reshape(len(acted), -1, agents).any(2))
    rows, lost = np.zeros_like(playing), np.zeros_like(playing[0])
    for t in reversed(range(len(steps))):  # an episode is known to be lost from its end
        lost = np.where(playing[t] & ~playing[t + 1], aborted_by(steps[t], agents), lost)
        rows[t] = lost
    return rows.repeat(agents, 1)


def _assemble(recorder: Recorder, valid: Array) -> Record:
    rows = recorder.rows
    # An environment need not report the same variables at every step.
    names = list(dict.fromkeys(name for row in recorder.hidden_rows for name in row))
    unknown = np.full(recorder.num_envs, np.nan)
    return Record(
        rows=Rows(
            {name: torch.cat([row.obs[name] for row in rows]) for name in rows[0].obs},
            torch.cat([row.first for row in rows]),
            torch.cat([row.prev_action for row in rows]),
            torch.cat([row.prev_reward for row in rows]),
        ),
        valid=valid,
        reward=np.stack([step.reward for step in recorder.steps]).astype(np.float64),
        terminated=np.stack([step.terminated for step in recorder.steps]) & valid,
        truncated=np.stack([step.truncated for step in recorder.steps]) & valid,
        hidden={n: np.stack([row.get(n, unknown) for row in recorder.hidden_rows]) for n in names},
        pictures=recorder.pictures,
        agents=max(1, len(recorder.agents)),
    )


# Memory states --------------------------------------------------------------------------------


def has_memory(branch: Branch | SharedCritic) -> bool:
    """Whether a branch has a memory, i.e. a state with at least one number."""
    return any(leaf.numel() for leaf in leaves(branch.initial_state(1)).values())


def memory_states(branch: Branch, rows: Rows) -> Iterator[Tree]:
    """The memory state of a branch after each row."""
    rows, state = rows.to(branch.device), branch.memory.initial_state(rows.first.shape[1])
    # One row per call: a call over many rows returns the last state only.
    for t in range(len(rows.first)):
        state = branch.features(slice_rows(rows, slice(t, t + 1)), state)[1]
        yield state


def float_leaves(state: Tree) -> dict[str, Tensor]:
    """The floating-point leaves of a state by path, without counters of steps."""
    # Noise on a counter of steps, or its mean, would be a position that the memory never has.
    return {path: leaf for path, leaf in leaves(state).items() if leaf.is_floating_point()}


def name_states(names: Sequence[str], count: int) -> Sequence[str]:
    """The names that a memory gives to the tensors of its state; numbered if it gives none."""
    if len(names) == count:
        return names
    return (
        ["memory state"]
        if count == 1
        else [f"memory state, tensor {i} of {count}" for i in range(1, count + 1)]
    )
