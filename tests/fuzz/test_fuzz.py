"""Random command lines, files and run folders: one line of error or none, and no harm.

`make fuzz` tries ten thousand. A case that fails is repeated by its kind and number:

    FUZZ=config:123 python -m pytest tests/fuzz
"""

import os
import random
import tempfile
from pathlib import Path

import pytest

from recollect.common.errors import UsageError
from recollect.envs import Envs

from ..helpers import StopAt, run_quietly, small_config
from .cases import KINDS, case
from .sandbox import execute

CASES = int(os.environ.get("FUZZ_CASES", "300"))
ONE = os.environ.get("FUZZ", "")
SHARES = 8  # parts of each kind, which run side by side


class Reached(UsageError):
    """The input was good: what follows costs time and is tested elsewhere."""


def reached(*_: object, **__: object) -> None:
    raise Reached("the input was accepted")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that was stopped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recollect.run.session.make_display", lambda *_: StopAt(3))
        return run_quietly(small_config(), tmp_path_factory.mktemp("run")).folder


@pytest.fixture
def stops_at_the_first_step(monkeypatch) -> None:
    monkeypatch.setattr(Envs, "step", reached)
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
        outcome = execute(command, folder, allowed())
        faults = outcome.faults() + ["code of a file ran"] * (folder / "ran").exists()
        if faults:
            found.append(f"{kind}:{number} {faults} {command}\n{outcome.err[-1500:]}")
    assert not found, "\n\n".join(found)


def allowed() -> list[Path]:
    """Where any command may write: caches and settings of libraries."""
    return [
        Path.home() / ".cache",
        Path.home() / ".config",
        Path(tempfile.gettempdir()) / "envpool-jumanji-matplotlib",
    ]
