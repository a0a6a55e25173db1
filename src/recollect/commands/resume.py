"""`recollect resume`: a run that was stopped, to its end."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..run import api
from .train import EXIT_CODES


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Resume a run that was stopped. The result is bit for bit that of a run without the stop, on the same
    machine with the same versions.

      recollect resume runs/ppo/CartPole-v1/s1-20260101-120000
    """

    POSITIONAL: ClassVar = ("run",)
    ELSEWHERE: ClassVar = dict.fromkeys(
        ("steps", "rollouts"),
        "a run is resumed to the end of its own budget; to train its agent further: recollect train ENV "
        "--init RUN --steps N",
    )

    run: str
    """A run folder."""
    env: str | None = None
    """The environment's id again, if it imports a module."""
    imports: tuple[str, ...] = ()
    """Third-party memories and encoders named in the files of the run, which may then be imported."""
    ignore_versions: bool = False
    """Resume with other versions than the run began with; the result may then differ."""
    device: str | None = None
    """Device of the networks: cpu, cuda, cuda:1, mps, auto; None: that of the run. On another one the result
    differs by rounding."""
    kernels: Literal["torch"] | None = None
    """torch: not the native kernels of the run, if they cannot be used here; the result then differs by
    rounding."""
    quiet: bool = False
    """Print nothing."""


def run_resume(options: ResumeOptions) -> int:
    """Train to the end of the budget; the exit code."""
    trained = api.resume(
        options.run,
        env=options.env,
        imports=options.imports,
        ignore_versions=options.ignore_versions,
        quiet=options.quiet,
        device=options.device,
        kernels=options.kernels,
    )
    return EXIT_CODES[trained.summary["status"]]
