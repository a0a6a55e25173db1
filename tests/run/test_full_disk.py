"""Files that cannot be written, lack bytes, were changed or removed: no run is lost, no result changes."""

import contextlib
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import cli
from recollect.common.digests import digest_existing
from recollect.common.errors import UsageError
from recollect.config.data import read_yaml
from recollect.reporting.runs import read_run
from recollect.run import api, checkpoint, log, session
from recollect.run.display import SilentDisplay
from recollect.run.run_folder import read_summary, write_summary

from ..helpers import StopAt, assert_same_end, metrics_of, run_quietly, sampled, small_config, stopped_run

LIMIT = resource.RLIMIT_FSIZE


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch):
    """Python would cut off a module that it compiles while the disk is full, and read it later."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@contextlib.contextmanager
def limited(size: int) -> Iterator[None]:
    """No file can grow beyond this size, as on a full disk."""
    soft, hard = resource.getrlimit(LIMIT)
    resource.setrlimit(LIMIT, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(LIMIT, (soft, hard))


# A disk that is full for a while --------------------------------------------------------------


def test_an_appender_writes_all_or_nothing_and_catches_up(tmp_path):
    path = tmp_path / "x"
    file = log.Appender(path)
    file.append(b"one\n")
    with limited(7):
        for line in (b"two\n", b"three\n"):
            with pytest.raises(OSError, match="File too large"):
                file.append(line)
            assert path.read_bytes() == b"one\n"  # no part of a line
        assert file.offset == len(b"one\ntwo\nthree\n")
    file.append(b"four\n")
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\n"
    file.close()


def test_an_event_file_that_begins_on_a_full_disk_is_whole_in_the_end(tmp_path):
    for name in ("late", "prompt"):
        (tmp_path / name).mkdir()
    with limited(0):
        late = log.TensorBoard(tmp_path / "late", 7)
        with pytest.raises(OSError, match="File too large"):
            late.write({"step": 8, "return": 0.5})
    prompt = log.TensorBoard(tmp_path / "prompt", 7)
    prompt.write({"step": 8, "return": 0.5})
    sizes = []
    for board, folder in ((late, "late"), (prompt, "prompt")):
        board.close()
        sizes += [file.stat().st_size for file in (tmp_path / folder).glob("events*")]
    assert len(sizes) == 2 and sizes[0] == sizes[1] > 0


def test_metrics_wait_for_a_full_disk(tmp_path, monkeypatch):
    """Metrics, episodes and TensorBoard are complete in the end, and the weights those of a straight run."""
    straight = run_quietly(small_config(), tmp_path, "straight")
    soft, hard = resource.getrlimit(LIMIT)

    class FullDisk(StopAt):
        def show(self, metrics, progress):
            size = {3: 600, 7: soft}.get(metrics["iteration"])
            if size is not None:
                resource.setrlimit(LIMIT, (size, hard))

    display = FullDisk()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    with limited(soft):
        full = run_quietly(small_config(), tmp_path, "full")
    assert_same_end(straight.folder, full.folder)
    for name in ("metrics.jsonl", "episodes.jsonl", "TensorBoard"):
        lines = [line for line in display.said if line.startswith(name)]
        assert [("is not written" in line, "written again" in line) for line in lines] == [
            (True, False),
            (False, True),
        ]
    ours, theirs = (next(run.folder.glob("events*")).stat().st_size for run in (full, straight))
    assert ours == theirs


def test_digests_are_never_of_what_the_disk_does_not_have(tmp_path):
    names = "metrics.jsonl", "episodes.jsonl"
    logs = log.Logs(*(log.JsonLines(tmp_path / name) for name in names), [], lambda line: None)
    with limited(0):
        logs.write(dict.fromkeys(log.METRICS, 1.0), "{}\n")
        with pytest.raises(OSError, match="File too large"):
            logs.complete()
    digests = logs.complete()
    logs.close()
    assert digests == digest_existing(tmp_path, names) and len(metrics_of(tmp_path)) == 1


def test_a_logging_service_that_fails_ends_no_run(tmp_path):
    said: list[str] = []

    class Broken:
        name = "service"

        def write(self, metrics):
            raise ConnectionError("no network")

        def close(self):
            raise ConnectionError("no network")

    files = [log.JsonLines(tmp_path / name) for name in ("metrics.jsonl", "episodes.jsonl")]
    logs = log.Logs(*files, [Broken()], said.append)
    for step in (1.0, 2.0):
        logs.write(dict.fromkeys(log.METRICS, step), "{}\n")
    logs.close()
    assert said == ["service is not written: no network; training continues, and it is retried"]
    assert len(metrics_of(tmp_path)) == 2


def test_weights_of_a_finished_run_that_do_not_fit_are_reported_and_the_run_resumes(tmp_path, monkeypatch):
    config = small_config(save_interval=5)
    straight = run_quietly(config, tmp_path, "straight")

    class FullAtTheEnd(StopAt):
        def show(self, metrics, progress):
            if metrics["iteration"] == 10:
                resource.setrlimit(LIMIT, (3000, resource.getrlimit(LIMIT)[1]))

    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: FullAtTheEnd())
    with (
        limited(resource.getrlimit(LIMIT)[0]),
        pytest.raises(OSError, match=r"has finished, but it cannot be saved: .*; free space, then"),
    ):
        run_quietly(config, tmp_path, "full")
    folder = straight.folder.with_name("full")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    assert api.resume(folder).summary["status"] == "finished"
    assert_same_end(straight.folder, folder)


def test_a_stop_on_a_full_disk_is_a_stop_and_says_what_is_not_written(tmp_path, monkeypatch):
    straight, (soft, hard) = run_quietly(small_config(), tmp_path, "straight"), resource.getrlimit(LIMIT)

    class FullAndStopped(StopAt):
        def show(self, metrics, progress):
            if metrics["iteration"] == self.iteration:
                resource.setrlimit(LIMIT, (100, hard))
            super().show(metrics, progress)

    display = FullAndStopped(4)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    with limited(soft):
        stopped = run_quietly(small_config(), tmp_path, "full")
    assert stopped.summary["status"] == "SIGTERM"
    assert any(line.startswith("summary.json is not written") for line in display.said)
    assert display.said[-1].startswith("stopped by SIGTERM") and "recollect resume" in display.said[-1]
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    api.resume(stopped.folder)
    assert_same_end(straight.folder, stopped.folder)


def test_an_error_is_not_hidden_by_a_full_disk(tmp_path):
    def fail(*_):
        resource.setrlimit(LIMIT, (100, resource.getrlimit(LIMIT)[1]))
        raise LookupError("the error of the user")

    with limited(resource.getrlimit(LIMIT)[0]), pytest.raises(LookupError, match="the error of the user"):
        run_quietly(small_config(), tmp_path, on_rollout=fail)


# Files that are not what a checkpoint says ----------------------------------------------------


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory) -> Path:
    return stopped_run(tmp_path_factory.mktemp("stopped"), 6)


@pytest.fixture
def stopped(stopped_once, tmp_path) -> Path:
    """A copy of a run that was stopped after six of ten iterations."""
    return shutil.copytree(stopped_once, tmp_path / "ppo" / "CartPole-v1" / "run")


def test_metrics_that_a_power_cut_shortened_are_resumed_without_padding(stopped, monkeypatch):
    display = StopAt()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    file = stopped / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-1000])
    api.resume(stopped)
    assert b"\0" not in file.read_bytes()
    steps = [row["iteration"] for row in metrics_of(stopped)]
    assert steps[-4:] == [7, 8, 9, 10] and steps == sorted(steps) and len(steps) < 10
    assert any("metrics.jsonl lacks" in line for line in display.said)
    assert read_run(stopped) is not None


def test_lost_metrics_stay_lost_in_a_second_resume(stopped, monkeypatch):
    """Lines written after the loss may reach the length of before, and are of later iterations."""
    file = stopped / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-1000])
    monkeypatch.setattr(checkpoint, "prune", lambda *_: None)
    for last in (9, None):
        display = StopAt(last)
        monkeypatch.setattr("recollect.run.session.make_display", lambda *_, display=display: display)
        api.resume(stopped)
        # As if the machine had stopped before the next checkpoint.
        for path in checkpoint.existing(stopped / "checkpoints"):
            if last and path > checkpoint.path_of(stopped / "checkpoints", 6):
                path.unlink()
    steps = [row["iteration"] for row in metrics_of(stopped)]
    assert steps[-4:] == [7, 8, 9, 10] and steps == sorted(set(steps))


def test_metrics_reach_the_disk_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch):
    order: list[str] = []
    sync, replace_file = log.Appender.sync, os.replace

    def note_sync(self):
        order.append("metrics")
        sync(self)

    def note_replace(source, target):
        order.append(Path(target).name)
        replace_file(source, target)

    monkeypatch.setattr(log.Appender, "sync", note_sync)
    monkeypatch.setattr(checkpoint.os, "replace", note_replace)
    run_quietly(small_config(rollouts=1), tmp_path)
    assert order.index("iteration-00000001.safetensors") > order.index("metrics") >= 0


@pytest.mark.parametrize("change", ["ppo.learning_rate", "ppo.gamma", "seed", "env.time_limit", "algorithm"])
@pytest.mark.parametrize("saved", [True, False])
def test_an_edited_config_is_not_resumed(stopped, change, saved):
    values = {"ppo.learning_rate": 0.5, "ppo.gamma": 0.5, "seed": 77, "env.time_limit": 9, "algorithm": "a2c"}
    edit(stopped / "config.yaml", change, values[change])
    if not saved:
        shutil.rmtree(stopped / "checkpoints")
    before = (stopped / "metrics.jsonl").read_bytes()
    message = rf"{change} is {values[change]!r}, was" if saved else "is not the config of this run"
    with pytest.raises(UsageError, match=message):
        api.resume(stopped, quiet=True)
    assert (stopped / "metrics.jsonl").read_bytes() == before


def test_a_config_and_a_hash_that_were_edited_together_are_found_by_the_checkpoint(stopped):
    edit(stopped / "config.yaml", "ppo.gamma", 0.5)
    summary = read_summary(stopped)
    write_summary(stopped, {key: value for key, value in summary.items() if key != "config_hash"})
    with pytest.raises(UsageError, match=r"ppo\.gamma is 0\.5, was 0\.99"):
        api.resume(stopped, quiet=True)


def edit(file: Path, name: str, value: object) -> None:
    """Change one option of a config file."""
    import yaml

    data = read_yaml(file)
    *parents, key = name.split(".")
    part = data
    for parent in parents:
        part = part[parent]
    assert key in part
    part[key] = value
    file.write_text(yaml.safe_dump(data, sort_keys=False))


def test_a_removed_folder_of_checkpoints_is_made_again(tmp_path, monkeypatch):
    class Remove(StopAt):
        def show(self, metrics, progress):
            if metrics["iteration"] == 4:
                shutil.rmtree(tmp_path / "ppo" / "CartPole-v1" / "run" / "checkpoints")

    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: Remove())
    trained = run_quietly(small_config(), tmp_path)
    assert trained.summary["status"] == "finished"
    names = {path.name for path in (trained.folder / "checkpoints").iterdir()}
    assert {"last.safetensors", "iteration-00000010.safetensors"} <= names
    assert api.load(trained.folder).evaluate(2).returns


def test_the_best_weights_are_those_that_could_be_saved(tmp_path, monkeypatch):
    returns, save, saved = iter([100.0, 50.0]), session.save_weights, []

    def fail_once(path, *args):
        if path.stem == "best":
            saved.append(path)
            if len(saved) == 1:
                raise OSError(28, "No space left on device")
        save(path, *args)

    monkeypatch.setattr("recollect.run.session.Validation.is_due", lambda *_: True)
    monkeypatch.setattr("recollect.run.session.Validation.play", lambda *_: next(returns))
    monkeypatch.setattr(session, "save_weights", fail_once)
    assert run_quietly(small_config(rollouts=2), tmp_path).summary["best_val_return"] == 50
    assert len(saved) == 2


def test_a_failed_save_names_the_checkpoint_that_remains_or_says_that_there_is_none(tmp_path, monkeypatch):
    display = StopAt()
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    failing = {1, 3}
    save = checkpoint.save

    def fail(path, learner, *args):
        if learner.iteration in failing:
            raise OSError(28, "No space left on device")
        save(path, learner, *args)

    monkeypatch.setattr(checkpoint, "save", fail)
    run_quietly(replace(small_config(), rollouts=4), tmp_path)
    first, second = (line for line in display.said if line.startswith("not saved"))
    assert "there is no checkpoint yet" in first and "iteration-00000002.safetensors remains" in second


def test_old_checkpoints_go_although_the_weights_cannot_be_saved(tmp_path, monkeypatch):
    calls, save, left = [], session.save_weights, []

    def fail(path, *args):
        calls.append(path.stem)
        if calls.count("last") < 4:
            left.append(len(checkpoint.existing(path.parent)))
            raise OSError(28, "No space left on device", str(path))
        save(path, *args)

    monkeypatch.setattr(session, "save_weights", fail)
    run_quietly(replace(small_config(), rollouts=4, keep=1, val_check_interval=0), tmp_path)
    assert left == [1, 1, 1]


def test_a_signal_between_barriers_loses_nothing_where_states_are_saved(tmp_path, monkeypatch):
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    monkeypatch.setattr(session, "NEAR_BARRIER", 0.0)
    config = replace(small_config(), barrier=200, save_interval=200)
    folder = run_quietly(config, tmp_path).folder
    assert checkpoint.existing(folder / "checkpoints") == [checkpoint.path_of(folder / "checkpoints", 5)]


# Files that a command writes ------------------------------------------------------------------

TUNE = ["tune", "-e", "CartPole-v1", "-m", "ppo", "--steps", "300", "--trials", "2", "--seeds", "1"]
WRITING = {
    "config.yaml": ["train", "CartPole-v1", "--rollouts", "2", "--out", "new"],
    "evaluation.json": ["compare", "-e", "CartPole-v1", "-m", "ppo", "--rollouts", "2", "--seeds", "1"],
    "report.json": ["report", "RUN", "-o", "report"],
    "agent.safetensors": ["export", "RUN", "agent.safetensors"],
    "page.html": ["watch", "RUN", "-o", "page.html", "--episodes", "1"],
    "film.gif": ["watch", "RUN", "-o", "film.gif", "--episodes", "1"],
    "film.mp4": ["eval", "RUN", "--episodes", "1", "--render", "film.mp4"],
    "probe.html": ["probe", "RUN", "--episodes", "10", "-o", "probe"],
    "episodes.npz": ["record", "RUN", "-o", "episodes.npz", "--episodes", "2"],
    "journal.log": [*TUNE, "--out", "trials"],
}


@pytest.mark.parametrize("name", sampled(WRITING, "config.yaml", "report.json", "film.gif", "episodes.npz"))
def test_a_command_names_the_file_that_does_not_fit_and_leaves_no_half(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = run_quietly(small_config(), tmp_path / "runs").folder
    command = [str(folder) if word == "RUN" else word for word in WRITING[name]]
    before = set(tmp_path.rglob("*"))
    with limited(900):
        assert cli.main(command) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line and "it is not written: free space, or choose another place" in line
    written = {path.name for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert written <= {".lock", "journal.log"}  # a journal keeps its whole lines
