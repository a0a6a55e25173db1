"""What the numbers say, in words; and when they say nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..common.format import number
from ..common.intervals import Interval, most_failures
from .aggregate import Aggregate, Difference, Family, Improvement
from .scores import Final

FEW = 5  # seeds: below, tests and intervals rely on scores being normally distributed


@dataclass(frozen=True)
class Statement:
    """A paragraph of the verdict, and what it is about."""

    about: str
    text: str


def verdict(finals: Sequence[Final], aggregates: Sequence[Aggregate], family: Family) -> list[Statement]:
    """A paragraph for each environment, one over all of them, and one on how certain these are."""
    if not finals:
        return [Statement("", "No run is finished, so there is no verdict.")]
    envs = dict.fromkeys(final.env for final in finals)
    statements: list[Statement] = []
    for env in envs:
        here = [final for final in finals if final.env == env]
        statements.append(Statement(env, _of_environment(here, family.differences)))
    if len(envs) > 1 and len(aggregates) > 1:
        text = _over_all(aggregates, family.improvements)
        statements.append(Statement(f"All {len(envs)} environments", text))
    if family.tests:
        statements.append(Statement("How certain this is", _certainty(family.tests, finals)))
    return statements


def _certainty(tests: int, finals: Sequence[Final]) -> str:
    """The family that p-values are adjusted for, and what few seeds cannot show."""
    if tests == 1:
        text = "One test was made, at the level of 5 %."
    else:
        text = (
            f'"Better" holds at 5 % for all {tests} tests of this report together (Holm): every pair of '
            "models in every environment and over all of them. Where nothing differs, at most one report "
            "in 20 names any difference."
        )
    if min(len(final.seeds) for final in finals if len(final.seeds) > 1) < FEW:
        text += f" With fewer than {FEW} seeds this relies on normally distributed scores."
    most = max(len(final.seeds) for final in finals)
    if most <= 10:
        text += (
            f" {most} seeds are few for a mean: where one run in ten fails, about a third of the intervals "
            "of a mean over ten seeds do not contain it. Look at the scores of all seeds."
        )
    return text


def _of_environment(finals: Sequence[Final], differences: Sequence[Difference]) -> str:
    best = max(finals, key=lambda final: final.mean)
    counts = [len(final.seeds) for final in finals]
    mean = f"{_short(best.mean)} ({_spread(best)})" if best.mean_interval else _short(best.mean)
    if len(finals) == 1:
        text = f"{_named(best.label)} reaches {mean} with {_seeds(counts)}."
        return f"{text} There is nothing to compare it with."
    text = f"{_named(best.label)} has the highest mean, {mean}, with {_seeds(counts)} each."
    against = [d for d in differences if d.env == best.env and d.better == best.label]
    better = [_by(difference) for difference in against if difference.differs]
    lonely = [_by(difference) for difference in against if difference.interval is None]
    unclear = [_by(d) for d in against if d.interval is not None and not d.differs]
    if better:
        text += f" It is better than {_listed(better)}."
    if unclear:
        text += f" No difference is detectable from {_listed(unclear)}."
    if lonely:
        text += f" Whether it is better than {_listed(lonely)} cannot be known from one seed."
    if better and min(counts) < FEW:
        text += f" This is a hint only: {_seeds([min(counts)])} are few."
    return text


def _over_all(aggregates: Sequence[Aggregate], improvements: Sequence[Improvement]) -> str:
    best = aggregates[0]
    mean = _short(best.iqm)
    if best.iqm_interval:
        mean += f" (95 % interval {_range(best.iqm_interval)})"
    text = f"{_named(best.label)} has the highest normalised interquartile mean, {mean}."
    against = [pair for pair in improvements if pair.label == best.label]
    above = [_probably(pair) for pair in against if pair.differs and pair.probability > 0.5]
    below = [_probably(pair) for pair in against if pair.differs and pair.probability < 0.5]
    unclear = [_probably(pair) for pair in against if not pair.differs]
    if above:
        text += f" A run of it is more likely above than below one of {_listed(above)}."
    if below:
        text += f" Yet a run of it is more likely below one of {_listed(below)}: look at each environment."
    if unclear:
        text += f" No such difference is detectable from {_listed(unclear)}."
    return text


def _spread(final: Final) -> str:
    """The interval of a mean; where all seeds are equal it says nothing, so what can be said instead."""
    if final.all_equal:
        return equal_seeds(len(final.scores))
    assert final.mean_interval is not None
    return f"95 % interval {_range(final.mean_interval)}"


def equal_seeds(n: int) -> str:
    """What n equal scores allow to be said of other seeds."""
    return f"all {n} seeds equal; at most {most_failures(n):.0%} of others may differ, with 95 % confidence"


def _by(difference: Difference) -> str:
    """A model, and how far it is behind."""
    interval = f" ({_range(difference.interval)})" if difference.interval else ""
    return f"{_named(difference.worse)}, {_short(difference.by)} behind{interval}"


def _probably(pair: Improvement) -> str:
    low, high = pair.interval
    return f"{_named(pair.other)} ({pair.probability:.2f}, {low:.2f} to {high:.2f})"


def _range(interval: Interval) -> str:
    return f"{_short(interval.low)} to {_short(interval.high)}"


def _short(x: float) -> str:
    """Three digits: the fourth is hardly ever known."""
    return number(float(f"{x:.3g}"))


def _named(label: str) -> str:
    """A label in a sentence, whose commas it must not mix with."""
    return f'"{label}"' if "," in label else label


def _seeds(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    if least != most:
        return f"{least} to {most} seeds"
    return f"{most} seed{'s' if most > 1 else ''}"


def _listed(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
