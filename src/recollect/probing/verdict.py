"""Whether an agent uses its memory and whether its task needs one, one sentence each."""

import math
from collections.abc import Sequence

from ..common.format import number
from ..common.intervals import Interval, most_failures
from .ablate import NO_LOSS, Ablation, Difference, Score, Source
from .contents import Contents, Held
from .controls import FEWEST, Controls
from .memory_length import MemoryLength
from .occlusion import Dependence
from .open_loop import Effect, Estimate, OpenLoop

WHOLE = "unchanged"
LEAST = 0.01  # nats: a smaller change of the policy is not worth a sentence
NAMED = 3  # single inputs whose numbers of steps are written out
LEAST_OF_EPISODE = 0.1  # nats, the sum over an episode: the policy may depend on its memory in one step only
# Names of alterations on pages and screens; probe.json has the older ones of ablate.py and critic.py.
LABELS = {
    "as it is": WHOLE,
    "cleared at every step": "reset at every step",
    "frozen after the first step": "frozen after the first step",
    "that of another episode": "state of another episode",
    "the mean state at every step": "mean state at every step",
}
NO_CONTROL = "Whether the task needs a memory was not tested: name memoryless runs with --control."


def judge_use(
    source: Source,
    whole: Score,
    ablations: Sequence[Ablation],
    length: MemoryLength | None,
    policy: OpenLoop | None,
    actor: str | None,
    critic: str | None,
) -> str:
    """Whether the actions depend on the memory state.

    length         the steps of memory; None if a reset at every step loses no score
    policy         at recorded steps: a memory that no score needs is unused only if the policy stays as well
    actor, critic  names of their memories; None without memory
    """
    if actor is None:
        return (
            f"Only its critic has a memory ({critic}); its actor has none." if critic else "It has no memory."
        )
    cleared = next(one for one in ablations if one.every == 1)
    name, unchanged = name_score(source), format_score(source, whole.mean)
    at = f"the {name} is {_score(source, cleared.score)} instead of {unchanged}"
    # Before the losses: nothing can be lost from 0, which would read as a memory that is not used.
    if source == "success" and whole.mean == 0:
        return "It has a memory. Whether it uses it cannot be determined: no episode is a success."
    if cleared.lost.direction == "equal":
        unused = policy is not None and _stays(policy)
        verdict = "It has a memory and does not use it" if unused else "Its score does not need its memory"
        return f"{verdict}: with a reset at every step {at} ({_difference(source, cleared.lost)})."
    if cleared.lost.direction == "worse":
        return f"Its memory harms it: with a reset at every step {at} ({_difference(source, cleared.lost)})."
    if cleared.lost.direction in ("not better", "unclear"):
        return (
            f"It has a memory. Whether it uses it cannot be determined from {len(whole.scores)} episodes: "
            f"with a reset at every step {at} ({_difference(source, cleared.lost)})."
        )
    if all(one.lost.direction in NO_LOSS for one in ablations if not (one.every or one.last)):
        return (
            f"It needs a memory state other than the initial one, but not its content: with a reset at every "
            f"step {at}, but with states of other steps and episodes it does as well."
        )
    assert length, "a reset at every step loses score"
    reach = _describe_length(length)
    fell = f"falls from {unchanged} to {_score(source, cleared.score)}"
    return f"It uses {reach} of memory: without it the {name} {fell}."


def _stays(policy: OpenLoop) -> bool:
    """Whether the policy surely hardly changes with any state that was tried."""
    changes = [change.divergence for change in policy.changes]
    return all(x is not None and x.interval.high < LEAST for x in changes)


def judge_reach(policy: OpenLoop | None) -> str | None:
    """How many steps the policy depends on; None if its memory makes no difference."""
    if policy is None or policy.length is None:
        return None
    reset = policy.changes[0]
    assert reset.divergence and reset.sums is not None, "a length is that of known divergences"
    if reset.sums.mean() < LEAST_OF_EPISODE:
        return None
    return (
        f"Its policy depends on {_describe_length(policy.length)} of memory: with fewer it differs by "
        f"more than a twentieth of {_nats(reset.divergence)}, the difference with a reset at every step."
    )


def judge_patching(policy: OpenLoop | None) -> str | None:
    """Whether choices follow the state of another episode; None if that is not known."""
    if policy is None or policy.patching is None:
        return None
    steps, other, same = policy.patching.steps, policy.patching.other, policy.patching.same
    return (
        f"With the memory state of another episode it takes that episode's action at "
        f"{format_estimate(other)} of the {steps:,} steps where the two acted differently, and its own at "
        f"{format_estimate(same)}."
    )


def judge_dependence(dependence: Sequence[Dependence]) -> str | None:
    """On which earlier step the policy depends most; None if on none."""
    # By the lower end: of many numbers of steps, the largest estimate would be one of few episodes.
    most = max(dependence, key=lambda one: one.occlusion.interval.low, default=None)
    if most is None or most.occlusion.interval.low < LEAST:
        return None
    steps = "the step" if most.back == 1 else f"{most.back} steps"
    sentence = (
        f"Of single inputs of its memory, that of {steps} before the action changes its policy most: with "
        f"that of another episode the policy differs by {_nats(most.occlusion)}."
    )
    others = [
        one.back
        for one in dependence
        if one is not most and one.occlusion.interval.high >= most.occlusion.interval.low
    ]
    if not others:
        return sentence
    listed = f"k = {', '.join(map(str, sorted(others)))}"
    which = listed if len(others) <= NAMED else f"{len(others)} other numbers of"
    return f"{sentence} Those of {which} steps before may change it as much."


def judge_contents(contents: Contents | None) -> str | None:
    """Which of the quantities that the state holds decides the policy; None if it holds none."""
    if contents is None or not contents.held:
        return None
    exchanged = contents.exchanged
    if exchanged and exchanged.divergence.interval.high < LEAST:
        return (
            "With the memory state of another episode after as many steps its policy is the same "
            f"({_nats(exchanged.divergence)}): nothing that differs between episodes decides."
        )
    decisive = [one for one in contents.held if one.decides]
    turned = [one for one in decisive if one.turned]
    followed = [one for one in contents.held if one.followed and not one.action]
    if turned or (decisive and not followed):
        return _describe_decisive((turned or decisive)[0])
    if followed:
        one = followed[0]
        assert one.other and one.same
        return (
            f'Its policy follows "{name_held(one)}", or what goes with it: with the memory state of an '
            f"episode where it differs {_effect(one.other)}, where it is the same {_effect(one.same)}."
        )
    return (
        "Which quantity decides cannot be told: of the quantities that are read out of its memory state "
        f"({len(contents.held)}), none changes the policy more than random changes of equal size."
    )


def _describe_decisive(one: Held) -> str:
    how, effect = "with the other value" if one.turned else "without it", one.strongest
    choice = ""
    if effect.changed:
        choice = f", and the most likely action is another at {format_estimate(effect.changed)} of the steps"
    if one.turned and one.adopted:
        choice += (
            f"; where an episode with the other value has another action, it takes that one at "
            f"{format_estimate(one.adopted)}"
        )
    return (
        f'Its policy follows what its memory state says of "{name_held(one)}", or of what goes with it: '
        f"{how} the policy differs by {_nats(effect.divergence)}, more than with any of {one.random.drawn} "
        f"random changes of equal size{choice}."
    )


def name_held(one: Held) -> str:
    """A quantity and when it was so."""
    return one.name if one.back == 1 else f"{one.name}, {one.back} steps before the action"


def _effect(effect: Effect) -> str:
    """An effect as a clause."""
    if effect.changed is None:
        return f"the policy differs by {_nats(effect.divergence)}"
    return f"the most likely action is another at {format_estimate(effect.changed)} of the steps"


def _nats(estimate: Estimate) -> str:
    value, low, high = (number(float(f"{x:.2g}")) for x in (estimate.value, *estimate.interval))
    return f"{value} nats ({low} to {high})"


def format_estimate(estimate: Estimate) -> str:
    """A share with its interval."""
    low, high = map(format_share, estimate.interval)
    return f"{format_share(estimate.value)} ({low} to {high})"


def label(name: str) -> str:
    """The label of an alteration."""
    return LABELS.get(name, name.replace("cleared every", "reset every"))


def judge_need(source: Source, whole: Score, controls: Controls | None, actor: str | None) -> str:
    """Whether agents without a memory do as well."""
    if actor is None:
        return "Whether the task needs a memory cannot be determined from an agent without one."
    if controls is None:
        return NO_CONTROL
    count, above = len(controls.runs), controls.above
    equal = sum(one.above.direction in NO_LOSS for one in controls.runs)
    mean = format_score(source, controls.mean) + " on average" * (count > 1)
    difference = _difference(source, above) + " over runs and episodes" * (count > 1)
    means = f"{mean}, this agent {format_score(source, whole.mean)} ({difference})."
    who = "the control without one reaches" if count == 1 else f"{count} controls without one reach"
    if above.direction in NO_LOSS:
        return f"The task does not need a memory: {who} {means}"
    # Before the mean: one run that reaches as much shows that it is possible.
    if equal:
        verb = "reaches" if equal == 1 else "reach"
        solved = f"{equal} of {count} controls without one {verb} as much. All {count} reach {means}"
        return f"The task can be solved without a memory: {solved}"
    if above.direction == "unclear" or not controls.exceeded:
        played = f"{len(whole.scores)} episodes and {'one control' if count == 1 else f'{count} controls'}"
        more = f" At least {FEWEST} controls are needed, of different seeds." * (count < FEWEST)
        return f"Whether the task needs a memory cannot be determined from {played}: {who} {means}{more}"
    none = f"None of the {count} reaches as much; of further ones up to {most_failures(count):.0%} may."
    return f"The task needs a memory: {who} {means} {none.replace('%', ' %')}"


def _describe_length(length: MemoryLength) -> str:
    """A memory length with its interval, without it if all of it is beyond the measured steps."""
    more = f"more than {length.measured}"
    low, high = (f"{x:.0f}" if math.isfinite(x) else more for x in length.interval)
    interval = "" if low == more else f" ({low} to {high})"
    if math.isfinite(length.steps):
        return f"about {length.steps:.0f} steps{interval}"
    return f"more than {'a step' if length.measured == 1 else f'{length.measured} steps'}{interval}"


def name_score(source: Source) -> str:
    """The name of a score in sentences."""
    return "success rate" if source == "success" else "return"


def _score(source: Source, score: Score) -> str:
    return f"{format_score(source, score.mean)} ({format_interval(source, score.interval)})"


def _difference(source: Source, difference: Difference) -> str:
    return f"difference {format_score(source, difference.by)}, {format_interval(source, difference.interval)}"


def format_interval(source: Source, interval: Interval) -> str:
    """An interval as text."""
    return f"{format_score(source, interval.low)} to {format_score(source, interval.high)}"


def format_score(source: Source, x: float) -> str:
    """A success rate with two decimals, a return with three significant digits."""
    return format_share(x) if source == "success" else number(float(f"{x:.3g}"))


def format_share(x: float | None) -> str:
    """A share with two decimals and no negative zero; - if there is none."""
    return "-" if x is None or math.isnan(x) else f"{round(x, 2) or 0.0:.2f}"
