"""Remove each move between devices from the source, one at a time, and count those that a test notices.

    python -m benchmarks.device_mutations [FILE ...] [--list]

A move is .to(...) with a device, .cpu(), device=... in a call, pin_memory() or send(). The source is copied,
so the working tree stays as it is. FILE restricts the mutations to some files of src/recollect.

Without a mutation all tests must pass, and the lines that each of them executes are recorded. A mutant then
needs only the tests that execute its line, and the quick ones come first.
"""

import argparse
import ast
import contextlib
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "recollect"
SECONDS = 600  # a mutant whose tests take longer has made something wait forever
TESTS = [f"tests/device/test_{name}.py" for name in ("devices", "graphs", "training", "uses")]
# Moves whose removal changes nothing that a simulated device could show, with the reason.
EQUIVALENT = {
    "zero = torch.zeros((), dtype=dtype": "a number without axes may be on the CPU",
}


class Mutant(NamedTuple):
    """A source file in which one move is missing."""

    file: str
    lines: range
    removed: str
    source: str
    text: str


class Edit(NamedTuple):
    """Bytes of a file to be replaced."""

    begin: int
    end: int
    kept: bytes = b""


def mutants(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    raw = file.read_bytes()
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def ends(node: ast.expr | ast.keyword) -> int:
        return starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    for call in (node for node in ast.walk(ast.parse(raw)) if isinstance(node, ast.Call)):
        for edit in (*_moves(call, ends), *_places(call, ends, raw)):
            removed = " ".join(raw[edit.begin : edit.end].decode().strip(", ").split())
            text = (raw[: edit.begin] + edit.kept + raw[edit.end :]).decode()
            source = raw.splitlines()[call.lineno - 1].decode().strip()
            lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
            yield Mutant(str(file.relative_to(SOURCE)), lines, removed, source, text)


def _moves(call: ast.Call, ends: Callable[[ast.expr], int]) -> Iterator[Edit]:
    """A call of .to with a device, of .cpu or of .pin_memory, of which the receiver remains; of send, which
    leaves its tensor."""
    if isinstance(call.func, ast.Name) and call.func.id == "send":
        begin = ends(call.func) - len(call.func.id)
        yield Edit(begin, ends(call), ast.unparse(call.args[0]).encode())
    if not isinstance(call.func, ast.Attribute):
        return
    given = [ast.unparse(one) for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    others = [ast.unparse(one) for one in call.args if not is_device(ast.unparse(one))]
    if call.func.attr in ("cpu", "pin_memory") and not given:
        yield Edit(ends(call.func.value), ends(call))
    elif call.func.attr == "to" and any(map(is_device, given)):
        kept = f".to({', '.join(others)})" if others else ""
        yield Edit(ends(call.func.value), ends(call), kept.encode())


def _places(call: ast.Call, ends: Callable[[ast.keyword], int], raw: bytes) -> Iterator[Edit]:
    """device=... in a call of torch."""
    if not ast.unparse(call.func).startswith("torch."):
        return
    for keyword in call.keywords:
        if keyword.arg == "device":
            end = ends(keyword)
            yield Edit(raw.rindex(b",", 0, end - len(ast.unparse(keyword.value))), end)


def is_device(argument: str) -> bool:
    """Whether an argument of .to names a device, or a tensor that is on one."""
    return "device" in argument or argument in ("'cpu'", "place")


# Tests ----------------------------------------------------------------------------------------


class Recorder:
    """A plugin of pytest: the first test that fails, and the lines and seconds of each test.

    traced  files whose executed lines are recorded
    """

    def __init__(self, traced: set[str]) -> None:
        self.failed = ""
        self.seconds = dict[str, float]()
        self.tests = defaultdict[tuple[str, int], set[str]](set)  # that execute a line of a file
        self._traced = traced
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, before = item.nodeid, time.monotonic()
        if self._traced:
            sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.monotonic() - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def _enter(self, frame: FrameType, *_: Any) -> Any:
        return self._step if frame.f_code.co_filename in self._traced else None

    def _step(self, frame: FrameType, *_: Any) -> Any:
        self.tests[frame.f_code.co_filename, frame.f_lineno].add(self._test)
        return self._step


class Result(NamedTuple):
    """What a run of tests gave: the first failure, or ""; seconds by test; tests by file and line."""

    failed: str
    seconds: dict[str, float]
    tests: dict[tuple[str, int], set[str]]


def run_tests(mutant: Mutant | None, tests: list[str], traced: set[str], limit: float | None) -> Result:
    """Run tests in a process of their own, with a mutant or with the source as it is."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name in ("src", "tests", "benchmarks", "configs", "models"):
            shutil.copytree(ROOT / name, here / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", here)
        if mutant is not None:
            (here / "src" / "recollect" / mutant.file).write_text(mutant.text, encoding="utf-8")
        # Forked, because importing torch takes longer than most tests.
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_in_process, args=(here, tests, traced, sender))
        process.start()
        sender.close()
        try:
            result: Result = receiver.recv() if receiver.poll(limit) else Result("no end", {}, {})
        except EOFError:
            result = Result("the process died", {}, {})
        process.kill()
        process.join()
    return result


def _in_process(here: Path, tests: list[str], traced: set[str], sender: Any) -> None:
    os.chdir(here)
    os.environ["PYTHONPATH"] = str(here / "src")
    sys.path[:0] = [str(here / "src"), str(here)]
    package = here / "src" / "recollect"
    recorder = Recorder({str(package / file) for file in traced})
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[recorder])
    failed = recorder.failed or ("" if code == 0 else "the tests do not start")
    lines = {(str(Path(file).relative_to(package)), line): x for (file, line), x in recorder.tests.items()}
    sender.send(Result(failed, recorder.seconds, lines))


def main() -> int:
    """Print each mutant with what noticed it, and the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="files below src/recollect; all by default")
    parser.add_argument("--list", action="store_true", help="list the mutations, and stop")
    options = parser.parse_args()
    files = [SOURCE / name for name in options.files] or sorted(SOURCE.rglob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    if options.list:
        for mutant in every:
            print(f"{mutant.file}:{mutant.lines.start}  {mutant.removed}")
        return 0
    importlib.import_module("torch")  # before the forks
    original = run_tests(None, TESTS, {mutant.file for mutant in every}, None)
    if original.failed:
        print(f"the tests fail without a mutation: {original.failed}")
        return 2
    print(f"{len(original.seconds)} tests pass in {sum(original.seconds.values()):.0f} s", flush=True)
    survivors = [mutant for mutant in every if not _is_noticed(mutant, original)]
    known = [mutant for mutant in survivors if any(key in mutant.source for key in EQUIVALENT)]
    print(f"{len(every)} moves: {len(every) - len(survivors)} noticed, {len(known)} that change nothing here")
    return int(len(survivors) > len(known))


def _is_noticed(mutant: Mutant, original: Result) -> bool:
    """Whether a test fails with a mutant; prints which."""
    before = time.monotonic()
    executing = set[str]().union(*(original.tests.get((mutant.file, line), ()) for line in mutant.lines))
    tests = sorted(executing, key=lambda test: original.seconds[test])
    failed = run_tests(mutant, tests, set(), SECONDS).failed if tests else ""
    result = "noticed " if failed else "SURVIVES"
    name = f"{mutant.file}:{mutant.lines.start}  {mutant.removed}"
    print(f"{result}  {name}  {time.monotonic() - before:.0f} s  {failed}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
