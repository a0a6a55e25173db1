"""Reports of finished runs with a damaged or edited file: it is named, or the report is the same."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks.archive import write_archive

from recollect import cli
from recollect.common.digests import digest_existing, seal
from recollect.common.errors import UsageError
from recollect.comparison.jobs import read_evaluation
from recollect.reporting.runs import read_runs
from recollect.reporting.summary import as_json, summarise
from recollect.run.run_folder import read_summary, write_summary

from ..run.test_corruption import mutants
from .test_popgym import invent

RESULTS = ("metrics.jsonl", "episodes.jsonl")
FILES = ("config.yaml", "summary.json", "evaluation.json", *RESULTS)
LINES = 34  # 68,000 steps, one iteration of POPGym


def sealed(folder: Path) -> Path:
    """The run with the digests that a run of this version has."""
    summary = json.loads((folder / "summary.json").read_text())
    write_summary(folder, summary, digest_existing(folder, RESULTS))
    evaluation = json.loads((folder / "evaluation.json").read_text())
    data = {**evaluation, "config_hash": summary["config_hash"]}
    (folder / "evaluation.json").write_text(json.dumps(seal(data, {})))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return sealed(invent(tmp_path_factory.mktemp("whole"), lines=LINES))


@pytest.fixture
def run(whole, tmp_path, monkeypatch) -> Path:
    """A copy to damage, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(whole, "run"))


def report_of(folder: Path) -> dict[str, Any]:
    return as_json(summarise(read_runs([folder])))


def words_of(report: dict[str, Any]) -> str:
    """What a report says about files that it does not believe."""
    problems = [reason for task in report.get("popgym", []) for reason in task["without"]]
    return " ".join([*(left["reason"] for left in report["left_out"]), *problems])


@pytest.mark.parametrize("name", FILES)
def test_damage_is_named_or_the_report_is_the_same(name, run):
    before, data = report_of(run), (run / name).read_bytes()
    assert before["finals"] and before["popgym"][0]["models"] and not words_of(before), words_of(before)
    for mutant in mutants(data, random.Random(name)):
        (run / name).write_bytes(mutant)
        report = report_of(run)
        words = words_of(report)
        assert report == before or (name in words and "\n" not in words), mutant


def test_a_file_of_another_run_is_named(run, tmp_path):
    other = sealed(invent(tmp_path / "other", seed=2, shift=0.1, lines=LINES))
    for name in FILES:
        kept = (run / name).read_bytes()
        shutil.copy(other / name, run)
        words = words_of(report_of(run))
        (run / name).write_bytes(kept)
        # Of another summary, all files that have digests in it differ; the first is named.
        assert ("config.yaml" if name == "summary.json" else name) in words


def test_an_edited_file_is_used_when_the_digests_are_removed(run):
    """As the error says."""
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("model: ppo", "model: mine"))
    (words,) = report_of(run)["left_out"]
    assert words["reason"] == (
        "config.yaml is not as it was written: restore it, or remove digest and files from summary.json "
        "to use it as it is"
    )
    summary = read_summary(run)
    (run / "summary.json").write_text(json.dumps(summary))
    (group,) = report_of(run)["groups"]
    assert group["label"] == "mine"


def test_a_run_in_progress_is_not_accused(run):
    write_summary(run, {**read_summary(run), "status": "running"})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    report = report_of(run)
    assert not report["left_out"] and report["groups"][0]["runs"][0]["status"] == "running"


def test_a_folder_without_training_episodes_keeps_its_other_scores(run):
    before = report_of(run)
    (run / "episodes.jsonl").unlink()
    assert report_of(run)["finals"] == before["finals"]


def test_an_archive_has_digests_of_its_own_texts(run, tmp_path):
    before = report_of(run)
    write_archive([run], Path("runs.zip"))
    shutil.unpack_archive("runs.zip", "restored")
    restored = report_of(tmp_path / "restored")
    assert not restored["left_out"] and restored["finals"] == before["finals"]
    assert read_evaluation(Path("restored") / run) is not None
    file = Path("restored") / run / "metrics.jsonl"
    file.write_text(file.read_text().replace("2000", "2001", 1))
    assert "metrics.jsonl is not as it was written" in words_of(report_of(Path("restored")))


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "evaluation.json", "summary.json"])
def test_a_damaged_run_is_not_archived(name, run):
    text = (run / name).read_text()
    (run / name).write_text(text.replace("1", "2", 1))
    with pytest.raises(UsageError, match=rf"{name} is not as it was written"):
        write_archive([run], Path("runs.zip"))


def test_a_damaged_evaluation_and_that_of_another_run_are_of_a_run_to_evaluate(run):
    evaluation = read_evaluation(run)
    assert evaluation is not None
    others = {**evaluation, "config_hash": "another"}, {**evaluation, "mean": evaluation["mean"] + 1}
    (run / "evaluation.json").write_text(json.dumps(seal(others[0], {})))
    assert read_evaluation(run) is None
    text = json.dumps(seal(evaluation, {}))
    (run / "evaluation.json").write_text(text.replace(str(evaluation["mean"]), str(others[1]["mean"])))
    assert read_evaluation(run) is None


def test_a_damaged_evaluation_of_random_actions_is_named(run):
    folder = Path("random") / "CartPole-v1"
    folder.mkdir(parents=True)
    evaluation = json.loads((run / "evaluation.json").read_text()) | {"agent": "random"}
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    assert "evaluation.json is not as it was written" in words_of(report_of(folder))


def test_a_number_that_is_too_long_is_one_line(run):
    """Python refuses to convert more than 4,300 digits."""
    write_summary(run, read_summary(run))
    for name in ("metrics.jsonl", "evaluation.json"):
        kept = (run / name).read_text()
        (run / name).write_text('{"step": ' + "1" * 5000 + "}\n")
        words = words_of(report_of(run))
        (run / name).write_text(kept)
        assert name in words and "not valid JSON" in words


def test_a_list_of_runs_shows_a_damaged_summary(run, capsys):
    folder = Path(shutil.copytree(run, "runs/ppo/task/s1"))
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text.replace('"step": 68000', '"step": 98000'))
    assert cli.main(["list", "agents"]) == 0
    shown = capsys.readouterr().out
    assert "unreadable" in shown and "98,000" not in shown
