"""The policy at recorded steps as a chart and a table."""

from collections.abc import Iterator

import numpy as np

from ..common.format import number
from ..reporting.blocks import Block, Chart, DotRow, Table, Text
from .measure import ProbeResult
from .open_loop import Estimate, OpenLoop
from .verdict import format_share, label

HEAD = ("KL (nats)", "95 %", "other action", "95 %")


def build_policy(result: ProbeResult) -> Iterator[Block]:
    policy = result.policy
    if policy is None:
        return
    yield Text(
        f"The policy at the {policy.steps:,} steps that the agent played with its memory unchanged, with the "
        "memory altered. All else is the same at each step: so these are effects of the memory state alone, "
        "and not of the observations that follow from other actions. A policy may change without a loss of "
        "score, where several actions are as good."
    )
    rows = [
        DotRow(label(one.name), np.empty(0), one.divergence.value, one.divergence.interval)
        for one in policy.changes
        if one.divergence is not None
    ]
    text = "KL divergence: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
    about = "KL divergence from the unchanged policy, in nats per step, and 95 % interval"
    yield Chart("policy", "dots", about, text, rows=rows)
    yield Table(
        f"Divergence from the unchanged policy, and steps at which the most likely action is another, of "
        f"{policy.steps:,}",
        ["the actor's memory", *HEAD],
        tabulate_policy(policy),
    )


def tabulate_policy(policy: OpenLoop) -> list[list[str]]:
    """A row for each alteration of the actor's memory."""
    return [
        [
            label(one.name),
            *(_cells(one.divergence) if one.divergence else ("-", "-")),
            *(_shares(one.changed) if one.changed else ("-", "-")),
        ]
        for one in policy.changes
    ]


def _cells(estimate: Estimate) -> tuple[str, str]:
    value, low, high = (number(float(f"{x:.2g}")) for x in (estimate.value, *estimate.interval))
    return value, f"{low} to {high}"


def _shares(estimate: Estimate) -> tuple[str, str]:
    low, high = map(format_share, estimate.interval)
    return format_share(estimate.value), f"{low} to {high}"
