"""`recollect doctor`: what is installed here, and whether an environment keeps the rules of Gymnasium."""

import copy
import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence

from ..common.distributed import CORES
from ..common.errors import EnvFailedError, UsageError
from ..config.presets import preset
from ..envs import Envs, make
from ..envs.gym import GymEnv
from ..run.run_folder import locked
from ..run.weights import processor_name, versions

PACKAGES = (
    *("envpool", "minigrid", "popgym", "ale_py", "pettingzoo", "optuna", "ray"),
    *("onnx", "wandb", "huggingface-hub", "matplotlib"),
)
STEPS = 50  # of the check that an environment repeats
SECONDS = 1.0  # of the measurement of speed
SLOW = 500  # steps per second of one environment, below which processes pay off
FEW_BYTES = 10**9
WIDTH = 18  # of the longest name: rules of Gymnasium


class Finding(NamedTuple):
    """The result of one check; advice: what to do, empty if all is well."""

    name: str
    result: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Check this installation, and an environment if one is given. A bug report should contain the output.

    recollect doctor
    recollect doctor my_module:MyEnv-v0
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


# An environment -------------------------------------------------------------------------------


def check_environment(env_id: str) -> Iterator[Finding]:
    """Spaces, tier, time limit, repetition, speed, copies and the rules of Gymnasium."""
    env = preset("ppo", env_id).env
    envs = make(replace(env, num_envs=1))
    adapter = envs.adapter
    try:
        yield Finding("environment", f"{env_id}, backend {adapter.backend}")
        yield Finding("observations", f"{adapter.observation_space}")
        yield Finding("actions", f"{adapter.action_space}")
        yield _tier(adapter.tier)
        yield _limit(adapter.time_limit)
        try:
            yield _repetition(envs)
            yield _speed(envs)
        except (UsageError, EnvFailedError) as error:
            yield Finding("steps", str(error), "correct the environment")
            return
        if isinstance(adapter, GymEnv) and adapter.local_envs:
            yield _copying(adapter.local_envs[0])
            yield _rules(adapter.local_envs[0])
    finally:
        adapter.close()


def _tier(tier: str) -> Finding:
    meaning = {
        "native": "its state is saved: a run resumes from any iteration",
        "barrier": "its state cannot be saved: a run resumes from a barrier, which resets all environments",
    }
    return Finding("tier", f"{tier}; {meaning[tier]}")


def _limit(limit: int | None) -> Finding:
    if limit is not None:
        return Finding("time limit", f"{limit:,} steps")
    return Finding(
        "time limit", "none", "set one with --env.time-limit, unless all episodes end on their own"
    )


def _repetition(envs: Envs) -> Finding:
    """Whether a reset from a seed and the same actions give the same steps twice."""
    first, second = (_trajectory(envs) for _ in range(2))
    if all(data_equivalence(one, other, exact=True) for one, other in zip(first, second, strict=True)):
        return Finding("repeats", f"yes, over {STEPS} steps from the same seed")
    step = next(
        t for t, pair in enumerate(zip(first, second, strict=True)) if not data_equivalence(*pair, exact=True)
    )
    return Finding("repeats", f"no, from step {step} on", "draw every random number from self.np_random")


def _trajectory(envs: Envs) -> list[Any]:
    obs = {name: x.copy() for name, x in envs.reset([123] * envs.num_envs).items()}
    rows: list[Any] = [obs]
    for action in _actions(envs, STEPS):
        step = envs.step(action)
        obs = {name: x.copy() for name, x in step.obs.items()}
        rows.append((obs, *(np.array(x) for x in step[1:4])))
    return rows


def _actions(envs: Envs, count: int) -> Iterator[Any]:
    """Policy actions (N, K), the same in each call."""
    random, spec = np.random.default_rng(0), envs.action_spec
    shape = envs.num_envs, spec.width
    for _ in range(count):
        if spec.kind == "categorical":
            yield random.integers(0, spec.sizes, shape)
        else:
            yield random.uniform(-1, 1, shape).astype(np.float32)


def _speed(envs: Envs) -> Finding:
    envs.reset([123] * envs.num_envs)
    steps, end = 0, time.perf_counter() + SECONDS
    for action in _actions(envs, 10**6):
        envs.step(action)
        steps += 1
        if time.perf_counter() >= end:
            break
    rate = steps / SECONDS
    result = f"{rate:,.0f} steps/s of one environment"
    if rate >= SLOW:
        return Finding("speed", result)
    return Finding("speed", result, "use processes: --env.backend workers --num-envs 8, or as many as cores")


def _copying(env: Any) -> Finding:
    try:
        copy.deepcopy(env)
    except Exception as error:  # whatever the environment contains
        name = type(error).__name__
        return Finding("copying", f"no ({name}): in Python, pass a function that builds one, not an instance")
    return Finding("copying", "yes")


def _rules(env: Any) -> Finding:
    """What Gymnasium's checker says about an environment."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:  # assertions, mostly
            return Finding("rules of Gymnasium", f"broken: {_first_line(error)}", "correct the environment")
    texts = [_first_line(warning.message) for warning in caught]
    return Finding("rules of Gymnasium", "; ".join(dict.fromkeys(texts)) or "kept")


def _first_line(text: object) -> str:
    plain = str(text).replace("\x1b[33m", "").replace("\x1b[0m", "").removeprefix("WARN: ")
    return plain.splitlines()[0] if plain else type(text).__name__
