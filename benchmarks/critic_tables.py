"""Tables from the result files of `benchmarks.critics` and `benchmarks.context`."""

import json
from pathlib import Path

import numpy as np

from .cells import table


def critics(out: Path) -> list[str]:
    """Explained variance of each critic, over steps; one number per seed."""
    runs = [json.loads(file.read_text()) for file in sorted(out.glob("critics-*.json"))]
    if not runs:
        return []
    names = runs[0]["critics"]
    rows = [
        [f"{round(lines[0]['steps'], -3):,}"]
        + [", ".join(f"{line['explained_variance'][i]:.2f}" for line in lines) for i in range(len(names))]
        for lines in zip(*(run["lines"] for run in runs), strict=False)
    ]
    return table(
        [f"steps, seeds {' and '.join(str(run['seed']) for run in runs)}", *(f"`{x}`" for x in names)], rows
    )


def context(out: Path) -> list[str]:
    """The time of one step over the context length, and its slope on logarithmic axes."""
    file = out / "context.json"
    if not file.exists():
        return []
    kept = json.loads(file.read_text())
    lengths, seconds = kept["contexts"], kept["seconds"]
    rows = [
        [
            name,
            *(f"{1e6 * x:,.0f} us" for x in times),
            f"{np.polyfit(np.log(lengths), np.log(times), 1)[0]:.2f}",
        ]
        for name, times in seconds.items()
    ]
    return table(["attention", *(f"context {x:,}" for x in lengths), "slope"], rows)
