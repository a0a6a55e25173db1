"""The sections on scores: final scores, differences between models, and aggregates over environments."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..common.format import number
from ..common.intervals import describe_equal
from .aggregate import MANY_MODELS, ModelDifference
from .blocks import Block, Chart, DotRow, Line, Plot, Table, Text, slugs
from .cells import interval_cell, p_cell, probability_cell
from .curves import RANDOM
from .reference_scores import reference_score
from .scores import FinalScores
from .summary import Summary

SCORE_NAMES = {
    "success": "success rate of the final weights",
    "return": "mean return of the final weights",
    "training": "mean return of the last 100 training episodes",
}


def score_blocks(summary: Summary) -> Iterator[Block]:
    """A chart and a table of final scores for each environment."""
    if not summary.finals:
        return
    yield Text(
        "One score per seed. The IQM (interquartile mean) is the mean of the middle half of the scores; one "
        "failed seed hardly affects it. The 95 % confidence intervals are of the mean and the IQM over all "
        "possible seeds. If one run in ten fails, ten seeds are too few for the interval of a mean: it then "
        "contains the mean in about two of three studies."
    )
    names = slugs(summary.envs)
    for env in summary.envs:
        finals = sorted((f for f in summary.finals if f.env == env), key=lambda final: -final.mean)
        if finals:
            title = f"{env}: {SCORE_NAMES[finals[0].source]}"
            rows = [DotRow(final.label, final.scores, final.mean, final.mean_interval) for final in finals]
            if env in summary.random:
                rows.append(DotRow(RANDOM, np.empty(0), summary.random[env], None))
            words = f"{title}: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
            yield Chart(f"scores-{names[env]}", "dots", f"{title}, one dot per seed", words, rows=rows)
            yield _score_table(title, finals, summary.random.get(env))
            for final in finals:
                if final.all_equal:
                    yield Text(f"{final.label}: {describe_equal(len(final.scores))}.")
            yield from _ceiling(finals)


def _ceiling(finals: Sequence[FinalScores]) -> Iterator[Text]:
    """A remark if two or more seeds of a model, and at least half, have exactly the highest score of all.

    Some seed has the highest score of any set, so one alone says nothing. Nor do equal scores below the
    reference score, as those of a policy that always does the same.
    """
    scores = np.concatenate([final.scores for final in finals])
    highest = scores.max()
    counts = {f.label: (int((f.scores == highest).sum()), len(f.scores)) for f in finals}
    if not any(at > 1 and 2 * at >= n for at, n in counts.values()) or highest == scores.min():
        return
    reference = reference_score(finals[0].env, finals[0].source)
    if reference is not None and highest < reference:
        return
    seeds = ", ".join(f"{label} {at} of {n} seeds" for label, (at, n) in counts.items() if at)
    yield Text(
        f"{number(float(highest))} looks like the highest possible score: {seeds} have exactly this score. "
        "Scores at a ceiling hide differences between models, and intervals may extend above it.",
        lead="Ceiling",
    )


def _score_table(caption: str, finals: Sequence[FinalScores], random: float | None) -> Table:
    columns = ["model", "seeds", "scores", "mean", "95 % interval", "IQM", "95 % interval"]
    rows = [
        [
            final.label,
            " ".join(map(str, final.seeds)),
            " ".join(map(number, final.scores.tolist())),
            number(final.mean),
            interval_cell(final.mean_interval),
            number(final.iqm),
            interval_cell(final.iqm_interval),
        ]
        for final in finals
    ]
    if finals[0].source == "success":
        columns.append("mean return")
        rows = [[*row, number(final.mean_return)] for row, final in zip(rows, finals, strict=True)]
    if random is not None:
        rows.append([RANDOM, "-", "-", number(random), *["-"] * (len(columns) - 4)])
    return Table(caption, columns, rows)


def best_blocks(summary: Summary) -> Iterator[Block]:
    """A forest plot for each environment: how much the best model is better than each other one."""
    intervals = [difference.interval for difference in summary.differences]
    if not any(intervals):
        return
    yield Text(
        "The mean score of the best model minus that of each other model, with the 95 % confidence interval "
        "of each single difference. A filled dot: the means differ, adjusted for all tests of the verdict. A "
        "hollow dot: no detectable difference."
    )
    names = slugs(summary.envs)
    for env in summary.envs:
        pairs = [pair for pair in _best_differences(summary, env) if pair.interval is not None]
        if pairs:
            best = pairs[0].better
            rows = [
                DotRow(pair.worse, np.empty(0), pair.by, pair.interval, hollow=not pair.differs)
                for pair in sorted(pairs, key=lambda pair: pair.by)
            ]
            title = f"{env}: mean score of {best} minus that of each other model"
            words = f"{title}: " + ", ".join(
                f"{row.label} {number(row.value)} ({interval_cell(row.interval)})" for row in rows
            )
            yield Chart(f"differences-{names[env]}", "dots", title, f"{words}.", rows=rows, zero=True)


def difference_blocks(summary: Summary) -> Iterator[Block]:
    """A table of pairs of models for each environment."""
    if not summary.differences:
        return
    failed = "Where a run of a pair failed, p is that of the rank test, in which it is below all scores. "
    any_failed = any(difference.failed for difference in summary.differences)
    yield Text(
        "A is the model with the higher mean. Each 95 % confidence interval is of this one difference. "
        "p: the larger p-value of Welch's t-test and the exact permutation test of the means, adjusted for "
        f"all tests of the verdict (Holm). {failed if any_failed else ''}"
        "If it is below 0.05, the models differ in the distribution of "
        "their scores; rare failures that no run showed may still make the means equal. P(A beats B): "
        "probability that a run of A beats a run of B, with its 95 % interval; 0.5 = no difference."
    )
    columns = ["A", "B", "mean A - B", "95 % interval", "IQM A - B", "95 % interval", "p, adjusted", "means"]
    columns += ["P(A beats B)"]
    for env in summary.envs:
        rows = [_difference_row(difference) for difference in _shown_differences(summary, env)]
        if rows:
            yield Table(env, columns, rows, names=2)


def _shown_differences(summary: Summary, env: str) -> list[ModelDifference]:
    """All pairs of models; with many models, only the pairs with the best."""
    differences = [difference for difference in summary.differences if difference.env == env]
    models = [final for final in summary.finals if final.env == env]
    return differences if len(models) <= MANY_MODELS else _best_differences(summary, env)


def _best_differences(summary: Summary, env: str) -> list[ModelDifference]:
    """The pairs of the best model of an environment."""
    # The same best model as in `model_differences`, which puts it first in each of its pairs.
    models = [final for final in summary.finals if final.env == env]
    best = max(models, key=lambda final: final.mean).label if models else ""
    return [pair for pair in summary.differences if (pair.env, pair.better) == (env, best)]


def _difference_row(d: ModelDifference) -> list[str]:
    return [
        d.better,
        d.worse,
        number(d.by),
        interval_cell(d.interval),
        number(d.iqm_by),
        interval_cell(d.iqm_interval),
        p_cell(d.p),
        _result(d),
        f"{d.wins:.2f} ({probability_cell(d.wins_interval)})",
    ]


def _result(d: ModelDifference) -> str:
    if np.isnan(d.p):
        return "-"
    if d.loses:
        return "differ (95 %): the second is better, with failed runs"
    return "differ (95 %)" if d.differs else "no detectable difference"


def aggregate_blocks(summary: Summary) -> Iterator[Block]:
    """Normalised scores over all environments, performance profiles and probabilities of improvement."""
    # In one environment they would repeat its scores in another unit.
    if len(summary.aggregates) < 2 or len(summary.scales) < 2:
        return
    yield Text(f"Scores are normalised: {_describe_scales(summary)}.")
    rows = [DotRow(a.label, np.empty(0), a.iqm, a.iqm_interval) for a in summary.aggregates]
    words = "Normalised IQM: " + ", ".join(f"{row.label} {number(row.value)}" for row in rows) + "."
    title = "Normalised interquartile mean, 95 % confidence interval"
    yield Chart("aggregate", "dots", title, words, rows=rows)
    yield _aggregate_table(summary)
    yield Text(
        "A performance profile shows the share of runs that score above each value; a higher curve is better."
    )
    half = len(summary.profile_grid) // 2
    shares = ", ".join(f"{p.label} {p.share[half]:.2f}" for p in summary.profiles)
    words = f"Share of runs above {number(float(summary.profile_grid[half]))}: {shares}."
    lines = [Line(p.label, p.share, p.low, p.high) for p in summary.profiles]
    plot = Plot("normalised score", "share of runs above", summary.profile_grid, lines, steps=True)
    yield Chart("profiles", "lines", "Share of runs above a normalised score", words, plot=plot)
    if summary.improvements:
        yield _improvement_table(summary)


def _describe_scales(summary: Summary) -> str:
    """What the normalised scores 0 and 1 stand for, and in which environments."""
    scales = summary.scales
    ends = [
        ("0 is a random agent", [s.env for s in scales if s.low_is == "random"]),
        ("0 is the worst run (no random agent below it)", [s.env for s in scales if s.low_is == "worst"]),
        ("1 is the threshold or published score", [s.env for s in scales if s.high_is == "reference"]),
        ("1 is the best run (no reference score)", [s.env for s in scales if s.high_is == "best"]),
    ]
    return "; ".join(f"{words} in {', '.join(envs)}" for words, envs in ends if envs)


def _aggregate_table(summary: Summary) -> Table:
    columns = ["model", "runs", "mean", "95 % interval", "IQM", "95 % interval"]
    rows = [
        [
            a.label,
            str(a.seeds),
            number(a.mean),
            interval_cell(a.mean_interval),
            number(a.iqm),
            interval_cell(a.iqm_interval),
        ]
        for a in summary.aggregates
    ]
    return Table("Normalised scores over all environments", columns, rows)


def _improvement_table(summary: Summary) -> Table:
    caption = (
        "Probability of improvement: probability that a run of A beats a run of B; 0.5 = no difference. "
        "p: exact rank test, adjusted as above"
    )
    pairs = summary.improvements
    if len(summary.aggregates) > MANY_MODELS:
        caption += ". Only pairs with the best model are listed"
        pairs = [pair for pair in pairs if pair.label == summary.aggregates[0].label]
    columns = ["A", "B", "P(A beats B)", "95 % interval", "p, adjusted", "environments"]
    rows = [
        [
            pair.label,
            pair.other,
            f"{pair.probability:.2f}",
            probability_cell(pair.interval),
            p_cell(pair.p),
            str(pair.envs),
        ]
        for pair in pairs
    ]
    return Table(caption, columns, rows, names=2)
