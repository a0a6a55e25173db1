"""What recollect needs of the operating system, on systems that have less of it than Linux."""

import subprocess
import sys
import types

import pytest

from recollect.common import locks, malloc
from recollect.common.errors import UsageError
from recollect.common.signals import Signals, terminate_this_process
from recollect.run.run_folder import is_locked, locked

# Windows has none of these modules and functions, and locks files by msvcrt.
WITHOUT = """
import os, subprocess, sys, types
import gymnasium, torch  # which know the systems themselves
import fcntl as real

def locking(number, mode, size):
    real.flock(number, real.LOCK_EX | real.LOCK_NB)

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
for name in ("fork", "getuid", "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "SCHED_BATCH"):
    delattr(os, name)
"""
TRAIN = """
import recollect
options = {"env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "save_interval": 1}
run = recollect.train("CartPole-v1", steps=300, options=options, run_id="run", quiet=True)
for update in recollect.iterate("CartPole-v1", steps=600, options=options, run_id="other"):
    break
assert recollect.resume(update.folder, quiet=True).summary["status"] == "finished"
print(recollect.load(run.folder).evaluate(3).mean)
"""


@pytest.mark.thorough
def test_the_core_trains_without_what_only_unix_has(tmp_path):
    code = [sys.executable, "-c", WITHOUT + TRAIN]
    result = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr[-2000:]
    assert float(result.stdout) > 0


@pytest.fixture
def windows(monkeypatch):
    """The locks of Windows, by those of this system."""
    calls = []

    def locking(number, mode, size):
        calls.append((mode, size))
        try:
            real.flock(number, real.LOCK_EX | real.LOCK_NB)
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    real = locks.fcntl
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", types.SimpleNamespace(LK_NBLCK=2, locking=locking))
    return calls


def test_folders_are_locked_on_windows_as_well(windows, tmp_path):
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(UsageError, match="is in use by another process"), locked(tmp_path):
            pass
    assert not is_locked(tmp_path)
    assert windows and set(windows) == {(2, 1)}


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_a_process_terminates_itself_where_its_state_can_be_saved(system, monkeypatch):
    monkeypatch.setattr("recollect.common.signals.os.name", system)
    with Signals() as signals:
        terminate_this_process()
        assert signals.caught == 15


def test_a_c_library_without_mallopt_changes_nothing(monkeypatch):
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: types.SimpleNamespace())
    malloc.keep_freed_memory()
    monkeypatch.setattr(malloc.ctypes, "CDLL", None)  # a call would fail, as CDLL(None) does on Windows
    monkeypatch.setattr(malloc.os, "name", "nt")
    malloc.keep_freed_memory()
