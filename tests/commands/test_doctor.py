"""`recollect doctor`: its findings for good environments, and for each mistake."""

import mmap
import multiprocessing
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from recollect import cli
from recollect.commands import doctor, environment_checks

from ..envs.test_action_masks import Gates, builder
from ..envs.test_misbehaving import AlwaysRaises, Counter, Endless, Prints
from ..helpers import shorten_checks


class Unseeded(Counter):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.draw = float(np.random.default_rng().uniform())
        return self.look(), {}


class Outside(Counter):
    observation_space = spaces.Box(-3, -2, (2,), np.float32)


class EndsAtItsLimit(Counter):
    """Terminates where it should be truncated."""

    length = 50


class Keeps(Counter):
    """Keeps some bytes of each step: all of them, or the last of them."""

    size, most = 20_000, None

    def __init__(self):
        self.kept = []

    def misbehave(self):
        # From the system: memory that other tests have freed would be taken without growth.
        pages = mmap.mmap(-1, self.size)
        pages.write(b"x" * self.size)  # zeros would take no memory until they are read
        self.kept.append(pages)
        if self.most is not None:
            del self.kept[: -self.most]


class KeepsTheLast(Keeps):
    size, most = 20_000, 20


class Grabs(Counter):
    """Allocates once, and in each step something that it frees."""

    def __init__(self):
        self.steps, self.store = 0, None

    def misbehave(self):
        self.steps += 1
        np.ones(self.np_random.integers(1, 200_000))
        if self.steps == 250:
            self.store = np.ones(4_000_000)


class OnlyHere(Counter):
    def __init__(self):
        if multiprocessing.parent_process() is not None:
            raise OSError("the simulator serves one process")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    shorten_checks(monkeypatch)


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


@pytest.mark.parametrize("env", ["CartPole-v1", "popgym:RepeatPreviousEasy"])
def test_a_good_environment_has_no_advice(env, capsys, monkeypatch):
    monkeypatch.setattr(environment_checks, "SLOW", 1)  # this machine may be busy
    assert cli.main(["doctor", env]) == 0
    out = capsys.readouterr().out
    assert "yes, over 50 steps" in out and "steps/s of one environment" in out


def test_a_third_party_environment_is_checked():
    findings = examine(Counter)
    assert [name for name, finding in findings.items() if finding.advice] == []
    assert findings["tier"].result.startswith("barrier") and findings["copying"].result == "yes"


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("source", ["info", "dict", "method"])
def test_forbidden_actions_are_not_taken(source, joint, monkeypatch):
    monkeypatch.setattr(environment_checks, "SLOW", 1)  # this machine may be busy
    findings = examine(builder(source, joint=joint))
    assert [finding for finding in findings.values() if finding.advice] == []
    assert "action mask" in findings["observations"].result
    assert findings["rules of Gymnasium"].result == "kept"
    assert findings["picklability"].result == "yes, and a worker process can step it"


def test_an_environment_with_masks_may_break_other_rules():
    class Wide(Gates):
        def _result(self, final=False):
            view, info = super()._result(final)
            return view * 3, info

    assert "not within the observation space" in examine(Wide)["rules of Gymnasium"].result


def test_each_mistake_has_its_advice():
    assert "self.np_random" in examine(Unseeded)["repeats"].advice
    assert "--env.time-limit" in examine(Counter, None)["time limit"].advice
    assert "broken" in examine(Outside)["rules of Gymnasium"].result
    failing = examine(AlwaysRaises)["steps"]
    assert "broken for good" in failing.result and failing.advice


def test_episodes_that_reach_their_limit_are_truncated():
    assert examine(Endless)["truncation"].result == "an episode that reaches 50 steps is truncated"
    # Episodes of 6 steps reach no limit of 50, so a shorter one is set.
    finding = examine(Counter)["truncation"]
    assert "with a limit of 5 steps an episode is truncated" in finding.result and not finding.advice
    assert (
        "none of 28 random episodes in 200 steps" in finding.result and "reached 50 steps" in finding.result
    )


def test_a_termination_at_the_limit_has_advice():
    finding = examine(EndsAtItsLimit)["truncation"]
    assert finding.result == "all episodes that reach 50 steps terminate"
    assert "truncated=True and terminated=False" in finding.advice


def test_a_limit_without_effect_has_advice(monkeypatch):
    monkeypatch.setattr(gymnasium.wrappers.TimeLimit, "step", lambda self, action: self.env.step(action))
    finding = examine(Counter, 4)["truncation"]
    assert finding.result == "an episode of 6 steps, beyond its limit of 4" and finding.advice
    finding = examine(Counter)["truncation"]
    assert "with a limit of 5 steps an episode goes on" in finding.result and finding.advice


def test_without_a_limit_episodes_end_or_are_said_not_to():
    ends = examine(Counter, None)["truncation"]
    assert ends.result == "no limit; 28 of 28 episodes in 200 steps terminated, after 6 steps at most"
    assert not ends.advice
    never = examine(Endless, None)["truncation"]
    assert never.result == "no limit, and no episode ended within 200 steps"
    assert "--env.time-limit" in never.advice


def test_slow_environments_are_stepped_for_some_seconds_only(monkeypatch):
    monkeypatch.setattr(environment_checks, "PLAY_SECONDS", 0.0)
    assert "within 1 steps" in examine(Endless, None)["truncation"].result


@pytest.mark.parametrize("kind", [Counter, Prints, KeepsTheLast, Grabs])
def test_memory_that_is_freed_or_taken_once_is_no_growth(kind, capfd):
    finding = examine(kind)["memory growth"]
    assert finding.result.startswith("none in ") and not finding.advice


def test_memory_that_grows_has_a_number_and_advice():
    finding = examine(Keeps)["memory growth"]
    # 17 MB: one step in seven is a reset, which keeps nothing.
    assert 15 < float(finding.result.split(" MB")[0]) < 25
    assert finding.result.endswith("MB per 1,000 steps") and "GB in 10 million steps" in finding.advice


def test_memory_is_not_measured_where_the_system_does_not_say(monkeypatch, tmp_path):
    monkeypatch.setattr(environment_checks, "STATM", tmp_path / "statm")
    assert "not measured" in examine(Counter)["memory growth"].result


def test_an_environment_is_sent_to_a_worker_process():
    finding = examine(Counter)["picklability"]
    assert finding.result == "yes, and a worker process can step it" and not finding.advice
    only_here = examine(OnlyHere)["picklability"]
    assert "OSError: the simulator serves one process" in only_here.result
    assert "--env.backend gymnasium" in only_here.advice


def test_an_environment_that_cannot_be_sent_has_advice():
    lock = threading.Lock()

    def build():
        assert not lock.locked()
        return Counter()

    finding = examine(build)["picklability"]
    assert "no (TypeError: cannot pickle '_thread.lock' object)" in finding.result
    assert "constructor" in finding.advice


def test_an_unknown_environment_is_one_line(capsys):
    assert cli.main(["doctor", "CartPol-v1"]) == 2
    assert "did you mean CartPole-v1" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_has_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert doctor.check_folder(tmp_path)[1].advice == "use another --out"
    monkeypatch.setattr(doctor, "FEW_BYTES", 10**30)
    assert "may not fit" in doctor.check_folder(tmp_path)[0].advice
