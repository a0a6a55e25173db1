"""A signal ends a run within ten seconds, whatever it is doing, and leaves no process behind."""

import contextlib
import json
import multiprocessing.util
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from recollect import cli
from recollect.commands.train import EXIT_CODES
from recollect.common import signals
from recollect.common.signals import Signals, StoppedError
from recollect.run import api, checkpoint

from ..helpers import StopAt, assert_same_end, run_quietly, small_config, wait_for

# In a process of their own: these tests fork it.
pytestmark = pytest.mark.timing

SHORT = 0.4  # seconds of grace in these tests


class Endless(gymnasium.Env):
    """Writes the name of each call to a file; may be slow in one of them."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    calls = 0  # of all environments of the process

    def __init__(self, journal: Path, slow: str = "", after: int = 0, stubborn: bool = False) -> None:
        self.journal, self.slow, self.after, self.stubborn = journal, slow, after, stubborn

    def call(self, name: str) -> None:
        Endless.calls += 1
        if name == self.slow and Endless.calls > self.after:
            self.journal.write_text(name)
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    time.sleep(60)
                except BaseException:
                    if not self.stubborn:
                        raise

    def reset(self, *, seed=None, options=None):
        self.call("reset")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.call("step")
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self):
        self.call("close")


def stopped(
    work: Callable[[], int], journal: Path, number: int = signal.SIGTERM, twice: bool = False
) -> tuple[int, float]:
    """Fork, send a signal once the journal exists; the exit code of the child, and seconds after it."""
    child = os.fork()
    if not child:
        code = 99
        try:
            signals.GRACE, signals.LAST_GRACE = (60.0, 60.0) if twice else (SHORT, SHORT)
            code = work()
        except BaseException:
            journal.with_name("failure").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    wait_for(lambda: journal.exists() or journal.with_name("failure").exists(), 60)
    if not journal.exists():
        pytest.fail(journal.with_name("failure").read_text())
    os.kill(child, number)
    begun = time.monotonic()
    if twice:
        time.sleep(0.2)
        os.kill(child, number)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - begun


def train_in(tmp_path: Path, env: Callable[[], gymnasium.Env], **changes: object) -> Callable[[], int]:
    """Train in the environment; the exit code of the command line."""
    backend = str(changes.pop("backend", "gymnasium"))
    changes = {"barrier": 2, "save_interval": 2, "rollouts": 4, **changes}

    def work() -> int:
        config = small_config("endless", backend, **changes)
        return EXIT_CODES[run_quietly(config, tmp_path, factory=env).summary["status"]]

    return work


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "ppo" / "endless" / "run"


# Four environments are reset, and take 16 steps in each rollout: 68 calls in the first.
PHASES = {
    "collecting": ({"slow": "step", "after": 140}, {}),
    "a reset at a barrier": ({"slow": "reset", "after": 100}, {}),
    "a validation": ({"slow": "step", "after": 70}, {"val_check_interval": 1, "val_episodes": 1}),
    "closing": ({"slow": "close", "after": 141}, {"rollouts": 2}),
    "a hung worker": ({"slow": "step", "after": 20}, {"backend": "workers"}),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_ends_every_phase(phase, number, tmp_path):
    env, changes = PHASES[phase]
    journal = tmp_path / "journal"
    work = train_in(tmp_path, lambda: Endless(journal, **env), **changes)
    code, seconds = stopped(work, journal, number)
    assert code == (99 if phase == "closing" else 128 + number)  # 99: StoppedError, after the end
    assert seconds < SHORT * 2 + 3
    summary = json.loads((folder_of(tmp_path) / "summary.json").read_text())
    assert summary["status"] == ("finished" if phase == "closing" else signal.Signals(number).name)


def test_an_environment_that_ignores_exceptions_is_ended_too(tmp_path):
    journal = tmp_path / "journal"
    work = train_in(tmp_path, lambda: Endless(journal, "step", 140, stubborn=True))
    code, seconds = stopped(work, journal)
    assert code == 128 + signal.SIGTERM and seconds < SHORT * 2 + 3


def test_a_second_signal_ends_at_once(tmp_path):
    journal = tmp_path / "journal"
    work = train_in(tmp_path, lambda: Endless(journal, "step", 140, stubborn=True))
    code, seconds = stopped(work, journal, twice=True)
    assert code == 128 + signal.SIGTERM and seconds < 2


def test_the_grace_of_a_signal_is_below_ten_seconds():
    assert signals.GRACE + signals.LAST_GRACE < 10


def test_an_interrupted_iteration_is_not_saved_and_the_run_resumes_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.0)
    straight = run_quietly(small_config(), tmp_path, "straight")
    display = StopAt(6)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: display)
    # The run would save at the end of the iteration; its callback takes too long.
    stopped = run_quietly(
        small_config(),
        tmp_path,
        "stopped",
        on_rollout=lambda update: update.metrics["iteration"] == 6 and nap(),
    )
    assert stopped.summary["status"] == "SIGTERM"
    assert [path.stem for path in checkpoint.existing(stopped.folder / "checkpoints")][-1].endswith("5")
    assert any("within an iteration" in line and "iteration-00000005" in line for line in display.said)
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt())
    api.resume(stopped.folder)
    assert_same_end(straight.folder, stopped.folder)


def nap() -> None:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        time.sleep(0.01)
    raise AssertionError("nothing interrupted the callback")


def test_the_interrupt_is_a_keyboard_interrupt_with_the_signal():
    error = StoppedError(signal.SIGTERM)
    assert isinstance(error, KeyboardInterrupt) and error.number == 15 and "SIGTERM" in str(error)
    with Signals() as caught:
        os.kill(os.getpid(), signal.SIGTERM)
        assert caught.caught == signal.SIGTERM
    assert caught._timer is not None and caught._timer.finished.is_set()


# Worker processes -----------------------------------------------------------------------------


BARRIER = ["--env.backend", "workers", "--num-envs", "4", "--ppo.num-steps", "32", "--barrier"]


class Slow(gymnasium.Env):
    """Hangs in its first reset, or in its 20th step."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, journal: str, call: str) -> None:
        self.journal, self.calls, self.slow = Path(journal), 0, call

    def reset(self, *, seed=None, options=None):
        self.hang("reset", 1)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.hang("step", 20)
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def hang(self, call: str, number: int) -> None:
        self.calls += call == self.slow
        if call == self.slow and self.calls == number:
            self.journal.write_text(call)
            time.sleep(60)


gymnasium.register("SlowCall-v0", entry_point=Slow)


def train_with_workers(folder: Path, *words: str) -> None:
    """Train as the command line does, as the leader of a group, with all output in a file."""
    os.setsid()
    file = os.open(folder / "out", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (pytest has replaced it)
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    code = 99
    try:
        code = cli.main(["train", *(words or ["CartPole-v1", *BARRIER, "9999"]), "--out", str(folder)])
    finally:
        # As a process ends by itself: this one has the exit handlers of pytest too.
        multiprocessing.util._exit_function()
        sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def training(folder: Path, *words: str, journal: Path | None = None) -> Iterator[int]:
    """A process that has begun to train with workers, all of which have to be gone at the end."""
    child = os.fork()
    if not child:
        train_with_workers(folder, *words)
    out = folder / "out"
    begun = journal.exists if journal else lambda: out.exists() and "step " in out.read_text()
    try:
        wait_for(begun, 60)
        wait_for(lambda: len(processes_of(child)) > 4, 60)  # at a barrier they begin anew
        workers = [pid for pid in processes_of(child) if pid != child]
        yield child
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 5)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def processes_of(group: int) -> list[int]:
    """Processes with this parent, or in its group."""
    lines = subprocess.run(["ps", "-eo", "pid,ppid,pgid"], capture_output=True, text=True).stdout.splitlines()
    rows = [[int(word) for word in line.split()] for line in lines[1:]]
    return [pid for pid, parent, leader in rows if group in (parent, leader)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_before_the_first_barrier_leaves_a_line_and_no_worker(number, tmp_path):
    with training(tmp_path) as run:
        os.killpg(run, number)
        assert os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]) == 128 + number
    out = (tmp_path / "out").read_text()
    assert "Traceback" not in out and f"stopped by {signal.Signals(number).name}" in out
    assert "recollect resume" in out


def test_a_signal_to_every_process_lets_the_iteration_be_saved(tmp_path):
    """As a batch system ends a job: workers that ended would take the iteration with them."""
    with training(tmp_path, "CartPole-v1", *BARRIER, "10") as run:
        for process in sorted(processes_of(run), reverse=True):  # workers before their parent
            with contextlib.suppress(ProcessLookupError):  # of those that are about to end
                os.kill(process, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]) == 143
    out = (tmp_path / "out").read_text()
    assert "stopped by SIGTERM; recollect resume" in out and "Traceback" not in out
    (summary,) = tmp_path.rglob("summary.json")
    saved = checkpoint.existing(summary.parent / "checkpoints")
    assert saved and int(saved[-1].stem.split("-")[1]) == json.loads(summary.read_text())["iteration"]


@pytest.mark.parametrize(
    ("call", "grace", "last"), [("reset", 5.0, "unfinished output"), ("step", SHORT, "recollect resume")]
)
def test_a_signal_while_workers_hang_leaves_a_line_and_no_traceback(call, grace, last, tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "GRACE", grace)
    journal = tmp_path / "journal"
    how = ["--env.kwargs.journal", str(journal), "--env.kwargs.call", call, *BARRIER, "9999"]
    with training(tmp_path, f"{__name__}:SlowCall-v0", *how, journal=journal) as run:
        os.kill(run, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]) == 143
    out = (tmp_path / "out").read_text()
    assert "Traceback" not in out and last in out
    # Before the run has a folder, resets show whether they repeat.
    begun = [json.loads(path.read_text())["status"] for path in tmp_path.rglob("summary.json")]
    assert begun == (["SIGTERM"] if call == "step" else [])


def test_two_signals_to_the_parent_leave_no_worker(tmp_path):
    with training(tmp_path) as run:
        os.kill(run, signal.SIGTERM)
        os.kill(run, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]) == 143
