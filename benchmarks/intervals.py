"""Coverage of confidence intervals over few seeds, and a comparison with rliable.

    python -m benchmarks.intervals
    PYTHONPATH=/tmp/rliable python -m benchmarks.intervals --rliable

The first prints the tables of docs/reports.md, from simulated studies: 2000 of each row for the coverage of
intervals that claim 95 % and for false differences of two models, 200 of each row for more models and for
detected differences, 100 for mean ranks. The second needs
`pip install --target /tmp/rliable rliable "pandas<3"`; it writes tests/golden/rliable.json, and prints the
time of an import and of one interval on both sides.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.common.intervals import (
    Floats,
    ends_of_means,
    factor,
    iqm_weights,
    mean_weights,
    one_factor,
    stratified,
    stretched,
    wins_interval,
)
from recollect.reporting.aggregate import difference_of_means, pooled_iqm, win_share
from recollect.reporting.significance import LEVEL, compare_means, holm, rank_test, welch

from .leaderboard import RESAMPLES, Column, mean_ranks, ranked

STUDIES, MEMORIES = 2000, 14
GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "rliable.json"
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

# Distributions of the scores of seeds.
SHAPES: dict[str, Draw] = {
    "bell": lambda random, shape: random.normal(size=shape),
    "ceiling": lambda random, shape: np.minimum(random.normal(0.5, 1.0, shape), 1.0),
    "one in five fails": lambda random, shape: (random.random(shape) < 0.8) + random.normal(0, 0.05, shape),
    "half fail": lambda random, shape: (random.random(shape) < 0.5) + random.normal(0, 0.02, shape),
    "one in ten fails": lambda random, shape: (random.random(shape) < 0.9) + random.normal(0, 0.02, shape),
}


def coverage(
    draw: Draw, n: int, weights: Floats, truth: float, studies: int = STUDIES
) -> tuple[float, float]:
    """The share of studies of n seeds whose interval contains the truth: percentile, and corrected."""
    scores = np.sort(draw(np.random.default_rng(n), (n, studies)), axis=0)
    blocks = np.array_split(scores, 40, axis=1)
    low, high = np.concatenate([ends_of_means(block, weights) for block in blocks], axis=1)
    wide = stretched(weights @ scores, low, high, one_factor(n))
    return covered(low, high, truth), covered(*wide, truth)


def covered(low: Floats, high: Floats, truth: float) -> float:
    """The share of intervals (K,), (K,) that contain a number."""
    return float(np.mean((low <= truth) & (truth <= high)))


def print_means_and_iqms() -> None:
    """The first table."""
    print("| scores | seeds | mean: percentile | corrected | IQM: percentile | corrected |")
    for name, draw in SHAPES.items():
        many = np.sort(draw(np.random.default_rng(0), (4_000_000,)))
        truths = float(many.mean()), float(many[1_000_000:3_000_000].mean())
        for n in (3, 5, 10, 20):
            kinds = zip((mean_weights(n), iqm_weights(n)), truths, strict=True)
            shares = [share for weights, truth in kinds for share in coverage(draw, n, weights, truth)]
            print(f"| {name} | {n} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")


def print_differences_and_wins(studies: int = 400) -> None:
    """The second table: two models, the second one standard deviation better."""
    print("\n| seeds of each | difference: percentile | corrected | wins: percentile | corrected |")
    random = np.random.default_rng(0)
    truth = 0.7602  # of N(1, 1) above N(0, 1)
    for n in (3, 5, 10):
        hits = np.zeros(4)
        for _ in range(studies):
            x, y = np.sort(random.normal(1, 1, n)), np.sort(random.normal(0, 1, n))
            places = random.integers(n, size=(2, 400, n))
            drawn = x[places[0]], y[places[1]]
            means = np.quantile(difference_of_means(drawn), (0.025, 0.975))
            wide = stretched(x.mean() - y.mean(), *means, factor([x, y]))
            wins = np.quantile([win_share(a, b) for a, b in zip(*drawn, strict=True)], (0.025, 0.975))
            score = wins_interval(np.array(win_share(x, y)), n, n)
            pairs = (means, 1.0), (wide, 1.0), (wins, truth), (score, truth)
            hits += [low <= value <= high for (low, high), value in pairs]
        print(f"| {n} | " + " | ".join(f"{share:.0%}" for share in hits / studies) + " |")


class FamilyErrors(NamedTuple):
    """Shares of studies of equal models in which some pair is called different."""

    single: float
    """By Welch's test, not adjusted."""
    welch: float
    """By Welch's test, adjusted."""
    report: float
    """As in verdicts: adjusted, and of pairs in one environment the larger p of Welch's and the exact
    permutation test."""


def family_errors(draw: Draw, models: int, seeds: int, studies: int, envs: int = 1) -> FamilyErrors:
    """Errors over all pairs of models, in each environment and over all."""
    random = np.random.default_rng(0)
    hits = np.zeros(3)
    for _ in range(studies):
        pairs = list(combinations(draw(random, (models, envs, seeds)), 2))
        groups = [group for first, second in pairs for group in zip(first, second, strict=True)]
        over_all = [rank_test(list(zip(*pair, strict=True))) for pair in pairs] if envs > 1 else []
        single = [*(welch(x, y) for x, y in groups), *over_all]
        report = [*(compare_means(x, y) for x, y in groups), *over_all]
        hits += [min(p_values) < LEVEL for p_values in (single, holm(single), holm(report))]
    return FamilyErrors(*(hits / studies).tolist())


def power(draw: Draw, better: Draw, models: int, seeds: int, studies: int) -> tuple[float, float]:
    """The share of differences from one better model that are detected: by Welch's test alone, and as in
    verdicts; both adjusted for all pairs."""
    random = np.random.default_rng(0)
    hits = np.zeros(2)
    for _ in range(studies):
        scores = [better(random, (seeds,)), *draw(random, (models - 1, seeds))]
        pairs = list(combinations(scores, 2))  # those of the better model first
        for i, test in enumerate((welch, compare_means)):
            hits[i] += np.mean(np.array(holm([test(*pair) for pair in pairs]))[: models - 1] < LEVEL)
    by_welch, report = hits / studies
    return float(by_welch), float(report)


# Models, seeds, environments, simulated studies.
FAMILIES = (
    (2, 3, 1, 2000),
    (2, 10, 1, 2000),
    (6, 3, 1, 200),
    (6, 5, 1, 200),
    (6, 10, 1, 200),
    (6, 10, 3, 200),
)
POWER_STUDIES = 200


def print_families() -> None:
    """The third table: verdicts over equal models."""
    header = ["scores", "models", "seeds", "environments", "Welch", "Welch, Holm", "report"]
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for name, draw in SHAPES.items():
        for models, seeds, envs, studies in FAMILIES:
            errors = family_errors(draw, models, seeds, studies, envs)
            row = f"| {name} | {models} | {seeds} | {envs} | {errors.single:.0%} |"
            print(f"{row} {errors.welch:.1%} | {errors.report:.1%} |", flush=True)


# A better model for each shape.
BETTER: dict[str, Draw] = {
    "bell": lambda random, shape: random.normal(2, size=shape),
    "ceiling": lambda random, shape: np.minimum(random.normal(2.5, 1.0, shape), 1.0),
    "half fail": lambda random, shape: 1 + random.normal(0, 0.02, shape),
    "one in ten fails": lambda random, shape: 2 * SHAPES["one in ten fails"](random, shape),
}


def print_power() -> None:
    """The fourth table: the share of true differences that are detected."""
    print("\n| scores | models | seeds | Welch, Holm | report |\n|---|---|---|---|---|")
    for name, better in BETTER.items():
        for models, seeds in ((2, 3), (2, 5), (2, 10), (6, 5), (6, 10)):
            shares = power(SHAPES[name], better, models, seeds, POWER_STUDIES)
            cells = " | ".join(f"{share:.0%}" for share in shares)
            print(f"| {name} | {models} | {seeds} | {cells} |", flush=True)


def rank_coverage(tasks: int, seeds: int, noise: float, studies: int) -> float:
    """The share of the intervals of mean ranks on the leaderboard that contain the rank by true scores."""
    random = np.random.default_rng(0)
    return float(np.mean([rank_study(random, tasks, seeds, noise) for _ in range(studies)]))


def rank_study(
    random: np.random.Generator,
    tasks: int,
    seeds: int,
    noise: float,
    failures: float = 0.0,
    resamples: int = RESAMPLES,
) -> float:
    """The share of the intervals of one study that contain the rank by true scores.

    noise     the standard deviation of seeds, where that of the memories in a task is 1.4
    failures  the probability that a run fails, which lowers its score by 5
    """
    names = [str(memory) for memory in range(MEMORIES)]
    # What a memory can do in all tasks, and in each.
    true = random.normal(size=MEMORIES) + random.normal(size=(tasks, MEMORIES))
    scores = true[..., None] + noise * random.normal(size=(*true.shape, seeds))
    if failures:
        scores -= 5 * (random.random(scores.shape) < failures)
    columns = [
        Column(str(task), name, scores[task, memory], 0.0)
        for task in range(tasks)
        for memory, name in enumerate(names)
    ]
    low, high = np.quantile(mean_ranks(columns, names, resamples)[1], [0.025, 0.975], axis=0)
    truth = ranked(true).mean(0)
    return float(np.mean((low <= truth + 1e-9) & (truth <= high + 1e-9)))


def print_ranks(studies: int = 100) -> None:
    """The fifth table."""
    print("\n| tasks | seeds | noise | mean rank |")
    for tasks, seeds, noise in product((8, 13), (2, 5), (0.3, 1.0)):
        share = rank_coverage(tasks, seeds, noise, studies)
        print(f"| {tasks} | {seeds} | {noise:g} | {share:.0%} |")


# rliable --------------------------------------------------------------------------------------


def simulated_scores() -> dict[str, Floats]:
    """Two models, 8 seeds in 3 environments (8, 3); ties among them."""
    random = np.random.default_rng(7)
    scores = {"a": random.normal(0.6, 0.2, (8, 3)), "b": random.normal(0.5, 0.25, (8, 3))}
    return {name: np.round(x, 2) for name, x in scores.items()}


def compare_with_rliable() -> None:
    """Write the statistics of rliable for the simulated scores, and print its time."""
    from rliable import library, metrics

    scores = simulated_scores()
    taus = np.linspace(0, 1, 11)
    random = np.random.RandomState(0)
    np.random.seed(0)  # noqa: NPY002 (rliable draws from here, whatever it is given)
    start = time.perf_counter()
    _, ends = library.get_interval_estimates(
        scores, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=50_000, random_state=random
    )
    seconds = (time.perf_counter() - start) / len(scores)
    profiles, _ = library.create_performance_profile(scores, taus, reps=10)
    golden: dict[str, Any] = {
        "made by": "PYTHONPATH=/tmp/rliable python -m benchmarks.intervals --rliable, with rliable 1.2.0",
        "scores": {name: x.tolist() for name, x in scores.items()},
        "iqm": {name: metrics.aggregate_iqm(x) for name, x in scores.items()},
        "iqm percentiles": {name: x[:, 0].tolist() for name, x in ends.items()},
        "taus": taus.tolist(),
        "profiles": {name: x.tolist() for name, x in profiles.items()},
        "improvement": metrics.probability_of_improvement(scores["a"], scores["b"]),
    }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    start = time.perf_counter()
    for x in scores.values():
        stratified(list(x.T), pooled_iqm)
    ours = (time.perf_counter() - start) / len(scores)
    print(f"an interval of the IQM: {seconds:.1f} s with rliable, of 50 000 resamples;")
    print(f"{ours * 1e3:.0f} ms with ours, of as many")
    for module in ("rliable.library, rliable.metrics", "recollect.common.intervals"):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        print(f"import {module}: {time.perf_counter() - start:.1f} s")


def main() -> None:
    """Print the tables, or write the reference numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rliable", action="store_true", help="write the reference numbers instead")
    if parser.parse_args().rliable:
        compare_with_rliable()
        return
    print_means_and_iqms()
    print_differences_and_wins()
    print_families()
    print_power()
    print_ranks()


if __name__ == "__main__":
    main()
