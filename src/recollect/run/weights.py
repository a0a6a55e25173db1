"""Agents as files: weights, and all that is needed to build what they belong to."""

import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from .._version import __version__
from ..agent.agent import Agent, build_agent
from ..agent.normalize import RewardScale
from ..common.errors import UsageError
from ..config.config import RunConfig, to_dict
from ..envs.spaces import spaces_from_json, spaces_to_json
from . import checkpoint


def save_weights(path: Path, agent: Agent, config: RunConfig, rewards: RewardScale | None = None) -> None:
    """An agent as one file that says how to build it, and what its values are measured in."""
    tensors = {f"agent.{name}": x for name, x in agent.state_dict().items()}
    tensors |= {f"rewards.{name}": x for name, x in (rewards.tensors() if rewards else {}).items()}
    checkpoint.write(path, tensors, agent_metadata(agent, config))


def load_agent(path: Path, config_of: Callable[[dict[str, Any]], RunConfig]) -> tuple[Agent, RunConfig]:
    """An agent from a run folder, a checkpoint or a weights file; nothing of it is executed."""
    file = path / "checkpoints" / "last.safetensors" if path.is_dir() else path
    if not file.exists():
        raise UsageError(
            f"{file} does not exist" + ("; the run has saved nothing yet" if path.is_dir() else "")
        )
    tensors, meta = checkpoint.read(file)
    config = config_of(meta["config"])
    agent = build_agent(
        spaces_from_json(meta["spaces"]), config.actor, config.critic, config.env.normalize_obs, 0
    )
    checkpoint.load_weights(agent, tensors)
    return agent, config


def load_rewards(path: Path, config: RunConfig, num_envs: int) -> RewardScale | None:
    """What rewards were learned as, from a run folder, a checkpoint or a weights file; None: not known."""
    env = config.env
    scale = RewardScale(num_envs, config.ppo.gamma, env.normalize_reward, env.reward_scale)
    if not env.normalize_reward:
        return scale
    folder = path / "checkpoints"
    # Of the weights that load_agent reads; an older run may have kept it with the whole learner alone.
    files = [*checkpoint.existing(folder), folder / "last.safetensors"] if path.is_dir() else [path]
    kept = [file for file in files if file.exists()]
    tensors = checkpoint.read(kept[-1])[0] if kept else {}
    if "rewards.var" not in tensors:
        return None
    scale.load({name: tensors[f"rewards.{name}"] for name in scale.tensors()})
    return scale


def agent_metadata(agent: Agent, config: RunConfig) -> dict[str, Any]:
    """What a file of weights says of itself."""
    spaces = spaces_to_json(agent.obs_spec, agent.action_spec)
    return {"config": to_dict(config), "spaces": spaces, "versions": versions()}


def versions() -> dict[str, str]:
    """What bit-for-bit equality depends on besides the config."""
    found = {"recollect": __version__, "torch": torch.__version__, "numpy": np.__version__}
    found["gymnasium"] = gymnasium.__version__
    found["cpu"] = torch.backends.cpu.get_cpu_capability()
    return found


def processor_name() -> str:
    """The model of this machine's processor, for whoever reads its results; equality does not depend on it.

    Virtual machines often hide the marketing name, so family and model are given too.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    first = text.split("\n\n")[0]
    facts = dict(re.findall(r"^([^\t\n:]+?)\s*:\s*(.*)$", first, re.MULTILINE))
    name = facts.get("model name") or platform.processor() or platform.machine()
    if "cpu family" not in facts or "model" not in facts:
        return name
    return f"{name} (family {facts['cpu family']}, model {facts['model']})"


def version_mismatch(host: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """What a machine lacks of the versions that are wanted; its processor is another matter."""
    others = [
        f"{x} {found[x]} (not {wanted.get(x)})" for x in found if x != "cpu" and found[x] != wanted.get(x)
    ]
    return f"{host} has {', '.join(others)}: the same versions are needed everywhere" if others else None
