"""Agents as files: weights, with the config and spaces that are needed to rebuild the agent."""

import functools
import platform
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from .._version import __version__
from ..agent.agent import Agent, build_agent
from ..agent.normalize import RewardScale
from ..common.errors import CheckpointError, UsageError
from ..common.output_paths import check_parent, naming
from ..config.config import RunConfig
from ..config.data import config_hash, to_dict
from ..envs.spaces_json import Spaces, spaces_from_json, spaces_to_json
from . import checkpoint
from .onnx import export
from .run_folder import check_config

SPARE_NUMBERS = 2**22  # beside weights, an agent has constants and examples of its observations
# Functions with which modules allocate.
CONSTRUCTORS = {
    *(torch.empty, torch.zeros, torch.ones, torch.full),
    *(torch.rand, torch.randn, torch.arange, torch.linspace),
}
SHOWN = 5  # agents that an error names
GRAPH = ".onnx"
# Endings of files that hold something else for other programs. Any other name, also one without an ending,
# is that of a safetensors file.
OTHER_FORMATS = (
    *(".zip", ".gz", ".tar", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npz", ".npy", ".h5"),
    *(".hdf5", ".keras", ".pb", ".tflite", ".msgpack", ".bin", ".gguf", ".json", ".yaml", ".yml", ".txt"),
)


def check_agent_file(file: Path) -> None:
    """Raise UsageError if an agent cannot be saved under this name."""
    if file.suffix.lower() in OTHER_FORMATS:
        raise UsageError(
            f"{file}: an agent is saved as .safetensors or .onnx, and {file.suffix} is the ending of another "
            f"format; use {file.with_suffix('.safetensors')}"
        )
    if file.is_dir():
        raise UsageError(f"{file} is a folder: add the name of a file, as agent.safetensors")
    check_parent(file)


def save_agent(file: Path, agent: Agent, config: RunConfig, rewards: RewardScale | None) -> None:
    """Save an agent in the format of its name: an ONNX graph as .onnx, else its weights."""
    check_agent_file(file)
    if file.suffix.lower() == GRAPH:
        export(agent, file)
    else:
        with naming(file):
            save_weights(file, agent, config, rewards)


def save_weights(path: Path, agent: Agent, config: RunConfig, rewards: RewardScale | None = None) -> None:
    """Save an agent as one file, with its config, spaces and reward scale."""
    tensors = {f"agent.{name}": x for name, x in agent.state_dict().items()}
    tensors |= {f"rewards.{name}": x for name, x in (rewards.tensors() if rewards else {}).items()}
    checkpoint.write(path, tensors, agent_metadata(agent, config))


def load_agent(path: Path, config_of: Callable[[dict[str, Any]], RunConfig]) -> tuple[Agent, RunConfig]:
    """Load an agent from a run folder, a checkpoint or a weights file.

    config_of  parses the config; it decides which modules the file may import. Nothing else is executed.
    """
    file = weights_file(path)
    tensors, meta = checkpoint.read(file)
    try:
        config = config_of(config_in(file, meta))
    except UsageError as error:
        raise UsageError(f"{error}{other_version(meta)}") from error
    spaces = read_spaces(file, meta)
    agent = build_fitting(file, tensors, spaces, config)
    checkpoint.load_weights(agent, tensors)
    if not all(bool(x.isfinite().all()) for x in agent.parameters()):
        warnings.warn(f"{file}: some weights are not finite, so actions will not be meaningful", stacklevel=2)
    return agent, config


def other_version(meta: Mapping[str, Any]) -> str:
    """For errors about the config of a file: that another version wrote it, if one did."""
    saved = meta.get("versions")
    writer = saved.get("recollect") if isinstance(saved, Mapping) else None
    if not isinstance(writer, str) or writer == __version__:
        return ""
    return f"; recollect {writer:.20} wrote the file, and this is {__version__}: use that version"


def build_fitting(
    file: Path, tensors: Mapping[str, torch.Tensor], spaces: Spaces, config: RunConfig
) -> Agent:
    """The agent of a config, for the weights of a file; CheckpointError, before memory is allocated, if they
    do not fit it."""
    # The seed is arbitrary, because all weights are overwritten.
    build = functools.partial(build_agent, spaces, config.actor, config.critic, config.env.normalize_obs, 0)
    try:
        agent = _within_memory(build, sum(x.numel() for x in tensors.values()))
    except RuntimeError as error:  # sizes whose product no integer holds
        problem = str(error).partition("\n")[0]
        raise CheckpointError(f"{file}: its weights do not fit its config: {problem}") from error
    check_fit(file, agent, tensors)
    return build() if any(x.is_meta for x in agent.parameters()) else agent


def check_saved(folder: Path, config: RunConfig, summary: Mapping[str, Any]) -> None:
    """Raise an error if config.yaml is not the config of the run, or describes another agent than its file.

    Before anything is built: the config of a hostile folder may be of any width.
    """
    last = folder / "checkpoints" / "last.safetensors"
    contents = None
    with suppress(CheckpointError):  # a damaged one is reported where it is needed
        contents = checkpoint.read(last)
    if contents is not None:
        tensors, meta = contents
        check_config(config, config_in(last, meta), last)
        build_fitting(last, tensors, read_spaces(last, meta), config)
    # A restart from the seed has no checkpoint to compare with; `Session.resume` compares with its own.
    elif summary.get("config_hash", config_hash(config)) != config_hash(config):
        raise UsageError(
            f"{folder / 'config.yaml'} is not the config of this run (its hash in summary.json differs); "
            "restore it, or start a new run from it with --config"
        )


class _TooLargeError(RuntimeError):
    """More numbers were about to be allocated than allowed."""


class _Allowance(TorchFunctionMode):
    """Raise _TooLargeError before torch allocates more numbers in all than `left`."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in CONSTRUCTORS:
            self._left -= func(*args, **{**kwargs, "device": "meta"}).numel()
            if self._left < 0:
                raise _TooLargeError
        return func(*args, **kwargs)


def _within_memory(build: Callable[[], Agent], numbers: int) -> Agent:
    """Build the agent of a file with so many numbers; on the meta device if it needs many times as many.

    The config of a damaged or hostile file may be of any width, and on the meta device an agent has shapes
    but no memory. Other agents are built at once, because torch imports its compiler, which takes a second,
    when it computes on that device.
    """
    try:
        with _Allowance(SPARE_NUMBERS + 4 * numbers):
            return build()
    except RuntimeError:  # also of torch, for sizes that no memory holds
        with torch.device("meta"):
            return build()


def config_in(file: Path, meta: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the agent in a file, from its metadata."""
    data = meta.get("config")
    if not isinstance(data, dict):
        raise CheckpointError(f"{file} does not describe an agent: its config is no mapping")
    return data


def read_spaces(file: Path, meta: Mapping[str, Any]) -> Spaces:
    """The spaces of the agent in a file, from its metadata."""
    try:
        return spaces_from_json(meta["spaces"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{file} does not describe an agent: {error}") from error


def check_fit(file: Path, agent: Agent, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise CheckpointError if the weights of a file are not those of the agent that its config describes."""
    needed = {f"agent.{name}": x.shape for name, x in agent.state_dict().items()}
    given = {name: x.shape for name, x in tensors.items() if name.startswith("agent.")}
    for name in sorted({*needed, *given}):
        if needed.get(name) != given.get(name):
            has, needs = (tuple(shapes[name]) if name in shapes else "absent" for shapes in (given, needed))
            raise CheckpointError(
                f"{file}: its weights do not fit its config: {name} is {has}, needed is {needs}"
            )


def weights_file(path: Path) -> Path:
    """The file with the weights of a run folder, a checkpoint or a weights file."""
    file = path / "checkpoints" / "last.safetensors" if path.is_dir() else path
    if not file.exists():
        raise UsageError(_describe_missing(path, file))
    if file.suffix.lower() == GRAPH:
        raise UsageError(
            f"{file} is an ONNX graph, which other programs act with; give the run folder or the "
            ".safetensors file of the agent"
        )
    return file


def _describe_missing(path: Path, file: Path) -> str:
    """Why there is no agent, and which there are below a folder."""
    if not path.is_dir():
        return f"{file} does not exist; recollect list agents lists agents"
    if (path / "config.yaml").exists() or (path / "checkpoints").is_dir():
        return f"{file} does not exist; the run has saved nothing yet"
    files = [one for one in path.glob("**/*.safetensors") if one.parent.name != "checkpoints"]
    names = sorted(map(str, [*_runs_below(path), *files]))
    return _describe_names(path, names) if names else f"{path} holds no run and no saved agent"


def describe_missing_run(path: Path) -> str:
    """Why a path is no run folder, and which there are below it."""
    names = sorted(map(str, _runs_below(path)))
    return _describe_names(path, names) if names else f"{path} is not a run: it has no config.yaml"


def _runs_below(path: Path) -> list[Path]:
    return [summary.parent for summary in path.glob("**/summary.json")]


def _describe_names(path: Path, names: list[str]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{path} is not one run; it holds {', '.join(names[:SHOWN])}{more}"


def load_rewards(path: Path, config: RunConfig) -> RewardScale | None:
    """The reward scale of training, from a run folder, a checkpoint or a weights file; None: unknown."""
    env = config.env
    # The discounted returns of episodes in progress, one for each environment, are those of the file.
    scale = RewardScale(1, config.ppo.gamma, env.normalize_reward, env.reward_scale)
    if not env.normalize_reward:
        return scale
    folder = path / "checkpoints"
    # The file that load_agent reads comes last. Older versions saved the scale in checkpoints only.
    candidates = [*checkpoint.existing(folder), folder / "last.safetensors"] if path.is_dir() else [path]
    files = [file for file in candidates if file.exists()]
    tensors = reward_tensors(files[-1], checkpoint.read(files[-1])[0]) if files else None
    if tensors is None:
        return None
    scale.load(tensors)
    return scale


def reward_tensors(file: Path, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
    """The tensors of the reward scale of a file; None: it has none."""
    if "rewards.var" not in tensors:
        return None
    try:
        return {name: tensors[f"rewards.{name}"] for name in ("running", "mean", "var", "count")}
    except KeyError as error:
        raise CheckpointError(f"{file} has a part of a reward scale only: {error} is missing") from error


def agent_metadata(agent: Agent, config: RunConfig) -> dict[str, Any]:
    """Metadata of a file with the weights of an agent."""
    spaces = spaces_to_json(agent.obs_spec, agent.action_spec)
    return {"config": to_dict(config), "spaces": spaces, "versions": versions()}


def versions() -> dict[str, str]:
    """The versions that results depend on, besides the config, bit for bit."""
    # Checkpoints are compared by these keys: without one of them, `resume` would refuse all older runs.
    return {
        "recollect": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        # torch selects its kernels by the instruction set, and they round differently.
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def processor_name() -> str:
    """The processor model of this machine, to be stated with results.

    It includes the family and model numbers, because virtual machines often hide the name.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not on Linux
        return platform.processor() or platform.machine()
    first = text.split("\n\n")[0]
    facts = dict(re.findall(r"^([^\t\n:]+?)\s*:\s*(.*)$", first, re.MULTILINE))
    name = facts.get("model name") or platform.processor() or platform.machine()
    if "cpu family" not in facts or "model" not in facts:
        return name
    return f"{name} (family {facts['cpu family']}, model {facts['model']})"


def check_versions(file: Path, saved: Mapping[str, str]) -> None:
    """Raise UsageError if a checkpoint was written with other versions than those here."""
    different = {name: version for name, version in saved.items() if versions().get(name) != version}
    if different:
        raise UsageError(
            f"{file} was written with {different}, here it is {versions()}; install those versions, or "
            "resume with --ignore-versions, after which results may differ"
        )


def version_mismatch(host: str, installed: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """One line on the versions of a machine that differ from the wanted ones, or None; ignores the cpu."""
    others = [
        f"{name} {version} (not {wanted.get(name)})"
        for name, version in installed.items()
        # Only the machines that execute runs must agree on the cpu, which preflight.py compares among them.
        if name != "cpu" and version != wanted.get(name)
    ]
    if not others:
        return None
    return f"{host} has {', '.join(others)}: the same versions are needed everywhere"
