"""Files of an earlier version: agents play as they did, and unfinished runs end as they would have ended.

The files are in this folder; __main__.py describes how they were made. On the machine and with the packages
that wrote them everything is equal to the last bit; elsewhere rounding differs, and numbers are only close.
Only the public API is called, so the tests hold for any layout of the package.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import recollect
from recollect import cli
from recollect.common.errors import CheckpointError
from recollect.comparison.study import read_study
from recollect.config.data import config_hash
from recollect.memory import MemoryConfig
from recollect.run.build import build
from recollect.tuning.tune import tune

from ..helpers import sampled
from .__main__ import TUNED, facts

FILES = Path(__file__).parent
LATER = json.loads((FILES / "later.json").read_text())
RENEWED = json.loads((FILES / "renewed.json").read_text())
RETURNS = json.loads((FILES / "expected.json").read_text()) | LATER["returns"] | RENEWED["returns"]
FACTS = {"later": LATER["facts"], "renewed": RENEWED["facts"]}
REFUSED = {f"later/{Path(file).name}" for file in RENEWED["returns"]}  # their memories have other weights now
AGENTS = sorted({str(path.relative_to(FILES)) for path in FILES.glob("*/*.safetensors")} - REFUSED)
RUNS = sorted(path.parent.name for path in FILES.glob("*/unfinished"))
ROUNDING = ("ratio_error", "value_error", "state_error")  # metrics that measure nothing else


@pytest.fixture(scope="module")
def present(tmp_path_factory):
    """Packages and machine of these tests."""
    run = recollect.train("CartPole-v1", steps=1, out=tmp_path_factory.mktemp("present"), quiet=True)
    return facts(run.folder)


@pytest.fixture(scope="module")
def exact(present):
    """Whether packages and machine are those that wrote the first files."""
    return present == facts(FILES / RUNS[0] / "finished")


@pytest.fixture(scope="module", params=RUNS)
def resumed(request, tmp_path_factory):
    """The name of an unfinished run, and a copy of it that was resumed."""
    folder = tmp_path_factory.mktemp("compat") / "run"
    shutil.copytree(FILES / request.param / "unfinished", folder)
    return request.param, recollect.resume(folder, ignore_versions=True, quiet=True)


def metrics_of(folder):
    """All lines of metrics.jsonl without the time."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: x for key, x in row.items() if key not in ("time", "sps", "kernel_error")} for row in rows]


def assert_close(values, expected, exact):
    """A line of metrics is equal, or within the rounding of another machine; keys may have been added."""
    assert values.keys() >= expected.keys()
    values = {key: values[key] for key in expected}
    if exact:
        assert values == expected
        return
    for name, x in expected.items():
        if name in ROUNDING:
            assert values[name] is None or values[name] < 1e-3, name
        else:
            assert values[name] == (x if x is None else pytest.approx(x, rel=2e-3, abs=2e-3)), name


def assert_plays(trained, expected, exact):
    """The returns are those of the earlier version; one action that rounding changes may change a return."""
    returns = trained.evaluate(len(expected)).returns
    if exact:
        assert returns == expected
    else:
        mean = sum(expected) / len(expected)
        assert sum(returns) / len(returns) == pytest.approx(mean, rel=0.25, abs=0.25)


def contents(tensors):
    """Digests of tensors; not their names, which may change."""
    rows = ((str(x.dtype), tuple(x.shape), x.numpy().tobytes()) for x in tensors)
    return sorted(hashlib.sha256(repr(row).encode()).hexdigest() for row in rows)


# Agents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", AGENTS)
def test_an_agent_has_the_weights_of_its_file(file):
    saved = [x for key, x in load_file(FILES / file).items() if key.startswith("agent.")]
    assert contents(recollect.load(FILES / file).agent.state_dict().values()) == contents(saved)


OLDEST = (file for file in AGENTS if file.startswith("agents"))


@pytest.mark.parametrize("file", sampled(AGENTS, *OLDEST))
def test_an_agent_plays_as_it_did(file, exact, present):
    folder = Path(file).parent.name
    same = present == FACTS[folder] if folder in FACTS else exact
    assert_plays(recollect.load(FILES / file), RETURNS[file], same)


@pytest.mark.parametrize("file", sorted(REFUSED))
def test_an_agent_whose_memory_has_other_weights_now_is_refused(file):
    with pytest.raises(CheckpointError, match=r"do not fit its config: .*shortcut.* is absent"):
        recollect.load(FILES / file)


def test_there_is_an_agent_of_each_memory():
    assert {Path(file).stem for file in AGENTS} == set(MemoryConfig.available())


def test_the_command_line_takes_an_agent(exact, capsys):
    file = "agents/stack.safetensors"
    words = ["eval", FILES / file, "--num-episodes", len(RETURNS[file]), "--json"]
    printed = json.loads(command(capsys, *words))
    assert printed["env"] == "CartPoleMasked"
    assert printed["returns"] == RETURNS[file] or not exact


# Runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_is_loaded_and_plays_as_it_did(name, exact):
    trained = recollect.load(FILES / name / "finished")
    assert len(trained.episodes()) == metrics_of(trained.folder)[-1]["episodes"]
    assert_plays(trained, RETURNS[f"{name}/finished"], exact)


def test_a_finished_run_has_nothing_to_resume(tmp_path):
    shutil.copytree(FILES / "lstm" / "finished", tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    trained = recollect.resume(tmp_path / "run", ignore_versions=True, quiet=True)
    assert trained.summary["status"] == "finished"
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_an_unfinished_run_gets_the_metrics_of_an_undisturbed_one(resumed, exact):
    name, trained = resumed
    folder, undisturbed = trained.folder, FILES / name / "finished"
    assert trained.summary["status"] == "finished"
    lines, expected = metrics_of(folder), metrics_of(undisturbed)
    assert len(lines) == len(expected) > len(metrics_of(FILES / name / "unfinished"))
    for line, other in zip(lines, expected, strict=True):
        assert_close(line, other, exact)
    episodes = (path / "episodes.jsonl" for path in (folder, undisturbed))
    assert len({path.read_bytes() for path in episodes}) == 1 or not exact


def test_an_unfinished_run_gets_the_weights_of_an_undisturbed_one(resumed, exact):
    name, trained = resumed
    weights = recollect.load(trained.folder).agent.state_dict()
    expected = recollect.load(FILES / name / "finished").agent.state_dict()
    assert weights.keys() == expected.keys()
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 2e-3, "atol": 2e-3}
    for key, x in expected.items():
        torch.testing.assert_close(weights[key], x, **tolerance, msg=key)


def test_finished_and_unfinished_runs_are_reported(tmp_path, capsys):
    # Not all of them: of two runs with the same config and seed a report takes one.
    words = ["report", FILES / "lstm/finished", FILES / "gtrxl/unfinished", "-o", tmp_path]
    assert "left out" not in command(capsys, *words)
    report = json.loads((tmp_path / "report.json").read_text())
    assert "ppo_lstm" in json.dumps(report) and "ppo_gtrxl" in json.dumps(report)


def test_the_runs_of_a_study_are_found(capsys):
    """Under hashes of that version, so that a comparison continues with its finished runs."""
    configs = read_study(FILES / "study.yaml").configs()
    hashes = []
    for config in configs:
        envs, _, resolved = build(config)
        envs.adapter.close()
        hashes.append(config_hash(resolved))
    assert hashes == json.loads((FILES / "study.json").read_text())
    assert "actor.pictures is an old name, of actor.encoder.name" in capsys.readouterr().err


def test_a_tuning_study_continues_with_its_trials(tmp_path):
    """None of them is run again: their runs are not there, and scores are those of the journal."""
    study = tmp_path / "ppo" / "probe-match"
    study.mkdir(parents=True)
    shutil.copy(FILES / "later/journal.log", study)
    expected = json.loads((FILES / "later/tune.json").read_text())
    result = tune(**TUNED, out=str(tmp_path))
    assert len(result["trials"]) == TUNED["trials"]
    assert [result[key] for key in ("trials", "best")] == [expected[key] for key in ("trials", "best")]
    assert not list(tmp_path.rglob("metrics.jsonl"))


def command(capsys, *words):
    """The output of a command, which must succeed."""
    assert cli.main([*map(str, words)]) == 0
    return capsys.readouterr().out
