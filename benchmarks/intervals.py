"""Simulated studies of the statistics of reports: how often intervals contain the true value, and how often
verdicts find a difference.

    python -m benchmarks.intervals [NAME ...]

writes docs/results/intervals.json, from which the tables of docs/reports.md are written. NAME limits the
call to some tables: means, differences, families, power, ranks. Each row is of 2000 simulated studies for
intervals of means and for false differences of two models, 400 for intervals of differences, 200 for more
models and for detected differences, 100 for mean ranks.
"""

import argparse
import json
from collections.abc import Callable, Iterator
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
    stretched,
    wins_interval,
)
from recollect.reporting.aggregate import difference_of_means, win_share
from recollect.reporting.significance import LEVEL, compare_means, holm, rank_test, welch

from .cells import table
from .leaderboard import RESAMPLES, Column, mean_ranks, ranked

RESULTS = Path("docs") / "results" / "intervals.json"

STUDIES, MEMORIES = 2000, 14
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


def measure_means() -> Iterator[dict[str, Any]]:
    """Percentiles and corrected intervals of the mean and the interquartile mean."""
    for name, draw in SHAPES.items():
        many = np.sort(draw(np.random.default_rng(0), (4_000_000,)))
        truths = float(many.mean()), float(many[1_000_000:3_000_000].mean())
        for n in (3, 5, 10, 20):
            kinds = zip((mean_weights(n), iqm_weights(n)), truths, strict=True)
            shares = [share for weights, truth in kinds for share in coverage(draw, n, weights, truth)]
            columns = "mean: percentile", "mean: corrected", "IQM: percentile", "IQM: corrected"
            yield {"scores": name, "seeds": n, **dict(zip(columns, shares, strict=True))}


def measure_differences(studies: int = 400) -> Iterator[dict[str, Any]]:
    """Two models, the second one standard deviation better."""
    random = np.random.default_rng(0)
    truth = 0.7602  # of N(1, 1) above N(0, 1)
    columns = "difference: percentile", "difference: corrected", "wins: percentile", "wins: corrected"
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
        yield {"seeds of each": n, **dict(zip(columns, (hits / studies).tolist(), strict=True))}


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


def measure_families() -> Iterator[dict[str, Any]]:
    """Verdicts over equal models."""
    for name, draw in SHAPES.items():
        for models, seeds, envs, studies in FAMILIES:
            errors = family_errors(draw, models, seeds, studies, envs)
            sizes = {"models": models, "seeds": seeds, "environments": envs}
            shares = {"Welch": errors.single, "Welch, Holm": errors.welch, "report": errors.report}
            yield {"scores": name, **sizes, **shares}


# A better model for each shape.
BETTER: dict[str, Draw] = {
    "bell": lambda random, shape: random.normal(2, size=shape),
    "ceiling": lambda random, shape: np.minimum(random.normal(2.5, 1.0, shape), 1.0),
    "half fail": lambda random, shape: 1 + random.normal(0, 0.02, shape),
    "one in ten fails": lambda random, shape: 2 * SHAPES["one in ten fails"](random, shape),
}


def measure_power() -> Iterator[dict[str, Any]]:
    """The share of true differences that are detected."""
    for name, better in BETTER.items():
        for models, seeds in ((2, 3), (2, 5), (2, 10), (6, 5), (6, 10)):
            by_welch, report = power(SHAPES[name], better, models, seeds, POWER_STUDIES)
            yield {
                "scores": name,
                "models": models,
                "seeds": seeds,
                "Welch, Holm": by_welch,
                "report": report,
            }


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


def measure_ranks(studies: int = 100) -> Iterator[dict[str, Any]]:
    """Mean ranks of the leaderboard."""
    for tasks, seeds, noise in product((8, 13), (2, 5), (0.3, 1.0)):
        share = rank_coverage(tasks, seeds, noise, studies)
        yield {"tasks": tasks, "seeds": seeds, "noise": noise, "mean rank: corrected": share}


# Tables ---------------------------------------------------------------------------------------

MEASUREMENTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "means": measure_means,
    "differences": measure_differences,
    "families": measure_families,
    "power": measure_power,
    "ranks": measure_ranks,
}


def read(root: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table."""
    results: dict[str, list[dict[str, Any]]] = json.loads((root / RESULTS).read_text())
    return results


SIZES = "scores", "seeds", "seeds of each", "models", "environments", "tasks", "noise"


def lines(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """A table with a column for each key; shares are percentages, with a decimal where they are small."""
    decimals = 1 if name == "families" else 0
    cells = [
        [str(x) if key in SIZES else f"{100 * x:.{decimals}f} %" for key, x in row.items()] for row in rows
    ]
    return table([*rows[0]], cells)


def main() -> None:
    """Measure the tables and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MEASUREMENTS)}; default: all")
    names = parser.parse_args().names or [*MEASUREMENTS]
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        parser.error(f"unknown table {', '.join(unknown)}: choose from {', '.join(MEASUREMENTS)}")
    path = Path(__file__).parents[1] / RESULTS
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        results[name] = [*MEASUREMENTS[name]()]
        ordered = {key: results[key] for key in MEASUREMENTS if key in results}
        path.write_text(json.dumps(ordered, indent=1) + "\n")
        print("\n".join([name, *lines(name, results[name]), ""]), flush=True)


if __name__ == "__main__":
    main()
