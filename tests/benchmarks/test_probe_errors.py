"""Agents of known use of memory have their known answers, and false statements of their pages are counted."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.probe_agents import LOST, Task
from benchmarks.probe_errors import (
    EPISODES,
    INPUT,
    KINDS,
    POLICY_LENGTH,
    QUANTITY,
    SCORE_LENGTH,
    STATEMENTS,
    TASK,
    UNUSED,
    USED,
    compare_followed,
    compare_needs,
    exact_interval,
    find_false,
    make_page,
    pages_table,
    read,
    rules_table,
)

from recollect.common.intervals import Interval
from recollect.probing import ablate

ROOT = Path(__file__).parents[2]
FOLLOWS, UNREAD = "follows a sign of 2 or 3 steps before", f"{UNUSED}; returns"


def without_noise(name):
    kind = KINDS[name]
    return kind._replace(task=lambda level, page: replace(kind.task(level, page), noise=0.0))


@pytest.fixture(scope="module")
def following():
    """A page of enough episodes for a verdict that names a quantity."""
    return make_page(without_noise(FOLLOWS), 0, 80)


def test_an_agent_that_follows_a_sign_has_its_known_answers(following):
    assert find_false(KINDS[FOLLOWS], 0, following) == []
    assert following.uses.startswith("It uses about 4 steps (4 to 4)")
    assert following.policy.length.steps == 4
    assert '"entry 1, 3 steps before the action"' in following.decides
    assert following.needs.startswith("The task needs a memory")
    lost = following.ablations[0].lost.by / following.whole.mean
    assert lost == pytest.approx(
        LOST, abs=0.08
    )  # over the episodes; of the fixed first action half are right


def test_false_statements_are_counted(following):
    kind, page = KINDS[FOLLOWS], 0
    length = replace(following.length, interval=Interval(5, 6))
    wrong = {
        USED: {"uses": "Its memory harms it: "},
        SCORE_LENGTH: {"length": length},
        POLICY_LENGTH: {"policy": replace(following.policy, length=length)},
        INPUT: {"dependence": [one for one in following.dependence if one.back != 3]},
        QUANTITY: {"decides": following.decides.replace("entry 1, 3", "entry 1, 2")},
        TASK: {"needs": "The task does not need a memory: "},
    }
    assert set(wrong) == set(STATEMENTS)
    for name, fields in wrong.items():
        assert find_false(kind, page, replace(following, **fields)) == [name]
    undetermined = replace(following, uses="It has a memory. Whether it uses it cannot", decides=None)
    assert find_false(kind, page, undetermined) == []


def test_all_that_is_said_of_an_unused_memory_is_false(following):
    assert find_false(KINDS[UNREAD], 0, following) == [name for name in STATEMENTS if name != SCORE_LENGTH]
    of_score = find_false(KINDS["reads it where both actions are as good"], 0, following)
    assert of_score == [USED, TASK]


def test_fresh_noise_makes_false_statements_possible():
    """The actions are the same with every alteration, but not the scores."""
    probed = make_page(KINDS[UNREAD], 18, 10)
    assert {one.divergence.value for one in probed.policy.changes} == {0.0}
    assert len({one.lost.by for one in probed.ablations}) == len(probed.ablations)
    paired = KINDS[UNREAD]._replace(task=lambda level, page: Task(noise=1.0, fresh=False))
    assert {one.lost.by for one in make_page(paired, 18, 10).ablations} == {0.0}


def count_false(pages):
    return sum(USED in find_false(KINDS[UNREAD], page, make_page(KINDS[UNREAD], page, 10)) for page in pages)


def test_intervals_of_half_the_width_make_more_false_statements(monkeypatch):
    right = ablate.weighted_mean_interval

    def halve(scores, *rest):
        middle = scores.mean()
        return Interval(*((middle + end) / 2 for end in right(scores, *rest)))

    pages = range(6, 30)
    before = count_false(pages)
    monkeypatch.setattr(ablate, "weighted_mean_interval", halve)
    assert before <= 3 and count_false(pages) >= before + 4


@pytest.mark.parametrize(
    ("count", "of", "ends"),
    [(0, 20, (0, 0.168)), (20, 20, (0.832, 1)), (5, 100, (0.0164, 0.1128)), (1, 2, (0.0126, 0.9874))],
)
def test_exact_intervals_are_those_of_published_tables(count, of, ends):
    assert exact_interval(count, of) == pytest.approx(ends, abs=1e-4 if count % of else 1e-3)


def test_the_table_has_shares_of_pages():
    entry = {"agents": "a", "episodes": 10, "pages": 20, "any": 1, "determined": 10, "false": {TASK: 1}}
    *_, row = pages_table({"pages": [entry], "rules": []})
    assert row == "| a | 10 | 20 | 5 % (0.1 to 24.9) | 0 % | 0 % | 0 % | 0 % | 0 % | 5 % | 50 % |"


def test_a_need_is_shown_less_often_than_by_the_mean_of_the_controls():
    counts = compare_needs(20, 60)
    assert counts["now"] < counts["before"] <= 10


def test_a_choice_that_rounding_makes_was_followed_before():
    counts = compare_followed(100, 5)  # with a false statement in the page of number 4
    assert (counts["before"], counts["now"]) == (1, 0)


def test_the_table_of_rules_has_shares_of_pages():
    entry = {"statement": "a", "episodes": 20, "pages": 100, "before": 5, "now": 0}
    *_, row = rules_table({"pages": [], "rules": [entry]})
    assert row == "| a | 20 | 100 | 5 % (1.6 to 11.3) | 0 % (0.0 to 3.6) |"


def test_every_kind_of_agent_was_measured():
    results = read(ROOT)
    measured = [(one["agents"], one["episodes"]) for one in results["pages"]]
    assert measured == [(name, episodes) for name in KINDS for episodes in EPISODES]
    for one in results["pages"]:
        assert set(one["false"]) <= set(STATEMENTS) and one["pages"] >= 10
        assert max(one["false"].values(), default=0) <= one["any"] <= sum(one["false"].values())
    assert [one["episodes"] for one in results["rules"]] == [*EPISODES, 100]
    assert all(one["now"] <= one["before"] for one in results["rules"])
