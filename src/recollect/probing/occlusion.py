"""How the policy depends on what the memory was given k steps before.

From a recorded step on, the steps are computed again with one input of the memory changed: that of this step
gets the features of the same step of another episode. All other inputs, and the state before, stay as
recorded. So the change of the policy k steps later is an effect of that one input, through the memory.

    occlusion   KL(unchanged || changed) of the policy
    gradient    length of the gradient of the output with respect to the input, each of its features in
                standard deviations. The output is the log-odds of the most likely action, or the mean of
                real actions in deviations. It is the effect of a small change, occlusion that of a large one

Shapes.  S sources, K + 1 rows of a window, T steps of N environments, P parameters, F features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.nets import Rows
from ..agent.policies import compute_log_odds
from ..common import rng
from ..common.intervals import Floats
from ..common.tree import Tree
from ..envs import Array
from ..memory import Memory
from ..run.recording import Record
from .interventions import Altered, altered, record_inputs
from .open_loop import Estimate, are_enough, average_steps
from .samples import Sample, affordable, find_donors, follow_episodes, take_sample

LONGEST = 64  # steps
SOURCES = 1000  # steps whose input is changed
EACH = 10  # of them, reserved for each number of steps since the start; fewer where there are many numbers
FEWEST_EACH = 2  # an input is replaced by that of another source of the same number
GRADIENTS = (*range(1, 9), 16, 32, 64)  # steps later
NUMBER = 6  # of the generator: contents.py has 5


@dataclass(frozen=True)
class Dependence:
    """How the policy depends on the input of some steps before."""

    back: int
    """Number of steps."""
    steps: int
    """Steps over which it is a mean."""
    occlusion: Estimate
    gradient: Estimate | None
    """For some numbers of steps."""


class Shifted(Altered):
    """Adds a shift (S, F) to the input of the first row of a call."""

    def __init__(self, memory: Memory, resets: bool, shift: Tensor) -> None:
        super().__init__(memory, resets)
        self.shift = shift

    def forward(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        return self.step(torch.cat([x[:1] + self.shift, x[1:]]), state, first)

    def step(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        return self.call(x, state, first)


class Window(NamedTuple):
    """The steps from each source on.

    rows    (K + 1, S, ...); after the end of an episode those of the next, after that of the record its last
    inside  whether a row is of the episode of its source (K + 1, S)
    """

    rows: Rows
    inside: Array


def measure_dependence(
    agent: Agent, record: Record, episode: Array, seed: int, gradients: Sequence[int] = GRADIENTS
) -> list[Dependence]:
    """The dependence on each number of steps before, as far as episodes go.

    episode    number of the episode of each step (T, N); -1: it does not count
    gradients  numbers of steps of which the gradient is measured
    """
    random = rng.generator(seed, rng.Purpose.PROBE, NUMBER)
    weight = choose_sources(record, episode, random, affordable(agent, SOURCES))
    sample = take_sample(agent, record, episode, weight)
    if sample is None:
        return []
    donors = find_donors(sample)
    keep = donors >= 0
    if not are_enough(keep, sample.episode):
        return []
    inputs = record_inputs(agent.actor, record)
    shift = inputs[sample.row[donors], sample.env[donors]] - inputs[sample.row, sample.env]
    window = _cut_window(agent, record, sample, episode)
    window = window._replace(inside=window.inside & keep)
    with torch.no_grad():
        unchanged, changed = (_params(agent, window, sample, x) for x in (torch.zeros_like(shift), shift))
        divergence = agent.policy.kl(unchanged, changed).clamp(min=0).double().numpy()
    valid = torch.from_numpy(record.valid)
    scale = inputs[:-1][valid].std(0)
    lengths = _measure_gradients(agent, window, sample, scale, gradients)
    return list(_average(sample, window, divergence, lengths))


def choose_sources(record: Record, episode: Array, random: np.random.Generator, most: int) -> Floats:
    """The weight of each step (T, N) in means over all steps; 0: its input is not changed.

    First steps of episodes, because they alone are followed by as many steps as an episode has, and
    some of every other number of steps, because the policy may depend on the input of one number alone: so
    few of each that as many numbers as possible have some.
    """
    counted = record.valid & (episode >= 0)
    weight = np.where(counted & (record.step == 0), 1.0, 0.0)
    firsts = int(weight.sum())
    if 2 * firsts > most:
        left_out = random.permutation(np.argwhere(weight))[max(most // 2, FEWEST_EACH) :]
        weight[tuple(left_out.T)] = 0.0
        weight *= firsts / weight.sum()
    most -= int((weight > 0).sum())
    others = random.permutation(np.unique(record.step[counted & (record.step > 0)]))
    each = min(max(most // max(1, len(others)), FEWEST_EACH), EACH)
    drawn = others[: max(0, most // each)]
    for number in drawn:
        here = np.argwhere(counted & (record.step == number))
        taken = random.permutation(here)[: most // len(drawn)]
        weight[tuple(taken.T)] = len(others) / len(drawn) * len(here) / len(taken)
    return weight


def _average(
    sample: Sample, window: Window, divergence: Array, lengths: dict[int, Array]
) -> Iterator[Dependence]:
    """Means over sources, for each number of steps with enough of them."""
    for back in range(1, len(divergence)):
        inside = window.inside[back]
        if not are_enough(inside, sample.episode):
            return
        weight = inside * sample.weight
        gradient = average_steps(lengths[back], weight, sample.episode) if back in lengths else None
        occlusion = average_steps(divergence[back], weight, sample.episode)
        yield Dependence(back, int(inside.sum()), occlusion, gradient)


def _cut_window(agent: Agent, record: Record, sample: Sample, episode: Array) -> Window:
    """The rows from each source on, at most LONGEST after it."""
    place, inside = follow_episodes(record, episode, sample, LONGEST + 1)
    place = place[: int(inside.any(1).sum())]
    rows = record.rows.map(lambda x: x[place, sample.env]).to(agent.device)
    return Window(rows, inside[: len(place)])


def _params(agent: Agent, window: Window, sample: Sample, shift: Tensor) -> Tensor:
    """Parameters of the policy (K + 1, S, P) with the input of the first row shifted (S, F), on the CPU."""
    with altered(agent.actor, lambda memory, resets: Shifted(memory, resets, shift)):
        return agent.actor(window.rows, sample.state)[0].cpu()


def _measure_gradients(
    agent: Agent, window: Window, sample: Sample, scale: Tensor, steps: Sequence[int]
) -> dict[int, Array]:
    """The length of the gradient of each source (S,), by the number of steps.

    scale  standard deviation of each feature of the inputs (F,)
    """
    shift = torch.zeros(len(sample.row), len(scale), device=scale.device, dtype=scale.dtype)
    with torch.enable_grad():
        params = _params(agent, window, sample, shift.requires_grad_())
        lengths = {}
        for back in steps:
            if back < len(params):
                # Sequences are independent, so one pass backward gives the gradient of each. The second
                # term is for memories that ignore their input.
                gradients = [
                    torch.autograd.grad(x.sum() + 0 * shift.sum(), shift, retain_graph=True)[0]
                    for x in _outputs(agent, params[back])
                ]
                squares = (torch.stack(gradients) * scale).square().sum((0, 2))
                lengths[back] = squares.sqrt().cpu().double().numpy()
    return lengths


def _outputs(agent: Agent, params: Tensor) -> list[Tensor]:
    """Log-odds of the most likely action, or each mean in deviations (S,), of parameters (S, P)."""
    if agent.policy.discrete:
        return [compute_log_odds(params, agent.policy.mode(params), agent.action_spec.sizes)]
    mean, log_deviation = params.chunk(2, -1)
    return list((mean * (-log_deviation.detach()).exp()).unbind(-1))
