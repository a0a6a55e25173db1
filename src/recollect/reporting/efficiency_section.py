"""The section on sample and time efficiency: when models reached a training return."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from ..common.format import number
from .aggregate import MANY_MODELS
from .blocks import Block, Table, Text
from .cells import p_cell, range_cell, steps_cell, time_cell
from .efficiency import Efficiency, Threshold
from .significance import fisher, holm, mann_whitney
from .summary import UNEQUAL_STEPS, Summary


def efficiency_blocks(summary: Summary) -> Iterator[Block]:
    """For each environment, a table of models and one of exact tests of pairs."""
    if not summary.efficiencies:
        return
    yield Text(
        "Training steps and time until the training return first reached a threshold. A seed that did not "
        "reach it, or whose run failed, counts as later than all others, so the median seed is given, with "
        "the first and the last. The p-values of these tables are adjusted within a column alone: where "
        "there are several, more than one report of equal models in 20 has one below 0.05. "
        "Times are comparable only between runs on the same, otherwise idle machine."
    )
    columns = ["model", "reached", "steps, median seed", "first to last seed"]
    columns += ["time, median seed", "first to last seed", "steps/s"]
    for threshold in summary.thresholds:
        items = [item for item in summary.efficiencies if item.env == threshold.env]
        caption = f"{threshold.env}: threshold {number(threshold.value)}, {_describe_threshold(threshold)}"
        yield Table(caption, columns, [_efficiency_row(item) for item in items])
        if 1 < len(items) <= MANY_MODELS:
            yield _test_table(threshold.env, items)


def _test_table(env: str, items: Sequence[Efficiency]) -> Table:
    """Exact tests of each pair of models: steps to the threshold, and seeds that reach it.

    Within the smaller budget of the two: a run with fewer steps has not failed to reach it later. A seed that
    reached it sets no limit, because it may have ended there (ppo.target_return).
    """
    labels, steps = [], []
    for a, b in combinations(items, 2):
        # Rollouts are whole, so equal budgets may differ by one of them.
        common = UNEQUAL_STEPS * min(a.budget, b.budget)
        labels.append([a.label, b.label])
        steps.append([np.where(item.steps <= common, item.steps, np.inf) for item in (a, b)])
    sooner = holm([mann_whitney(x, y) for x, y in steps])
    reached = [[(int(np.isfinite(x).sum()), len(x)) for x in pair] for pair in steps]
    oftener = holm([fisher(*x, *y) for x, y in reached])
    rows = [[*names, p_cell(p), p_cell(q)] for names, p, q in zip(labels, sooner, oftener, strict=True)]
    caption = (
        f"{env}: exact tests, within the steps of every seed of the two that did not reach the threshold. "
        "p of equal steps to it (Mann-Whitney; not reached ranks last) and "
        "of equally many seeds that reach it (Fisher), each column adjusted (Holm)"
    )
    return Table(caption, ["A", "B", "p, steps", "p, seeds"], rows, names=2)


def _efficiency_row(item: Efficiency) -> list[str]:
    steps, seconds = (np.sort(column) for column in (item.steps, item.seconds))
    return [
        item.label,
        f"{item.reached} of {len(steps)}",
        # Not reached is infinite, so this is finite only if more than half of the seeds reached the
        # threshold.
        steps_cell(float(np.median(steps))),
        range_cell(steps_cell(steps[0]), steps_cell(steps[-1])),
        time_cell(float(np.median(seconds))),
        range_cell(time_cell(seconds[0]), time_cell(seconds[-1])),
        steps_cell(item.pace),
    ]


def _describe_threshold(threshold: Threshold) -> str:
    if threshold.kind == "target":
        return "ppo.target_return of the configs"
    bottom = "a random agent" if threshold.kind == "random" else "the lowest first return"
    return f"90 % of the way from {bottom} to the best mean"
