"""`recollect export`: the agent of a run as one file of weights, which eval, watch, probe and load take."""

from itertools import takewhile
from pathlib import Path

from ..common.errors import UsageError
from ..config.config import apply, tokens
from ..run import api
from .options import ExportOptions

ABOUT = """Write the agent of a run as one file: its weights, and all that is needed to act with them.

  recollect export RUN FILE            the last weights of a run folder, or those of a checkpoint
  recollect export RUN FILE --best     the weights of the best validation

`recollect eval`, `watch` and `probe` take the file, and so does recollect.load in Python.
"""


def run_export(arguments: list[str]) -> int:
    """Read, write, say what was written; the exit code."""
    options = parse(arguments)
    source, file = Path(options.run), Path(options.file)
    if options.best:
        source = source / "checkpoints" / "best.safetensors"
        if not source.exists():
            raise UsageError(f"{source} does not exist: --best needs a run folder in which a validation was")
    if file.exists():
        raise UsageError(f"{file} exists, and nothing is overwritten: remove it, or choose another name")
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent} is not a folder: make it first, or choose another place for {file}")
    api.load(source, env=options.env, imports=options.imports).save(file)
    print(f"{file}: the agent of {source}, {file.stat().st_size:,} bytes")
    return 0


def parse(arguments: list[str]) -> ExportOptions:
    """A run and a file, then options."""
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    given = [word for pair in zip(("--run", "--file"), names, strict=False) for word in pair]
    flags = tokens([*given, *names[2:], *arguments[len(names) :]])
    flags = [("--env" if name == "--env.id" else name, values) for name, values in flags]
    options = apply(ExportOptions(), flags, "recollect export", ABOUT)
    if not (options.run and options.file):
        raise UsageError("which run, and which file? recollect export runs/MODEL/ENV/ID agent.safetensors")
    return options
