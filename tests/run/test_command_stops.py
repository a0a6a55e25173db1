"""SIGINT and SIGTERM end every command in time, with their exit codes, and leave no half of a file."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from recollect import cli
from recollect.common import output_paths, signals

from ..helpers import run_quietly, small_config, wait_for
from .test_stops import stopped

# Apart from the parallel workers: these tests fork their process.
pytestmark = pytest.mark.timing

NUMBERS = [signal.SIGINT, signal.SIGTERM]
LONG = ["--steps", "1e7"]
TRAINED = ["CartPole-v1", "--env.num-envs", "4", "--ppo.num-steps", "32", "--kernels", "torch"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return run_quietly(small_config(rollouts=2), tmp_path_factory.mktemp("agent")).folder


def commands(run: Path, folder: Path) -> dict[str, list[str]]:
    """Commands by the function in which the signal reaches them, module:name."""
    agent, out = str(run), str(folder / "out")
    return {
        "recollect.run.dataset:np.savez_compressed": ["record", agent, "-o", f"{out}.npz", "--episodes", "2"],
        "recollect.commands.record:record_episodes": ["record", agent, "-o", f"{out}.npz"],
        "recollect.run.teaching:train": ["clone", "--teacher", agent, "-e", *TRAINED, *LONG, "-o", out],
        "recollect.commands.clone:save_agent": [
            *("clone", "--teacher", agent, "-e", *TRAINED, "--steps", "128", "-o", f"{out}.safetensors")
        ],
        "recollect.run.weights:checkpoint.os.fsync": ["export", agent, f"{out}.safetensors"],
        "recollect.run.bench:collect": ["bench", *TRAINED],
        "recollect.run.evaluate:play_episodes": ["eval", agent],
        "recollect.probing.measure:record_deterministic": ["probe", agent, "-o", out],
        "recollect.watching.command:render_player": ["watch", agent, "-o", f"{out}.html", "--episodes", "2"],
        "recollect.commands.environment_checks:data_equivalence": ["doctor", "poc"],
        "recollect.reporting.report:read_runs": ["report", agent, "-o", out],
        "recollect.reporting.report:render_page": ["report", agent, "-o", out],
    }


PLACES = list(commands(Path(), Path()))


def patched(place: str, journal: Path, patch: pytest.MonkeyPatch) -> None:
    """Make a function write half of its file, if it has one, say so in the journal, and hang."""
    module, _, name = place.partition(":")

    def hang(*arguments: object, **others: object) -> None:
        file = arguments[0] if arguments else None
        if hasattr(file, "write"):
            file.write(b"half")
            file.flush()
        journal.write_text(place)
        # In parts: a signal that comes just before the system call is noticed after it.
        for _ in range(600):
            time.sleep(0.1)

    patch.setattr(f"{module}.{name}", hang)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_ends_a_command(place, number, run, tmp_path, monkeypatch, capfd):
    journal = tmp_path / "journal"
    patched(place, journal, monkeypatch)
    words = commands(run, tmp_path)[place]
    code, seconds = stopped(lambda: cli.main(words), journal, number)
    assert code == 128 + number and seconds < 2
    assert f"stopped by {signal.Signals(number).name}" in capfd.readouterr().err
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()} - {"journal"}
    # The first file of a report is whole when its page is made.
    assert files == ({"report.json"} if place.endswith("render_page") else set())


def test_a_second_signal_ends_a_command_that_hangs_in_its_clean_up(run, tmp_path, monkeypatch):
    journal = tmp_path / "journal"

    def stubborn(*_: object, **__: object) -> None:
        journal.write_text("collecting")
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue

    monkeypatch.setattr("recollect.run.bench.collect", stubborn)
    code, seconds = stopped(lambda: cli.main(["bench", *TRAINED]), journal, twice=True)
    assert code == 143 and seconds < 2
    journal.unlink()
    code, seconds = stopped(lambda: cli.main(["bench", *TRAINED]), journal)
    assert code == 143 and seconds < 3  # its grace has passed


def test_handlers_are_those_of_before_when_a_command_ends(capsys):
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["list", "memories"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before and signals.Signals.active is None


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "page.html"
    output_paths.write_whole_text(path, "old")
    with pytest.raises(KeyboardInterrupt), output_paths.whole_file(path) as temporary:
        temporary.write_text("ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_link_keeps_its_place_and_a_device_is_written_to(tmp_path):
    link, target = tmp_path / "link", tmp_path / "elsewhere" / "page.html"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("old", "new"):
        output_paths.write_whole_text(link, text)
        assert link.is_symlink() and target.read_text() == text
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    output_paths.write_whole_text(pipe, "through")
    assert os.read(reader, 9) == b"through" and pipe.is_fifo()
    os.close(reader)


# With all processes that a command starts ------------------------------------------------------------


def descendants(token: str) -> list[bytes]:
    """Command lines of the processes that have a token in their environment, orphans as well."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                lines.append((folder / "cmdline").read_bytes())
        except OSError:
            pass
    return lines


def stop_process(words: list[str], folder: Path, ready, number: int, twice: bool = False) -> tuple[int, str]:
    """Start a command, send a signal when it is ready for it; exit code and output. No process may remain."""
    token = uuid.uuid4().hex
    env = {**os.environ, "TOKEN": token, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    with open(folder / "output", "w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", *words],
            cwd=folder,
            stdout=output,
            stderr=output,
            env=env,
            start_new_session=True,
        )
    try:
        wait_for(lambda: ready(token) or process.poll() is not None, 60)
        process.send_signal(number)
        begun = time.monotonic()
        if twice:
            time.sleep(0.1)
            process.send_signal(number)
        code = process.wait(30)
        assert time.monotonic() - begun < (2 if twice else 10)
        wait_for(lambda: not descendants(token), 3)
    finally:
        process.kill()
    return code, (folder / "output").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("number", "twice"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.faults),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.faults),
        (signal.SIGINT, True),
    ],
)
def test_a_signal_ends_the_compiler_as_well(number, twice, tmp_path):
    words = ["train", "CartPole-v1", "--kernels", "native", "--out", "runs"]
    code, text = stop_process(
        words, tmp_path, lambda token: any(b"cc1" in line for line in descendants(token)), number, twice
    )
    assert code == 128 + number and "Traceback" not in text
    assert list((tmp_path / "cache" / "recollect").iterdir()) == []


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("seconds", [0.5, 1.5, 3.0, None])
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("command", ["compare", "tune"])
def test_a_signal_ends_a_command_with_runs(command, number, seconds, tmp_path):
    words = [command, "-e", "CartPole-v1", "-m", "ppo", "--kernels", "torch", "--out", "runs", *LONG]
    words += {"compare": ["--seeds", "2", "--report", "report"], "tune": ["--trials", "2"]}[command]
    begun = time.monotonic()

    def ready(token: str) -> bool:
        if seconds is not None:
            return time.monotonic() > begun + seconds
        files = list(tmp_path.rglob("metrics.jsonl"))
        return len(files) == 2 and all(path.stat().st_size for path in files)

    code, text = stop_process(words, tmp_path, ready, number)
    assert code == 128 + number and "Traceback" not in text
    assert not (tmp_path / "report").exists()
