"""Archives of runs: the same report from an archive as from its folders, and hostile ones refused."""

import itertools
import json
import math
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from benchmarks.archive import restore, write_archive, write_by_task
from benchmarks.report import evaluation, invent_run

from recollect import cli
from recollect.common.errors import UsageError
from recollect.comparison.jobs import read_evaluation
from recollect.reporting import archive, summary
from recollect.reporting.runs import read_runs
from recollect.reporting.summary import as_json, summarise

from ..helpers import sampled

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """Two models with two seeds in two environments, one run that goes on, and a random agent."""
    monkeypatch.chdir(tmp_path)
    out = Path("runs/paper")
    for env, model, seed in itertools.product(("CartPole-v1", "LunarLander-v3"), ("ppo", "ppo_gru"), (1, 2)):
        invent_run(out, env, model, seed, lines=30)
    going = invent_run(out, "CartPole-v1", "ppo", 3, lines=30, evaluated=False)
    summary = json.loads((going / "summary.json").read_text())
    (going / "summary.json").write_text(json.dumps({**summary, "status": "running"}))
    with (going / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    (out / "random" / "CartPole-v1").mkdir(parents=True)
    by_chance = evaluation("CartPole-v1", "random", 22.0, np.random.default_rng(0))
    (out / "random" / "CartPole-v1" / "evaluation.json").write_text(json.dumps(by_chance))
    (out / "ppo" / "CartPole-v1" / "s1" / "checkpoints").mkdir()
    (out / "ppo" / "CartPole-v1" / "s1" / "checkpoints" / "weights").write_text("large")
    return out


def assert_close(a: object, b: object, where: str = "", absolute: float = 1e-9) -> None:
    """Equal, numbers to 5 digits."""
    if isinstance(a, dict):
        assert isinstance(b, dict) and a.keys() == b.keys(), where
        for key in a:
            assert_close(a[key], b[key], f"{where}.{key}", absolute)
    elif isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b), where
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_close(x, y, f"{where}[{place}]", absolute)
    else:
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        assert a == b or (numbers and math.isclose(a, b, rel_tol=1e-5, abs_tol=absolute)), (where, a, b)


def test_an_archive_gives_the_report_of_its_folders(runs):
    assert write_archive([runs], Path("runs.zip")) == 10
    folders, packed = (as_json(summarise(read_runs([path]))) for path in (runs, Path("runs.zip")))
    assert packed["groups"][0]["runs"][0]["folder"] == "runs/paper/ppo/CartPole-v1/s1"
    assert len(packed["random"]) == 1 and len(packed["finals"]) == 4
    # Returns go up to 500. The interval of two seeds is ten times as wide as their distance.
    assert_close(packed.pop("panels"), folders.pop("panels"), absolute=0.05)
    assert_close(packed, folders)


def test_an_archive_holds_text_alone_and_is_the_same_twice(runs):
    for name in ("a.zip", "b.zip"):
        write_archive([runs], Path(name))
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()
    with zipfile.ZipFile("a.zip") as packed:
        assert {Path(name).name for name in packed.namelist()} <= set(archive.FILES)


def test_a_report_of_a_study_names_the_runs_that_are_archived(runs):
    assert cli.main(["report", str(runs / "ppo"), "-o", "study"]) == 0
    assert write_archive([Path("study/report.json"), runs / "random"], Path("runs.zip")) == 6
    assert {run.model for run in read_runs([Path("runs.zip")]).runs} == {"ppo"}


def test_restored_runs_count_as_finished_and_folders_stay_as_they_are(runs):
    write_archive([runs], Path("runs.zip"))
    shutil.rmtree(runs / "ppo")
    kept = runs / "ppo_gru" / "CartPole-v1" / "s1" / "metrics.jsonl"
    kept.write_text("mine")
    assert restore(Path("absent.zip")) == 0
    assert restore(Path("runs.zip")) == 5
    assert kept.read_text() == "mine"
    assert read_evaluation(runs / "ppo" / "LunarLander-v3" / "s2") is not None
    assert {run.seed for run in read_runs([runs / "ppo" / "CartPole-v1"]).runs} == {1, 2, 3}
    assert restore(Path("runs.zip")) == 0


def test_archives_by_task_together_give_the_same_report(runs):
    assert cli.main(["report", str(runs), "-o", "study"]) == 0
    assert write_by_task(Path("study/report.json"), Path("study")) == 9  # one of ten goes on
    archives = sorted(Path("study").glob("runs-*.zip"))
    assert [path.name for path in archives] == ["runs-CartPole-v1.zip", "runs-LunarLander-v3.zip"]
    together = as_json(summarise(read_runs(archives)))
    one = as_json(summarise(read_runs([runs])))
    assert_close(together["finals"], one["finals"])
    assert together["random"].keys() == one["random"].keys() == {"CartPole-v1"}


def test_runs_elsewhere_are_not_archived(runs, tmp_path):
    with pytest.raises(UsageError, match="outside of the working folder"):
        write_archive([tmp_path / runs], Path("runs.zip"))
    with pytest.raises(UsageError, match="no run in study"):
        write_archive([Path("study")], Path("runs.zip"))


def packed(**files: bytes) -> Path:
    with zipfile.ZipFile("bad.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return Path("bad.zip")


@pytest.mark.parametrize(
    "name",
    [
        "../metrics.jsonl",
        "a/../../metrics.jsonl",
        "/tmp/metrics.jsonl",
        "C:/metrics.jsonl",
        "a\\..\\metrics.jsonl",
    ],
)
def test_a_path_out_of_the_archive_is_refused(name, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    ((left),) = read_runs([packed(**{"a/config.yaml": b"{}", name: b"{}"})]).left_out
    assert "not a path inside the archive" in left.reason
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bad.zip", "below"]


def test_other_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((left),) = read_runs([packed(**{"a/config.yaml": b"{}", "a/agent.pkl": b""})]).left_out
    assert left.folder == Path("bad.zip") and "has the file 'a/agent.pkl'" in left.reason


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(archive, "MAX_BYTES", 3 * 2**20)
    bomb = packed(**{f"{i}/metrics.jsonl": bytes(2**20) for i in range(4)})
    assert bomb.stat().st_size < 10_000
    assert "has more than 3 MB" in read_runs([bomb]).left_out[0].reason
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    assert "the limit is 3" in read_runs([bomb]).left_out[0].reason


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(17)])
def test_what_is_no_archive_is_named(content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs.zip").write_bytes(content)
    assert cli.main(["report", "runs.zip"]) == 2
    assert "runs.zip is not a readable archive" in capsys.readouterr().err


def test_a_damaged_archive_is_named(runs):
    write_archive([runs], Path("runs.zip"))
    data = bytearray(Path("runs.zip").read_bytes())
    data[200:400] = bytes(200)
    Path("runs.zip").write_bytes(data)
    assert "is not a readable archive" in read_runs([Path("runs.zip")]).left_out[0].reason


def in_order(pairs: list[dict]) -> list[dict]:
    """The probabilities of improvement by name, each of the pair's first name over its second.

    A report begins with the higher mean of scaled scores. Without a random agent the scale is another one.
    """
    turned = []
    for pair in pairs:
        names, probability, interval = [pair["label"], pair["other"]], pair["probability"], pair["interval"]
        if names[0] > names[1]:
            probability, interval = 1 - probability, [1 - end for end in reversed(interval)]
        label, other = sorted(names)
        turned.append(
            {**pair, "label": label, "other": other, "probability": probability, "interval": interval}
        )
    return sorted(turned, key=lambda pair: (pair["label"], pair["other"]))


STORED = sorted({path.parent.name for path in RESULTS.glob("*/runs*.zip")})


def without_failures(entries: list[dict[str, object]]) -> list[dict[str, object]]:
    """Reports of older versions have no numbers of failed runs; where there are some, they must have."""
    return [{key: x for key, x in entry.items() if key != "failed" or x} for entry in entries]


@pytest.mark.parametrize("name", sampled(STORED, "demo", "gpt2ppo"))
def test_the_stored_runs_are_those_of_the_stored_report(name, monkeypatch):
    """Of every study whose runs are in the repository."""
    stored = RESULTS / name
    monkeypatch.setattr(summary, "panels", lambda series: [])  # not compared, and most of the time
    report = json.loads((stored / "report.json").read_text())
    again = as_json(summarise(read_runs(sorted(stored.glob("runs*.zip")))))
    for key in ("finals", "differences"):  # the archive has no random agent
        assert_close(*(without_failures(data[key]) for data in (again, report)))
    assert_close(in_order(again["improvements"]), in_order(report["improvements"]))
