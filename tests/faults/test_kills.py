"""A thousand kills at random moments, half of them during saves: nothing is lost, and no bit differs.

Each trial is a process that trains, a SIGKILL at a uniformly drawn fraction of the measured run time,
and a process that resumes. The fraction is measured in saves of the trial, so that the kill hits the
same place of a run on a machine that slows down or speeds up. A server imports everything once and
forks, so that a trial costs a run and not an import. It is not the process of the tests, whose autograd may
have begun threads that no fork has. Saves are slowed, so that many kills hit one.
"""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from recollect.common.errors import CheckpointError
from recollect.run import api, checkpoint, session
from recollect.run.display import SilentDisplay

from ..helpers import MEMORIES, assert_same_end, branch, run_quietly, small_config

KILLS = 1000
ROLLOUTS = 40
SAVES_TAKE = 0.005  # seconds for each sync
TIERS: dict[str, dict[str, Any]] = {
    "native": {},
    "barrier": {"env_id": "LunarLander-v3", "barrier": 2, "save_interval": 2},
}
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([__name__])


class JournalDisplay(SilentDisplay):
    """Writes to a journal from which checkpoint a run resumed."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal

    def print_line(self, text: str) -> None:
        note(self.journal, text)


def note(journal: Path, text: str) -> None:
    with open(journal, "a") as file:
        file.write(text + "\n")
        file.flush()


def begin(journal: Path, work: Callable[..., object], *arguments: object) -> BaseProcess:
    """Do this in a process whose saves are slow, and noted in the journal."""
    process = SERVER.Process(target=_work, args=(journal, work, arguments))
    process.start()
    return process


def _work(journal: Path, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    save = checkpoint.save

    def save_with_note(path: Path, *args: object) -> None:
        save(path, *args)
        note(journal, f"saved {path.name} {time.perf_counter()}")

    # A kill loses nothing that the system has, so syncs only have to take their time.
    os.fsync = lambda descriptor: time.sleep(SAVES_TAKE)
    checkpoint.save = save_with_note
    session.make_display = lambda *_: JournalDisplay(journal)
    note(journal, f"begun {time.perf_counter()}")
    work(*arguments)


def end(journal: Path, work: Callable[..., object], *arguments: object) -> None:
    """The same, to its end."""
    process = begin(journal, work, *arguments)
    process.join()
    assert process.exitcode == 0


@pytest.mark.faults
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("memory", sorted(MEMORIES))
def test_random_kills_lose_nothing(memory, tier, tmp_path) -> None:
    network = branch(memory)
    config = small_config(rollouts=ROLLOUTS, actor=network, critic=network, **TIERS[tier])
    dice = random.Random(f"{memory} {tier} 20261125")
    kills = KILLS // (len(MEMORIES) * len(TIERS))
    end(tmp_path / "journal-straight", run_quietly, config, tmp_path, "straight")
    [straight] = tmp_path.glob("*/*/straight")
    measured = tmp_path / "journal-measured"  # a second run: the first also fills the disk cache
    end(measured, run_quietly, config, tmp_path, "measured")
    moments = times(measured)
    inside_saves, outside, trials = 0, 0, 0
    while trials < kills:
        name = f"killed{trials + outside}"
        folder = straight.with_name(name)
        journal = tmp_path / f"journal-{name}"
        run = begin(journal, run_quietly, config, tmp_path, name)
        wait_for(journal, moments, dice.uniform(0, moments[-1]))
        if trials % 2:
            wait_for_save(folder, run)
        run.kill()
        run.join()
        newest = last_complete(folder) if saved(journal) else None
        if newest is None or int(newest[10:18]) == ROLLOUTS:
            outside += 1  # before its first save, or after its last: draw again
            assert outside < kills, "the run is too short to be killed before its end"
            continue
        assert run.exitcode == -signal.SIGKILL, "it ended by itself before its end"
        inside_saves += bool(list((folder / "checkpoints").glob(".*.tmp")))
        assert newest >= saved(journal)[-1], "a complete checkpoint was lost"
        end(journal, resume_quietly, folder)
        resumed = [line for line in journal.read_text().splitlines() if line.startswith("resumed ")]
        assert resumed[-1].split()[1] == newest
        assert 0 < int(newest[10:18]) < ROLLOUTS, "the resumed step lies inside the run"
        assert_same_end(straight, folder)
        trials += 1
    counts = f"{inside_saves} during a save, {outside} drawn again"
    print(f"\n{memory}, {tier}: {kills} kills in runs of {len(moments)} saves, {counts}")
    assert inside_saves >= kills // 4


def resume_quietly(folder: Path) -> None:
    api.resume(folder, quiet=True)


def saved(journal: Path) -> list[str]:
    """Names of the complete checkpoints, in order."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [line.split()[1] for line in lines if line.startswith("saved ")]


def times(journal: Path) -> list[float]:
    """The time of each complete save, in seconds after the start of the run."""
    lines = [line.split() for line in journal.read_text().splitlines()]
    begun = next(float(words[1]) for words in lines if words[0] == "begun")
    return [float(words[2]) - begun for words in lines if words[0] == "saved"]


def wait_for(journal: Path, moments: list[float], moment: float) -> None:
    """Wait until a run is as far as the measured one was at this moment.

    That is after as many saves, plus the rest of the time, scaled by the speed of this run so far.
    """
    before = sum(end <= moment for end in moments)
    start = time.perf_counter()
    while len(saved(journal)) < before:
        assert time.perf_counter() - start < 300, "the run does not save"
        time.sleep(0.001)
    reached = moments[before - 1] if before else 0.0
    pace = (time.perf_counter() - start) / reached if before else 1.0
    time.sleep(pace * (moment - reached))


def wait_for_save(folder: Path, run: BaseProcess) -> None:
    """Wait until a run is writing a checkpoint, or has ended."""
    while not list((folder / "checkpoints").glob(".*.tmp")):
        if not run.is_alive():
            return
        time.sleep(0.0005)


def last_complete(folder: Path) -> str:
    """The name of the newest checkpoint that can be read."""
    for path in reversed(checkpoint.existing(folder / "checkpoints")):
        try:
            checkpoint.read(path)
        except CheckpointError:
            continue
        return path.name
    raise AssertionError(f"no complete checkpoint in {folder}")
