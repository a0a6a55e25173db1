"""`recollect doctor`: its findings for good environments, and for each mistake."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from recollect import cli
from recollect.commands import doctor, environment_checks

from ..envs.test_misbehaving import AlwaysRaises, Counter


class Unseeded(Counter):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.draw = float(np.random.default_rng().uniform())
        return self.look(), {}


class Outside(Counter):
    observation_space = spaces.Box(-3, -2, (2,), np.float32)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(environment_checks, "SECONDS", 0.05)


def examine(kind, limit=50):
    gymnasium.register("Patient-v0", kind, max_episode_steps=limit)
    try:
        return {finding.name: finding for finding in environment_checks.check_environment("Patient-v0")}
    finally:
        gymnasium.registry.pop("Patient-v0")


def test_the_machine_is_described(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("recollect", "torch", "processor", "threads", "compiler", "GB free", "envpool", "locked"):
        assert word in out
    assert list(tmp_path.iterdir()) == []


def test_the_machine_is_described_also_where_the_environment_cannot_be_built(capsys):
    class Broken(Counter):
        def __init__(self):
            raise OSError("no licence")

    gymnasium.register("Patient-v0", Broken)
    try:
        assert cli.main(["doctor", "Patient-v0"]) == 2
    finally:
        gymnasium.registry.pop("Patient-v0")
    shown = capsys.readouterr()
    assert "compiler" in shown.out and "locked" in shown.out and "OSError: no licence" in shown.err


def test_a_good_environment_has_no_advice(capsys):
    assert cli.main(["doctor", "CartPole-v1"]) == 0
    out = capsys.readouterr().out
    assert "yes, over 50 steps" in out and "500 steps" in out and "steps/s of one environment" in out


def test_a_third_party_environment_is_checked():
    findings = examine(Counter)
    assert [name for name, finding in findings.items() if finding.advice] == []
    assert findings["tier"].result.startswith("barrier") and findings["copying"].result == "yes"


def test_each_mistake_has_its_advice():
    assert "self.np_random" in examine(Unseeded)["repeats"].advice
    assert "--env.time-limit" in examine(Counter, None)["time limit"].advice
    assert "broken" in examine(Outside)["rules of Gymnasium"].result
    failing = examine(AlwaysRaises)["steps"]
    assert "broken for good" in failing.result and failing.advice


def test_an_unknown_environment_is_one_line(capsys):
    assert cli.main(["doctor", "CartPol-v1"]) == 2
    assert "did you mean CartPole-v1" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_has_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert doctor.check_folder(tmp_path)[1].advice == "use another --out"
    monkeypatch.setattr(doctor, "FEW_BYTES", 10**30)
    assert "may not fit" in doctor.check_folder(tmp_path)[0].advice
