"""The weights that a new run begins from, where they are those of another agent (--init)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..agent.agent import Agent
from ..agent.normalize import RewardScale
from ..common.errors import UsageError
from ..config.config import RunConfig
from ..envs import Envs
from ..envs.spaces_json import Spaces
from ..envs.spaces_text import describe
from ..learn.engine import TorchEngine
from ..learn.learner import Learner
from ..memory import Memory
from . import checkpoint
from .weights import read_spaces, reward_tensors, weights_file

WHOLE = ("actor", "critic", "normalizer")


def begin_weights(agent: Agent, config: RunConfig) -> None:
    """Load the weights of a new run: pretrained ones of its memories, then those of another agent."""
    for module in agent.modules():
        if isinstance(module, Memory):
            module.begin()
    if config.init.path is not None:
        _load(agent, config)


def begin_again(learner: Learner, envs: Envs, config: RunConfig, kernels: str | None) -> None:
    """Take a run back to its start, with torch's kernels if they are chosen."""
    if kernels == "torch":
        learner.engine = TorchEngine(learner.agent)
    begin_weights(learner.agent, config)
    begin_rewards(learner.rewards, config)
    if learner.opponents:
        learner.opponents.begin_training()
    learner.restart(envs, config.seed)


def begin_rewards(rewards: RewardScale, config: RunConfig) -> None:
    """Take the scale of rewards over with the whole critic, whose values are in that scale."""
    parts = config.init.parts or WHOLE
    if config.init.path is None or "critic" not in parts or not config.env.normalize_reward:
        return
    file = weights_file(Path(config.init.path))
    tensors, _ = checkpoint.read(file)
    if loaded := reward_tensors(file, tensors):
        # The returns of episodes in progress are those of the new environments.
        rewards.load({**loaded, "running": rewards.running})


def _load(agent: Agent, config: RunConfig) -> None:
    """Copy the weights of the chosen parts, after all checks. Nothing of the file is executed."""
    path, parts = str(config.init.path), config.init.parts or WHOLE
    file = weights_file(Path(path))
    tensors, meta = checkpoint.read(file)
    if not config.init.parts:
        _check_spaces(agent, config, read_spaces(file, meta))
    _check_value_head(config, meta, parts)
    weights: dict[str, Tensor] = agent.state_dict()
    saved = {name.removeprefix("agent."): x for name, x in tensors.items() if name.startswith("agent.")}
    chosen: dict[str, Tensor] = {}
    for part in parts:
        chosen |= _part(part, weights, saved, path)
    with torch.no_grad():
        agent.load_state_dict({**weights, **chosen})


def _check_spaces(agent: Agent, config: RunConfig, spaces: Spaces) -> None:
    obs, action = spaces
    # The order of the leaves is that of the input weights.
    same_order = list(obs.leaves) == list(agent.obs_spec.leaves)
    for kind, one, other, same in (
        ("observations", obs, agent.obs_spec, same_order and obs == agent.obs_spec),
        ("actions", action, agent.action_spec, action == agent.action_spec),
    ):
        if not same:
            raise UsageError(
                f"init.path {config.init.path} is an agent with {kind} ({describe(one)}), and "
                f"{config.env.id} has ({describe(other)}); choose the parts that fit with --init.parts, as "
                "actor.memory"
            )


def _check_value_head(config: RunConfig, meta: Mapping[str, Any], parts: Sequence[str]) -> None:
    """Raise if outputs that mean values in one way would be taken for values in another."""
    match meta:
        case {"config": {"critic": {"value": saved}}}:
            pass
        case _:
            saved = "scalar"  # the only one of earlier versions
    # The other parts of a critic mean the same before every head.
    has_head = any(part == "critic" or f"{part}.".startswith("critic.head.") for part in parts)
    if has_head and saved != config.critic.value:
        raise UsageError(
            f"the critic of {config.init.path} has critic.value {saved}, here it is {config.critic.value}; "
            f"add --critic.value {saved}, or choose other parts with --init.parts, as actor"
        )


def _part(
    part: str, weights: Mapping[str, Tensor], saved: Mapping[str, Tensor], path: str
) -> dict[str, Tensor]:
    """The weights of a part, whose names and shapes are equal on both sides."""
    ours, theirs = (
        {name: x for name, x in side.items() if f"{name}.".startswith(f"{part}.")}
        for side in (weights, saved)
    )
    if not ours:
        known = ", ".join(dict.fromkeys(".".join(name.split(".")[:2]) for name in weights))
        raise UsageError(f"init.parts names {part}, which the agent does not have; it has {known}")
    if not theirs:
        raise UsageError(f"init.parts names {part}, which the agent of {path} does not have")
    problem = f"the {part} of this run is another one than that of {path}"
    fix = "take its hyperparameters, or choose the parts that are equal with --init.parts"
    if different := sorted(ours.keys() ^ theirs.keys()):
        side = "this run" if different[0] in ours else path
        raise UsageError(f"{problem}: only {side} has {different[0]}; {fix}")
    for name, x in ours.items():
        if theirs[name].shape != x.shape:
            shapes = f"{tuple(x.shape)} here and {tuple(theirs[name].shape)} there"
            raise UsageError(f"{problem}: {name} is {shapes}; {fix}")
    return theirs
