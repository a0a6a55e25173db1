"""`recollect doctor`: what is installed here, and whether an environment keeps the rules of Gymnasium."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import torch

from ..common.distributed import CORES
from ..run.run_folder import locked
from ..run.weights import processor_name, versions
from .environment_checks import Finding, check_environment

PACKAGES = (
    *("envpool", "minigrid", "popgym", "ale_py", "pettingzoo", "optuna", "ray"),
    *("onnx", "wandb", "huggingface-hub", "matplotlib"),
)
FEW_BYTES = 10**9
WIDTH = 18  # of the longest name: rules of Gymnasium


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Check this installation, and an environment if one is given.

      recollect doctor
      recollect doctor my_module:MyEnv-v0

    A bug report should contain the output.
    """

    POSITIONAL: ClassVar = ("env",)

    env: str | None = None
    """The environment to check."""


def run_doctor(options: DoctorOptions) -> int:
    """Print all findings; the exit code: 0 if there is no advice."""
    advised = False
    environment = check_environment(options.env) if options.env is not None else ()
    for finding in chain(check_machine(), check_folder(Path.cwd()), environment):
        # At once: an environment may end or hang the process, and then the rest matters most.
        print(f"{'!' if finding.advice else ' '} {finding.name:<{WIDTH}}  {finding.result}", flush=True)
        if finding.advice:
            print(f"  {'':<{WIDTH}}  -> {finding.advice}", flush=True)
            advised = True
    return int(advised)


def check_machine() -> list[Finding]:
    """Versions, processor, threads, compiler and optional packages."""
    installed = versions()
    parts = [Finding(name, installed[name]) for name in ("recollect", "torch", "numpy", "gymnasium")]
    threads = f"{CORES} cores for this process, {torch.get_num_threads()} threads of torch"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [
        *parts,
        Finding("python", f"{platform.python_version()} on {platform.platform()}"),
        Finding("processor", f"{processor_name()}, {installed['cpu']}"),
        Finding("threads", threads),
        Finding("GPU", gpu),
        Finding("compiler", _compiler()),
        Finding("optional packages", ", ".join(map(_version, PACKAGES))),
    ]


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} -"


def _compiler() -> str:
    """The first line about itself of the C compiler, which native kernels need where no wheel has them."""
    path = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if path is None:
        return "none; kernels are those of the wheel, or torch's"
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    return f"{path}: {(shown.stdout or shown.stderr).splitlines()[0]}"


def check_folder(folder: Path) -> list[Finding]:
    """Free space, permissions and locks of a folder for runs."""
    free = shutil.disk_usage(folder).free
    space = Finding("disk", f"{free / 1e9:.1f} GB free in {folder}")
    if free < FEW_BYTES:
        space = space._replace(advice="checkpoints may not fit; use another --out, or --keep 1")
    if not os.access(folder, os.W_OK):
        return [space, Finding("permissions", f"{folder} cannot be written", "use another --out")]
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        try:
            with locked(Path(temporary)):
                return [space, Finding("permissions", "files can be written and locked")]
        except OSError as error:
            return [space, Finding("permissions", f"no locks: {error}", "use another --out")]
