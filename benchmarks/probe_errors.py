"""How often is a statement of the verdict of `recollect probe` false?

    python -m benchmarks.probe_errors [--pages 100] [--kinds NAME ...] [--episodes 10 20 100]
    python -m benchmarks.probe_errors --rules

Probes agents whose use of memory is known by construction (probe_agents.py), with three controls, and counts
the pages with a false statement. Each page has its own agent, environment and seed; the noise of the scores
has ten levels, in turn. --rules compares the rules of two statements with those that they had before. The
results are in docs/results/probe_errors.json, and the tables of docs/reports.md are written from it. Pages
that are in the file are not repeated.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recollect.envs import make_for_evaluation
from recollect.memory import MemoryConfig
from recollect.probing.ablate import NO_LOSS, average
from recollect.probing.controls import compare_controls
from recollect.probing.measure import ProbeResult, probe
from recollect.probing.verdict import judge_need
from recollect.run.recording import play_deterministic

from .cells import table
from .probe_agents import BesideConfig, Draw, RecentConfig, Task, build_with_controls, read_sign, read_x

RESULTS = Path("docs") / "results" / "probe_errors.json"
NOISE = np.geomspace(0.05, 2, 10)  # deviations of the score of an episode, as shares of its mean
SUCCESS = np.linspace(0.5, 0.95, 10)
EPISODES = (10, 20, 100)
RULE_PAGES, FOLLOWED_PAGES = {10: 200, 20: 200, 100: 100}, 40
RULES = "statement", "episodes", "pages", "before", "now"

USED, SCORE_LENGTH, POLICY_LENGTH = "its score needs it, or does not", "steps, score", "steps, policy"
INPUT, QUANTITY, TASK = "earlier input", "quantity", "the task needs it, or does not"
STATEMENTS = (USED, SCORE_LENGTH, POLICY_LENGTH, INPUT, QUANTITY, TASK)
DEPENDS = POLICY_LENGTH, INPUT, QUANTITY  # on the memory state
UNDETERMINED = "It has a memory. Whether"

Results = dict[str, list[dict[str, Any]]]


class Kind(NamedTuple):
    """Agents whose use of memory is known.

    task     with the level of noise and the number of the page
    back     steps before the action of the sign that is followed; 0: the score needs no memory
    depends  whether the policy depends on the memory although the score does not
    """

    task: Callable[[int, int], Task]
    memory: MemoryConfig
    draw: Callable[[int], Draw]
    back: Callable[[int], int] = lambda page: 0
    depends: bool = False


def sign_kind(first: int, second: int) -> Kind:
    """Agents that follow the sign of so many, or so many, steps before."""

    def back(page: int) -> int:
        return first if page % 2 else second

    return Kind(
        lambda level, page: Task(back=back(page), noise=NOISE[level]),
        RecentConfig(),
        lambda page: partial(read_sign, back=back(page)),
        back,
    )


UNUSED = "does not read its memory"
UNNAMED = "follows a sign of 1 or 4 steps before"  # which is not among the quantities of a probe
RUNS_DIFFER = f"{UNUSED}; runs differ"
KINDS = {
    f"{UNUSED}; returns": Kind(
        lambda level, page: Task(noise=NOISE[level]), BesideConfig(), lambda page: read_x
    ),
    f"{UNUSED}; successes": Kind(
        lambda level, page: Task(success=SUCCESS[level]), BesideConfig(), lambda page: read_x
    ),
    RUNS_DIFFER: Kind(
        # Less noise than the others, so that it does not hide the differences of runs.
        lambda level, page: Task(noise=NOISE[level] / 10, smallest=0.0),
        BesideConfig(),
        lambda page: partial(read_x, spread=0.3),
    ),
    "reads it where both actions are as good": Kind(
        lambda level, page: Task(noise=NOISE[level], fresh=False, idle=True),
        BesideConfig(),
        lambda page: partial(read_x, noticed=1.9),
        depends=True,
    ),
    "follows a sign of 2 or 3 steps before": sign_kind(2, 3),
    UNNAMED: sign_kind(1, 4),
}


def make_page(kind: Kind, page: int, episodes: int) -> ProbeResult:
    """Probe the agent of a page; the level of noise changes with every second page."""
    trained, controls = build_with_controls(_task(kind, page), page, kind.memory, kind.draw(page))
    return probe(trained, episodes, page, controls)


def _task(kind: Kind, page: int) -> Task:
    return kind.task(page // 2 % len(NOISE), page)


# True and false statements --------------------------------------------------------------------


def find_false(kind: Kind, page: int, result: ProbeResult) -> list[str]:
    """The kinds of the statements of a page that are false."""
    back = kind.back(page)
    false = _false_of_used(result, back) if back else _false_of_unused(result, kind.depends)
    return [name for name in STATEMENTS if false.get(name, False)]


def _false_of_unused(result: ProbeResult, depends: bool) -> dict[str, bool]:
    """For agents whose score does not need the memory; of a policy that depends on it, what it depends on is
    not judged."""
    used = ("It uses", "It needs a memory state", "Its memory harms")
    of_policy = {
        POLICY_LENGTH: result.reaches is not None,
        INPUT: result.depends is not None,
        QUANTITY: _named(result) is not None,
    }
    return {
        USED: result.uses.startswith(used),
        TASK: result.needs.startswith("The task needs"),
        **({} if depends else of_policy),
    }


def _false_of_used(result: ProbeResult, back: int) -> dict[str, bool]:
    """For agents that follow the first sign of so many steps before: the score needs one step more."""
    uses, policy = result.uses.startswith("It uses"), result.policy
    lengths = {
        SCORE_LENGTH: result.length if uses else None,
        POLICY_LENGTH: policy.length if policy and result.reaches else None,
    }
    name, quantity = _named(result), "entry 1" + ("" if back == 1 else f", {back} steps before the action")
    same = (result.decides or "").startswith("With the memory state of another episode")
    return {
        USED: not uses and not result.uses.startswith(UNDETERMINED),
        **{
            key: x is not None and not x.interval.low <= back + 1 <= x.interval.high
            for key, x in lengths.items()
        },
        INPUT: result.depends is not None and not _may_be_largest(result, back),
        QUANTITY: same or (name is not None and name != quantity),
        TASK: result.needs.startswith(("The task does not", "The task can be")),
    }


def _named(result: ProbeResult) -> str | None:
    """The quantity that the verdict names; None if it names none."""
    if result.decides is None or not result.decides.startswith("Its policy follows"):
        return None
    return result.decides.split('"')[1]


def _may_be_largest(result: ProbeResult, back: int) -> bool:
    """Whether the verdict names the input of so many steps before, or one of several that may be meant."""
    low = max(one.occlusion.interval.low for one in result.dependence)
    return any(one.back == back and one.occlusion.interval.high >= low for one in result.dependence)


def is_determined(kind: Kind, page: int, result: ProbeResult) -> bool:
    """Whether the page says, and rightly, whether the score needs the memory."""
    return not result.uses.startswith(UNDETERMINED) and USED not in find_false(kind, page, result)


# Results --------------------------------------------------------------------------------------


def exact_interval(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of Clopper and Pearson of a probability."""

    def solve(at_most: int, tail: float) -> float:
        """The probability with which `at_most` events or fewer have the probability `tail`."""
        low, high = 0.0, 1.0
        for _ in range(60):
            p = (low + high) / 2
            below = math.fsum(math.comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(at_most + 1))
            low, high = (p, high) if below > tail else (low, p)
        return low

    return solve(count - 1, 0.975) if count else 0.0, solve(count, 0.025) if count < of else 1.0


def measure(name: str, episodes: int, entry: dict[str, Any], pages: int) -> dict[str, Any]:
    """An entry with so many pages in all."""
    kind, counts = KINDS[name], Counter(entry["false"])
    any_false, determined = entry["any"], entry["determined"]
    for page in range(entry["pages"], pages):
        result = make_page(kind, page, episodes)
        false = find_false(kind, page, result)
        counts.update(false)
        any_false += bool(false)
        determined += is_determined(kind, page, result)
    return {
        "agents": name,
        "episodes": episodes,
        "pages": max(pages, entry["pages"]),
        "any": any_false,
        "determined": determined,
        "false": {key: counts[key] for key in STATEMENTS if counts[key]},
    }


# Two rules ------------------------------------------------------------------------------------


def compare_needs(episodes: int, pages: int) -> dict[str, Any]:
    """In how many pages an agent that is like its controls is said to show that its task needs a memory: by
    the interval of the difference to their mean alone, as before, and now."""
    kind, before, now = KINDS[RUNS_DIFFER], 0, 0
    for page in range(pages):
        trained, others = build_with_controls(_task(kind, page), page, kind.memory, kind.draw(page))
        envs = make_for_evaluation(replace(trained.config.env, num_envs=min(episodes, 50)), trained.factory)
        whole, *scores = (
            average(play_deterministic(one.agent, envs, episodes, page), "return")
            for one in (trained, *others)
        )
        envs.adapter.close()
        controls = compare_controls(whole, [str(one.folder) for one in others], scores, "return")
        assert controls
        none_equal = not any(one.above.direction in NO_LOSS for one in controls.runs)
        before += controls.above.direction == "better" and none_equal
        now += judge_need("return", whole, controls, "").startswith("The task needs")
    return {
        "statement": "the task needs a memory",
        "episodes": episodes,
        "pages": pages,
        "before": before,
        "now": now,
    }


def compare_followed(episodes: int, pages: int) -> dict[str, Any]:
    """In how many pages a quantity is falsely followed: by the share of other actions alone, as before, and
    now. The sign that is followed is not among the quantities."""
    kind, before, now = KINDS[UNNAMED], 0, 0
    for page in range(pages):
        contents = make_page(kind, page, episodes).contents
        held = [one for one in contents.held if not one.action] if contents else []
        shares = [(one.other.changed, one.same.changed) for one in held if one.other and one.same]
        before += any(one.interval.low > two.interval.high for one, two in shares if one and two)
        now += any(one.followed for one in held)
    return {
        "statement": "a quantity is followed",
        "episodes": episodes,
        "pages": pages,
        "before": before,
        "now": now,
    }


# Tables ---------------------------------------------------------------------------------------


def read(root: Path) -> Results:
    """The counts: of pages, and of rules."""
    results: Results = json.loads((root / RESULTS).read_text())
    return results


def pages_table(results: Results) -> list[str]:
    """A row for each kind of agent and number of episodes."""
    header = ["agents", "episodes", "pages", "a false statement (95 %)", *STATEMENTS, "use determined"]
    rows = [
        [
            one["agents"],
            one["episodes"],
            one["pages"],
            _cell(one["any"], one["pages"]),
            *(_percent(one["false"].get(key, 0) / one["pages"]) for key in STATEMENTS),
            _percent(one["determined"] / one["pages"]),
        ]
        for one in results["pages"]
    ]
    return table(header, rows)


def rules_table(results: Results) -> list[str]:
    """A row for each rule and number of episodes."""
    rows = [
        [*(one[key] for key in RULES[:3]), *(_cell(one[key], one["pages"]) for key in RULES[3:])]
        for one in results["rules"]
    ]
    return table(RULES, rows)


def _cell(count: int, of: int) -> str:
    low, high = exact_interval(count, of)
    return f"{_percent(count / of)} ({100 * low:.1f} to {100 * high:.1f})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def main() -> None:
    """Make the missing pages and write the counts, ten pages at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="NAME")
    parser.add_argument("--episodes", type=int, nargs="+", choices=EPISODES, default=EPISODES)
    parser.add_argument("--rules", action="store_true")
    options = parser.parse_args()
    path = Path(__file__).parents[1] / RESULTS
    results = json.loads(path.read_text()) if path.exists() else {"pages": [], "rules": []}
    if options.rules:
        results["rules"] = [compare_needs(episodes, RULE_PAGES[episodes]) for episodes in EPISODES]
        results["rules"].append(compare_followed(EPISODES[-1], FOLLOWED_PAGES))
        path.write_text(json.dumps(results, indent=1) + "\n")
        return
    entries = {(one["agents"], one["episodes"]): one for one in results["pages"]}
    none = {"pages": 0, "any": 0, "determined": 0, "false": {}}
    for pages in range(10, options.pages + 1, 10):
        for name in options.kinds:
            for episodes in options.episodes:
                entries[name, episodes] = measure(name, episodes, entries.get((name, episodes), none), pages)
                order = [(key, n) for key in KINDS for n in EPISODES if (key, n) in entries]
                results["pages"] = [entries[key] for key in order]
                path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
