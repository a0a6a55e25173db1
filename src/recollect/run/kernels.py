"""The kernels that compute the networks of a run: torch's, or the native ones."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..agent.agent import Agent
from ..common.devices import describe
from ..common.errors import UsageError
from ..config.config import RunConfig
from ..learn.engine import Engine, TorchEngine
from ..learn.learner import Learner
from ..memory.sequences import TORCH, sequence_memories, use
from ..native.engine import NativeEngine
from ..native.library import UnavailableError, load
from ..native.nodes import UnsupportedError
from ..native.program import coverage
from ..native.sequences import NativeSequences

WARN_ERROR = 1e-3  # of ratio_error or value_error; at 1e-2 the run stops (learn/maths.py)
ROUNDED = "results are equal up to rounding, and no longer to the bit"


def engine(config: RunConfig, agent: Agent, announce: Callable[[str], None]) -> Engine:
    """The kernels that a config names; torch's where the native ones cannot be used, with a line why."""
    if config.kernels == "torch":
        return TorchEngine(agent)
    auto, reason = config.kernels == "auto", ""
    chosen: Engine
    try:
        try:
            return _native(config, agent, announce)
        except UnsupportedError as error:
            reason = "" if auto else str(error)
        chosen = _torch(agent, announce)
    except UnavailableError as error:
        reason, chosen = str(error), TorchEngine(agent)
    if reason:
        announce(f"kernels: {chosen.name}; the native ones cannot be used: {reason}")
    return chosen


def _native(config: RunConfig, agent: Agent, announce: Callable[[str], None]) -> Engine:
    """The native kernels for as many branches as they can compute; with `auto` for all or none."""
    if config.algorithm != "ppo":
        raise UnsupportedError(f"algorithm {config.algorithm}")
    if config.amp is not None or config.compile:
        raise UnsupportedError("amp and compile are options of torch")
    auto = config.kernels == "auto"
    if auto and not coverage(agent).complete:
        raise UnsupportedError("a branch that they cannot compute")
    native = NativeEngine(load(announce), agent, announce)
    if not auto:
        announce("; ".join(filter(None, (f"kernels: {native.name}", native.reason))))
    return native


def _torch(agent: Agent, announce: Callable[[str], None]) -> Engine:
    """Torch, with the native recurrences if a memory has one, and the device is a CPU."""
    if agent.device.type != "cpu" or not sequence_memories(agent):
        return TorchEngine(agent)
    load(announce)
    return TorchEngine(agent, NativeSequences())


def end_engine(learner: Learner) -> None:
    """Compute the agent as one from a file from now on: evaluations of both give the same numbers."""
    use(TORCH, learner.agent)


def computed_by(learner: Learner) -> dict[str, str]:
    """The device and the kernels of a run, as they are recorded in its files."""
    return {"device": describe(learner.agent.device), "kernels": learner.engine.name}


def resume_with(learner: Learner, meta: Mapping[str, Any], kernels: str | None) -> list[str]:
    """Continue with the kernels of a checkpoint; a line for each change that rounds differently.

    kernels  "torch": whatever the checkpoint was written with; None: a UsageError if those kernels cannot
             be used here. On another device than before it is torch.
    """
    before = {"device": "cpu", "kernels": "torch", "processes": 1, **meta}  # older versions had no others
    recorded, moves = before["kernels"], before["device"] != describe(learner.agent.device)
    if recorded == "torch" or kernels == "torch" or moves:
        learner.engine = TorchEngine(learner.agent)
    elif recorded != learner.engine.name:
        raise UsageError(
            f"the run was trained with the kernels {recorded!r}, here they are {learner.engine.name!r}; "
            f"install the version and the compiler of the run, or resume with --kernels torch: {ROUNDED}"
        )
    if recorded == learner.engine.name:
        learner.engine.error = meta.get("kernel_error")
    now = {**computed_by(learner), "processes": learner.ranks.size}
    return [
        f"{kind}: {before[kind]} before, {value} now; {ROUNDED}"
        for kind, value in now.items()
        if before[kind] != value
    ]


def warn_of_disagreement(metrics: Mapping[str, float | None], config: RunConfig) -> None:
    """Warn if acting and learning disagree more than rounding explains."""
    for name in ("ratio_error", "value_error"):
        error = metrics[name]
        if error is not None and error > WARN_ERROR and config.amp is None:
            text = f"{name} is {error:.2g}: acting and learning disagree more than rounding explains"
            warnings.warn(text, stacklevel=3)
