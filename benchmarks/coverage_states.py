"""Simulated studies of the intervals over episodes of read-outs and of values, in `recollect probe`."""

from functools import partial

import numpy as np

from recollect.common.intervals import Floats
from recollect.envs import Array
from recollect.probing.critic import Measure, score_values
from recollect.probing.linear import Places, Sources, Target, read_targets
from recollect.probing.ridge import Split

from .coverage_kinds import BOTH, Generator, Row, Study, held
from .coverage_probe import EPISODES, STEPS

READ = (5, 10, 20)  # episodes that are scored for a read-out, a fifth of those that are played
FITTED, CHOOSING, UNTRAINED = 60, 20, 5  # episodes, episodes, memories
EXTRA = 0.1, 0.5  # range of the noise variance that untrained memories add to that of the memory
OF_STEP = 0.4  # share of the variance of a quantity that is a matter of the step
NOISE = 0.1, 0.8  # variances of the errors of values with the memory unchanged and altered

# Read-outs ------------------------------------------------------------------------------------


def split_at(episode: Array) -> Split:
    """The first episodes are fitted, the next ones choose the penalty, and the rest is scored."""
    ends = FITTED, FITTED + CHOOSING
    return Split(episode < ends[0], (episode >= ends[0]) & (episode < ends[1]), episode >= ends[1])


def read_out(shape: str) -> Study:
    """The gain of a read-out over untrained memories, and over the observation.

    Features are the quantity with noise, whose variance is 2 in place of 0.1 in episodes that fail.
    """
    noise = 0.1 if shape == "bell" else 0.1 * 0.9 + 2.0 * 0.1
    extra = np.linspace(EXTRA[0], EXTRA[1], 10_001)
    truths = 1 / (1 + noise) - float(np.mean(1 / (1 + 0.1 + extra))), 1 / (1 + noise) - 1 / (1 + 1.0)

    def study(random: Generator, episodes: int) -> dict[str, float]:
        count = FITTED + CHOOSING + episodes
        episode, step = np.divmod(np.arange(count * STEPS), STEPS)
        value = np.sqrt(0.5) * (random.normal(size=count)[episode] + random.normal(size=len(episode)))
        hard = 0.1 if shape == "bell" else np.where(random.random(count) < 0.1, 2.0, 0.1)[episode]
        variances = [hard, 1.0, *(0.1 + random.uniform(EXTRA[0], EXTRA[1], UNTRAINED))]
        memory, observation, *untrained = (
            (value + np.sqrt(one) * random.normal(size=len(value)))[:, None] for one in variances
        )
        sources = Sources(memory, untrained, observation)
        (one,) = read_targets(sources, [Target("", value)], split_at(episode), Places(episode, step))
        ends = one.gain_interval, one.beyond_interval
        return dict(zip(GAINS, map(held, ends, truths), strict=True))

    return study


def selectivity(shape: str) -> Study:
    """A read-out of the memory minus chance, that for the values of other episodes at the same steps.

    A share of the variance of the quantity is a matter of the step, and so is found in other episodes too.
    The memory has noise as in read_out.
    """
    noise = 0.1 if shape == "bell" else 0.1 * 0.9 + 2.0 * 0.1
    # Squared correlations of the memory with the quantity, and with that of another episode.
    truth = (1 - OF_STEP**2) / (1 + noise)
    by_step = np.sqrt(2 * OF_STEP) * np.sin(2 * np.pi * np.arange(STEPS) / STEPS)

    def study(random: Generator, episodes: int) -> dict[str, float]:
        count = FITTED + CHOOSING + episodes
        episode, step = np.divmod(np.arange(count * STEPS), STEPS)
        rest = random.normal(size=count)[episode] + random.normal(size=len(episode))
        value = by_step[step] + np.sqrt((1 - OF_STEP) / 2) * rest
        hard = 0.1 if shape == "bell" else np.where(random.random(count) < 0.1, 2.0, 0.1)[episode]
        memory = (value + np.sqrt(hard) * random.normal(size=len(value)))[:, None]
        blind = random.normal(size=memory.shape)
        parts = split_at(episode)
        (one,) = read_targets(
            Sources(memory, [blind], blind), [Target("", value)], parts, Places(episode, step)
        )
        return {CHANCE[0]: held(one.selectivity_interval, truth)}

    return study


def rare_event() -> Study:
    """The same for a quantity of two values, of which one is rare: chance is the share of the other.

    An event happens in a quarter of the steps, more often in some episodes than in others, and the memory
    has it without noise.
    """

    def study(random: Generator, episodes: int) -> dict[str, float]:
        count = FITTED + CHOOSING + episodes
        episode, step = np.divmod(np.arange(count * STEPS), STEPS)
        value = (random.random(len(episode)) < random.beta(2, 6, count)[episode]).astype(float)
        blind = random.normal(size=(len(value), 1))
        sources = Sources(value[:, None], [blind], blind)
        (one,) = read_targets(sources, [Target("", value)], split_at(episode), Places(episode, step))
        return {CHANCE[0]: held(one.selectivity_interval, 0.25)}

    return study


# Values ---------------------------------------------------------------------------------------


def values(shape: str) -> Study:
    """How well values predict returns with the memory unchanged and altered, and the loss.

    Returns and errors of values vary as much between episodes as within. With both memories, the variance of
    errors is 2 in episodes that fail.
    """
    failing = 0.0 if shape == "bell" else 0.1
    errors = [noise * (1 - failing) + 2.0 * failing for noise in NOISE]
    truths = [1 - x for x in errors], [1 / (1 + x) for x in errors]

    def study(random: Generator, episodes: int) -> dict[str, float]:
        episode = np.repeat(np.arange(episodes), random.integers(STEPS // 2, 2 * STEPS, episodes))

        def draw() -> Floats:
            both = random.normal(size=episodes)[episode] + random.normal(size=len(episode))
            return np.asarray(np.sqrt(0.5) * both)

        returns, fails = draw(), (random.random(episodes) < failing)[episode]
        predicted = {str(x): returns + np.sqrt(np.where(fails, 2.0, x)) * draw() for x in NOISE}
        contained = []
        for measure, (one, other) in zip(MEASURES, truths, strict=True):
            whole, altered = score_values(predicted, returns, episode, measure)
            assert altered.loss is not None
            contained += [held(whole.interval, one), held(altered.interval, other)]
            contained.append(held(altered.loss.interval, one - other))
        return dict(zip(VALUES, contained, strict=True))

    return study


GAINS = ("gain of a read-out", "read-out beyond the observation")
CHANCE = ("read-out beyond chance",)
MEASURES: tuple[Measure, ...] = ("explained variance", "squared correlation")
VALUES = tuple(
    f"{measure} of values{which}"
    for measure in MEASURES
    for which in (", unchanged", ", memory altered", ", loss")
)

ROWS = (
    *(Row(GAINS, shape, partial(read_out, shape), READ, "episodes", 300) for shape in BOTH),
    *(Row(CHANCE, shape, partial(selectivity, shape), READ, "episodes", 300) for shape in BOTH),
    Row(CHANCE, "an event in one of four steps", rare_event, READ, "episodes", 300),
    *(Row(VALUES, shape, partial(values, shape), EPISODES, "episodes", 1000) for shape in BOTH),
)
