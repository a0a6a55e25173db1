"""Which of the quantities that a memory state holds decide the policy.

A read-out shows that a state holds a quantity, not that it is used. Here the quantity is taken out of the
state: with r the linear read-out and c = cov(s, r) / var(r) the slope of each float s on it,

    erased   s - c (r - mean r)             no linear map finds in it what r said
    turned   s + c (m - m')                 a quantity of two values gets the read-out of the other value,
                                            m and m' the mean read-outs of that value and of its own

(least-squares concept erasure: of all linear changes with which no linear map finds r, the least one).
Every direction carries something, and a quantity that dominates the state does so whatever it is used for.
So the same is done with random directions that take as much variance away. A quantity of two values is
also exchanged as a whole: the state is replaced by that of another episode after as many steps, where the
quantity has the other value, or the same.

Maps are fitted on some episodes, and effects measured on others.

Shapes.  R recorded steps, S steps of the sample, F features.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..agent.agent import Agent
from ..common import rng
from ..common.intervals import Floats
from ..common.tree import Tree
from ..envs import Array
from ..run.recording import Record
from .directions import Directions, unravel
from .interventions import Spread
from .linear import Measure, ReadOut, leave_out_unknown
from .open_loop import Effect, Estimate, are_enough
from .parts import Part, measure_parts
from .readout import Material, flatten
from .ridge import fit
from .samples import (
    Sample,
    count_donors,
    draw_sample,
    exchange,
    find_by_progress,
    find_donors,
    mean_divergence,
    measure_adopted,
    measure_effect,
    replace_floats,
)

MOST, STEPS = 12, 1000  # quantities; steps of the sample
ERROR = 0.05  # of all sentences about quantities together
DONORS = 5  # episodes that must have a value, so that states with it are exchanged
NUMBER = 5  # of the generator: read-outs and noise have others


@dataclass(frozen=True)
class RandomMoves:
    """The effects of random directions, moved as far as a read-out."""

    drawn: int
    """Directions that were tried, until one had as large an effect."""
    largest: Effect | None
    """The largest effect of these."""
    smaller: bool
    """Whether all effects are smaller than that of the read-out, which is not 0."""


@dataclass(frozen=True)
class Held:
    """A quantity that the state holds, and the policy without it."""

    name: str
    action: bool
    """Whether it is an earlier action, of which a state that decides actions says something anyway."""
    back: int
    """Steps before the action."""
    measure: Measure
    memory: float
    """How well it is read out of the state."""
    variance: float
    """Mean share of the variance of a float of the state that erasing takes away."""
    erased: Effect
    turned: Effect | None
    """None: it has more than two values."""
    adopted: Estimate | None
    """Share of steps at which it takes, turned, the action of an episode with the other value, of those where
    that is another action; None for Box actions and where these are few."""
    random: RandomMoves
    other: Effect | None
    """With the state of another episode, where it has the other value."""
    same: Effect | None
    """With the state of another episode, where it has the same value."""

    @property
    def decides(self) -> bool:
        """Whether no random direction has as large an effect."""
        return self.random.smaller

    @property
    def followed(self) -> bool:
        """Whether the policy differs more with states where it has the other value.

        In its divergence and in its choices: of two actions that are as likely, rounding decides which is the
        most likely one.
        """
        if self.other is None or self.same is None:
            return False
        pairs = [(self.other.divergence, self.same.divergence), (self.other.changed, self.same.changed)]
        return all(one.interval.low > two.interval.high for one, two in pairs if one and two)

    @property
    def strongest(self) -> Effect:
        """The effect by which it is judged: turned if it can be."""
        return self.turned or self.erased


@dataclass(frozen=True)
class Contents:
    """Effects of the contents of the actor's memory state on its policy."""

    steps: int
    episodes: int
    mean: Effect | None
    """All floats at their mean."""
    exchanged: Effect | None
    """The state of another episode after as many steps."""
    progressed: Effect | None
    """The state of another episode after an equal share of its steps."""
    held: list[Held]
    """The quantities that are read out of the state, those with the largest effects first."""
    parts: list[Part]


@torch.no_grad()
def measure_contents(
    agent: Agent,
    record: Record,
    material: Material,
    answers: Sequence[ReadOut],
    visited: Spread,
    episode: Array,
    seed: int,
) -> Contents | None:
    """The policy at recorded steps without each quantity, and without each part of the state.

    answers  the read-outs of the material
    episode  number of the episode of each step (T, N); -1: it does not count
    """
    random = rng.generator(seed, rng.Purpose.PROBE, NUMBER)
    chosen = np.zeros_like(material.selected)
    # The state after a recorded step is the state before the next one.
    chosen[1:] = unravel(material.selected, material.parts.score, False)[:-1]
    sample = draw_sample(agent, record, chosen, episode, random, STEPS)
    if sample is None or not are_enough(sample.episode >= 0, sample.episode):
        return None
    held = choose_held(answers, record.hidden)
    quantities = _Erasing(agent, record, material, sample).measure(held, random) if held else []
    return Contents(
        steps=len(sample.row),
        episodes=len(np.unique(sample.episode)),
        mean=_replace_all(agent, sample, visited),
        exchanged=exchange(agent, sample, find_donors(sample)),
        progressed=exchange(agent, sample, find_by_progress(sample, record)),
        held=quantities,
        parts=measure_parts(agent, sample, visited),
    )


def choose_held(answers: Sequence[ReadOut], hidden: Container[str]) -> list[ReadOut]:
    """The read-outs of what the memory state holds, hidden variables first, then earlier observations.

    Actions come last: that a state holds what the agent chose follows from its choosing by the state. Effects
    play no part in the choice, so that they can be tested.
    """

    def order(answer: ReadOut) -> tuple[int, float]:
        kind = 0 if answer.name in hidden else 2 if answer.lag is None else 1
        return kind, max(answer.observation, answer.chance) - answer.memory

    return sorted((answer for answer in answers if answer.held), key=order)[:MOST]


class _Erasing:
    """The policy at the steps of a sample with read-outs erased from the states."""

    def __init__(self, agent: Agent, record: Record, material: Material, sample: Sample) -> None:
        self.agent, self.material, self.sample = agent, material, sample
        self.hidden = record.hidden
        self.directions = Directions(agent.actor, record, material)
        places = unravel(material.selected, np.arange(len(material.parts.score)), -1)
        self.before = places[sample.row - 1, sample.env]  # the recorded step before each step (S,)

    def measure(self, answers: Sequence[ReadOut], random: np.random.Generator) -> list[Held]:
        """All quantities, those with the largest effects first."""
        # A quantity that is like a random direction has the largest effect of n + 1 with probability
        # 1 / (n + 1).
        draws = math.ceil(len(answers) / ERROR) - 1
        held = [self._measure(answer, draws, random) for answer in answers]
        # Rounded, so that of quantities that go together the first stays first.
        return sorted(filter(None, held), key=lambda one: -float(f"{one.strongest.divergence.value:.2g}"))

    def _measure(self, answer: ReadOut, draws: int, random: np.random.Generator) -> Held | None:
        """One quantity; None if the policy is not finite without it."""
        target = next(x for x in self.material.targets if (x.name, x.lag) == (answer.name, answer.lag))
        known = leave_out_unknown(target, self.material.parts)
        w = self.directions.weights(fit(self.material.sources.memory, target.values[:, None], known))
        r, present = self.directions.features @ w, target.values[self.before]
        turn = None
        if answer.measure == "accuracy":
            turn = measure_turn(r, target.values, self.material.parts.train, present)
        erased = self._move(w, -r[self.before])
        if erased is None:
            return None
        turned = None if turn is None else self._move(w, turn)
        random_moves = self._draw(w, turn if turned else None, draws, turned or erased, random)
        other, same = self._exchange(present) if turn is not None else (None, None)
        adopted = self._adopt(w, turn, present) if turn is not None and turned else None
        action = answer.lag is None and answer.name not in self.hidden
        return Held(
            # Of the step before; the action that the state has seen last is that of two steps before.
            name=answer.name.replace("action before", "earlier action", 1) if action else answer.name,
            action=action,
            back=2 if action else 1 + (answer.lag or 0),
            measure=answer.measure,
            memory=answer.memory,
            variance=self.directions.share(w),
            erased=erased,
            turned=turned,
            adopted=adopted,
            random=random_moves,
            other=other,
            same=same,
        )

    def _draw(
        self, w: Floats, turn: Floats | None, draws: int, effect: Effect, random: np.random.Generator
    ) -> RandomMoves:
        """Random directions moved as far as w, until one has as large an effect.

        turn  how far w was moved (S,); None: it was erased
        """
        share, drawn, largest, reached = self.directions.share(w), 0, -math.inf, effect.divergence.value
        farthest: tuple[Tree, Array] | None = None
        for _ in range(2 * draws):  # some may give no finite policy
            if drawn == draws or _exceeds(largest, reached):
                break
            v = self.directions.draw(share, random)
            # Of projected features the share of the variance is another one than of the floats.
            size = math.sqrt(share / max(self.directions.share(v), 1e-30))
            r = (self.directions.features @ v)[self.before]
            scale = self.directions.deviation(v) / max(self.directions.deviation(w), 1e-30)
            moved = self._states(v, size * (-r if turn is None else -np.sign(r) * scale * np.abs(turn)))
            one = None if moved is None else mean_divergence(self.agent, self.sample, *moved)
            if one is not None:
                drawn += 1
                if _exceeds(one, largest):
                    largest, farthest = one, moved
        smaller = drawn == draws and not _exceeds(largest, reached) and reached > 0
        whole = None if farthest is None else measure_effect(self.agent, self.sample, *farthest)
        return RandomMoves(drawn, whole, smaller)

    def _exchange(self, present: Floats) -> tuple[Effect | None, Effect | None]:
        """The policy with states where a quantity differs, and where it is the same, at the same steps.

        None where few episodes give such states: the intervals are over those that get them.
        """
        other, same = (find_donors(self.sample, present, equal) for equal in (False, True))
        both = (other >= 0) & (same >= 0)
        if any(count_donors(self.sample, donors[both]) < DONORS for donors in (other, same)):
            return None, None
        one, two = (exchange(self.agent, self.sample, np.where(both, donors, -1)) for donors in (other, same))
        return one, two

    def _adopt(self, w: Floats, turn: Floats, present: Floats) -> Estimate | None:
        """Whether the turned state makes the action that of an episode that has the other value."""
        moved = self._states(w, turn)
        assert moved, "it was turned"
        state, known = moved
        donors = np.where(known, find_donors(self.sample, present, equal=False), -1)
        return measure_adopted(self.agent, self.sample, state, donors)

    def _move(self, w: Floats, distance: Floats) -> Effect | None:
        """The policy with the states moved so that a read-out changes by a distance (S,); NaN: not known."""
        moved = self._states(w, distance)
        return None if moved is None else measure_effect(self.agent, self.sample, *moved)

    def _states(self, w: Floats, distance: Floats) -> tuple[Tree, Array] | None:
        """The states, moved, and where the distance is known (S,); None: at too few steps or in too few
        episodes."""
        known, state = np.isfinite(distance), self.sample.state
        if not are_enough(known, self.sample.episode):
            return None
        flat, slope = flatten(state), torch.from_numpy(self.directions.slope(w))
        step = torch.from_numpy(np.nan_to_num(distance)).to(flat)[:, None] * slope.to(flat)
        return replace_floats(state, flat + step), known


def measure_turn(r: Floats, values: Floats, fitted: Array, present: Floats) -> Floats:
    """How far the read-out r (R,) of two values (R,) is from that of the other value, on average (S,).

    present  the value at each step of the sample (S,); NaN: not known
    """
    kinds = np.unique(values[np.isfinite(values)])
    first, second = (r[fitted & (values == kind)].mean() for kind in kinds)
    turn = np.where(present == kinds[0], second - first, first - second)
    return np.where(np.isfinite(present), turn, np.nan)


def _exceeds(one: float, other: float) -> bool:
    """Whether a divergence is as large as another, but for rounding."""
    return one >= 0.999 * other


def _replace_all(agent: Agent, sample: Sample, visited: Spread) -> Effect | None:
    flat = flatten(sample.state)
    mean = torch.cat([x.reshape(1, -1) for x in visited.mean.values()], 1).to(flat)
    return measure_effect(agent, sample, replace_floats(sample.state, mean.expand_as(flat)))
