"""What the numbers say, in words; and when they say nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..log import number
from .aggregate import MANY, Aggregate, Difference, Improvement
from .intervals import Interval
from .scores import Final

FEW = 5  # seeds: below, an interval trusts that scores lie around their mean as in a bell
SEVERAL = 3  # comparisons, from which on it matters how many there are


@dataclass(frozen=True)
class Statement:
    """A paragraph of the verdict, and what it is about."""

    about: str
    text: str


def verdict(
    finals: Sequence[Final],
    differences: Sequence[Difference],
    aggregates: Sequence[Aggregate],
    improvements: Sequence[Improvement],
) -> list[Statement]:
    """A paragraph for each environment, then one over all of them."""
    if not finals:
        return [Statement("", "No run is finished, so there is no verdict.")]
    envs = dict.fromkeys(final.env for final in finals)
    said: list[Statement] = []
    for env in envs:
        here = [final for final in finals if final.env == env]
        said.append(Statement(env, _of_environment(here, [d for d in differences if d.env == env])))
    if len(envs) > 1 and len(aggregates) > 1:
        said.append(Statement(f"All {len(envs)} environments", _over_all(aggregates, improvements)))
    compared = sum(difference.interval is not None for difference in differences)
    if compared >= SEVERAL:
        said.append(Statement("By chance", _by_chance(compared, finals)))
    return said


def _by_chance(comparisons: int, finals: Sequence[Final]) -> str:
    """How often so many comparisons find what is not there."""
    said = f"These are {comparisons} comparisons. Where nothing differs, one in 20 looks as if it did"
    if max(Counter(final.env for final in finals).values()) > MANY:
        said += (
            "; about one in 7 where only the best is held against others, because the same scores chose it"
        )
    return f"{said}."


def _of_environment(finals: Sequence[Final], differences: Sequence[Difference]) -> str:
    best = max(finals, key=lambda final: final.mean)
    counts = [len(final.seeds) for final in finals]
    mean = f"{_short(best.mean)}{_first_interval(best.mean_interval)}"
    if len(finals) == 1:
        said = f"{_named(best.label)} reaches {mean} with {_seeds(counts)}."
        return f"{said} There is nothing to compare it with."
    said = f"{_named(best.label)} has the highest mean, {mean}, with {_seeds(counts)} each."
    against = [difference for difference in differences if difference.better == best.label]
    told = [_by(difference) for difference in against if difference.certain]
    lonely = [_by(difference) for difference in against if difference.interval is None]
    untold = [_untold(d) for d in against if d.interval is not None and not d.certain]
    few = min(counts) < FEW
    if told:
        said += f" It {'looks' if few else 'is'} better than {_listed(told)}."
    if untold:
        said += f" It cannot be told from {_listed(untold)}."
    if lonely:
        said += f" Whether it is better than {_listed(lonely)} cannot be said from one seed."
    if told and few:
        said += f" Take it as a hint: {_seeds([min(counts)])} are few."
    return said


def _over_all(aggregates: Sequence[Aggregate], improvements: Sequence[Improvement]) -> str:
    best = aggregates[0]
    mean = f"{_short(best.iqm)}{_first_interval(best.iqm_interval)}"
    said = f"{_named(best.label)} has the highest normalised interquartile mean, {mean}."
    against = [pair for pair in improvements if pair.label == best.label]
    sure = [_probably(pair) for pair in against if pair.interval.low > 0.5]
    contrary = [_probably(pair) for pair in against if pair.interval.high < 0.5]
    unsure = [_probably(pair) for pair in against if pair.interval.low <= 0.5 <= pair.interval.high]
    if sure:
        said += f" A run of it is probably above one of {_listed(sure)}."
    if contrary:
        said += f" Yet a run of it is probably below one of {_listed(contrary)}: look at each environment."
    if unsure:
        said += f" Whether a run of it is above one of {_listed(unsure)} may be no more than a coin."
    return said


def _by(difference: Difference) -> str:
    """A model, and how far it is behind."""
    interval = f" ({_range(difference.interval)})" if difference.interval else ""
    return f"{_named(difference.worse)} by {_short(difference.by)}{interval}"


def _untold(difference: Difference) -> str:
    """A model that the seeds cannot tell apart, and how many would."""
    assert difference.interval is not None
    said = f"{_named(difference.worse)}, {_short(difference.by)} behind ({_range(difference.interval)}"
    if difference.seeds_needed is None:
        return f"{said})"
    needed = f"about {difference.seeds_needed}" if difference.seeds_needed <= 100 else "more than 100"
    return f"{said}; {needed} seeds of each would tell)"


def _probably(pair: Improvement) -> str:
    low, high = pair.interval
    return f"{_named(pair.other)} ({pair.probability:.2f}, {low:.2f} to {high:.2f})"


def _first_interval(interval: Interval | None) -> str:
    return f" (95 % interval {_range(interval)})" if interval else ""


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
