"""Coverage of confidence intervals over few seeds, and a comparison with rliable.

    python -m benchmarks.intervals
    PYTHONPATH=/tmp/rliable python -m benchmarks.intervals --rliable

The first prints the tables of docs/reports.md: the coverage of intervals that claim 95 %, over 2000
simulated studies each. The second needs `pip install --target /tmp/rliable rliable "pandas<3"`; it writes
tests/golden/rliable.json, and prints the time of an import and of one interval on both sides.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

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
from recollect.reporting.significance import LEVEL, holm, rank_test, welch

STUDIES = 2000
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


def family_error(draw: Draw, models: int, seeds: int, studies: int, envs: int = 1) -> tuple[float, float]:
    """The share of studies of equal models in which some pair is called different: by adjusted p-values, as
    in verdicts, and by unadjusted ones."""
    random = np.random.default_rng(0)
    hits = np.zeros(2)
    for _ in range(studies):
        pairs = list(combinations(draw(random, (models, envs, seeds)), 2))
        p_values = [welch(x, y) for first, second in pairs for x, y in zip(first, second, strict=True)]
        if envs > 1:
            p_values += [rank_test(list(zip(*pair, strict=True))) for pair in pairs]
        hits += [min(holm(p_values)) < LEVEL, min(p_values) < LEVEL]
    adjusted, single = hits / studies
    return float(adjusted), float(single)


FAMILIES = ((2, 10, 1), (6, 3, 1), (6, 5, 1), (6, 10, 1), (6, 10, 3))  # models, seeds, environments


def print_families(studies: int = 1000) -> None:
    """The third table: verdicts over equal models."""
    print("\n| scores | models | seeds | environments | unadjusted | Holm |\n|---|---|---|---|---|---|")
    for name, draw in SHAPES.items():
        for models, seeds, envs in FAMILIES:
            adjusted, single = family_error(draw, models, seeds, studies, envs)
            row = f"| {name} | {models} | {seeds} | {envs} | {single:.0%} | {adjusted:.1%} |"
            print(row, flush=True)


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


if __name__ == "__main__":
    main()
