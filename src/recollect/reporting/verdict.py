"""The verdict: the comparison of models in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from ..common.format import first_few, number
from ..common.intervals import Interval, describe_equal, most_failures
from .aggregate import Aggregate, Family, Improvement, ModelDifference
from .cells import p_cell
from .groups import Group
from .scores import FinalScores
from .significance import LEVEL, smallest_p

MIN_SEEDS = 5  # with fewer, intervals assume normally distributed scores


@dataclass(frozen=True)
class Statement:
    """A paragraph of the verdict, with its subject."""

    about: str
    text: str


def verdict(
    finals: Sequence[FinalScores],
    aggregates: Sequence[Aggregate],
    family: Family,
    groups: Sequence[Group] = (),
) -> list[Statement]:
    """A paragraph for each environment, one over all of them, and one on confidence.

    groups  all models, also those without a score
    """
    if not finals:
        text = (
            "No run has a score, so there is no verdict: a score is the evaluation of a finished run, or the "
            "mean return of its last 100 training episodes."
        )
        return [Statement("", text)]
    envs = dict.fromkeys(final.env for final in finals)
    statements: list[Statement] = []
    for env in envs:
        env_finals = [final for final in finals if final.env == env]
        text = _env_verdict(env_finals, family.differences)
        scored = {final.label for final in env_finals}
        lost = [g.label for g in groups if g.env == env and g.failed and g.label not in scored]
        if lost:
            text += f" No run has a score, and some failed, of {_listed(list(map(_quote, lost)))}."
        statements.append(Statement(env, text))
    if len(envs) > 1 and len(aggregates) > 1:
        text = _overall_verdict(aggregates, family.improvements, len(envs))
        statements.append(Statement(f"All {len(envs)} environments", text))
    if family.tests:
        statements.append(Statement("Confidence", _confidence(family, finals)))
    return statements


def _confidence(family: Family, finals: Sequence[FinalScores]) -> str:
    """The family of tests that p-values are adjusted for, and the limits of few seeds."""
    tests = family.tests
    if tests == 1:
        text = "One test, at the 5 % level."
    else:
        text = (
            f'"Better" holds at the 5 % level for all {tests} tests of scores together (Holm): every '
            "pair of models in every environment and over all environments. If no models differ in the "
            "distribution of their scores, at most one verdict in 20 names a difference."
        )
    text += _unseen_failures(family, finals)
    # Runs that failed make tests, but no intervals.
    several = [len(final.seeds) for final in finals if len(final.seeds) > 1]
    if several and min(several) < MIN_SEEDS:
        text += f" With fewer than {MIN_SEEDS} seeds the intervals assume normally distributed scores."
    # Runs that failed are in the tests, but in no mean.
    text += _smallest_difference(family, max(len(final.ranked) for final in finals))
    most = max(len(final.seeds) for final in finals)
    if 1 < most <= 10:
        text += (
            f" {most} seeds are few for a mean: if one run in ten fails, about a third of the 95 % intervals "
            "of a mean over ten seeds miss it. Check the score of every seed."
        )
    return text


def _unseen_failures(family: Family, finals: Sequence[FinalScores]) -> str:
    """What "better" means, and how often runs of the better models may fail although none did, or ""."""
    better = {(pair.env, pair.better) for pair in family.differences if pair.differs}
    seeds = [len(final.seeds) for final in finals if (final.env, final.label) in better]
    if not seeds:
        return ""
    few = min(seeds)
    return (
        ' "Better" is about the distributions of scores: means may be equal through rare failures that no '
        f"run showed. If none of {few} seeds fails, with 95 % confidence at most "
        f"{100 * most_failures(few):.0f} % of further seeds do."
    )


def _smallest_difference(family: Family, seeds: int) -> str:
    """A remark if the p-values of so few seeds cannot be below the level after the adjustment, else ""."""
    pairs = sum(not math.isnan(difference.p) for difference in family.differences)
    # Holm multiplies the smallest p-value of these pairs at least by their number.
    smallest = pairs * smallest_p(seeds, seeds)
    if smallest < LEVEL:
        return ""
    enough = next(n for n in count(seeds) if pairs * smallest_p(n, n) < LEVEL)
    return (
        f" {seeds} seeds per model are too few to find a difference in one environment: the smallest "
        f"possible p-value is {p_cell(smallest_p(seeds, seeds))}, and {p_cell(min(smallest, 1.0))} after the "
        f"adjustment. Use at least {enough} seeds per model."
    )


def _env_verdict(finals: Sequence[FinalScores], differences: Sequence[ModelDifference]) -> str:
    best = max(finals, key=lambda final: final.mean)
    counts = [len(final.seeds) for final in finals]
    mean = f"{_short(best.mean)} ({_spread(best)})" if best.mean_interval else _short(best.mean)
    if len(finals) == 1:
        text = f"{_quote(best.label)} reaches {mean} with {_seeds(counts)}."
        return f"{text} There is no other model to compare it with.{_failures(finals)}"
    text = f"{_quote(best.label)} has the highest mean, {mean}, with {_seeds(counts)} each."
    against = [d for d in differences if d.env == best.env and d.better == best.label]
    better = [_describe(difference) for difference in against if difference.differs]
    seeds = {final.label: len(final.ranked) for final in finals}
    untested = [d for d in against if not _can_differ(seeds[d.better], seeds[d.worse], d.failed)]
    loses = [_beaten_by(d) for d in against if d.loses]
    unclear = [_describe(d) for d in against if not d.differs and not d.loses and d not in untested]
    if better:
        text += f" It is better than {_listed(better)}."
    if loses:
        text += f" But with failed runs counted, a run of it is more likely to lose against {_listed(loses)}."
    if unclear:
        text += f" There is no detectable difference from {_listed(unclear)}."
    if untested:
        text += f" There are too few seeds to compare it with {_listed([_describe(d) for d in untested])}."
    if better and min(counts) < MIN_SEEDS:
        text += f" This is only a hint: use at least {MIN_SEEDS} seeds per model."
    return text + _failures(finals)


def _failures(finals: Sequence[FinalScores]) -> str:
    """What became of the runs that failed, or ""."""
    failures = [
        f"{len(final.failed)} of {len(final.ranked)} runs of {_quote(final.label)}"
        for final in finals
        if final.failed
    ]
    return (
        f" Failed, and so in no mean, but below all scores in tests: {_listed(failures)}." if failures else ""
    )


def _can_differ(n: int, m: int, failed: int) -> bool:
    """Whether the smallest possible p-value of two groups of n and m seeds is below the level."""
    # Of the rank test, two assignments are as extreme, whatever the sizes.
    return min(n, m) > 1 and (2 / math.comb(n + m, n) if failed else smallest_p(n, m)) < LEVEL


def _overall_verdict(aggregates: Sequence[Aggregate], improvements: Sequence[Improvement], envs: int) -> str:
    best = aggregates[0]
    mean = _short(best.iqm)
    if best.iqm_interval and best.iqm_interval.low < best.iqm_interval.high:
        mean += f" (95 % interval {_range(best.iqm_interval)})"
    text = f"{_quote(best.label)} has the highest normalised interquartile mean, {mean}."
    against = [pair for pair in improvements if pair.label == best.label]
    above = [_describe_improvement(x, envs) for x in against if x.differs and x.probability > 0.5]
    below = [_describe_improvement(x, envs) for x in against if x.differs and x.probability < 0.5]
    untested = [_quote(pair.other) for pair in against if math.isnan(pair.p)]
    unclear = [_describe_improvement(x, envs) for x in against if not x.differs and not math.isnan(x.p)]
    if above:
        text += f" A run of it is more likely to win than to lose against a run of {_listed(above)}."
    if below:
        text += f" But a run of it is more likely to lose against a run of {_listed(below)}."
        text += " See each environment."
    if unclear:
        text += f" There is no detectable difference from {_listed(unclear)}."
    if untested:
        text += f" There are too few seeds to compare it with {_listed(untested)}."
    return text


def _spread(final: FinalScores) -> str:
    """The interval of a mean; if all seeds are equal it has no width, so a bound on other seeds instead."""
    if final.all_equal:
        return describe_equal(len(final.scores))
    assert final.mean_interval is not None
    return f"95 % interval {_range(final.mean_interval)}"


def _describe(difference: ModelDifference) -> str:
    """The worse model, and how much lower its mean is."""
    low, high = difference.interval or (0.0, 0.0)  # without a width: all seeds of both models are equal
    interval = f", {_range(Interval(low, high))}" if low < high else ""
    return f"{_quote(difference.worse)} ({_short(difference.by)} lower{interval})"


def _beaten_by(difference: ModelDifference) -> str:
    """The model with the lower mean, and P(a run of it beats one with the higher mean)."""
    low, high = difference.wins_interval
    probability = f"P = {1 - difference.wins:.2f}, {1 - high:.2f} to {1 - low:.2f}"
    return f"one of {_quote(difference.worse)} ({probability})"


def _describe_improvement(pair: Improvement, envs: int) -> str:
    """The other model, and P(a run of the model beats a run of the other) in all environments or in some."""
    low, high = pair.interval
    some = f"; in {pair.envs} of them" if pair.envs < envs else ""
    return f"{_quote(pair.other)} (P = {pair.probability:.2f}, {low:.2f} to {high:.2f}{some})"


def _range(interval: Interval) -> str:
    return f"{_short(interval.low)} to {_short(interval.high)}"


def _short(x: float) -> str:
    """Three significant digits; means over seeds are hardly ever more precise."""
    return number(float(f"{x:.3g}"))


def _quote(label: str) -> str:
    """Quote a label that contains commas, so that it stands apart in a list."""
    return f'"{label}"' if "," in label else label


def _seeds(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    if least != most:
        return f"{least} to {most} seeds"
    return f"{most} seed{'s' if most > 1 else ''}"


def _listed(items: Sequence[str]) -> str:
    """Items as words; of many only the first, because the tables have all of them."""
    *first, last = first_few(items)
    return f"{', '.join(first)} and {last}" if first else last
