"""`recollect export`: the agent of a run as one file, of weights, or as an ONNX graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..common.errors import UsageError
from ..common.output_paths import check_new_file
from ..run import api
from ..run.run_folder import read_summary
from ..run.weights import check_agent_file


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write the agent of a run as one file: its weights, and all that is needed to act with them.

      recollect export RUN agent.safetensors          the last weights of a run folder
      recollect export RUN agent.safetensors --best   the weights of the best validation
      recollect export RUN agent.onnx                 an ONNX graph of the actor, with its memory

    `recollect eval`, `watch` and `probe` take a .safetensors file, and so does recollect.load in Python. An
    .onnx file acts without recollect and without torch (extra onnx).
    """

    POSITIONAL: ClassVar = ("run", "file")

    run: str
    """A run folder, a checkpoint or a saved agent."""
    file: Path
    """The file to write, .safetensors or .onnx; it must not exist."""
    best: bool = False
    """The weights of the best validation instead of the last; of a run folder."""
    env: str | None = None
    """The environment's id again, if it imports a module."""
    imports: tuple[str, ...] = ()
    """Third-party memories and encoders named in the file, which may then be imported."""


def run_export(options: ExportOptions) -> int:
    """Read the weights and write the file; the exit code."""
    source, file = Path(options.run), options.file
    if options.best:
        best = source / "checkpoints" / "best.safetensors"
        if not best.exists():
            raise UsageError(f"{best} does not exist: --best needs the folder of a run that was validated")
        summary = read_summary(source)
        if summary["status"] == "finished" and summary.get("best_val_return") is None:
            raise UsageError(f"{source} was never validated, so no weights are its best; leave out --best")
        source = best
    check_new_file(file)
    check_agent_file(file)
    api.load(source, env=options.env, imports=options.imports).save(file)
    print(f"{file}: the agent of {source}, {file.stat().st_size:,} bytes")
    return 0
