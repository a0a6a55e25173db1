"""Tables and the figure of studies/memory_length.yaml, from the analysis of benchmarks.memory_length."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.common.intervals import Interval

from .cells import table
from .length_agents import ESTIMATORS, Agent

VERDICTS = {True: "yes", False: "no", None: "not decided"}


def in_order(agents: Sequence[Agent]) -> dict[str, int]:
    """The tasks with their horizons: families in alphabetical order, short horizons first."""
    horizons = {agent.task: agent.horizon for agent in agents}
    return dict(sorted(horizons.items(), key=lambda pair: (pair[0].partition(" ")[0], pair[1])))


def solved_table(agents: Sequence[Agent], result: Mapping[str, Any]) -> list[str]:
    """How many agents of each memory solve each task."""
    memories = sorted({agent.memory for agent in agents})
    rows = [
        [task, horizon, *(result["by_task"][task].get(memory, "-") for memory in memories)]
        for task, horizon in in_order(agents).items()
    ]
    return table(["task", "horizon", *(f"`{memory}`" for memory in memories)], rows)


def calibration_table(result: Mapping[str, Any], among: str) -> list[str]:
    """Each estimate beside the required horizon.

    among  the agents: `primary`, `all tasks` or `half solved`
    """
    header = [
        "estimate",
        "agents",
        "slope (95 %)",
        "ratio to the horizon, median",
        "lowest and highest median of a memory",
        "equal to the horizon",
        "nothing estimated",
        "intervals with the horizon",
        "calibrated",
    ]
    return table(header, [_row(name, result["calibration"][name][among]) for name in ESTIMATORS])


def _row(name: str, one: Mapping[str, Any] | None) -> list[str]:
    """An estimate; no agent has one if the calibration is None."""
    if one is None:
        return [f"`{name}`", *["-"] * 7, VERDICTS[None]]
    memories, contained = sorted(one["memories"].values()), one["coverage"]
    low, high = one["interval"]
    return [
        f"`{name}`",
        str(one["agents"]),
        f"{one['slope']:.2f} ({low:.2f} to {high:.2f})",
        f"{one['factor']:.2f}",
        f"{memories[0]:.2f} to {memories[-1]:.2f}" if memories else "-",
        f"{one['exact']:.0%}".replace("%", " %"),
        f"{one['unknown']:.0%}".replace("%", " %"),
        f"{contained['contained']} of {contained['of']}" if contained else "-",
        VERDICTS[one["calibrated"]],
    ]


def used_table(agents: Sequence[Agent], result: Mapping[str, Any]) -> list[str]:
    """The steps that policies of equal scores depend on: medians, with the tests within each task."""
    used, attention = ({row["task"]: row for row in result[name]} for name in ("used", "attention"))
    memories = sorted({memory for row in used.values() for memory in row["medians"]})
    rows = []
    for task, horizon in in_order(agents).items():
        if task in used:
            medians = (used[task]["medians"].get(memory) for memory in memories)
            kinds = attention.get(task)
            rows.append(
                [task, horizon, *(_steps(x) for x in medians), f"{used[task]['adjusted']:.2g}"]
                + ([f"{kinds['more']:.2f}", f"{kinds['adjusted']:.2g}"] if kinds else ["-", "-"])
            )
    header = ["task", "horizon", *(f"`{memory}`" for memory in memories), "adjusted p, memories"]
    return table([*header, "P(attention > GRU, LSTM)", "adjusted p"], rows)


def _steps(median: float | None) -> str:
    """A median of steps; infinite: more than was measured."""
    return "-" if median is None else f"{median:g}" if math.isfinite(median) else "more"


def draw(agents: Sequence[Agent], calibrated: Interval, path: Path) -> None:
    """Each estimate over the required horizon, a panel for each estimate and a dot for each agent.

    agents      those of the primary analysis; estimates that are unknown or infinite are counted in the title
    calibrated  ratios to the horizon, shaded
    """
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
    memories = sorted({agent.memory for agent in agents})
    ends = np.array([2.0, 100.0])
    for name, axes in zip(ESTIMATORS, panels.flat, strict=True):
        axes.fill_between(ends, calibrated.low * ends, calibrated.high * ends, color="0.9", lw=0)
        axes.plot(ends, ends, color="0.5", lw=1)
        for place, memory in enumerate(memories):
            # Memories stand beside each other, because most of their dots are equal.
            shift = 1.06 ** (place - (len(memories) - 1) / 2)
            pairs = [(a.horizon * shift, a.estimates[name]) for a in agents if a.memory == memory]
            known = [(x, y) for x, y in pairs if y is not None and math.isfinite(y)]
            axes.plot(*np.array(known or np.empty((0, 2))).T, "o", ms=3.5, alpha=0.6, label=memory)
        unknown = sum(not math.isfinite(agent.estimates[name] or math.inf) for agent in agents)
        axes.set_title(f"{name}, none for {unknown} of {len(agents)}", loc="left", fontsize="medium")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("required steps")
    for axes in panels[:, 0]:
        axes.set_ylabel("estimated steps")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(memories))
    with plt.rc_context({"svg.hashsalt": "lengths"}):  # equal results give equal files
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
