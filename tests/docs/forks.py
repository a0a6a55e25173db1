"""Runs scripts in forks of a process that has imported recollect, which takes longer than most of them.

    python -m tests.docs.forks

Each line of the input is a folder, whose example.py is run there. A line of the output is its exit status;
errors.txt in the folder has what it printed.
"""

import os
import runpy
import signal
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

LIMIT = 150  # seconds for a script


@cache
def server() -> subprocess.Popen[str]:
    """The process that forks; one for each process of the tests. It ends with its input."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def run_script(folder: Path, code: str) -> None:
    """Run code as a script in a folder, in a process of its own. If it fails, the error has its output."""
    (folder / "example.py").write_text(code)
    process = server()
    assert process.stdin and process.stdout
    process.stdin.write(f"{folder}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "0\n", (folder / "errors.txt").read_text()[-2000:]


def execute(folder: str) -> None:
    """Execute the script of a folder, as `python example.py` there would; never returns."""
    status = 1
    try:
        os.chdir(folder)
        output = os.open("errors.txt", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.path[0], sys.argv = folder, ["example.py"]
        runpy.run_path("example.py", run_name="__main__")
        status = 0
    except BaseException:  # also SystemExit: an example ends by itself
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Fork for each folder."""
    import recollect.run.api  # noqa: F401 (imported for its forks)

    for line in sys.stdin:
        process = os.fork()
        if not process:
            signal.alarm(LIMIT)  # which ends the process
            execute(line.strip())
        print(os.waitpid(process, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
