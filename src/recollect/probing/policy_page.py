"""The policy at recorded steps, with the memory or earlier inputs changed, as charts and tables."""

from collections.abc import Iterator

import numpy as np

from ..common.format import number
from ..reporting.blocks import Block, Chart, DotRow, Line, Plot, Table, Text
from .measure import ProbeResult
from .occlusion import GRADIENTS, Dependence
from .open_loop import Estimate, OpenLoop, Patching
from .verdict import format_estimate, format_share, label

OCCLUDED = "one earlier input of another episode"
HEAD = ("KL (nats)", "95 %", "other action", "95 %")
REPLAYED = (
    "first inputs exchanged",
    "steps where the two acted differently",
    "action of the other episode",
    "its own action",
    "last such steps",
    "of these: action of the other episode",
    "KL (nats)",
    "95 %",
)


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


def build_dependence(result: ProbeResult) -> Iterator[Block]:
    """How the policy depends on single earlier inputs of the memory."""
    if not result.dependence:
        return
    yield Text(
        "The memory once gets the input that another episode had at the same step, and all else as "
        "recorded. The policy some steps later is compared with that of the recorded inputs. Where several "
        "steps carry the same information, a change of one of them may do little."
    )
    back = np.array([one.back for one in result.dependence], dtype=np.float64)
    columns = np.array([[one.occlusion.value, *one.occlusion.interval] for one in result.dependence]).T
    if len(back) > 1:
        values = ", ".join(f"{number(x.occlusion.value)} {x.back} steps before" for x in result.dependence)
        plot = Plot("steps before the action", "KL (nats)", back, [Line(OCCLUDED, *columns)])
        title = "KL divergence from the unchanged policy, and 95 % interval"
        yield Chart("dependence", "lines", title, f"KL divergence: {values}.", plot=plot)
    yield Table(
        "The policy with one earlier input changed, and the gradient of the log-odds of the most likely "
        "action (of means of real actions in deviations) per deviation of the input",
        ["steps before the action", "KL (nats)", "95 %", "gradient", "95 %", "steps"],
        [_row(one) for one in result.dependence if one.back in GRADIENTS],
    )


def _row(one: Dependence) -> list[str]:
    """The cells of a number of steps."""
    gradient = _cells(one.gradient) if one.gradient else ("-", "-")
    return [str(one.back), *_cells(one.occlusion), *gradient, f"{one.steps:,}"]


def build_replays(result: ProbeResult) -> Iterator[Block]:
    """The policy after first inputs of another episode."""
    if not result.replays:
        return
    yield Text(
        "The first inputs of each episode are replaced by those that another episode had at the same steps; "
        "all later ones are as recorded. Where the two acted differently later on, an agent that follows its "
        "memory of the first inputs takes the action of the other episode, also at the last such step. It "
        "takes its own where it follows the present observation, or where later inputs repeat or overwrite "
        "the first ones."
    )
    yield Table(
        "Whose action it takes after first inputs of another episode (share of steps, 95 %), and the "
        "divergence from the unchanged policy over all later steps",
        [*REPLAYED],
        [
            [
                str(one.exchanged),
                *_choices(one.choices),
                *_choices(one.last)[:2],
                *_cells(one.divergence),
            ]
            for one in result.replays
        ],
    )


def _choices(choices: Patching | None) -> tuple[str, str, str]:
    """The steps, and the shares of the action of the other episode and of its own."""
    if choices is None:
        return "-", "-", "-"
    return f"{choices.steps:,}", format_estimate(choices.other), format_estimate(choices.same)


def _cells(estimate: Estimate) -> tuple[str, str]:
    value, low, high = (number(float(f"{x:.2g}")) for x in (estimate.value, *estimate.interval))
    return value, f"{low} to {high}"


def _shares(estimate: Estimate) -> tuple[str, str]:
    low, high = map(format_share, estimate.interval)
    return format_share(estimate.value), f"{low} to {high}"
