"""The time of a step of GPT-2, over the context length.

    python -m benchmarks.context [--contexts 64 128 256 512 1024] [--plot docs/images/context.svg]
        [--out benchmarks/results]

Forward and backward passes over sequences of one long episode, so that every step attends to a full
context. `banded` processes each step once; `window` processes a whole context for every step, over fewer
steps because it is slow. Prints the time of a step and the slope of its logarithm over that of the
context, and writes both to OUT/context.json.
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

STEPS = {"banded": (1024, 2), "window": (8, 2)}  # T, B
FEATURES = 8


def measure_seconds_per_step(attention: Literal["banded", "window"], context: int, repeats: int) -> float:
    """Forward and backward over a sequence, beginning with a full cache; median of the repeats."""
    steps, batch = STEPS[attention]
    memory = Gpt2Config(attention=attention, context=context, positions=2 * context).build(FEATURES)
    first = torch.zeros(steps, batch, dtype=torch.bool)
    with torch.no_grad():  # fills the cache
        fill = torch.randn(context, batch, FEATURES)
        state = memory.initial_state(batch)
        if attention == "banded":
            state = memory(fill, state, torch.zeros(context, batch, dtype=torch.bool))[1]
        else:
            state = (fill[1:].transpose(0, 1), torch.full((batch,), context))
    times = []
    for _ in range(repeats + 1):
        x = torch.randn(steps, batch, FEATURES)
        start = time.perf_counter()
        memory(x, state, first)[0].square().sum().backward()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) / (steps * batch)


def slope(contexts: Sequence[int], times: Sequence[float]) -> float:
    """Slope of the logarithm of the time over that of the context."""
    return float(np.polyfit(np.log(contexts), np.log(times), 1)[0])


def draw(contexts: Sequence[int], seconds: dict[str, list[float]], path: Path) -> None:
    """A line for each kind of attention, on logarithmic axes."""
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
    print("| context | banded, us per step | window, us per step |\n|---|---|---|")
    for context in args.contexts:
        seconds["banded"].append(measure_seconds_per_step("banded", context, args.repeats))
        seconds["window"].append(measure_seconds_per_step("window", context, args.repeats))
        cells = " | ".join(f"{1e6 * times[-1]:.0f}" for times in seconds.values())
        print(f"| {context} | {cells} |", flush=True)
    print(", ".join(f"{name}: slope {slope(args.contexts, times):.2f}" for name, times in seconds.items()))
    args.out.mkdir(parents=True, exist_ok=True)
    results = {
        "contexts": args.contexts,
        "seconds": seconds,
        "threads": args.threads,
        "processor": processor_name(),
    }
    (args.out / "context.json").write_text(json.dumps(results, indent=1) + "\n")
    if args.plot:
        draw(args.contexts, seconds, args.plot)


if __name__ == "__main__":
    main()
