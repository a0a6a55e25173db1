"""A run: its folder, its stops, and that resuming gives what never stopping gives, bit for bit."""

import importlib.util
import itertools
import json
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import recollect
from recollect.common.errors import EnvDataError, UsageError
from recollect.common.metrics import METRICS
from recollect.common.signals import StoppedError
from recollect.config.tasks import default
from recollect.encoder.residual import ResidualConfig
from recollect.learn.settings import PPOConfig
from recollect.memory.rnn import GruConfig, LstmConfig
from recollect.memory.stack import StackConfig
from recollect.reporting.runs import read_run
from recollect.run import api, checkpoint
from recollect.run.display import SilentDisplay
from recollect.run.run_folder import find_unfinished, read_summary, write_summary
from recollect.run.weights import processor_name

from ..helpers import (
    SMALL,
    Halves,
    StopAt,
    assert_same_end,
    metrics_of,
    run_quietly,
    sampled,
    set_status,
    small_config,
    stopped_run,
)

needs_envpool = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is an extra")
STACKED = replace(SMALL, memory=StackConfig(frames=3), prev_action=True, prev_reward=True)
LSTM, GRU = (replace(SMALL, memory=kind(width=8)) for kind in (LstmConfig, GruConfig))
SHARED = replace(SMALL, shared=True)
CHUNKED = {"bptt": 8, "num_steps": 16, "update_epochs": 2, "learning_rate": 1e-2}
REFRESHED = PPOConfig(**CHUNKED, chunk_state="refresh")
CASES = {
    "native vector environment": small_config(),
    "native environments one by one": small_config("Acrobot-v1"),
    "own environment with memories": small_config("probe:recall", "auto", actor=STACKED, critic=STACKED),
    "barrier in this process": small_config("LunarLander-v3", barrier=2),
    "barrier in worker processes": small_config("CartPole-v1", "workers", barrier=2),
    "continuous actions": small_config("Pendulum-v1"),
    "LSTM and GRU": small_config(actor=LSTM, critic=GRU),
    "LSTM and GRU behind barriers": small_config("LunarLander-v3", barrier=2, actor=LSTM, critic=GRU),
    "a shared critic": small_config(actor=GRU, critic=SHARED),
    "states that are refreshed": small_config(actor=GRU, critic=LSTM, ppo=REFRESHED),
    "no resets": small_config(actor=replace(LSTM, reset=False), critic=replace(GRU, reset=False)),
}
POOLED = small_config("LunarLander-v3", "envpool", barrier=2)


def stop_and_resume(config, tmp_path, monkeypatch, iteration: int, env=None) -> None:
    straight = run_quietly(config, tmp_path, "straight", factory=env)
    display = StopAt(iteration)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    stopped = run_quietly(config, tmp_path, "stopped", factory=env)
    assert stopped.summary["status"] == "SIGTERM"
    assert 0 < stopped.summary["iteration"] < 10
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    resumed = api.resume(stopped.folder, env=env)
    assert resumed.summary["status"] == "finished"
    assert_same_end(straight.folder, resumed.folder)


@pytest.mark.parametrize(
    "case",
    sampled(
        CASES,
        "native vector environment",
        "own environment with memories",
        "barrier in worker processes",
        "LSTM and GRU behind barriers",
        "states that are refreshed",
        "no resets",
    ),
)
def test_resuming_equals_never_stopping(case, tmp_path, monkeypatch) -> None:
    stop_and_resume(CASES[case], tmp_path, monkeypatch, 5)


def test_resuming_equals_never_stopping_with_pictures(tmp_path, monkeypatch) -> None:
    seeing = replace(GRU, encoder=ResidualConfig())
    config = small_config("callable-Halves", actor=seeing, critic=SHARED, barrier=2, rollouts=6)
    stop_and_resume(config, tmp_path, monkeypatch, 3, Halves)


@pytest.mark.parametrize("ends", [{"rollouts": 3}, {"ppo": PPOConfig(num_steps=128, target_return=10.0)}])
@pytest.mark.parametrize("save_interval", [0, 1])
def test_a_signal_in_the_last_iteration_leaves_a_finished_run(ends, save_interval, tmp_path, monkeypatch):
    config = small_config(save_interval=save_interval, **ends)
    straight = run_quietly(config, tmp_path, "straight")
    last = straight.summary["iteration"]
    assert 1 < last < 10
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(last))
    stopped = run_quietly(config, tmp_path, "stopped")
    assert stopped.summary["status"] == "finished"
    assert metrics_of(stopped.folder) == metrics_of(straight.folder)
    assert read_run(stopped.folder) is not None


def test_a_run_that_was_killed_after_its_target_return_is_finished_at_once(tmp_path):
    config = small_config(ppo=PPOConfig(num_steps=128, target_return=10.0))
    trained = run_quietly(config, tmp_path)
    before = metrics_of(trained.folder)
    set_status(trained.folder)
    assert api.resume(trained.folder, quiet=True).summary["status"] == "finished"
    assert metrics_of(trained.folder) == before


@needs_envpool
def test_resuming_equals_never_stopping_with_envpool(tmp_path, monkeypatch) -> None:
    stop_and_resume(POOLED, tmp_path, monkeypatch, 5)


@settings(max_examples=3)
@given(st.integers(1, 9))
def test_resuming_equals_never_stopping_wherever_it_stops(tmp_path_factory, iteration) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_and_resume(small_config(), tmp_path_factory.mktemp("r"), patch, iteration)


def test_resuming_in_a_new_process_equals_never_stopping(tmp_path, monkeypatch) -> None:
    config = small_config()
    straight = run_quietly(config, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(4))
    stopped = run_quietly(config, tmp_path, "stopped")
    command = [sys.executable, "-m", "recollect.cli", "resume", str(stopped.folder)]
    for hash_seed, code in (("1", 0), ("2", 0)):  # the second finds a finished run
        result = subprocess.run(
            command, env={"PYTHONHASHSEED": hash_seed, "PATH": ""}, capture_output=True, text=True
        )
        assert result.returncode == code, result.stderr
    assert "is finished" in result.stdout
    assert_same_end(straight.folder, stopped.folder)


def test_the_newest_whole_checkpoint_is_taken_and_a_damaged_one_named(tmp_path, monkeypatch) -> None:
    straight = run_quietly(small_config(), tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(6))
    stopped = run_quietly(small_config(), tmp_path, "stopped")
    newest = checkpoint.existing(stopped.folder / "checkpoints")[-1]
    data = bytearray(newest.read_bytes())
    data[-100] ^= 1
    newest.write_bytes(data)
    display = StopAt()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    api.resume(stopped.folder)
    assert any(newest.name in line and "digest" in line for line in display.said)
    assert_same_end(straight.folder, stopped.folder)


def test_a_state_that_is_not_by_environment_is_refused_and_left(tmp_path, monkeypatch) -> None:
    """As an earlier version kept CartPole's."""
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(4))
    config = small_config()
    config = replace(config, env=replace(config.env, num_envs=8))
    stopped = run_quietly(config, tmp_path, "stopped")
    paths = checkpoint.existing(stopped.folder / "checkpoints")
    for path in paths:
        tensors, meta = checkpoint.read(path)
        checkpoint.write(path, tensors | {"envs.state": tensors["envs.state"].T}, meta)
    before = [path.read_bytes() for path in paths]
    with pytest.raises(UsageError, match=r"another version of recollect: envs\.state has 4 entries"):
        api.resume(stopped.folder, quiet=True)
    assert [path.read_bytes() for path in paths] == before


def test_without_any_checkpoint_a_run_begins_again(tmp_path, monkeypatch) -> None:
    straight = run_quietly(small_config(save_interval=5), tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(3))
    stopped = run_quietly(small_config(save_interval=5), tmp_path, "stopped")
    for path in (stopped.folder / "checkpoints").iterdir():
        path.unlink()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    api.resume(stopped.folder)
    assert_same_end(straight.folder, stopped.folder)


def test_what_was_passed_over_does_not_outlive_what_is_written_anew(tmp_path, monkeypatch) -> None:
    """Of the files in the folder the highest iterations are kept, and those were of no use."""
    straight = run_quietly(small_config(), tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(7))
    stopped = run_quietly(small_config(), tmp_path, "stopped")
    for path in checkpoint.existing(stopped.folder / "checkpoints"):
        path.write_bytes(path.read_bytes()[:-100])
    (stopped.folder / "checkpoints" / "last.safetensors").unlink()
    display = StopAt(3)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    api.resume(stopped.folder)
    assert any("restarting from the seed" in line for line in display.said)
    display = StopAt()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    api.resume(stopped.folder)
    assert any(line.startswith("resumed iteration-00000003") for line in display.said)
    assert_same_end(straight.folder, stopped.folder)


def test_a_checkpoint_of_another_layout_is_not_begun_again_over(tmp_path, monkeypatch) -> None:
    """It is whole, and what wrote it may still read it."""
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(4))
    stopped = run_quietly(small_config(), tmp_path)
    path = checkpoint.existing(stopped.folder / "checkpoints")[-1]
    tensors, meta = checkpoint.read(path)
    tensors["state.0.kept"] = tensors.pop("row.first")
    checkpoint.write(path, tensors, meta)
    before = (stopped.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"another version of recollect: .* --run-id"):
        api.resume(stopped.folder)
    assert (stopped.folder / "metrics.jsonl").read_bytes() == before


def test_a_signal_far_from_a_barrier_leaves_the_last_checkpoint(tmp_path, monkeypatch) -> None:
    config = small_config("LunarLander-v3", barrier=4)
    monkeypatch.setattr("recollect.run.session.NEAR_BARRIER", 0.0)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(6))
    stopped = run_quietly(config, tmp_path)
    assert stopped.summary["iteration"] == 6
    names = [path.stem for path in checkpoint.existing(stopped.folder / "checkpoints")]
    assert names == ["iteration-00000004"]


def test_what_happens_on_the_side_changes_no_bit(tmp_path) -> None:
    plain = run_quietly(small_config(), tmp_path, "plain")
    busy = run_quietly(small_config(val_check_interval=2, save_interval=3, keep=1), tmp_path, "busy")
    for a, b in zip(plain.agent.parameters(), busy.agent.parameters(), strict=True):
        assert torch.equal(a, b)
    values = [row["val_return"] for row in metrics_of(busy.folder)]
    assert [value is not None for value in values] == [i % 2 == 1 for i in range(10)]


def test_another_seed_gives_another_run(tmp_path) -> None:
    one = run_quietly(small_config(), tmp_path, "one")
    other = run_quietly(small_config(seed=4), tmp_path, "other")
    pairs = zip(one.agent.parameters(), other.agent.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_the_folder_holds_what_is_promised(tmp_path) -> None:
    trained = run_quietly(small_config(), tmp_path)
    assert trained.folder == tmp_path / "ppo" / "CartPole-v1" / "run"
    names = {path.name for path in trained.folder.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "episodes.jsonl", "summary.json", "checkpoints"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    kept = sorted(path.name for path in (trained.folder / "checkpoints").iterdir())
    assert kept == [
        "best.safetensors",
        *(f"iteration-{i:08d}.safetensors" for i in (8, 9, 10)),
        "last.safetensors",
    ]
    lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 10
    assert all(tuple(json.loads(line)) == METRICS for line in lines)
    summary = json.loads((trained.folder / "summary.json").read_text())
    assert summary["processor"] == processor_name() and summary["processor"]
    assert summary["status"] == "finished" and summary["step"] == json.loads(lines[-1])["step"]


def test_every_episode_is_kept_from_the_first_on(tmp_path) -> None:
    trained = run_quietly(small_config("probe:recall", "auto", rollouts=20), tmp_path)
    episodes, rows = trained.episodes(), metrics_of(trained.folder)
    assert len(episodes) == rows[-1]["episodes"] > 100
    steps = [episode.step for episode in episodes]
    assert steps == sorted(steps) and steps[-1] <= rows[-1]["step"]
    for row in rows:
        recent = [episode for episode in episodes if episode.step <= row["step"]][-100:]
        assert len(recent) == min(row["episodes"], 100)
        if row["return"] is not None:
            for key, name in (("return", "return_"), ("length", "length"), ("success", "success")):
                mean = sum(getattr(episode, name) for episode in recent) / 100
                assert row[key] == pytest.approx(mean, rel=1e-9), key
    assert {episode.env for episode in episodes} == {0, 1, 2, 3}
    first = json.loads((trained.folder / "episodes.jsonl").read_text().splitlines()[0])
    assert tuple(first) == ("step", "env", "return", "length", "success", "terminated")
    assert first["terminated"] is True


def test_an_episode_that_a_barrier_cut_is_not_kept(tmp_path) -> None:
    trained = run_quietly(small_config("Pendulum-v1", barrier=2), tmp_path)  # 200 steps, cut after 32
    assert trained.episodes() == [] and metrics_of(trained.folder)[-1]["episodes"] == 0


def test_a_resumed_run_repeats_no_episode_and_loses_none(tmp_path, monkeypatch) -> None:
    straight = run_quietly(small_config(), tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(7))
    stopped = run_quietly(small_config(save_interval=4), tmp_path, "stopped")
    checkpoint.path_of(stopped.folder / "checkpoints", 7).unlink()
    file = stopped.folder / "episodes.jsonl"
    file.write_bytes(file.read_bytes() + b'{"step": 44')  # a line that a crash tore
    before = len(stopped.episodes())
    assert 0 < before == metrics_of(stopped.folder)[-1]["episodes"]
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    resumed = api.resume(stopped.folder)
    assert len(resumed.episodes()) > before
    assert file.read_bytes() == (straight.folder / "episodes.jsonl").read_bytes()


def test_a_run_of_a_version_without_episodes_is_resumed(tmp_path, monkeypatch) -> None:
    straight = run_quietly(small_config(), tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(7))
    stopped = run_quietly(small_config(save_interval=4), tmp_path, "stopped")
    (stopped.folder / "episodes.jsonl").unlink()
    for path in checkpoint.existing(stopped.folder / "checkpoints"):
        tensors, meta = checkpoint.read(path)
        del meta["episodes_offset"]
        checkpoint.write(path, tensors, meta)
    step = metrics_of(stopped.folder)[-1]["step"]
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    resumed = api.resume(stopped.folder)
    assert metrics_of(resumed.folder)[-1]["return"] == metrics_of(straight.folder)[-1]["return"]
    later = [episode for episode in straight.episodes() if episode.step > step]
    assert [x.line for x in resumed.episodes()] == [x.line for x in later] and later


def test_a_folder_without_episodes_is_named(tmp_path) -> None:
    trained = run_quietly(small_config(), tmp_path)
    (trained.folder / "episodes.jsonl").unlink()
    with pytest.raises(UsageError, match=r"run/episodes.jsonl does not exist"):
        trained.episodes()


def test_tensorboard_holds_the_metrics_of_every_iteration(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = run_quietly(small_config(), tmp_path)
    events = EventAccumulator(str(trained.folder))
    events.Reload()
    logged = [event.value for event in events.Scalars("policy_loss")]
    expected = [row["policy_loss"] for row in metrics_of(trained.folder)]
    assert logged == pytest.approx(expected, rel=1e-6)


def test_a_run_that_cannot_be_resumed_begins_again_whole(tmp_path, monkeypatch) -> None:
    config = small_config("LunarLander-v3", barrier=0)
    straight = run_quietly(config, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    assert checkpoint.existing(stopped.folder / "checkpoints") == []
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    again = api.resume(stopped.folder)
    assert metrics_of(again.folder) == metrics_of(straight.folder)
    for a, b in zip(straight.agent.parameters(), again.agent.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore:CartPoleEnv does not repeat")
def test_environments_that_do_not_repeat_are_not_taken_for_resumed(tmp_path, monkeypatch) -> None:
    def restless():
        return gymnasium.wrappers.TransformObservation(
            gymnasium.make("CartPole-v1"), lambda obs: obs + next(noise), None
        )

    noise = (1e-3 * i for i in itertools.count())
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(small_config("callable-restless", barrier=1), tmp_path, factory=restless)
    before = {path: path.read_bytes() for path in stopped.folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"do not repeat from their seeds.*begin a new one"):
        api.resume(stopped.folder, env=restless)
    assert {p: p.read_bytes() for p in stopped.folder.rglob("*") if p.is_file()} == before


def test_a_lander_that_is_replaced_is_said(tmp_path, monkeypatch) -> None:
    display = StopAt()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    run_quietly(small_config("LunarLander-v2", rollouts=1), tmp_path)
    assert "LunarLander-v3 is used instead" in display.said[0]


def test_a_run_begins_without_a_compiler(tmp_path) -> None:
    """It is a second of every process, and 70 MiB."""
    run = f"recollect.train('CartPole-v1', steps=1, out={str(tmp_path)!r}, quiet=True)"
    code = f"import sys, recollect; {run}; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_overwritten(tmp_path) -> None:
    trained = run_quietly(small_config(), tmp_path)
    before = {path: path.read_bytes() for path in trained.folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"run exists, and nothing is overwritten"):
        run_quietly(small_config(), tmp_path)
    assert {p: p.read_bytes() for p in trained.folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("given", [{"model": "ppo_gru"}, {"options": {"ppo.gamma": 0.5}}])
def test_a_whole_config_is_not_changed_in_passing(given, tmp_path):
    with pytest.raises(UsageError, match="do not go with a RunConfig"):
        api.train(small_config(), **given, out=tmp_path, quiet=True)


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path) -> None:
    folders = {api.train(small_config(rollouts=1), out=tmp_path, quiet=True).folder for _ in range(3)}
    assert len(folders) == 3


def test_a_folder_has_one_writer(tmp_path) -> None:
    import fcntl

    trained = run_quietly(small_config(), tmp_path)
    with open(trained.folder / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="in use by another process"):
            api.resume(trained.folder)


def test_other_versions_are_refused_unless_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(4))
    stopped = run_quietly(small_config(), tmp_path)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    now = {"recollect": "9.9.9"}
    monkeypatch.setattr("recollect.run.weights.versions", lambda: now)
    with pytest.raises(UsageError, match=r"was written with .*--ignore-versions"):
        api.resume(stopped.folder)
    assert api.resume(stopped.folder, ignore_versions=True).summary["status"] == "finished"


def test_an_option_of_a_newer_version_is_refused_with_both_versions(tmp_path) -> None:
    run = run_quietly(small_config(), tmp_path)
    config = run.folder / "config.yaml"
    config.write_text(config.read_text() + "dreams: 3\n")
    for version, hint in {"9.1.0": "; recollect 9.1.0 wrote the file", recollect.__version__: ""}.items():
        summary = read_summary(run.folder)
        write_summary(run.folder, summary | {"versions": summary["versions"] | {"recollect": version}})
        with pytest.raises(UsageError, match=r"dreams") as caught:
            api.resume(run.folder)
        assert hint in str(caught.value) and ("wrote the file" in str(caught.value)) == bool(hint)


def test_a_run_that_torchrun_restarts_is_found_under_an_address(tmp_path) -> None:
    run = run_quietly(small_config(), tmp_path)
    write_summary(run.folder, read_summary(run.folder) | {"status": "failed"})
    wanted = read_summary(run.folder)["config_hash"]
    for out in (tmp_path, Path(f"file://{tmp_path}")):
        assert find_unfinished(out, wanted) == run.folder


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path, monkeypatch) -> None:
    straight = run_quietly(small_config(), tmp_path, "straight")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would keep a module that was cut off
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    seen: dict[str, bytes] = {}

    class FullDisk(StopAt):
        def show(self, metrics, progress) -> None:
            if metrics["iteration"] == 4:
                folder = tmp_path / "ppo" / "CartPole-v1" / "full" / "checkpoints"
                seen.update((p.name, p.read_bytes()) for p in folder.iterdir())
                resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, hard))
            if metrics["iteration"] == 7:
                folder = tmp_path / "ppo" / "CartPole-v1" / "full" / "checkpoints"
                assert {p.name: p.read_bytes() for p in folder.iterdir()} == seen
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    display = FullDisk()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    try:
        full = run_quietly(small_config(), tmp_path, "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sum("not saved at step" in line for line in display.said) == 3
    assert_same_end(straight.folder, full.folder)


class Poison(gymnasium.Wrapper):
    """An environment whose 400th observation, counted over all of its kind, is not a number."""

    def __init__(self, env, counter) -> None:
        super().__init__(env)
        self.counter = counter

    def step(self, action):
        obs, *rest = self.env.step(action)
        return (obs * float("nan") if next(self.counter) == 400 else obs), *rest


def test_bad_data_stops_the_run_before_anything_is_learned_from_it(tmp_path) -> None:
    counter = itertools.count(1)
    config = small_config(barrier=1)
    with pytest.raises(EnvDataError, match=r"environment \d returned obs\[0\] = nan at step \d+"):
        run_quietly(config, tmp_path, factory=lambda: Poison(gymnasium.make("CartPole-v1"), counter))
    folder = tmp_path / "ppo" / "CartPole-v1" / "run" / "checkpoints"
    tensors, meta = checkpoint.read(checkpoint.existing(folder)[-1])
    assert meta["counters"]["iteration"] == 399 // (4 * 16)
    assert json.loads((folder.parent / "summary.json").read_text())["status"] == "failed"
    assert all(
        x.isfinite().all() for name, x in tensors.items() if x.is_floating_point() and "recent" not in name
    )


def test_the_python_api_in_five_lines(tmp_path) -> None:
    trained = api.train(
        "CartPole-v1",
        steps=2000,
        seed=5,
        options={"ppo.gamma": 0.98, "env.num_envs": 4, "threads": 1},
        out=tmp_path,
        quiet=True,
    )
    assert trained.config.ppo.gamma == 0.98 and trained.config.seed == 5
    result = trained.evaluate(episodes=5)
    assert len(result.returns) == 5
    trained.save(tmp_path / "agent.safetensors")
    loaded = api.load(tmp_path / "agent.safetensors")
    pairs = zip(trained.agent.state_dict().values(), loaded.agent.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert loaded.evaluate(episodes=5).returns == result.returns
    player = trained.player()
    player.reset()
    assert player.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_a_callable_makes_the_environment(tmp_path) -> None:
    def factory():
        return gymnasium.make("CartPole-v1")

    trained = api.train(
        factory, steps=500, options={"env.num_envs": 2, "threads": 1}, out=tmp_path, quiet=True
    )
    assert trained.config.env.id == "callable-factory"
    assert trained.config.ppo.num_steps == default("").ppo.num_steps, "the preset of another environment"
    assert len(trained.evaluate(episodes=3).returns) == 3


# The screen -----------------------------------------------------------------------------------


class Screen(StopAt):
    """Remembers whether it was closed, as a panel must be, which hides the cursor."""

    def __init__(self, *args):
        super().__init__(*args)
        self.closed = 0

    def close(self):
        self.closed += 1


@pytest.fixture
def screen(monkeypatch):
    shown = Screen()
    for module in ("session", "run"):
        monkeypatch.setattr(f"recollect.run.{module}.make_display", lambda *_: shown)
    return shown


def test_the_screen_is_closed_where_nothing_is_left_to_do(tmp_path, screen):
    finished = run_quietly(small_config(), tmp_path)
    screen.closed = 0
    api.resume(finished.folder)
    assert screen.closed == 1 and "nothing to do" in screen.said[-1]


def test_the_screen_is_closed_where_a_run_is_not_resumed(tmp_path, screen, monkeypatch):
    stopped = stopped_run(tmp_path, 5)
    monkeypatch.setattr("recollect.run.weights.versions", lambda: {"torch": "0.1"})
    with pytest.raises(UsageError, match="resume with --ignore-versions"):
        api.resume(stopped)
    assert screen.closed == 1


def test_the_screen_is_closed_and_the_run_has_failed_where_its_logs_cannot_be_opened(
    tmp_path, screen, monkeypatch
):
    def refuse(*_):
        raise ConnectionError("no network")

    monkeypatch.setattr("recollect.run.session.open_logs", refuse)
    with pytest.raises(ConnectionError):
        run_quietly(small_config(), tmp_path)
    assert screen.closed == 1
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["status"] == "failed"


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("reset"), "failed"), (StoppedError(signal.SIGTERM), "SIGTERM")]
)
def test_a_run_that_ends_in_its_first_reset_says_so(error, status, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr("recollect.run.run.build_learner", fail)
    with pytest.raises(type(error)):
        run_quietly(small_config(), tmp_path)
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["status"] == status


def test_validations_have_full_precision(tmp_path, monkeypatch):
    seen = []

    def play(self, iteration):
        seen.append((self.agent.actor.bf16, self.agent.critic.trunk.bf16))
        return 0.0

    monkeypatch.setattr("recollect.run.session.Validation.play", play)
    updates = []
    config = small_config(amp="bf16", val_check_interval=2, rollouts=4)
    run_quietly(config, tmp_path, on_rollout=lambda update: updates.append(update.agent.actor.bf16))
    assert seen == [(False, False)] * 2 and updates == [True] * 4
