"""Every kind of interval has a measured coverage; the measurement finds intervals that are too narrow."""

import ast
import json
from pathlib import Path

import pytest
from benchmarks.coverage import RESULTS, ROWS, kinds_table, simulate, unequal_differences, unequal_table
from benchmarks.coverage_kinds import Row, held

from benchmarks import coverage_kinds
from recollect.common.intervals import Interval, mean_weights
from recollect.reporting.scores import weighted_mean_interval

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "recollect"
# Functions of common/intervals.py from which every interval is made.
MAKERS = {
    *("band", "mean_interval", "mean_of_shares", "most_failures", "paired_interval", "ratio_interval"),
    *(
        "share_interval",
        "stratified",
        "stretched",
        "student",
        "wins_interval",
        "describe_equal",
        "one_factor",
    ),
}
# Function that calls one of them -> rows with its coverage.
MEASURED = {
    "commands/card.py: _scores": ["mean"],
    "commands/evaluate.py: _summary": ["bound of equal seeds"],
    "comparison/display.py: results": ["bound of equal seeds"],
    "probing/ablate.py: average": ["success rate"],
    "probing/ablate.py: compare": ["loss of success"],
    "probing/controls.py: _compare_mean": ["agent minus controls, by the number of controls"],
    "probing/controls.py: exceeded": ["one more control, from above, by the number of controls"],
    "probing/controls.py: interval_over_runs": ["agent minus controls, by the number of controls"],
    "probing/critic.py: _over_episodes": [
        "explained variance of values, loss",
        "squared correlation of values, loss",
    ],
    "probing/linear.py: _over_draws": ["gain of a read-out", "read-out beyond chance"],
    "probing/linear.py: _over_episodes": [
        "gain of a read-out",
        "read-out beyond the observation",
        "read-out beyond chance",
    ],
    "probing/memory_length.py: measure_length": ["steps of memory, score", "steps of memory, policy"],
    "probing/open_loop.py: average_steps": ["KL", "share of steps"],
    "probing/verdict.py: judge_need": ["bound of equal seeds"],
    "reporting/aggregate.py: _win_ends": ["P(A beats B)", "P(A beats B), 3 environments"],
    "reporting/aggregate.py: aggregate_scores": ["mean, 3 environments", "IQM, 3 environments"],
    "reporting/aggregate.py: improvement": ["P(A beats B), 3 environments"],
    "reporting/aggregate.py: model_difference": ["difference of means", "difference of IQMs", "P(A beats B)"],
    "reporting/aggregate.py: profiles": ["performance profile"],
    "reporting/curves.py: summarise_seeds": ["band of a curve"],
    "reporting/score_sections.py: score_blocks": ["bound of equal seeds"],
    "reporting/scores.py: weighted_mean_interval": ["mean", "IQM", "MMER", "loss of return"],
    "reporting/verdict.py: _spread": ["bound of equal seeds"],
    "reporting/verdict.py: _unseen_failures": ["bound of equal seeds"],
    "run/evaluate.py: summary": ["mean return, eval"],
}
# The same for the analyses of studies, which call some functions of the library as well.
BENCHMARKS = ROOT / "benchmarks"
SIMULATIONS = {"coverage_kinds", "coverage_probe", "coverage_states", "coverage_studies", "intervals"}
MAKERS_OF_ANALYSES = MAKERS | {
    *("Interval", "factor", "improvement", "model_differences", "weighted_mean_interval")
}
MEASURED_OF_ANALYSES = {
    "areas.py: areas": ["difference of means", "difference of IQMs", "P(A beats B)"],
    "areas.py: _group_areas": ["mean", "IQM"],
    "critic_memories.py: checks": ["the same, widened for few tasks"],
    "critic_memories.py: correlate": ["correlation of the gains of critics"],
    "critic_memories.py: gain": ["difference of IQMs"],
    "critic_memories.py: highest_of_90": ["highest gain of a critic, from above"],
    "equivalence.py: interval": [
        "difference of kernels",
        "mean difference of kernels over 4 tasks, of 90 %",
    ],
    "leaderboard.py: _kind_cell": ["IQM, 3 environments"],
    "leaderboard.py: standings": ["IQM, 3 environments", "P(A beats B), 3 environments", "mean rank"],
    "leaders.py: lines": ["P(A beats B)"],
    "limits.py: spread": ["mean"],
    "memory_length.py: slope_interval": ["slope of a memory length over the horizons"],
    "return_tables.py: _line": ["mean"],
    "return_tables.py: mean_interval": ["mean"],
    "rliable_scores.py: compare_with_rliable": ["IQM, 3 environments"],
    "study_tables.py: _final": ["mean", "IQM"],
    "study_tables.py: _notes": ["bound of equal seeds"],
    "study_tables.py: _recomputed": ["difference of means", "difference of IQMs", "P(A beats B)"],
    "zoo.py: difference": ["difference of means"],
    "zoo.py: mean_cell": ["mean"],
}


def callers(path, folder=SOURCE, makers=MAKERS):
    """Functions and methods of a file that call a maker of intervals."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        if makers & {call.id for call in calls if isinstance(call, ast.Name)}:
            yield f"{path.relative_to(folder)}: {function.name}"


def test_every_function_that_makes_an_interval_has_a_row():
    files = sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "common" / "intervals.py"})
    assert {name for path in files for name in callers(path)} == set(MEASURED)
    rows = {name for row in ROWS for name in row.names}
    assert {name for names in MEASURED.values() for name in names} <= rows


def test_every_function_of_an_analysis_that_makes_an_interval_has_a_row():
    files = [path for path in sorted(BENCHMARKS.glob("*.py")) if path.stem not in SIMULATIONS]
    makers = {name for path in files for name in callers(path, BENCHMARKS, MAKERS_OF_ANALYSES)}
    assert makers == set(MEASURED_OF_ANALYSES)
    rows = {name for row in ROWS for name in row.names}
    assert {name for names in MEASURED_OF_ANALYSES.values() for name in names} <= rows


def test_every_row_was_measured():
    results = json.loads((ROOT / RESULTS).read_text())
    measured = {(one["interval"], one["scores"]): set(one["coverage"]) for one in results["kinds"]}
    expected = {(name, row.scores): {str(n) for n in row.sizes} for row in ROWS for name in row.names}
    assert measured == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.names[0]}, {row.scores}")
def test_a_study_has_the_intervals_of_its_row(row, monkeypatch):
    monkeypatch.setattr(coverage_kinds, "LARGE", 10_000)
    coverage_kinds.large.cache_clear()
    shares = simulate(row._replace(studies=2), row.prepare(), row.sizes[0])
    coverage_kinds.large.cache_clear()
    assert tuple(shares) == row.names and all(0 <= share <= 1 for share in shares.values())


def within(factor):
    """A study of the mean of normal scores, with the interval of the report times a factor."""

    def study(random, n):
        scores = random.normal(size=n)
        low, high = weighted_mean_interval(scores, mean_weights(n))
        mean = scores.mean()
        return {"mean": held(Interval(*(mean + factor * (end - mean) for end in (low, high))), 0.0)}

    return study


def test_an_interval_that_is_too_narrow_is_found():
    row = Row(("mean",), "bell", None, studies=300)
    narrow, right = (simulate(row, within(factor), 5)["mean"] for factor in (0.5, 1.0))
    # Half of the interval of 5 normal scores is 1.39 standard errors, which hold the mean in 76 of 100.
    assert narrow == pytest.approx(0.76, abs=0.08)
    assert right == pytest.approx(0.95, abs=0.04)


def test_the_bootstrap_t_holds_more_often_than_percentiles_where_divergences_are_skewed():
    row = next(row for row in ROWS if row.scores.startswith("lognormal"))
    now, before = simulate(row._replace(studies=300), row.prepare(), 5).values()
    assert now > before + 0.04


def test_the_interval_beyond_chance_has_the_variance_of_both_episodes_of_a_step():
    """Chance for a rare event is the share of other steps: a matter of the values, not of the state."""
    row = next(row for row in ROWS if row.scores == "an event in one of four steps")
    (coverage,) = simulate(row._replace(studies=60), row.prepare(), 10).values()
    assert coverage > 0.85


def test_a_rare_failure_makes_equal_means_differ():
    assert unequal_differences(5, studies=100) > 0.4


def test_tables_have_a_column_for_each_number():
    results = {
        "kinds": [
            {"interval": "a", "scores": "bell", "of": "seeds", "coverage": {"3": 0.951, "20": 0.5}},
            {"interval": "b", "scores": "bell", "of": "seeds", "coverage": {"5": 1.0}},
            {"interval": "c", "scores": "bell", "of": "episodes", "coverage": {"10": 1.0}},
        ],
        "unequal": {"5": 0.571},
    }
    *_, first, second = kinds_table(results, "seeds")
    assert (first, second) == ("| a | bell | 95 % |  | 50 % |", "| b | bell |  | 100 % |  |")
    assert unequal_table(results)[-1] == "| called different | 57 % |"
