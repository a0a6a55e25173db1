"""An actor as one ONNX graph, which acts step by step without torch and without recollect.

    inputs   the observation as the environment gives it, one tensor per leaf; `reset` (B,) bool, true where
             an episode starts; `action_mask` (B, P), `prev_action` (B, K) and `prev_reward` (B,) if the
             agent uses them; `state.*`, zeros before the first step
    outputs  `action`, the most probable one as the environment takes it; `choice` (B, K), the same as the
             next `prev_action`; `params` (B, P), logits or means and log standard deviations; `next_state.*`

Shapes.  B environments, any number; P parameters of the policy; K components of an action.
"""

import copy
import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .._version import __version__
from ..agent.agent import Agent
from ..agent.nets import Rows
from ..agent.speed import as_built
from ..common import tree
from ..common.errors import UsageError, install_hint
from ..common.output_paths import whole_file
from ..envs.spaces import ACTION_MASK, Leaf

PACKAGES = ("onnx", "onnxscript")
LARGE = 2**30  # bytes of weights, well below the limit of a single file
RESET, PREV_ACTION, PREV_REWARD = "reset", "prev_action", "prev_reward"
STATE, NEXT_STATE = "state.", "next_state."
EXAMPLES = 2  # environments of the inputs that the graph is recorded with; 1 would become a constant


class ActorStep(nn.Module):
    """One step of an actor, from named inputs to named outputs."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent, self.spec = agent, agent.action_spec
        self.leaves = agent.actor.inputs.leaves
        self.previous = agent.actor.inputs.prev_action or agent.actor.action_apart
        self.scaling = _scaling(agent)
        self.like = agent.initial_state(1).actor

    def example(self) -> dict[str, Tensor]:
        """Inputs at the start of an episode."""
        inputs = {name: _example(leaf) for name, leaf in self.leaves.items()}
        inputs[RESET] = torch.ones(EXAMPLES, dtype=torch.bool)
        if self.agent.actor.masked:
            inputs[ACTION_MASK] = torch.ones(EXAMPLES, sum(self.spec.sizes), dtype=torch.bool)
        if self.previous:
            dtype = torch.int64 if self.agent.policy.discrete else torch.float32
            inputs[PREV_ACTION] = torch.zeros(EXAMPLES, self.spec.width, dtype=dtype)
        if self.agent.actor.inputs.prev_reward:
            inputs[PREV_REWARD] = torch.zeros(EXAMPLES)
        states = tree.leaves(self.agent.initial_state(EXAMPLES).actor)
        return inputs | {STATE + name: x for name, x in states.items()}

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        first = inputs[RESET]
        obs = {name: self._observe(name, inputs[name])[None] for name in self.leaves}
        if self.agent.actor.masked:
            obs[ACTION_MASK] = inputs[ACTION_MASK][None]
        action, reward = self._before(inputs, first)
        rows = Rows(obs, first[None], action[None], reward[None])
        states = {name.removeprefix(STATE): x for name, x in inputs.items() if name.startswith(STATE)}
        (params,), state = self.agent.actor(rows, tree.unflatten(self.like, states))
        choice = self.agent.policy.mode(params)
        outputs = {"action": self._to_env(choice), "params": params}
        if self.previous:  # an output that nobody needs would cost time
            outputs["choice"] = choice if self.agent.policy.discrete else self._clipped(choice)
        return outputs | {NEXT_STATE + name: x for name, x in tree.leaves(state).items()}

    def _observe(self, name: str, x: Tensor) -> Tensor:
        """An observation of the environment -> the input of the network."""
        leaf = self.leaves[name]
        if leaf.kind == "discrete":
            return x.reshape(-1, len(leaf.sizes)) - torch.tensor(leaf.start)
        if leaf.kind != "vector":
            return x
        if self.agent.obs_spec.mask and name == next(iter(self.agent.obs_spec.leaves)):
            seen = torch.ones(leaf.shape, dtype=torch.bool)
            seen[list(self.agent.obs_spec.mask)] = False
            x = torch.where(seen, x, 0.0)
        if name not in self.scaling:
            return x
        shift, scale = self.scaling[name]
        return ((x - shift) * scale).clamp(-10, 10)

    def _before(self, inputs: dict[str, Tensor], first: Tensor) -> tuple[Tensor, Tensor]:
        """The previous action and reward, 0 where an episode starts, or if they are no inputs."""
        nothing = torch.zeros_like(first, dtype=torch.float32)
        reward = torch.where(first, 0.0, inputs[PREV_REWARD]) if PREV_REWARD in inputs else nothing
        if PREV_ACTION not in inputs:
            return nothing[:, None], reward
        return torch.where(first[:, None], torch.zeros_like(inputs[PREV_ACTION]), inputs[PREV_ACTION]), reward

    def _to_env(self, choice: Tensor) -> Tensor:
        """ActionSpec.to_env as operations of torch."""
        if self.spec.kind == "categorical":
            return (choice + torch.tensor(self.spec.start)).reshape(-1, *self.spec.shape)
        low, high, bounded = self._bounds()
        # Where a bound is infinite, `scaled` is not used, and must not be computed from infinity.
        ends = torch.where(bounded, low, 0.0), torch.where(bounded, high, 1.0)
        scaled = ends[0] + (choice.clamp(-1, 1) + 1) * 0.5 * (ends[1] - ends[0])
        action = torch.minimum(torch.maximum(torch.where(bounded, scaled, choice), low), high)
        return action.to(getattr(torch, self.spec.dtype)).reshape(-1, *self.spec.shape)

    def _bounds(self) -> tuple[Tensor, Tensor, Tensor]:
        """The bounds of a real action as its type has them, and which components have both.

        In 64 bits, because `high - low` may overflow 32, as in `ActionSpec.to_env`.
        """
        low, high = (
            torch.from_numpy(np.array(bound, dtype=self.spec.dtype).astype(np.float64))
            for bound in (self.spec.low, self.spec.high)
        )
        return low, high, low.isfinite() & high.isfinite()

    def _clipped(self, choice: Tensor) -> Tensor:
        """ActionSpec.to_prev_action of a real action."""
        low, high, bounded = self._bounds()
        low, high = torch.where(bounded, -1.0, low), torch.where(bounded, 1.0, high)
        return torch.minimum(torch.maximum(choice, low), high).to(choice.dtype)


def _scaling(agent: Agent) -> dict[str, tuple[Tensor, Tensor]]:
    """Shift and scale of the observations that are normalised."""
    normalizer = agent.normalizer
    names = normalizer.names if normalizer.count else ()
    return {name: normalizer.scaling(name, torch.zeros(0)) for name in names}


def _example(leaf: Leaf) -> Tensor:
    """An observation as the environment gives it."""
    if leaf.kind == "discrete":
        return torch.tensor(leaf.start).reshape(1, *leaf.shape).repeat(EXAMPLES, *[1] * len(leaf.shape))
    dtype = torch.float32 if leaf.kind == "vector" else torch.uint8
    return torch.zeros(EXAMPLES, *leaf.shape, dtype=dtype)


def export(agent: Agent, path: Path) -> None:
    """Write the actor of an agent as an ONNX graph."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"an .onnx file needs {' and '.join(missing)}: {install_hint('onnx')}")
    # A copy on the CPU, because examples and constants are there.
    with as_built(agent):
        step = ActorStep(copy.deepcopy(agent).cpu()).eval()
    inputs = step.example()
    if any(x.any() for name, x in inputs.items() if name.startswith(STATE)):
        raise UsageError("this memory does not begin with zeros, as the states of an .onnx file must")
    batch = torch.export.Dim("batch")
    with torch.no_grad(), _quiet():
        outputs = step(inputs)  # also fills the caches of constants with numbers, before a recording
        program = torch.onnx.export(
            step,
            kwargs={"inputs": inputs},
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes={"inputs": {name: {0: batch} for name in inputs}},
            dynamo=True,
            # Runtimes optimise graphs as they load them; the optimiser of onnxscript 0.7 removes nodes of
            # Gaussian actors that are still needed.
            optimize=False,
            verbose=False,
        )
    assert program is not None
    fixed = [
        str(x.name) for x in program.model.graph.inputs if x.shape is None or isinstance(x.shape[0], int)
    ]
    if fixed:
        raise UsageError(
            f"the graph would take batches of {EXAMPLES} alone ({', '.join(fixed)}), because a memory or an "
            "encoder uses the number of environments as a constant; in its code, write x.shape[0] for len(x)"
        )
    spec = agent.action_spec
    facts = {"recollect": __version__, "actions": spec.kind, "sizes": list(spec.sizes)}
    program.model.metadata_props.update({name: json.dumps(fact) for name, fact in facts.items()})
    # Above 2 GB, weights are in a second file, which the first one names: it has to have its name at once.
    large = sum(x.nbytes for x in agent.state_dict().values()) > LARGE
    with nullcontext(path) if large else whole_file(path) as file:
        program.save(str(file))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of the exporter about packages that are not installed and its deprecations."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
