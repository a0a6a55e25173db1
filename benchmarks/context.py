"""What a longer context costs GPT-2, for the same rows read and learned from.

    python -m benchmarks.context [--contexts 64 128 256 512 1024] [--plot docs/images/context.svg]
        [--out benchmarks/results]

Forward and backward over sequences of one long episode, so that every row looks back as far as it
may. `banded` reads each row once; `window` reads a context for every row, over fewer rows because it
is slow. Printed is the time of a row, and how its logarithm grows with that of the context. The times are
kept in OUT/context.json.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from recollect.memory.gpt2 import Gpt2Config
from recollect.run.weights import processor_name

ROWS = {"banded": (1024, 2), "window": (8, 2)}  # T, B
FEATURES = 8


def seconds_a_row(attention: Literal["banded", "window"], context: int, repeats: int) -> float:
    """Of reading a sequence and of its gradients, from a full memory; the median."""
    rows, batch = ROWS[attention]
    memory = Gpt2Config(attention=attention, context=context, positions=2 * context).build(FEATURES)
    first = torch.zeros(rows, batch, dtype=torch.bool)
    with torch.no_grad():  # something to look back on
        fill = torch.randn(context, batch, FEATURES)
        state = memory.initial_state(batch)
        if attention == "banded":
            state = memory(fill, state, torch.zeros(context, batch, dtype=torch.bool))[1]
        else:
            state = (fill[1:].transpose(0, 1), torch.full((batch,), context))
    times = []
    for _ in range(repeats + 1):
        x = torch.randn(rows, batch, FEATURES)
        start = time.perf_counter()
        memory(x, state, first)[0].square().sum().backward()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) / (rows * batch)


def slope(contexts: Sequence[int], times: Sequence[float]) -> float:
    """Of the logarithm of the time over that of the context."""
    return float(np.polyfit(np.log(contexts), np.log(times), 1)[0])


def draw(contexts: Sequence[int], seconds: dict[str, list[float]], path: Path) -> None:
    """Both as lines on logarithmic axes."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, times in seconds.items():
        label = f"{name}, slope {slope(contexts, times):.2f}"
        axes.loglog(contexts, [1e6 * t for t in times], "o-", label=label)
    axes.set(xlabel="context length in steps", ylabel="microseconds per step", xticks=contexts)
    axes.set_xticks(contexts, [str(c) for c in contexts])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seconds: dict[str, list[float]] = {"banded": [], "window": []}
    print("| context | banded, us a row | window, us a row |\n|---|---|---|")
    for context in args.contexts:
        seconds["banded"].append(seconds_a_row("banded", context, args.repeats))
        seconds["window"].append(seconds_a_row("window", context, args.repeats))
        print(
            f"| {context} | {1e6 * seconds['banded'][-1]:.0f} | {1e6 * seconds['window'][-1]:.0f} |",
            flush=True,
        )
    print(", ".join(f"{name}: slope {slope(args.contexts, times):.2f}" for name, times in seconds.items()))
    args.out.mkdir(parents=True, exist_ok=True)
    kept = {
        "contexts": args.contexts,
        "seconds": seconds,
        "threads": args.threads,
        "processor": processor_name(),
    }
    (args.out / "context.json").write_text(json.dumps(kept, indent=1) + "\n")
    if args.plot:
        draw(args.contexts, seconds, args.plot)


if __name__ == "__main__":
    main()
