"""Random command lines, files and run folders: one line of error or none, and no harm.

`make fuzz` tries ten thousand. A case that fails is repeated by its kind and number:

    FUZZ=config:123 python -m pytest tests/fuzz
"""

import faulthandler
import getpass
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from recollect.common.errors import UsageError
from recollect.comparison.jobs import write_evaluation
from recollect.envs import Envs
from recollect.run import api

from ..helpers import stopped_run
from . import sandbox
from .cases import KINDS, case

CASES = int(os.environ.get("FUZZ_CASES", "300"))
ONE = os.environ.get("FUZZ", "")
SHARES = 8  # parts of each kind, which run side by side


class Reached(UsageError):
    """The input was good: what follows costs time and is tested elsewhere."""


def reached(*_: object, **__: object) -> None:
    raise Reached("the input was accepted")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that was stopped, and evaluated."""
    folder = stopped_run(tmp_path_factory.mktemp("run"), 3)
    write_evaluation(folder, api.load(folder).evaluate(2))
    return folder


@pytest.fixture
def stops_at_the_first_step(monkeypatch) -> None:
    monkeypatch.setattr(Envs, "step", reached)
    # Random agents play many episodes of each task, before any run.
    monkeypatch.setattr("recollect.comparison.compare.random_baselines", lambda *_: {})
    monkeypatch.setattr("recollect.comparison.compare.run_jobs", reached)
    monkeypatch.setattr("recollect.tuning.tune.TuningDisplay", reached)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kind", KINDS)
def test_no_input_does_harm(kind, share, tmp_path, run, stops_at_the_first_step):
    numbers = range(share, CASES // len(KINDS), SHARES)
    if ONE:
        numbers = [int(ONE.split(":")[1])] if ONE.split(":")[0] == kind and not share else []
    found = []
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        command = case(kind, random.Random(f"{kind}{number}"), folder, run)
        outcome = sandbox.execute(command, folder, allowed())
        faults = outcome.faults() + ["code of a file ran"] * (folder / "ran").exists()
        if faults:
            found.append(f"{kind}:{number} {faults} {command}\n{outcome.err[-1500:]}")
    assert not found, "\n\n".join(found)


# The sandbox itself --------------------------------------------------------------------------


def raise_an_error(_):
    raise TypeError("a fault of the program")


def write_elsewhere(_):
    Path("../elsewhere").write_text("x")


def start_a_process(_):
    subprocess.run(["true"], check=True)


def crash(_):
    faulthandler.disable()  # pytest's would print
    os.kill(os.getpid(), signal.SIGSEGV)


def take_all_memory(_):
    bytearray(2 * sandbox.MEMORY)


def hang(_):
    time.sleep(60)


def say_two_lines(_):
    print("recollect: one\nrecollect: two", file=sys.stderr)
    return 2


@pytest.mark.parametrize(
    "misdeed, fault",
    [
        (raise_an_error, "traceback"),
        (write_elsewhere, "elsewhere"),
        (start_a_process, "subprocess.Popen"),
        (crash, "SIGSEGV"),
        (take_all_memory, "traceback"),
        (hang, "SIGKILL"),
        (say_two_lines, "2 lines of error"),
    ],
)
def test_a_misdeed_is_found(misdeed, fault, tmp_path, monkeypatch):
    monkeypatch.setattr("recollect.cli.main", misdeed)
    monkeypatch.setattr(sandbox, "SECONDS", 2)
    folder = tmp_path / "case"
    folder.mkdir()
    assert fault in " ".join(sandbox.execute([], folder, allowed()).faults())


def test_a_line_of_error_is_no_misdeed(tmp_path):
    folder = tmp_path / "case"
    folder.mkdir()
    outcome = sandbox.execute(["train", "--nonsense"], folder, allowed())
    assert outcome.status == 2 and outcome.faults() == []


def allowed() -> list[Path]:
    """Where any command may write: caches and settings of libraries."""
    temporary = Path(tempfile.gettempdir())
    of_envpool, of_torch = (
        temporary / "envpool-jumanji-matplotlib",
        temporary / f"torchinductor_{getpass.getuser()}",
    )
    return [Path.home() / ".cache", Path.home() / ".config", of_envpool, of_torch]
