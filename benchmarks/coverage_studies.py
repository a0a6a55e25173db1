"""Simulated studies of the intervals that the analyses of benchmarks/ compute themselves.

Over seeds: differences of kernels, and the highest gain of a critic. Over tasks: the slope of a memory length
over the horizons, and the correlation of two gains.

Shapes.  n seeds, K tasks, A arms.
"""

from functools import partial

import numpy as np

from recollect.common.intervals import Floats, Interval, one_factor, stretched
from recollect.common.statistics import iqm

from .coverage_kinds import BOTH, Generator, Row, Study, held, large, second
from .critic_memories import ACTORS, CRITICS, Arm, correlate, correlation, highest_of_90
from .equivalence import Task, average
from .intervals import SHAPES
from .length_agents import Agent
from .memory_length import slope_interval

SEEDS, TASKS = (5, 10, 20), (6, 12)
AVERAGED = 4  # tasks of a mean difference of kernels
AGENTS = 5  # of a task
RELATED = 0.5  # correlation of the two gains, before the noise of seeds
CORRELATED = 100  # studies: each takes a second


def kernels(shape: str) -> Study:
    """The difference of two equal models in one task, and its mean over tasks."""

    def study(random: Generator, n: int) -> dict[str, float]:
        differences = [Task("", "", *SHAPES[shape](random, (2, n))).difference for _ in range(AVERAGED)]
        ends = differences[0].interval(0.95), average(differences).interval(0.9)
        return dict(zip(KERNELS, [held(end, 0.0) for end in ends], strict=True))

    return study


def highest(shape: str) -> Study:
    """The end above a difference of interquartile means."""
    truth = iqm(large(shape)) - iqm(np.sort(second(shape, large(shape))))

    def study(random: Generator, n: int) -> dict[str, float]:
        draw = SHAPES[shape]
        end = highest_of_90(draw(random, (n,)), second(shape, draw(random, (n,))))
        return {HIGHEST: float(truth <= end + 1e-9)}

    return study


def slope(shape: str) -> Study:
    """Estimates in proportion to the horizon, but for an error that a task has for all of its agents."""

    def study(random: Generator, tasks: int) -> dict[str, float]:
        horizons = np.rint(2 ** random.uniform(1.5, 6.0, tasks)).astype(int)
        bell = shape == "bell"
        errors = random.normal(0, 0.3, tasks) if bell else (random.random(tasks) < 0.1).astype(float)
        agents = [
            Agent(f"task {place}", "gru", seed, int(horizon), 1.0, {"score": float(horizon * 2**noise)}, {})
            for place, (horizon, error) in enumerate(zip(horizons, errors, strict=True))
            for seed, noise in enumerate(random.normal(error, 0.1, AGENTS))
        ]
        return {SLOPE: held(slope_interval(agents, "score")[1], 1.0)}

    return study


def draw_arms(random: Generator, tasks: int, noise: float) -> list[Arm]:
    """Arms of ten seeds whose gains are related, within tasks and between them.

    noise  standard deviation of seeds; that of gains is 1
    """
    covariance = 0.5 * np.array([[1, RELATED], [RELATED, 1]])

    def related(count: int) -> Floats:
        return random.multivariate_normal(np.zeros(2), covariance, count)

    arms = []
    for task, of_task in enumerate(related(tasks)):
        for actor in ACTORS:
            for critic, of_arm in zip(CRITICS, related(len(CRITICS)), strict=True):
                gains = of_task + of_arm if critic != "mlp" else np.zeros(2)
                areas, explained = gains[:, None] + random.normal(0, noise, (2, 10))
                arms.append(Arm(f"task {task}", actor, critic, areas, explained))
    return arms


def related_gains(noise: float) -> Study:
    """The rank correlation of the gains of arms."""
    truth = correlation(draw_arms(np.random.default_rng(0), 2000, noise))

    def study(random: Generator, tasks: int) -> dict[str, float]:
        rho, interval = correlate(draw_arms(random, tasks, noise))
        wider = stretched(np.array(rho), *map(np.array, interval), one_factor(tasks))
        ends = interval, Interval(*map(float, wider))
        return dict(zip(RELATION, [held(end, truth) for end in ends], strict=True))

    return study


KERNELS = ("difference of kernels", f"mean difference of kernels over {AVERAGED} tasks, of 90 %")
HIGHEST = "highest gain of a critic, from above"
SLOPE = "slope of a memory length over the horizons"
RELATION = ("correlation of the gains of critics", "the same, widened for few tasks")
OTHER_SHAPE = "one in ten tasks has estimates twice as large"

ROWS = (
    *(Row(KERNELS, shape, partial(kernels, shape), SEEDS) for shape in BOTH),
    *(Row((HIGHEST,), shape, partial(highest, shape), SEEDS) for shape in BOTH),
    *(Row((SLOPE,), shape, partial(slope, shape), TASKS, "tasks") for shape in ("bell", OTHER_SHAPE)),
    *(
        Row(RELATION, scores, partial(related_gains, noise), TASKS, "tasks", CORRELATED)
        for scores, noise in (("seeds differ as much as gains", 1.0), ("seeds hardly differ", 0.1))
    ),
)
