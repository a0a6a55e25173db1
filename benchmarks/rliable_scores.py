"""Reference numbers from rliable for the statistics of reports, and its time beside ours.

    pip install --target /tmp/rliable rliable "pandas<3"
    PYTHONPATH=/tmp/rliable python -m benchmarks.rliable_scores

writes tests/golden/rliable.json, and prints the time of an import and of one interval on both sides.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from recollect.common.intervals import Floats, stratified
from recollect.reporting.aggregate import pooled_iqm

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "rliable.json"


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
        "made by": "PYTHONPATH=/tmp/rliable python -m benchmarks.rliable_scores, with rliable 1.2.0",
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


if __name__ == "__main__":
    compare_with_rliable()
