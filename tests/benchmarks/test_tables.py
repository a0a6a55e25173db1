"""The tables of the pages are those of the result files, and say no more than these hold."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.areas import task_areas
from benchmarks.cells import full_table, result_cell, speed_cell
from benchmarks.common import Run, Task
from benchmarks.study_tables import Study, View, differences, scores, short, thresholds
from benchmarks.study_tables import tests as exact_tests

from benchmarks import tables
from recollect.reporting.aggregate import model_differences
from recollect.reporting.groups import Group
from recollect.reporting.runs import Run as RunFolder
from recollect.reporting.significance import fisher, mann_whitney

OURS, PEER = Run("ppo", "ours", {}), Run("peer", "sb3", {})
TASK = Task("X >= 200", (OURS,), (PEER,), target=200, cap=240)


def run(seconds, reached=True, mean=201.0):
    return {
        "seconds": seconds,
        "steps": 1000,
        "sps": 1000 / seconds,
        "return": mean,
        "reached": reached,
        "memory_mb": 300,
        "seconds_a_step": seconds / 1000,
        "backend": "EnvPool",
    }


# Speeds ---------------------------------------------------------------------------------------


def test_a_run_at_its_cap_has_no_time():
    late = [run(240, False, mean) for mean in (66.3, 85.0, 137.1)]
    assert result_cell(TASK, late) == "not reached in 240 s (66 to 137)"
    assert speed_cell(TASK, [run(9.0)] * 3, late) == "at least 26x faster"
    assert speed_cell(TASK, late, [run(9.0)] * 3) == "-"


def test_one_late_run_of_three_leaves_a_median():
    peer = [run(90), run(240, False), run(70)]
    assert result_cell(TASK, peer, full=False) == "90.0 s (1 of 3 not reached in 240 s)"

    assert speed_cell(TASK, [run(9.0)] * 3, peer) == "10.0x faster"


def test_a_median_run_that_took_all_its_steps_bounds_the_speed_by_its_own_time():
    spent = [{**run(240, False, mean), "sps": 1000 / 190} for mean in (346.0, 347.0)]
    assert result_cell(TASK, [*spent, run(100)]) == "not reached in 1,000 steps by 2 of 3 (346 to 347)"
    assert speed_cell(TASK, [run(2.0)] * 3, [*spent, run(100)]) == "at least 95x faster"


def test_the_range_of_the_runs_stands_beside_their_median():
    assert result_cell(TASK, [run(3.27), run(26.61), run(3.59)], full=False) == "3.59 s (3.27 to 26.6)"
    assert result_cell(TASK, [run(3.0)], full=False) == "3.00 s"


def test_a_run_that_took_all_its_steps_did_not_stop_for_the_time():
    ended = run(240, False) | {"steps": 100_096, "sps": 720.0}  # after 139 s
    assert result_cell(TASK, [run(90), run(70), ended], full=False) == (
        "90.0 s (1 of 3 not reached in 100,096 steps)"
    )


def test_ratios_are_words():
    assert speed_cell(TASK, [run(2.0)], [run(18.8)]) == "9.4x faster"
    assert speed_cell(TASK, [run(3.0)], [run(2.0)]) == "1.5x slower"
    assert speed_cell(TASK, [run(1.0)], [run(130.9)]) == "131x faster"


def test_an_arm_that_was_not_measured_has_no_line():
    task = Task("X >= 200", (OURS, Run("ppo, Gymnasium", "ours", {})), (PEER,), target=200)
    lines = full_table([(task, {"ppo": [run(1.0)], "peer": [run(2.0)]})])
    assert len(lines) == 3 and "| ppo (EnvPool) | 1.00 s" in lines[2]


# Exact tests ----------------------------------------------------------------------------------


def test_fisher_knows_the_lady_tasting_tea():
    assert fisher(3, 4, 1, 4) == pytest.approx(34 / 70)
    assert fisher(4, 4, 0, 4) == pytest.approx(2 / 70)
    assert fisher(3, 10, 0, 10) == pytest.approx(0.2105, abs=1e-4)


def test_mann_whitney_counts_all_ways_to_deal():
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert mann_whitney([4, 5, math.inf], [1, 2, 3]) == pytest.approx(2 / 20)
    assert mann_whitney([1, 1, 1], [1, 1, 1]) == 1
    # Ranks 1, 2.5, 2.5, 4: of six sums 3.5, 3.5, 5, 5, 6.5, 6.5, four are as far from 5 as 3.5 is.
    assert mann_whitney([1, 2], [2, 3]) == pytest.approx(4 / 6)


# Studies --------------------------------------------------------------------------------------


@pytest.fixture
def study():
    """Two models, of which the report names the second first, because it is better."""

    def of(label, **values):
        return {"env": "X-v1", "label": label, **values}

    report = {
        "groups": [of("a", settings={"model": "a"}), of("b", settings={"model": "b"})],
        "finals": [
            of("a", scores=[1.0, 2.0], mean=1.5, iqm=1.5, mean_interval=[1.0, 2.0], iqm_interval=None),
            of("b", scores=[3.0, 5.0], mean=4.0, iqm=4.5, mean_interval=[3.0, 5.0], iqm_interval=None),
        ],
        "differences": [
            {"env": "X-v1", "better": "b", "worse": "a", "by": 2.5, "interval": [1.0, 4.0]}
            | {"wins": 0.9, "wins_interval": [0.3, 1.0]}
        ],
        "thresholds": [{"env": "X-v1", "value": 2.5}],
        "efficiencies": [of("a", steps=[None, None]), of("b", steps=[100.0, 200.0])],
    }
    return Study(report, View(), Path())


def test_a_study_as_scores(study):
    assert scores(study)[2:] == [
        "| `a` | 1.50 (1.00 to 2.00) | 1.50 | 1.00, 2.00 |",
        "| `b` | 4.00 (3.00 to 5.00) | 4.50 | 3.00, 5.00 |",
    ]


def test_differences_are_model_minus_other(study):
    assert differences(study)[2:] == ["| `b` | `a` | 2.50 (1.00 to 4.00) | 3.00 | 0.90 (0.30 to 1.00) |"]
    view = View(pairs=((0, 1),), names=(("A", {"model": "a"}), ("B", {"model": "b"})))
    turned = replace(study, view=view)
    assert differences(turned)[2:] == ["| A | B | -2.50 (-4.00 to -1.00) | -3.00 | 0.10 (0.00 to 0.70) |"]


def test_equal_seeds_get_a_bound(study):
    """Below scores, and below differences of two models that both have equal seeds."""
    bound = "An interval without width: all 2 seeds are equal; with 95 % confidence, at most 78% of further"
    assert not any(bound in line for line in (*scores(study), *differences(study)))
    study.report["finals"][0]["scores"] = [500.0, 500.0]
    assert scores(study)[-2] == "" and bound in scores(study)[-1]
    assert differences(study)[-1].startswith("|")
    study.report["finals"][1]["scores"] = [200.0, 200.0]
    assert bound in differences(study)[-1] and bound not in scores(study)[-3]


def test_the_name_with_the_most_settings_wins(study):
    study.report["groups"][1]["settings"]["wide"] = True
    names = (("A", {"model": "a"}), ("B", {"model": "b"}), ("wide B", {"model": "b", "wide": True}))
    assert differences(replace(study, view=View(names=names)))[2].startswith("| wide B | A |")


def test_an_adjusted_p_is_shown_where_the_report_has_one(study):
    study.report["differences"][0]["p"] = 0.0312
    assert differences(study)[0].endswith("| p, adjusted |")
    assert differences(study)[2].endswith("| 0.031 |")


def test_a_random_agent_has_a_score_and_nothing_else(study):
    """Reports may list it: as a final score, without training, settings or a difference."""
    rows = len(differences(study)), len(exact_tests(study)), len(thresholds(study))
    study.report["finals"].append({**study.report["finals"][0], "label": "random", "mean": 0.25})
    assert scores(study)[-1].startswith("| `random` | 0.25 ")
    assert (len(differences(study)), len(exact_tests(study)), len(thresholds(study))) == rows


def test_seeds_at_the_threshold_are_tested(study):
    cells = exact_tests(study)[2].strip("| ").split(" | ")
    assert cells[2:4] == ["2 of 2 vs. 0 of 2", "0.33"]
    assert cells[4:6] == ["150 vs. not reached", "0.33"]
    assert cells[6:] == ["0 of 2 vs. 2 of 2", "0.33"]


def test_numbers_have_three_digits():
    assert list(map(short, (218.07, 89.94, 5.252, -0.001, -128.1, 1234.5))) == [
        "218", "89.9", "5.25", "0.00", "-128", "1234",
    ]  # fmt: skip


# Pages ----------------------------------------------------------------------------------------


def test_a_table_that_was_touched_is_stale():
    page = "Text.\n\n<!-- table cards -->\nold\n<!-- end table -->\n\nMore.\n"
    assert tables.stale(page) == ["cards"]
    good = tables.rewritten(page)
    assert tables.stale(good) == [] and good.startswith("Text.\n\n<!-- table cards -->\n| memory |")
    assert good.endswith("<!-- end table -->\n\nMore.\n")
    assert tables.stale(good.replace("1.00", "0.99", 1)) == ["cards"]


@pytest.mark.parametrize(
    "page", ["<!-- table cards -->\n", "<!-- end table -->\n", "<!-- table nothing -->\n<!-- end table -->\n"]
)
def test_a_table_that_cannot_be_written_is_an_error(page):
    with pytest.raises(SystemExit):
        tables.stale(page)


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.name)
def test_the_tables_of_the_pages_are_those_of_the_results(page):
    assert tables.stale(page.read_text()) == [], "run: python -m benchmarks.tables"


# Areas under training curves ------------------------------------------------------------------


def line_run(seed, slope, last):
    """A run whose return rises along a line from 0 at step 100 on, unknown before, with 100 steps a row."""
    rows = np.arange(last + 1.0)
    metrics = {"step": 100 * rows, "return": np.where(rows > 0, slope * 100 * (rows - 1), np.nan)}
    return RunFolder(Path(), {"seed": seed}, {"status": "finished"}, metrics)


def test_the_area_is_the_mean_return_over_the_steps_that_all_seeds_have():
    runs = [line_run(0, 0.1, 5), line_run(1, 0.2, 5)], [line_run(0, 0.3, 4), line_run(1, 0.3, 6)]
    groups = [Group("E", label, {}, members) for label, members in zip("ab", runs, strict=True)]
    first, second = task_areas(groups)
    # Over steps 100 to 400: the mean is half of the return at 400.
    assert first.scores.tolist() == pytest.approx([15, 30])
    assert second.scores.tolist() == pytest.approx([45, 45])
    (pair,) = model_differences([first, second])
    assert (pair.better, pair.by) == ("b", pytest.approx(22.5))


def test_the_low_seeds_of_the_lstm_are_counted_by_the_registered_threshold():
    """Of studies/lstm_seeds.yaml: the table of tests would count those below the threshold of the report."""
    root = Path(tables.__file__).parents[1]
    finals = json.loads((root / "docs/results/lstm_seeds/report.json").read_text())["finals"]
    low = {one["label"]: [score for score in one["scores"] if score < 475] for one in finals}
    counts = [len(low[f"ppo_lstm, steps {steps}"]) for steps in (100_000, 200_000)]
    assert counts == [5, 1] and not low["ppo_gru"] and len(finals[0]["scores"]) == 40
    assert f"{fisher(counts[0], 40, counts[1], 40):.2f}" == "0.20"
    low_end, high_end = min(low["ppo_lstm, steps 100000"]), max(low["ppo_lstm, steps 100000"])
    text = (root / "docs/results.md").read_text()
    assert f"5 of 40 end below 475, between {low_end:.1f} and {high_end:.1f}" in text
    assert f"1 of 40 does, with {low['ppo_lstm, steps 200000'][0]:.1f}" in text
