"""What a report computes: intervals that hold, curves on one grid, models beside each other."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.intervals import SHAPES, coverage, family_errors, power
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recollect.common.intervals import (
    BLOCK,
    Interval,
    band,
    iqm_weights,
    mean_interval,
    mean_of_shares,
    mean_weights,
    paired_interval,
    percentiles,
    quantiles,
    share_interval,
    stratified,
    student,
    wins_interval,
)
from recollect.common.statistics import iqm
from recollect.reporting import (
    aggregate,
    curves,
    efficiency,
    efficiency_section,
    score_sections,
    scores,
    significance,
    summary,
    verdict,
)
from recollect.reporting.curves import SeedSeries, resample, summarise_seeds
from recollect.reporting.groups import Group
from recollect.reporting.runs import Run
from recollect.reporting.scores import FinalScores, Scale, weighted_mean_interval

from ..helpers import sampled

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "rliable.json").read_text())
NUMBERS = st.floats(-1e6, 1e6)
SCORES = st.lists(NUMBERS, min_size=2, max_size=12).map(np.array)


def close(a, b) -> bool:
    return np.allclose(a, b, rtol=1e-9, atol=1e-6)


# Intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.70620), (2, 4.30265), (4, 2.77645), (9, 2.26216), (4.5, 2.65891), (200, 1.97190), (1e4, 1.96234)],
)
def test_student_is_that_of_the_tables(freedom, expected):
    assert student(freedom) == pytest.approx(expected, abs=2e-5)


def test_student_at_another_level_is_that_of_the_tables():
    assert student(10, 0.9) == pytest.approx(1.81246, abs=2e-5)


@given(SCORES)
def test_weights_are_those_of_the_mean_and_the_interquartile_mean(x):
    assert close(iqm_weights(len(x)) @ np.sort(x), iqm(x))
    assert close(mean_weights(len(x)) @ np.sort(x), x.mean())


@given(SCORES, st.sampled_from([mean_weights, iqm_weights]))
def test_an_interval_holds_its_estimate_and_has_the_order_of_its_ends(x, weights):
    w = weights(len(x))
    (low,), (high,) = band(x[:, None], w)
    assert low <= w @ np.sort(x) + 1e-6 and w @ np.sort(x) <= high + 1e-6


@settings(max_examples=20)
@given(SCORES, SCORES, st.randoms())
def test_the_order_of_seeds_changes_nothing(x, y, order):
    mixed = np.array(order.sample(list(x), len(x)))
    assert close(band(x[:, None], iqm_weights(len(x))), band(mixed[:, None], iqm_weights(len(x))))
    for statistic in (aggregate.pooled_iqm, aggregate.difference_of_means):
        assert close(stratified([x, y], statistic), stratified([mixed, y], statistic))


@given(NUMBERS, st.integers(2, 12))
def test_equal_scores_leave_no_doubt(score, n):
    x = np.full(n, score)
    assert close(band(x[:, None], iqm_weights(n)), score) and close(iqm(x), score)
    assert close(stratified([x, x], aggregate.pooled_iqm), score)


@given(SCORES, st.floats(0.1, 10), NUMBERS)
def test_intervals_move_and_stretch_with_the_scores(x, times, plus):
    w = mean_weights(len(x))
    expected = np.array(band(x[:, None], w)) * times + plus
    assert np.allclose(band(x[:, None] * times + plus, w), expected, rtol=1e-6, atol=1e-2)


def test_the_interval_of_a_point_does_not_depend_on_the_other_points():
    x = np.random.default_rng(0).normal(size=(6, 2 * BLOCK + 3))
    alone = [band(x[:, [i]], iqm_weights(6)) for i in range(x.shape[1])]
    assert np.allclose(band(x, iqm_weights(6)), np.concatenate(alone, axis=1), rtol=1e-12)
    assert [len(end) for end in band(x[:, :0], iqm_weights(6))] == [0, 0]


def test_for_the_mean_the_interval_is_that_of_student():
    random = np.random.default_rng(0)
    for n in (3, 5, 10, 30):
        x = random.normal(size=(n, 60))
        low, high = band(x, mean_weights(n))
        expected = 2 * student(n - 1) * x.std(0, ddof=1) / np.sqrt(n)
        assert np.mean((high - low) / expected) == pytest.approx(1.0, abs=0.06)


def test_one_seed_has_no_interval():
    assert stratified([np.array([1.0, 2.0]), np.array([3.0])], aggregate.pooled_iqm) is None
    curve = summarise_seeds(np.ones((1, 4)))
    assert curve.low is None and curve.iqm_low is None


@pytest.mark.parametrize("n", [2, 5, 20])
def test_the_interval_of_a_mean_over_episodes_holds_what_it_claims(n):
    random = np.random.default_rng(n)
    ends = np.array([mean_interval(random.normal(0, 1, n)) for _ in range(400)])
    held = np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400) <= held <= 0.985
    assert mean_interval(np.ones(n)) is None and mean_interval(np.ones(1)) is None


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("weights", [mean_weights, iqm_weights])
def test_intervals_of_few_seeds_hold_what_they_claim(n, weights):
    """95 %, where scores lie as in a bell; the percentile bootstrap falls short by up to a fifth."""
    percentile, ours = coverage(SHAPES["bell"], n, weights(n), truth=0.0, studies=500)
    three_deviations = 3 * np.sqrt(0.95 * 0.05 / 500)
    assert 0.95 - three_deviations <= ours <= 0.985
    assert percentile <= ours - 0.02 and (n > 3 or percentile < 0.8)


def test_wins_and_shares_of_few_runs_hold_what_they_claim():
    random = np.random.default_rng(0)
    x, y = random.normal(1.2, 1, (1000, 5)), random.normal(0, 1, (1000, 5))
    wins = (x[:, :, None] > y[:, None, :]).mean((1, 2))
    low, high = wins_interval(wins, 5, 5)
    truth = 0.8019  # of a normal of 1.2 / sqrt(2)
    assert 0.925 <= np.mean((low <= truth) & (truth <= high)) <= 0.985
    shares = random.binomial(5, (0.5, 0.7, 0.9), (1000, 3)).T / 5
    _, low, high = mean_of_shares(shares, *share_interval(shares, 5))
    assert 0.925 <= np.mean((low <= 0.7) & (high >= 0.7)) <= 0.99


@pytest.mark.parametrize("truth", [(0.02, 0.02), (0.2, 0.2), (0.3, 0.1), (0.45, 0.0), (0.0, 0.0)])
@pytest.mark.parametrize("n", sampled([20, 100], 20))
def test_differences_of_pairs_hold_what_they_claim(truth, n):
    random = np.random.default_rng(0)
    counts = random.multinomial(n, [*truth, 1 - sum(truth)], 400)[:, :2] / n
    ends = [paired_interval(lost, won, n) for lost, won in counts]
    held = [low <= truth[0] - truth[1] <= high for low, high in ends]
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)  # three deviations of so many studies
    assert all(low <= lost - won <= high for (low, high), (lost, won) in zip(ends, counts, strict=True))
    assert np.mean([high - low for low, high in ends]) < 6 / np.sqrt(n) * np.sqrt(max(sum(truth), 3 / n))


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1))
def test_intervals_of_shares_stay_between_0_and_1_and_are_mirrored(n, m, share):
    for bounds in (lambda p: share_interval(p, n), lambda p: wins_interval(p, n, m)):
        low, high = bounds(np.array(share))
        assert 0 <= low <= share + 1e-9 and share - 1e-9 <= high <= 1
        mirrored = bounds(np.array(1 - share))
        assert close([1 - high, 1 - low], mirrored)


def test_runs_that_all_won_leave_doubt():
    low, high = wins_interval(np.array(1.0), 3, 3)
    assert 0.4 < low < 0.6 and high == 1


@pytest.mark.parametrize("distinct", [1, 2, 300, 5000, 50_001])
@pytest.mark.parametrize("special", [0.0, np.inf, -np.inf, np.nan])
def test_ends_are_those_of_all_draws_in_order(distinct, special):
    random = np.random.default_rng(distinct)
    values = np.round(random.normal(size=(4, distinct)), 2)  # some are equal
    values[random.random(values.shape) < 0.04] = special
    times = random.multinomial(50_001 - distinct, np.full(distinct, 1 / distinct)) + 1.0
    draws = np.sort(np.repeat(values, times.astype(int), axis=1), axis=1)  # NaN last
    low, high = quantiles(values, times)
    np.testing.assert_array_equal(low, draws[:, 1250])
    np.testing.assert_array_equal(high, draws[:, 48_750])


# Beside rliable -------------------------------------------------------------------------------

GOLDEN_SCORES = {name: np.array(x) for name, x in GOLDEN["scores"].items()}


@pytest.mark.parametrize("model", GOLDEN_SCORES)
def test_interquartile_means_and_percentiles_are_those_of_rliable(model):
    scores = GOLDEN_SCORES[model]
    ((mine,),) = [aggregate.pooled_iqm([x[None] for x in scores.T])]
    assert mine == pytest.approx(GOLDEN["iqm"][model], abs=1e-12)
    low, high = GOLDEN["iqm percentiles"][model]
    # Both have 50,000 resamples: the ends are known to about 1 % of the width.
    assert percentiles(list(scores.T), aggregate.pooled_iqm) == pytest.approx(
        (low, high), abs=0.02 * (high - low)
    )


def test_profiles_and_improvement_are_those_of_rliable():
    strata = {name: list(scores.T) for name, scores in GOLDEN_SCORES.items()}
    for profile in aggregate.profiles(strata, np.array(GOLDEN["taus"])):
        np.testing.assert_allclose(profile.share, GOLDEN["profiles"][profile.label], atol=1e-12)
    both = list(zip(*strata.values(), strict=True))
    assert aggregate.improvement(both)[0] == pytest.approx(GOLDEN["improvement"], abs=1e-12)


# Curves ---------------------------------------------------------------------------------------

LINES = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        arrays(float, n, elements=st.floats(1, 100)).map(np.cumsum),
        arrays(float, n, elements=st.one_of(NUMBERS, st.just(np.nan))),
    )
)


@given(LINES, st.integers(2, 40))
def test_resampling_stays_within_what_is_known(line, points):
    x, y = line
    grid = np.linspace(0, x[-1] + 10, points)
    got = resample(x, y, grid)
    known = np.isfinite(y)
    inside = (grid >= x[known].min()) & (grid <= x[known].max()) if known.any() else np.zeros(points, bool)
    assert (np.isfinite(got) == inside).all()
    if inside.any():
        assert y[known].min() - 1e-6 <= got[inside].min() and got[inside].max() <= y[known].max() + 1e-6


@given(LINES)
def test_resampling_at_its_own_points_changes_nothing(line):
    x, y = line
    known = np.isfinite(y)
    np.testing.assert_allclose(resample(x, y, x)[known], y[known], rtol=1e-9, atol=1e-6)


def test_resampling_a_straight_line_gives_a_straight_line():
    x = np.array([0.0, 1.0, 7.0, 10.0])
    np.testing.assert_allclose(resample(x, 3 * x + 1, np.linspace(0, 10, 41)), 3 * np.linspace(0, 10, 41) + 1)


@given(arrays(float, st.tuples(st.integers(2, 6), st.integers(1, 8)), elements=NUMBERS), st.randoms())
def test_a_curve_is_between_its_seeds_whatever_their_order(values, order):
    curve = summarise_seeds(values)
    assert (curve.low - 1e-6 <= curve.mean).all() and (curve.mean <= curve.high + 1e-6).all()
    assert (curve.low - 1e-6 <= curve.iqm).all() and (curve.iqm <= curve.high + 1e-6).all()
    mixed = summarise_seeds(np.array(order.sample(list(values), len(values))))
    for one, other in zip(vars(curve).values(), vars(mixed).values(), strict=True):
        assert close(one, other)


def series(steps, returns, **others):
    columns = {"step": steps, "time": np.asarray(steps) / 10, "return": returns, **others}
    return {key: np.asarray(column, dtype=float) for key, column in columns.items()}


def test_seeds_share_a_grid_and_are_drawn_where_all_are_known():
    seeds = [series([10, 20, 30, 40], [1, 2, 3, 4]), series([20, 30, 40, 50], [np.nan, 5, 6, 7])]
    ((panel),) = curves.panels([SeedSeries("E", "m", "finished", seeds)])
    grid, curve = panel.grids["step"], panel.lines[0].curves["return"]["step"]
    assert (grid[0], grid[-1]) == (10, 50) and panel.grids["time"][-1] == 5
    assert (np.isfinite(curve.mean) == ((grid >= 30) & (grid <= 40))).all()
    there = np.isfinite(curve.mean)
    np.testing.assert_allclose(curve.mean[there], (grid[there] / 10 + grid[there] / 10 + 2) / 2)
    assert "success" not in panel.lines[0].curves


def test_many_curves_have_fewer_points():
    tracks = [SeedSeries("E", str(i), "finished", [series([1, 2], [1, 2])]) for i in range(100)]
    assert len(curves.panels(tracks)[0].grids["step"]) == 40


def test_the_band_of_a_bounded_metric_stays_within_its_range():
    shares = [0.7, 0.9, 1.0, 1.0]
    seeds = [series([10, 20], [x, x], success=[x, x], explained_variance=[x, x]) for x in shares]
    (line,) = curves.panels([SeedSeries("E", "m", "finished", seeds)])[0].lines
    assert line.curves["return"]["step"].iqm_high.max() > 1  # the control: a return has no largest value
    for metric in ("success", "explained_variance"):
        curve = line.curves[metric]["step"]
        assert curve.iqm_high.max() == 1 and (curve.iqm_low < curve.iqm).all()
    low = [series([10, 20], [1 - x, 1 - x], success=[1 - x, 1 - x]) for x in shares]
    (line,) = curves.panels([SeedSeries("E", "m", "finished", low)])[0].lines
    assert line.curves["success"]["time"].iqm_low.min() == 0


# Models beside each other ---------------------------------------------------------------------


def final(label, scores, env="E", source="return"):
    x = np.array(scores, dtype=float)
    interval = Interval(x.min(), x.max()) if len(x) > 1 else None
    seeds = tuple(range(1, len(x) + 1))
    mean = float(x.mean())
    return FinalScores(env, label, source, seeds, x, mean, iqm(x), interval, interval, mean)


@given(SCORES, SCORES)
def test_winning_and_losing_are_opposites(x, y):
    assert aggregate.win_share(x, y) + aggregate.win_share(y, x) == pytest.approx(1)
    assert aggregate.win_share(x, x) == pytest.approx(0.5)
    by_hand = np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y])
    assert aggregate.win_share(x, y) == pytest.approx(by_hand)


@given(SCORES, SCORES)
def test_a_difference_has_the_better_first_and_its_interval_around_it(x, y):
    ends = [final("a", x, "E"), final("b", y, "E")]
    ((d),) = aggregate.model_differences(ends)
    assert d.by >= 0 and d.interval.low <= d.by + 1e-6 and d.by <= d.interval.high + 1e-6
    assert d.by == pytest.approx(abs(x.mean() - y.mean()))


def test_scores_are_normalised_between_the_low_end_and_the_best_run():
    scale = Scale("E", low=10.0, high=30.0, low_is="random", high_is="best")
    np.testing.assert_allclose(scale.normalised(np.array([10.0, 20.0, 30.0])), [0, 0.5, 1])
    flat = Scale("E", low=10.0, high=10.0, low_is="worst", high_is="best")
    np.testing.assert_allclose(flat.normalised(np.array([10.0])), [0])


def test_equal_scores_are_equal_however_their_sums_were_rounded():
    """100 episodes of 3.2 have a mean of 3.2 but for the last digits, which depend on their order."""

    def group(label, means):
        runs = [
            Run(Path(), {"seed": seed}, {"status": "finished"}, {}, {"mean": mean, "success": None})
            for seed, mean in enumerate(means, 1)
        ]
        return Group("E", label, {}, runs)

    below, above = 3.1999999999999926, 3.199999999999993
    ends, _ = scores.final_scores([group("a", [below, above, above]), group("b", [above, below, below])])
    assert aggregate.win_share(*(one.scores for one in ends)) == 0.5
    (difference,) = aggregate.model_differences(ends)
    assert difference.by == 0 and difference.interval == Interval(0, 0)
    assert scores.rounded(1e-17) == 0 and scores.rounded(3.2e-5) == 3.2e-5
    ends, _ = scores.final_scores([group("a", [below]), group("b", [above])])
    (scale,) = scores.scales(ends, {"E": {"mean": below}})
    assert scale.low_is == "worst"


def test_a_scale_begins_at_random_only_where_some_run_is_better():
    ends = [final("good", [-155, -150]), final("bad", [-400, -390])]
    for chance, low, low_is in ((-100.0, -400.0, "worst"), (-450.0, -450.0, "random")):
        (scale,) = scores.scales(ends, {"E": {"mean": chance}})
        assert (scale.low, scale.high, scale.low_is) == (low, -150.0, low_is)


@pytest.mark.parametrize("random", [{}, {"LunarLander-v3": {"mean": 220.0}}])
def test_a_scale_is_not_reversed_where_every_run_is_above_the_reference(random):
    (scale,) = scores.scales(
        [final("a", [230, 250], "LunarLander-v3"), final("b", [270], "LunarLander-v3")], random
    )
    assert scale.normalised(np.array([270.0])) > scale.normalised(np.array([230.0]))
    assert scale == Scale("LunarLander-v3", 230.0, 270.0, "worst", "best")


def test_only_models_of_all_environments_are_aggregated():
    ends = [final("a", [0, 1], "E"), final("a", [2, 3], "F"), final("b", [1, 1], "E")]
    scales = [Scale(env, 0.0, 4.0, "worst", "best") for env in "EF"]
    strata = aggregate.complete_strata(ends, scales)
    assert list(strata) == ["a"]
    (mine,) = aggregate.aggregate_scores(strata)
    assert mine.mean == pytest.approx(1.5 / 4) and mine.seeds == 4


@given(st.lists(SCORES, min_size=1, max_size=3))
def test_profiles_fall_from_all_runs_to_none(strata):
    scale = Scale("E", min(x.min() for x in strata), max(x.max() for x in strata), "worst", "best")
    scaled = [scale.normalised(x) for x in strata]
    grid = aggregate.profile_grid({"a": scaled})
    (profile,) = aggregate.profiles({"a": scaled}, grid)
    assert (np.diff(profile.share) <= 1e-12).all()
    assert (profile.low <= profile.share + 1e-9).all() and (profile.share <= profile.high + 1e-9).all()


def test_thresholds_are_the_target_or_most_of_the_way():
    tracks = [SeedSeries("E", "m", "finished", [series([1, 2, 3], [np.nan, 0, 100])])]
    assert efficiency.thresholds(tracks, [], {})[0].value == pytest.approx(90)
    assert efficiency.thresholds(tracks, [], {"E": {"mean": -100.0}})[0].value == pytest.approx(80)
    above = efficiency.thresholds(tracks, [], {"E": {"mean": 200.0}})[0]
    assert (above.value, above.kind) == (pytest.approx(90), "lowest")


def test_a_seed_that_never_arrives_is_later_than_all():
    seeds = [series([10, 20, 30], [0, 50, 100]), series([10, 20, 30], [0, 0, 10])]
    tracks = [SeedSeries("E", "m", "finished", seeds)]
    threshold = efficiency.Threshold("E", 50.0, "target")
    ((item),) = efficiency.efficiencies(tracks, [threshold])
    assert item.steps.tolist() == [20, np.inf] and item.seconds.tolist() == [2, np.inf]
    assert item.reached == 1 and item.pace == pytest.approx(10)


def test_unfinished_runs_are_in_no_efficiency():
    """They may reach the threshold yet, so "not reached" would count against them."""
    tracks = [
        SeedSeries("E", "m", "finished", [series([10, 20], [0, 50])]),
        SeedSeries("E", "begun", "unfinished", [series([10], [0])]),
    ]
    assert [
        item.label for item in efficiency.efficiencies(tracks, efficiency.thresholds(tracks, [], {}))
    ] == ["m"]
    assert efficiency.thresholds(tracks[1:], [], {}) == []


# Words ----------------------------------------------------------------------------------------


def verdict_text(*finals: FinalScores) -> str:
    """The verdict over finals, as one text."""
    ends = list(finals)
    scales = [Scale(env, 0.0, 1.0, "worst", "best") for env in {f.env for f in ends}]
    overall = aggregate.aggregate_scores(aggregate.complete_strata(ends, scales))
    ranked = [item.label for item in overall]
    improvements = aggregate.improvements(ends, ranked) if len(scales) > 1 else []
    family = aggregate.Family(aggregate.model_differences(ends), improvements).adjusted()
    statements = verdict.verdict(ends, overall, family)
    return " ".join(f"{statement.about}: {statement.text}" for statement in statements)


def test_a_clear_difference_is_called_one():
    text = verdict_text(final("a", [9, 10, 11, 10, 10]), final("b", [1, 2, 3, 2, 2]))
    assert "a has the highest mean, 10" in text and "It is better than b (8 lower" in text


def test_better_is_about_distributions_and_names_the_failures_that_may_be_unseen():
    """A steady model that beats one whose runs vary may fail as often as few seeds cannot show."""
    text = verdict_text(final("a", [10.0] * 5), final("b", [1, 2, 3, 2, 2]))
    assert "means may be equal through rare failures that no run showed" in text
    assert "If none of 5 seeds fails, with 95 % confidence at most 45 % of further seeds do." in text
    assert "rare failures" not in verdict_text(final("a", [1, 2, 3, 2, 2]), final("b", [1, 2, 3, 2, 1]))
    three = verdict_text(
        *(final(label, x) for label, x in zip("abc", ([9, 10, 11], [1, 2, 3], [1, 2, 3]), strict=True))
    )
    assert "If no models differ in the distribution of their scores, at most one verdict in 20" in three


def test_a_model_whose_bad_runs_fail_is_not_called_better():
    """Both learn with half of the seeds; bad runs of a end, those of b fail, so b has the higher mean."""
    good, bad = np.arange(90.0, 100.0), np.arange(10.0)
    a = final("a", np.concatenate([good, bad]))
    b = replace(final("b", good + 1), failed=tuple(range(11, 21)))
    (difference,) = aggregate.model_differences([a, b])
    assert (difference.better, difference.failed) == ("b", 10)
    # It wins all pairs with bad runs of a, half of those with good ones by its good ones, and none otherwise.
    above = np.mean([(x > y) + 0.5 * (x == y) for x in good + 1 for y in good])
    assert difference.wins == pytest.approx(0.25 * above + 0.25)
    assert not difference.differs
    text = verdict_text(a, b)
    assert "b has the highest mean" in text and "better than" not in text
    assert "Failed, and so in no mean, but below all scores in tests: 10 of 20 runs of b." in text
    (improvement,) = aggregate.improvements([a, b], ["a", "b"])
    assert improvement.probability == pytest.approx(1 - difference.wins)
    # Without a failed run means are tested; where the rank test speaks for the other model, none is better.
    assert aggregate.model_differences([a, final("b", good + 1)])[0].p == pytest.approx(
        significance.compare_means(good + 1, a.scores)
    )
    few = replace(final("b", [200.0]), failed=tuple(range(2, 21)))
    (difference,) = aggregate.model_differences([final("a", good), few])
    assert difference.better == "b" and difference.p < 0.05 and not difference.differs


def test_a_model_that_wins_only_because_its_bad_runs_failed_is_said_to_lose():
    """One seed in twenty reaches 200 and the others fail: nearly every run of a is better."""
    few = replace(final("b", [200.0]), failed=tuple(range(2, 21)))
    text = verdict_text(final("a", np.arange(90.0, 100.0)), few)
    assert "b has the highest mean, 200" in text
    assert (
        "But with failed runs counted, a run of it is more likely to lose against one of a (P = 0.95" in text
    )
    assert "no detectable difference" not in text and "better than" not in text


def test_one_run_and_one_that_failed_are_no_error():
    one = replace(final("a", [1.0]), failed=(2,))
    assert "too few seeds" in verdict_text(one, replace(final("b", [2.0]), failed=(2,)))


def test_a_model_of_which_every_run_failed_is_named():
    good = final("a", [1.0, 2.0, 3.0])
    lost = SimpleNamespace(env="E", label="bad", failed=(1, 2, 3))
    (statement, *_) = verdict.verdict([good], [], aggregate.Family([], []), [lost])
    assert statement.text.endswith("No run has a score, and some failed, of bad.")


def test_equal_seeds_of_both_models_give_no_interval_of_a_difference():
    text = verdict_text(final("a", [1.0] * 5), final("b", [1.0] * 5))
    assert "b (0 lower)" in text and "0 to 0" not in text


def reaching(label: str, kind: str, *ends: tuple[float, float]) -> efficiency.Efficiency:
    """Of seeds with so many steps, the steps to the threshold; infinite if they do not reach it."""
    steps = [[1.0, *sorted({at, end} - {np.inf})] for at, end in ends]
    seeds = [series(x, np.greater_equal(x, at)) for x, (at, _) in zip(steps, ends, strict=True)]
    tracks = [SeedSeries("E", label, kind, seeds)]
    ((item),) = efficiency.efficiencies(tracks, [efficiency.Threshold("E", 1.0, "target")])
    assert item.steps.tolist() == [at for at, _ in ends]
    return item


def p_values(*items: efficiency.Efficiency) -> list[float]:
    """p of equal steps, and of equally many seeds that reach the threshold."""
    ((_, _, sooner, oftener),) = efficiency_section._test_table("E", items).rows
    return [float(sooner), float(oftener)]


@pytest.mark.parametrize("kind", ["finished", "imported"])
def test_a_run_with_fewer_steps_has_not_failed_to_reach_the_threshold_later(kind):
    slow = reaching("slow", "finished", *[(9e5, 1e6)] * 5)
    assert min(p_values(slow, reaching("short", kind, *[(np.inf, 1e5)] * 5))) > 0.5
    assert max(p_values(slow, reaching("long", kind, *[(np.inf, 1e6)] * 5))) < 0.5


def test_runs_that_end_at_the_threshold_have_all_reached_it():
    """As with ppo.target_return: the seed that ends first sets no limit to the others."""
    ends = reaching("ends", "finished", *[(at, at) for at in (1e4, 2e4, 3e4, 4e4, 5e4)])
    assert max(p_values(ends, reaching("never", "finished", *[(np.inf, 1e6)] * 5))) < 0.05


def test_returns_that_fall_have_no_threshold():
    tracks = [SeedSeries("E", "a", "finished", [series([1, 2, 3], [10.0, 8.0, 5.0])] * 2)]
    assert efficiency.thresholds(tracks, [], {}) == []


@pytest.mark.parametrize("value", [-200.0, 0.1])
def test_returns_that_stay_the_same_have_no_threshold(value):
    """As where no run ever reaches the goal: every seed would have reached it before it learned anything."""
    tracks = [SeedSeries("E", "a", "finished", [series([1, 2, 3], [value] * 3)] * 3)]
    assert efficiency.thresholds(tracks, [], {}) == []
    assert efficiency.thresholds(tracks, [], {"E": {"mean": value}}) == []


def test_a_failed_run_never_reached_the_threshold():
    runs = [
        Run(Path(), {"seed": seed}, {"status": status}, series([10, 20], [0, 60]), None)
        for seed, status in enumerate(["finished", "failed", "SIGINT"], 1)
    ]
    group = Group("E", "m", {}, runs)
    assert group.failed == (2,)
    (item,) = efficiency.efficiencies(
        [curves.seed_series(group)], [efficiency.Threshold("E", 50.0, "target")]
    )
    np.testing.assert_equal(item.steps, [20, np.inf])
    assert item.reached == 1 and np.isinf(item.seconds[1])


def test_three_seeds_show_no_difference():
    text = verdict_text(final("a", [9, 10, 11]), final("b", [1, 2, 3]))
    assert "There are too few seeds to compare it with b (8 lower" in text and "no detectable" not in text
    assert "3 seeds per model are too few to find a difference in one environment" in text
    assert "p-value is 0.10, and 0.10 after the adjustment. Use at least 4 seeds per model" in text
    text = verdict_text(*(final(label, [1, 2, 3]) for label in "abc"))
    assert "With fewer than 5 seeds the intervals assume normally distributed scores" in text
    assert "and 0.30 after the adjustment. Use at least 5 seeds" in text


def test_failed_runs_count_as_seeds_where_too_few_are_named():
    """They are in the tests, so three scores and seven failed runs are ten seeds."""
    text = verdict_text(final("a", [9, 10, 11]), replace(final("b", [1.0]), failed=tuple(range(2, 11))))
    assert "It is better than b" in text and "too few" not in text
    one = [replace(final(label, [score]), failed=(2, 3)) for label, score in (("a", 1.0), ("b", 2.0))]
    assert "too few seeds to compare it with a" in verdict_text(*one)
    assert "1 seeds" not in verdict_text(*one)
    # The rank test, which pairs with failed runs have, has the same p-value for the opposite order of groups
    # of any sizes: 2 in 35, and not 1 in 35 as the permutation test of means.
    text = verdict_text(final("a", [9, 10, 11]), replace(final("b", [1, 2, 3]), failed=(4,)))
    assert "too few seeds to compare it with b" in text and "no detectable difference" not in text


def test_the_text_on_differences_says_which_test_pairs_with_failed_runs_have():
    a, b = final("a", [9, 10, 11]), final("b", [1, 2, 3])
    for failed in ((), (4,)):
        pairs = aggregate.model_differences([a, replace(b, failed=failed)])
        content = SimpleNamespace(differences=pairs, finals=[a, b], envs=["E"])
        text, *_ = score_sections.difference_blocks(content)
        assert ("Where a run of a pair failed, p is that of the rank test" in text.text) == bool(failed)


def test_equal_scores_below_the_reference_are_no_ceiling():
    """Without a memory, seeds that always turn left succeed in the same share of the episodes."""
    for env, source, score, said in (
        ("E", "success", 0.53, False),
        ("E", "success", 1.0, True),
        ("MountainCarContinuous-v0", "return", 0.0, False),
        ("MountainCarContinuous-v0", "return", 95.0, True),
        ("E", "return", 0.53, True),
    ):
        ends = [final("a", [score] * 3, env, source), final("b", [score - 0.5] * 3, env, source)]
        assert bool(list(score_sections._ceiling(ends))) == said


def test_four_seeds_give_a_hint():
    text = verdict_text(final("a", [9, 10, 11, 12]), final("b", [1, 2, 3, 4]))
    assert "It is better than b" in text and "This is only a hint: use at least 5 seeds" in text
    assert "too few to find" not in text


def test_three_and_four_seeds_are_better_or_too_few_and_not_both():
    text = verdict_text(final("a", [9, 10, 11, 12]), final("b", [1, 2, 3]))
    assert "It is better than b" in text and "too few seeds to compare it with" not in text


def test_models_that_need_more_seeds_for_any_difference_are_told_how_many():
    models = [final(label, np.arange(5) + 100.0 * place) for place, label in enumerate("abcdef")]
    text = verdict_text(*models)
    assert "There is no detectable difference" in text and "Use at least 6 seeds per model" in text
    more = [final(model.label, np.append(model.scores, model.mean)) for model in models]
    assert "It is better than e" in verdict_text(*more) and "too few to find" not in verdict_text(*more)


def test_no_detectable_difference_is_said():
    text = verdict_text(final("a", [4, 10, 16, 9, 12]), final("b", [3, 9, 15, 8, 11]))
    assert "There is no detectable difference from b (1 lower" in text


def test_one_seed_shows_nothing():
    text = verdict_text(final("a", [9]), final("b", [1]))
    assert "There are too few seeds to compare it with b (8 lower)" in text
    text = verdict_text(
        *(final(label, [score], env) for label, score in (("a", 9), ("b", 1)) for env in "EF")
    )
    assert "no detectable difference" not in text and "test" not in text
    assert text.count("There are too few seeds to compare it with b") == 3


def test_an_environment_with_one_seed_leaves_the_overall_test_out():
    ends = [
        final(label, base + np.arange(10 if label == "a" or env != "G" else 1), env)
        for label, base in (("a", 100.0), ("b", 0.0))
        for env in "EFG"
    ]
    _, _, overall = verdict_text(*ends).partition("All 3 environments")
    assert "There are too few seeds to compare it with b." in overall and "no detectable" not in overall


def test_of_many_models_only_the_first_are_named():
    text = verdict_text(*(final(f"m{i}", [i]) for i in range(40)))
    assert "m38 (1 lower), " in text and "m34 (5 lower) and 34 others." in text and "m33" not in text


def test_one_model_is_compared_with_nothing():
    assert "There is no other model to compare it with" in verdict_text(final("a", [9, 10]))
    assert "no verdict" in verdict_text()


def test_several_environments_are_summed_up_and_many_comparisons_are_a_warning():
    ends = [
        final(label, np.array([0.4, 0.5, 0.6, 0.5, 0.5]) + skill, env)
        for env in "EF"
        for label, skill in zip("abcd", (0.3, 0.29, 0.1, 0.0), strict=True)
    ]
    text = verdict_text(*ends)
    assert "All 2 environments: a has the highest normalised interquartile mean" in text
    assert "A run of it is more likely to win than to lose against a run of c" in text
    assert "There is no detectable difference from b" in text
    assert "all 18 tests" in text  # 6 pairs in 2 environments, and over both


def test_a_model_that_loses_most_pairs_is_not_called_equal():
    """The best by the interquartile mean may still be the one that mostly loses."""
    against = [aggregate.Improvement("x", "y", 0.4, Interval(0.34, 0.47), 0.01, 3)]
    ranked = [aggregate.Aggregate(label, 9, 0.5, iqm, None, None) for label, iqm in (("x", 0.6), ("y", 0.5))]
    ends = [final(label, [1, 2, 3], env) for label in "xy" for env in "EF"]
    over_all = verdict.verdict(ends, ranked, aggregate.Family([], against))[-2].text
    assert "But a run of it is more likely to lose against a run of y (P = 0.40, 0.34 to 0.47)" in over_all
    assert "no detectable difference" not in over_all


def test_a_pair_of_fewer_environments_says_so():
    """A model without a score in one environment is compared in the others, below the title of all."""
    good, bad = [9, 10, 11, 10, 10], [1, 2, 3, 2, 2]
    ends = [final("a", good, "E"), final("a", good, "F"), final("b", bad, "E"), final("b", bad, "F")]
    ends.append(final("c", bad, "E"))
    overall = aggregate.aggregate_scores(aggregate.complete_strata(ends, scores.scales(ends, {})))
    family = aggregate.Family([], aggregate.improvements(ends, ["a", "b", "c"])).adjusted()
    (text,) = [s.text for s in verdict.verdict(ends, overall, family) if s.about == "All 2 environments"]
    assert re.search(r"run of b \(P = 1.00, [^)]*1.00\) and c \(P = 1.00, [^)]*; in 1 of them\)", text)


def test_unequal_shares_of_runs_weight_environments_differently():
    """Both models score 1 in one environment and 0 in the other; only their numbers of seeds differ."""

    def ends(*seeds: tuple[int, int]) -> list[FinalScores]:
        models = list(zip("ab", seeds, strict=True))
        return [final(x, [1.0] * n, "E") for x, (n, _) in models] + [
            final(x, [0.0] * n, "F") for x, (_, n) in models
        ]

    def note(found: list[FinalScores], partial: set[str]) -> bool:
        return "weights an environment by its runs" in " ".join(summary._notes([], found, partial))

    unequal = ends((10, 5), (5, 10))
    scales = [Scale(env, 0.0, 1.0, "worst", "best") for env in "EF"]
    a, b = aggregate.aggregate_scores(aggregate.complete_strata(unequal, scales))
    assert a.mean == b.mean and a.iqm > 0.8 and b.iqm < 0.2
    assert note(unequal, set())
    assert not note(unequal, {"b"})
    assert not note(ends((10, 5), (4, 2)), set())


@pytest.mark.parametrize("shape", sampled(["bell", "one in ten fails"], "one in ten fails"))
def test_verdicts_on_equal_models_rarely_name_a_difference(shape):
    """Six equal models, ten seeds: one pair in twenty would be called different in most verdicts."""
    errors = family_errors(SHAPES[shape], models=6, seeds=10, studies=120)
    assert errors.report <= 0.08
    assert errors.single > 3 * errors.report or shape != "bell"  # the control: the adjustment matters


def test_three_seeds_that_succeed_or_fail_name_no_difference():
    """Groups without spread, three failures and three successes, get p = 0 by Welch's test."""
    errors = family_errors(SHAPES["half fail"], models=6, seeds=3, studies=60)
    assert errors.report == 0
    assert errors.welch > 0.1  # the control


@pytest.mark.thorough
def test_verdicts_over_several_environments_rarely_name_a_difference():
    errors = family_errors(SHAPES["bell"], models=4, seeds=5, studies=100, envs=3)
    assert errors.report <= 0.1 < 0.3 < errors.single


def test_ten_seeds_still_show_a_difference():
    """The exact test costs little: two standard deviations, six models."""
    by_welch, report = power(SHAPES["bell"], lambda r, n: r.normal(2, size=n), models=6, seeds=10, studies=60)
    assert 0.75 < report <= by_welch < report + 0.1


def test_seeds_that_are_all_equal_get_a_bound():
    text = verdict_text(final("a", [500.0] * 10), final("b", [400.0, 420.0, 380.0, 410.0, 405.0] * 2))
    assert "500 (all 10 seeds are equal; with 95 % confidence, at most 26% of further seeds differ" in text


def test_success_stays_a_share():
    wide = weighted_mean_interval(np.array([0.7, 0.9, 1.0, 1.0]), mean_weights(4), (0.0, 1.0))
    assert wide.high == 1.0 and wide.low < 0.9


# Tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "p"),
    [  # of scipy 1.17.1, ttest_ind with equal_var=False
        ([1, 2, 3, 4, 5], [2, 3, 4, 5, 6], 0.346594),
        ([10, 11, 9, 10], [14, 20, 17, 11, 13], 0.031961),
        ([1, 1, 1], [1, 1, 1], 1.0),
        ([1, 1, 1], [2, 2, 2], 0.0),
    ],
)
def test_welch(x, y, p):
    assert significance.welch(np.array(x, float), np.array(y, float)) == pytest.approx(p, abs=2e-5)


@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=4), st.lists(st.integers(0, 20), min_size=2, max_size=5)
)
def test_the_permutation_test_counts_all_ways_to_deal(x, y):
    pooled, places = np.array([*x, *y]) / 7, range(len(x) + len(y))
    masks = [np.isin(places, chosen) for chosen in itertools.combinations(places, len(x))]
    by = [abs(pooled[mask].mean() - pooled[~mask].mean()) for mask in masks]
    expected = np.mean(np.array(by) >= by[0] - 1e-9)
    got = significance.permutation_test(pooled[: len(x)], pooled[len(x) :])
    assert got == pytest.approx(expected)
    assert got == pytest.approx(significance.permutation_test(pooled[len(x) :], pooled[: len(x)]))


def test_the_permutation_test_of_many_seeds_is_that_of_welch():
    random = np.random.default_rng(0)
    for n, by in ((10, 1.0), (20, 0.7), (30, 0.6)):
        x, y = random.normal(by, 1, n), random.normal(0, 1, n)
        expected = significance.welch(x, y)
        assert significance.permutation_test(x, y) == pytest.approx(expected, rel=0.4, abs=1e-3)


@given(SCORES, SCORES)
def test_the_p_of_a_difference_is_the_larger_one(x, y):
    p = significance.compare_means(x, y)
    assert p == max(significance.welch(x, y), significance.permutation_test(x, y))
    assert significance.smallest_p(len(x), len(y)) * (1 - 1e-9) <= p <= 1


def test_the_smallest_p_is_that_of_separate_groups():
    for n, m in ((3, 3), (5, 5), (10, 10), (3, 4), (2, 5)):
        separate = significance.permutation_test(np.arange(n) + 100.0, np.arange(m) + 0.0)
        assert significance.smallest_p(n, m) == pytest.approx(separate)
    assert np.isnan(significance.compare_means(np.ones(1), np.ones(3)))


def test_fisher_is_that_of_scipy():
    assert significance.fisher(3, 10, 0, 10) == pytest.approx(0.210526, abs=1e-6)
    assert significance.fisher(3, 10, 0, 20) == pytest.approx(0.029557, abs=1e-6)
    assert significance.fisher(0, 10, 0, 10) == 1.0


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=4), st.lists(st.integers(0, 4), min_size=2, max_size=4)
)
def test_mann_whitney_counts_all_ways_to_deal(x, y):
    """Against every way to deal the same numbers out; 4 stands for a run that never got there."""
    x, y = ([np.inf if value == 4 else float(value) for value in side] for side in (x, y))

    def away(first, second):
        return abs(
            sum((a > b) + 0.5 * (a == b) for a in first for b in second) - len(first) * len(second) / 2
        )

    pooled = [*x, *y]
    deals = list(itertools.combinations(range(len(pooled)), len(x)))
    split = [([pooled[i] for i in d], [pooled[i] for i in range(len(pooled)) if i not in d]) for d in deals]
    expected = np.mean([away(*pair) >= away(x, y) for pair in split])
    assert significance.mann_whitney(x, y) == pytest.approx(expected)


def test_the_rank_test_counts_all_ways_to_deal_in_every_stratum():
    random = np.random.default_rng(0)
    for _ in range(5):
        sizes = ((3, 4), (2, 3))
        strata = [tuple(np.round(random.normal(by, 1, n)) for by, n in enumerate(pair)) for pair in sizes]
        deals = []
        for x, y in strata:
            pooled, places = np.concatenate([x, y]), range(len(x) + len(y))
            masks = [np.isin(places, chosen) for chosen in itertools.combinations(places, len(x))]
            deals.append([aggregate.win_share(pooled[mask], pooled[~mask]) - 0.5 for mask in masks])
        observed = abs(np.mean([aggregate.win_share(x, y) - 0.5 for x, y in strata]))
        expected = np.mean([abs(np.mean(deal)) >= observed - 1e-12 for deal in itertools.product(*deals)])
        assert significance.rank_test(strata) == pytest.approx(expected)


def test_rounded_steps_of_the_rank_test_never_make_a_difference_more_certain(monkeypatch):
    random = np.random.default_rng(1)
    for shift in (0.0, 0.4, 1.0):
        strata = [
            (random.normal(shift, 1, n), random.normal(0, 1, m)) for n, m in ((5, 5), (4, 7), (3, 5), (6, 4))
        ]
        exact = significance.rank_test(strata)
        with monkeypatch.context() as rough:
            rough.setattr(significance, "FINEST", 500)
            assert exact <= significance.rank_test(strata) <= 1.1 * exact + 0.01


def test_the_rank_test_of_strata_of_many_sizes_fits_into_memory():
    """Their common denominator has 9 digits."""
    strata = [
        (np.arange(n, dtype=float), np.arange(m, dtype=float))
        for n, m in ((19, 17), (13, 11), (7, 9), (5, 16))
    ]
    assert 0.1 < significance.rank_test(strata) < 0.5


def test_the_rank_test_of_as_many_runs_as_there_may_be_is_that_of_the_normal_distribution():
    x, y = np.arange(60.0), np.arange(60.0) + 8.5
    z = (60 * 60 / 2 - aggregate.win_share(x, y) * 3600 - 0.5) / np.sqrt(60 * 60 * 121 / 12)
    assert significance.rank_test([(x, y)]) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.05)


def test_holm():
    assert significance.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = significance.holm([0.04, np.nan])
    assert adjusted[0] == pytest.approx(0.04) and np.isnan(adjusted[1])


def test_a_label_with_commas_is_quoted():
    text = verdict_text(final("a, ppo.clip 0.1", [1, 2]), final("b", [1, 1.5]))
    assert '"a, ppo.clip 0.1" has the highest mean' in text


def test_verdicts_do_not_need_the_intervals_of_their_ends():
    bare = replace(final("a", [9.0]), mean_interval=None)
    assert "a reaches 9 with 1 seed" in verdict_text(bare)
