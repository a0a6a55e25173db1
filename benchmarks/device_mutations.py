"""Remove each move between devices from the source, one at a time, and count those that a test notices.

    python -m benchmarks.device_mutations [FILE ...] [--list]

A move is .to(...) with a device, .cpu(), device=... in a call, or pin_memory(). The source is copied, so
the working tree stays as it is. FILE restricts the mutations to some files of src/recollect. Takes about
half an hour.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "recollect"
SECONDS = 600  # a mutant whose tests take longer has made something wait forever
# The fastest first; the last file has all others.
TRAINING = "tests/device/test_training.py"
TESTS = [
    f"{TRAINING}::test_memories_give_the_outputs_and_gradients_of_the_cpu",
    f"{TRAINING}::test_a_step_of_the_environment_is_one_copy_up_and_one_down",
    *(f"tests/device/test_{name}.py" for name in ("uses", "devices", "training")),
]
# Moves whose removal changes nothing that a simulated device could show, with the reason.
EQUIVALENT = {
    "zero = torch.zeros((), dtype=dtype": "a number without axes may be on the CPU",
}


class Mutant(NamedTuple):
    """A source file in which one move is missing."""

    file: str
    line: int
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
            yield Mutant(str(file.relative_to(SOURCE)), call.lineno, removed, source, text)


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
    return "device" in argument or argument in ("'cpu'", "rollout.log_prob", "to")


def outcome(mutant: Mutant | None) -> str:
    """The first test that fails with the mutant, or with the source as it is; empty if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name in ("src", "tests", "benchmarks", "configs", "models"):
            shutil.copytree(ROOT / name, here / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", here)
        if mutant is not None:
            (here / "src" / "recollect" / mutant.file).write_text(mutant.text, encoding="utf-8")
        tests = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            *TESTS,
        ]
        env = {**os.environ, "PYTHONPATH": str(here / "src")}
        try:
            ran = subprocess.run(
                tests, cwd=here, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS} s"
    if ran.returncode == 0:
        return ""
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else "the tests do not start"


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
    if not options.list and (failed := outcome(None)):
        print(f"the tests fail without a mutation: {failed}")
        return 2
    survivors = list[Mutant]()
    for mutant in every:
        name = f"{mutant.file}:{mutant.line}  {mutant.removed}"
        if options.list:
            print(name)
            continue
        before = time.monotonic()
        failed = outcome(mutant)
        if not failed:
            survivors.append(mutant)
        print(
            f"{'noticed ' if failed else 'SURVIVES'}  {name}  {time.monotonic() - before:.0f} s  {failed}",
            flush=True,
        )
    if options.list:
        return 0
    known = [mutant for mutant in survivors if any(key in mutant.source for key in EQUIVALENT)]
    print(f"{len(every)} moves: {len(every) - len(survivors)} noticed, {len(known)} that change nothing here")
    return int(len(survivors) > len(known))


if __name__ == "__main__":
    sys.exit(main())
