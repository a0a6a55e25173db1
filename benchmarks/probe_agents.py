"""Agents whose use of memory is known by construction, and their environment, for benchmarks.probe_errors.

An observation is a number x and three signs, all random; episodes have six steps. An action is right if it is
the sign of x, or the sign that was shown first of the three some steps before. Rewards are noisy, so that a
false statement is possible: with an altered memory the same episode has another noise (`fresh`), or it has so
where the actions differ.

Shapes.  B sequences, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from recollect.agent.agent import BranchConfig, build_agent
from recollect.common.intervals import Floats
from recollect.common.tree import Tree
from recollect.config.config import RunConfig
from recollect.envs import Array, EnvConfig, make
from recollect.memory import Memory, MemoryConfig, find
from recollect.memory.rnn import Gru
from recollect.run.run import Trained

Generator = np.random.Generator

STEPS, SIGNS = 6, 3  # of an episode, of an observation
SEEN, UNITS, KEPT = 1 + SIGNS, 4, 4  # numbers of an observation; units of a GRU; steps that are kept
LOST = 0.25  # share of the score that is lost without a memory that is needed
CONTROLS = 3


@dataclass(frozen=True)
class Task:
    """What an environment rewards.

    back       steps before the action that the right sign was shown; 0: the sign of the present x is right
    noise      standard deviation of the score of an episode, as a share of its mean
    success    the probability that an episode whose actions are right is a success; None: none is reported
    fresh      whether noise differs between two plays of an episode with the same actions
    idle       whether every second step rewards both actions alike
    smallest   of |x|
    """

    back: int = 0
    noise: float = 0.0
    success: float | None = None
    fresh: bool = True
    idle: bool = False
    smallest: float = 0.5


class Signs(gymnasium.Env[Array, Any]):  # type: ignore[misc] # its base is Any to mypy
    """A task."""

    observation_space = gymnasium.spaces.Box(-1, 1, (SEEN,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, task: Task, unpaired: Generator) -> None:
        self.task, self.unpaired = task, unpaired
        # Without the memory half of the actions are right, of those that have a right one.
        self.base = (STEPS - task.back) / (2 * STEPS * LOST) - 1 if task.back else 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown: list[Array] = []
        self.right = 0.0
        return self._show(), {}

    def _show(self) -> Array:
        random = self.np_random
        signs = random.choice([-1.0, 1.0], 1 + SIGNS)
        x = signs[0] * random.uniform(self.task.smallest, 1)
        if self.task.idle and len(self.shown) % 2:
            x = 0.0
        self.shown.append(np.array([x, *signs[1:]], np.float32))
        return self.shown[-1]

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        task, random = self.task, self.unpaired if self.task.fresh else self.np_random
        now = len(self.shown) - 1
        cue = self.shown[now - task.back][1] if 0 < task.back <= now else self.shown[now][0]
        # Where there is no right action yet, or none at all, both count.
        right = float((cue > 0) == (action == 1) or now < task.back or cue == 0)
        self.right += right / STEPS
        # A noise for each action: equal actions of a play that is repeated have equal noise.
        noise = random.standard_normal(2)[int(action)] * task.noise * (1 + self.base) * np.sqrt(STEPS)
        over, info = len(self.shown) == STEPS, dict[str, Any]()
        if over and task.success is not None:
            info["success"] = bool(random.random() < task.success * self.right)
        return self._show(), self.base + right + float(noise), over, False, info


# Memories -------------------------------------------------------------------------------------


class Beside(Memory):
    """A GRU with random weights beside the observation: y = (observation, h)."""

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.gru, self.out_dim, self.reach = Gru(in_dim, UNITS), SEEN + UNITS, None

    def initial_state(self, batch: int) -> Tree:
        return self.gru.initial_state(batch)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        h, state = self.gru(x, state, first)
        return torch.cat([x[..., :SEEN], h], -1), state


@dataclass(frozen=True, kw_only=True)
class BesideConfig(MemoryConfig):
    """A GRU with random weights beside the observation."""

    name: ClassVar[str] = "beside"

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return Beside(in_dim)


class Recent(Memory):
    """The signs of the last steps, the latest first, in a random basis: y = (observation, signs)."""

    def __init__(self) -> None:
        super().__init__()
        self.out_dim, self.reach = SEEN + KEPT * SIGNS, None
        self.register_buffer("basis", torch.linalg.qr(torch.randn(KEPT * SIGNS, KEPT * SIGNS))[0])
        self.basis: Tensor

    def initial_state(self, batch: int) -> Tree:
        return (self.basis.new_zeros(batch, KEPT * SIGNS),)

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        assert isinstance(state, tuple) and isinstance(state[0], Tensor)
        mixed, outputs = state[0], []
        for row, opens in zip(x, first, strict=True):
            signs = mixed.masked_fill(opens[:, None], 0.0) @ self.basis.T
            outputs.append(torch.cat([row[:, :SEEN], signs], 1))
            mixed = torch.cat([row[:, 1:SEEN], signs[:, :-SIGNS]], 1) @ self.basis
        return torch.stack(outputs), (mixed,)


@dataclass(frozen=True, kw_only=True)
class RecentConfig(MemoryConfig):
    """The signs of the last steps."""

    name: ClassVar[str] = "recent"

    def build(self, in_dim: int, action_dim: int = 0) -> Memory:
        return Recent()


# Agents ---------------------------------------------------------------------------------------


class Readings(NamedTuple):
    """Weights of the features (F,) and bias of the log-odds of action 1."""

    weights: Floats
    bias: float = 0.0


Draw = Callable[[Generator], Readings]


def build(task: Task, page: int, run: int, memory: MemoryConfig, draw: Draw) -> Trained:
    """An agent; run 0 is the one that is probed."""
    branch, env = BranchConfig(memory=memory, hidden=()), EnvConfig()
    # One generator for all environments and plays, which no seed of an episode resets.
    factory = partial(Signs, task, np.random.default_rng([page, run]))
    envs = make(replace(env, num_envs=1), factory)
    seed = CONTROLS * page + page + run
    agent = build_agent((envs.obs_spec, envs.action_spec), branch, branch, False, seed)
    envs.adapter.close()
    drawn = draw(np.random.default_rng([page, run]))
    out = agent.actor.head.get_submodule("out")
    assert isinstance(out, nn.Linear)
    with torch.no_grad():
        for parameter in out.parameters():
            parameter.zero_()
        out.weight[-1, : len(drawn.weights)] = torch.from_numpy(drawn.weights)
        out.bias[-1] = drawn.bias
    config = RunConfig(env=env, actor=branch, critic=branch, seed=seed)
    return Trained(agent, config, Path(f"run-{run}"), {}, factory)


def read_x(random: Generator, spread: float = 0.0, noticed: float = 0.0) -> Readings:
    """The sign of x.

    spread   of the thresholds of different runs
    noticed  sum of the weights of the signs and the GRU, which decide where x is 0
    """
    rest = random.uniform(-1, 1, SIGNS + UNITS)
    rest *= noticed / np.abs(rest).sum()
    return Readings(np.array([4.0, *rest]), 4.0 * spread * random.standard_normal())


def read_sign(random: Generator, back: int) -> Readings:
    """The first sign of some steps before."""
    weights = np.zeros(SEEN + KEPT * SIGNS)
    weights[SEEN + (back - 1) * SIGNS] = 1.5
    return Readings(weights)


def read_observation(random: Generator, draw: Draw) -> Readings:
    """The same without a memory."""
    drawn = draw(random)
    return drawn._replace(weights=drawn.weights[:SEEN])


def build_with_controls(
    task: Task, page: int, memory: MemoryConfig, draw: Draw
) -> tuple[Trained, list[Trained]]:
    """An agent, and agents without a memory that are like it in all else."""
    plain = partial(read_observation, draw=draw)
    controls = [build(task, page, run, find("mlp")(), plain) for run in range(1, CONTROLS + 1)]
    return build(task, page, 0, memory, draw), controls
