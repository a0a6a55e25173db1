"""Run folders are collection, read, checked and grouped; what cannot be read is named, and stops nothing."""

import json
import random
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks.report import evaluation, invent_run
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.common.metrics import METRICS
from recollect.reporting.groups import differing_keys, group_runs, unique_labels
from recollect.reporting.report import write_report
from recollect.reporting.runs import flatten, read_run, read_runs
from recollect.reporting.summary import as_json, summarise


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return invent_run(tmp_path_factory.mktemp("whole"), lines=20)


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A run of its own for a test to break."""
    return Path(shutil.copytree(whole, tmp_path / "runs" / "a"))


def edit(path: Path, **changes: object) -> None:
    """Change settings of a YAML or JSON file."""
    text = path.read_text()
    data = yaml.safe_load(text)  # JSON is YAML
    dump = json.dumps if path.suffix == ".json" else yaml.safe_dump
    path.write_text(dump({**data, **changes}))


# Reading --------------------------------------------------------------------------------------


def test_a_run_is_read_whole(whole):
    run = read_run(whole)
    assert (run.env, run.model, run.seed, run.status) == ("CartPole-v1", "ppo", 1, "finished")
    assert set(run.metrics) == set(METRICS)
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    for key in METRICS:
        expected = [np.nan if line[key] is None else line[key] for line in lines]
        np.testing.assert_array_equal(run.metrics[key], expected)
    assert run.evaluation is not None and len(run.evaluation["returns"]) == 100


def test_runs_are_found_below_any_folder_and_only_once(run, tmp_path):
    deep = tmp_path / "runs" / "b" / "c"
    shutil.copytree(run, deep)
    edit(deep / "config.yaml", seed=2)
    collection = read_runs([tmp_path, tmp_path / "runs", run, deep / ".." / "c"])
    assert [r.seed for r in collection.runs] == [1, 2] and collection.left_out == []


def test_a_run_that_failed_before_its_first_line_has_failed(run, tmp_path):
    """Left out, it would be missing in the tests of its model."""
    edit(run / "summary.json", status="failed")
    (run / "metrics.jsonl").write_text("")
    (run / "evaluation.json").unlink()
    invent_run(tmp_path / "runs", seed=2, lines=20)
    collection = read_runs([tmp_path / "runs"])
    (group,) = group_runs(collection.runs)
    assert (group.seeds, group.failed, collection.left_out) == ((2,), (1,), [])
    write_report([tmp_path / "runs"], tmp_path / "report")
    assert (
        "Failed, and so in no mean, but below all scores in tests: 1 of 2 runs of ppo"
        in (tmp_path / "report" / "report.md").read_text()
    )


BROKEN = {
    "no config": (lambda run: (run / "config.yaml").unlink(), "has no config.yaml"),
    "no summary": (lambda run: (run / "summary.json").unlink(), "has no summary.json"),
    "no metrics": (lambda run: (run / "metrics.jsonl").unlink(), "has no metrics.jsonl"),
    "no lines": (lambda run: (run / "metrics.jsonl").write_text(""), "has no complete line"),
    "bad YAML": (lambda run: (run / "config.yaml").write_text("a: [1"), "config.yaml is not valid YAML"),
    "YAML in itself": (lambda run: (run / "config.yaml").write_text("a: &a [*a]"), "is not valid YAML"),
    "bytes": (lambda run: (run / "config.yaml").write_bytes(b"\xff\xfe\xfa"), "config.yaml cannot be read"),
    "foreign": (lambda run: (run / "config.yaml").write_text("lr: 3"), "not the config of a run"),
    "list": (lambda run: (run / "config.yaml").write_text("- 3"), "not the config of a run"),
    "odd model": (lambda run: edit(run / "config.yaml", model={}), "environment, model or seed is missing"),
    "odd seed": (lambda run: edit(run / "config.yaml", seed="x"), "seed 'x' is not an integer"),
    "bad JSON": (lambda run: (run / "summary.json").write_text("{"), "summary.json is not valid JSON"),
    "no object": (lambda run: (run / "summary.json").write_text("[]"), "summary.json is not a JSON object"),
    "no status": (lambda run: (run / "summary.json").write_text("{}"), "summary.json has no status"),
    "no mean": (lambda run: (run / "evaluation.json").write_text("{}"), "evaluation.json has no mean"),
    "evaluation of random actions": (
        lambda run: edit(run / "evaluation.json", agent="random"),
        "evaluation.json is of random on CartPole-v1, not of this run on CartPole-v1",
    ),
    "evaluation elsewhere": (
        lambda run: edit(run / "evaluation.json", env="Pendulum-v1"),
        "on Pendulum-v1, not of this run on CartPole-v1",
    ),
    "torn": (lambda run: cut(run / "metrics.jsonl"), "ends in the middle of line 20"),
    "broken line": (lambda run: put(run / "metrics.jsonl", 3, "{"), "line 3: not valid JSON"),
    "no step": (lambda run: put(run / "metrics.jsonl", 3, "{}"), "line 3: no step"),
    "back": (lambda run: put(run / "metrics.jsonl", 3, '{"step": 1}'), "steps do not increase"),
    "no file": (lambda run: folder_for(run / "metrics.jsonl"), "metrics.jsonl cannot be read"),
}


def cut(path: Path) -> None:
    """As after a kill in the middle of a write."""
    path.write_text(path.read_text()[:-30])


def put(path: Path, number: int, line: str) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines) + "\n")


def test_numbers_of_a_summary_that_json_has_not_are_left_out(run):
    edit(run / "summary.json", versions={"torch": float("nan")}, processor=float("inf"))
    report = as_json(summarise(read_runs([run])))
    json.dumps(report, allow_nan=False)
    assert report["groups"][0]["runs"][0]["versions"] == {"torch": None}


def folder_for(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_read_is_named_and_left_out(kind, run, whole):
    spoil, reason = BROKEN[kind]
    spoil(run)
    collection = read_runs([run, whole])
    assert len(collection.runs) == 1
    ((left),) = collection.left_out
    assert left.folder == run and reason in left.reason


def test_paths_without_runs_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    collection = read_runs([tmp_path / "empty", tmp_path / "nowhere"])
    assert [item.reason for item in collection.left_out] == ["contains no run", "does not exist"]


def test_a_run_that_goes_on_is_read_up_to_its_last_whole_line(run):
    edit(run / "summary.json", status="running")
    cut(run / "metrics.jsonl")
    collection = read_runs([run])
    assert len(collection.runs[0].metrics["step"]) == 19 and not collection.runs[0].finished


def test_numbers_that_are_none_are_not_known(run):
    put(
        run / "metrics.jsonl",
        1,
        '{"step": 1, "return": "high", "entropy": Infinity, "kl": 1' + "0" * 400 + "}",
    )
    metrics = read_run(run).metrics
    assert np.isnan([metrics["return"][0], metrics["entropy"][0], metrics["kl"][0]]).all()


def test_the_same_run_twice_counts_once_and_the_better_known_stays(run, tmp_path):
    other = tmp_path / "runs" / "b"
    shutil.copytree(run, other)
    (run / "evaluation.json").unlink()
    edit(other / "config.yaml", keep=9)  # which changes nothing that is learned
    collection = read_runs([tmp_path])
    assert [r.folder for r in collection.runs] == [other]
    assert [(left.folder, left.reason) for left in collection.left_out] == [
        (run, f"has the same config and seed as {other}")
    ]


def test_a_random_agent_is_known_by_its_evaluation(run, tmp_path):
    place = tmp_path / "runs" / "random"
    place.mkdir()
    result = evaluation("CartPole-v1", "random", 22.0, np.random.default_rng(0))
    (place / "evaluation.json").write_text(json.dumps(result))
    collection = read_runs([tmp_path])
    assert list(collection.random.values()) == [result] and collection.left_out == []
    (place / "evaluation.json").write_text(json.dumps({**result, "agent": "mine"}))
    assert "not of a random agent" in read_runs([tmp_path]).left_out[0].reason


# Groups and labels ----------------------------------------------------------------------------


def named(*runs: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(group.env, group.label, group.seeds) for group in group_runs(read_runs(runs).runs)]


def test_seeds_of_one_config_are_one_group(tmp_path):
    for seed in (3, 1, 2):
        invent_run(tmp_path, seed=seed, lines=5)
        edit(tmp_path / "ppo" / "CartPole-v1" / f"s{seed}" / "config.yaml", save_interval=seed)
    assert named(tmp_path) == [("CartPole-v1", "ppo", (1, 2, 3))]


def test_labels_say_what_differs_and_are_the_same_in_every_environment(tmp_path):
    invent_run(tmp_path, model="ppo_gpt", lines=5)
    invent_run(tmp_path, model="ppo_gpt", lines=5, flags=("--critic.context", "25"))
    invent_run(tmp_path, model="ppo_gpt", env="CartPoleNoVel-v1", lines=5, flags=("--critic.context", "25"))
    invent_run(tmp_path, model="ppo_lstm", lines=5)
    assert [(env, label) for env, label, _ in named(tmp_path)] == [
        ("CartPole-v1", "ppo_gpt, critic.memory.context 25"),
        ("CartPole-v1", "ppo_gpt, critic.memory.context 64"),
        ("CartPole-v1", "ppo_lstm"),
        ("CartPoleNoVel-v1", "ppo_gpt, critic.memory.context 25"),
    ]


def test_another_memory_is_named_without_all_that_comes_with_it(tmp_path):
    for memory in ("gru", "stack"):
        invent_run(tmp_path, lines=5, flags=("--actor", memory))
    labels = [label for _, label, _ in named(tmp_path)]
    assert labels == ["ppo, actor.memory.name gru", "ppo, actor.memory.name stack"]


def test_a_setting_that_follows_from_others_is_named_only_where_nothing_else_differs(tmp_path):
    """As of runs of another batch, in which the interval between validations follows."""
    for number in ("8", "16"):
        invent_run(tmp_path, lines=5, flags=("--env.num-envs", number, "--val-check-interval", number))
    assert [label for _, label, _ in named(tmp_path)] == ["ppo, env.num_envs 16", "ppo, env.num_envs 8"]
    invent_run(tmp_path, lines=5, flags=("--env.num-envs", "8", "--val-check-interval", "9"))
    labels = [label for _, label, _ in named(tmp_path)]
    assert "ppo, env.num_envs 8, val_check_interval 9" in labels


def test_other_tasks_of_one_environment_are_other_environments(tmp_path):
    invent_run(tmp_path, lines=5)
    invent_run(tmp_path, lines=5, flags=("--env.mask", "1", "3"))
    envs = [env for env, _, _ in named(tmp_path)]
    assert envs == ["CartPole-v1, env.mask 1 3", "CartPole-v1, env.mask none"]


def test_unfinished_runs_belong_to_a_group_but_not_to_its_end(run, whole):
    edit(run / "config.yaml", seed=2)
    edit(run / "summary.json", status="SIGTERM")
    ((group),) = group_runs(read_runs([run, whole]).runs)
    assert len(group.runs) == 2 and group.seeds == (1,)


SETTINGS = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 2), min_size=1)


@given(st.lists(SETTINGS, min_size=1, max_size=8, unique_by=str), st.randoms())
def test_labels_are_different_and_say_only_what_differs(configs, order):
    configs = [{"model": "m", **config} for config in configs]
    unique = [c for i, c in enumerate(configs) if c not in configs[:i]]
    names = unique_labels(unique, "model", [unique])
    assert len(set(names)) == len(names)
    distinguishing = set(differing_keys(unique))
    settings = [part.split() for name in names for part in name.split(", ")[1:]]
    assert all(words[0] in distinguishing or words[1] == "more" for words in settings)
    shuffled = order.sample(unique, len(unique))
    assert set(differing_keys(shuffled)) == distinguishing


def test_a_label_that_cannot_name_all_names_what_tells_apart():
    """Of two that differ from a third in the same ways, and from one another in the last setting alone."""
    alike = {"model": "m", **dict.fromkeys("abcdefg", 1)}
    configs = [alike | {"z": 1}, alike | {"z": 2}, {"model": "m", **dict.fromkeys("abcdefgz", 3)}]
    assert unique_labels(configs, "model", [configs]) == [
        "m, z 1",
        "m, z 2",
        "m, a 3, b 3, z 3, 5 more",
    ]


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_a_baseline_and_what_differs_from_it_in_one_setting_each_have_one_name_everywhere(one, other):
    """As in an ablation, whatever order folders come in, and whatever else environments set."""
    alike = {"model": "m", **dict.fromkeys("abcde", 1)}
    models = [alike, *({**alike, letter: 2} for letter in "abcde")]
    families = [[{**models[i], "env": env} for i in order] for env, order in (("E", one), ("F", other))]
    names = [
        dict(zip(o, unique_labels(f, "model", families), strict=True))
        for o, f in zip((one, other), families, strict=True)
    ]
    assert names[0] == names[1] == {0: "m", 1: "m, a 2", 2: "m, b 2", 3: "m, c 2", 4: "m, d 2", 5: "m, e 2"}


@settings(max_examples=15)
@given(st.randoms())
def test_names_that_stay_alike_are_numbered_the_same_in_any_order(order):
    """Each with each of five settings: three that are named leave four models of a name."""
    models = [{"model": "m", **dict(zip("abcde", bits, strict=True))} for bits in product((0, 1), repeat=5)]
    shuffled = order.sample(models, len(models))
    by_order = unique_labels(models, "model", [models]), unique_labels(shuffled, "model", [shuffled])
    assert by_order[0][0].endswith("2 more (1)") and len(set(by_order[0])) == 32
    assert [by_order[0][models.index(model)] for model in shuffled] == by_order[1]


def test_settings_are_named_by_dots():
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {"a.b.c": 1, "a.d": [2], "e": None}


def test_the_order_of_runs_does_not_matter(tmp_path):
    for model in ("ppo", "ppo_gru"):
        for seed in (1, 2):
            invent_run(tmp_path, model=model, seed=seed, lines=5)
    runs = read_runs([tmp_path]).runs
    shuffled = random.Random(1).sample(runs, len(runs))
    assert [(g.label, g.seeds) for g in group_runs(runs)] == [
        (g.label, g.seeds) for g in group_runs(shuffled)
    ]
