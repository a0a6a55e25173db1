"""A learner as one file: safetensors with JSON in its header; data only, written atomically.

A file is either whole or not there: it is written beside its place, synced, and renamed. It holds a
digest of all it says, so a flipped bit is found before anything is taken from it. Loading checks
everything first and then copies, so a learner is never half another.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..agent.agent import AgentState
from ..common import tree
from ..common.distributed import Ranks
from ..common.errors import CheckpointError, UsageError
from ..envs import Envs, EnvState
from ..learn.learner import Learner, first_row
from ..learn.rollout import Row

FORMAT = 1
OWN = ("row.", "state.", "envs.")  # what belongs to environments: first axis N


# Files ----------------------------------------------------------------------------------------


def write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write atomically; on any error the old file stands and nothing is left over."""
    dense = {name: x.detach().contiguous().clone() for name, x in tensors.items()}
    text = json.dumps(meta, sort_keys=True, allow_nan=True)
    header = {"format": str(FORMAT), "meta": text, "sha256": _digest(dense, text)}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(to_bytes(dense, header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a file whose digest holds, or a CheckpointError that says why not."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from error
    if "sha256" not in header or "meta" not in header:
        raise CheckpointError(f"{path} was not written by recollect: its header has no digest")
    if header.get("format") != str(FORMAT):
        raise CheckpointError(
            f"{path} has format {header.get('format')}, this version reads {FORMAT}; upgrade recollect"
        )
    if _digest(tensors, header["meta"]) != header["sha256"]:
        raise CheckpointError(f"{path} is damaged: its contents do not match their digest")
    try:
        return tensors, json.loads(header["meta"])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its metadata does not parse: {error}") from error


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        x = tensors[name]
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# A learner ------------------------------------------------------------------------------------


def learner_tensors(learner: Learner) -> dict[str, Tensor]:
    """Every array of a learner, by path; live where training writes in place."""
    row, episodes = learner.row, learner.episodes
    recent = np.array(episodes.recent, dtype=np.float64).reshape(-1, 3)
    parts: dict[str, Any] = {
        "agent": learner.agent.state_dict(),
        "optimizer": learner.optimizer.tensors(),
        "rewards": learner.rewards.tensors(),
        "state": learner.state,
        "row": {
            "obs": {name: torch.from_numpy(x) for name, x in row.obs.items()},
            **{name: torch.from_numpy(x) for name, x in row._asdict().items() if name != "obs"},
        },
        "episodes": {
            "return": torch.from_numpy(episodes.running_return),
            "length": torch.from_numpy(episodes.running_length),
            "recent": torch.from_numpy(recent),
        },
    }
    return tree.leaves(parts)


def counters(learner: Learner) -> dict[str, int]:
    """Every count of a learner."""
    return {
        "iteration": learner.iteration,
        "step": learner.step,
        "episodes": learner.episodes.finished,
        "skipped": learner.optimizer.skipped,
        "skipped_in_a_row": learner.optimizer.skipped_in_a_row,
    }


def save(path: Path, learner: Learner, envs: Envs, meta: Mapping[str, Any]) -> None:
    """The learner and its environments, at a moment between two iterations.

    All processes of a run call this, and the one that leads writes what all of them have.
    """
    tensors, data = learner_tensors(learner), {}
    if envs.adapter.tier == "native":
        state = envs.adapter.get_state()
        for name, x in state.arrays.items():
            assert len(x) == envs.num_envs, f"{name} of the environments' state is {x.shape}, not (N, ...)"
            tensors[f"envs.{name}"] = torch.from_numpy(np.ascontiguousarray(x))
        data = state.data
    own = {name: x for name, x in tensors.items() if name.startswith(OWN)}
    told = learner.ranks.gather((own, data))
    if not learner.ranks.is_rank_zero:
        return
    whole = {name: torch.cat([theirs[name] for theirs, _ in told]) for name in own}
    envs_data = [data for _, data in told]
    write(
        path,
        tensors | whole,
        {
            **meta,
            "counters": counters(learner),
            "envs": envs_data[0] if len(told) == 1 else envs_data,
            "processes": len(told),
        },
    )


def restore(path: Path, learner: Learner, envs: Envs, seed: int) -> dict[str, Any]:
    """Make a fresh learner and fresh environments what they were; the metadata."""
    tensors, meta = read(path)
    own = learner.ranks.block(envs.num_envs)
    tensors |= {name: x[own] for name, x in tensors.items() if name.startswith(OWN)}
    saved = {name: x for name, x in tensors.items() if not name.startswith("envs.")}
    _check_shapes(path, saved, learner_tensors(learner))
    obs = {name: saved[f"row.obs.{name}"].numpy().copy() for name in learner.row.obs}
    if envs.adapter.tier == "native":
        state = _env_state(path, tensors, meta, learner.ranks)
        for name, x in state.arrays.items():
            if len(x) != envs.num_envs:
                raise UsageError(
                    f"{path} is of another version of recollect: envs.{name} is not of {envs.num_envs} "
                    "environments; start a new run with --run-id, or in another --out"
                )
        envs.adapter.set_state(state)
    else:
        fresh = first_row(envs, learner.agent, seed, meta["counters"]["iteration"], learner.ranks)
        if any((fresh.obs[name] != x).any() for name, x in obs.items()):
            raise UsageError(
                f"{path}: the environments do not repeat from their seeds, so this run cannot be resumed "
                f"exactly: begin a new one with --run-id, or remove {path.parents[1]} and run this again"
            )
    row = {name: saved[f"row.{name}"].numpy().copy() for name in Row._fields if name != "obs"}
    learner.row = Row(obs=obs, **row)
    _fill(learner, saved, meta["counters"])
    return meta


def _env_state(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], ranks: Ranks) -> EnvState:
    """What this process's own environments were."""
    processes = meta.get("processes", 1)
    if processes != ranks.size:
        raise UsageError(
            f"{path} was saved by {processes} processes, here are {ranks.size}, and these environments "
            f"cannot be dealt out anew: resume with torchrun --nproc-per-node {processes}"
        )
    prefix = "envs."
    arrays = {k.removeprefix(prefix): x.numpy() for k, x in tensors.items() if k.startswith(prefix)}
    return EnvState(arrays, meta["envs"] if processes == 1 else meta["envs"][ranks.rank])


def _fill(learner: Learner, saved: dict[str, Tensor], counts: Mapping[str, int]) -> None:
    """Everything of a learner but its row."""
    learner.iteration, learner.step = counts["iteration"], counts["step"]
    learner.episodes.finished = counts["episodes"]
    learner.optimizer.skipped = counts["skipped"]
    learner.optimizer.skipped_in_a_row = counts["skipped_in_a_row"]
    load_weights(learner.agent, saved)
    for name, x in learner.optimizer.tensors().items():
        x.copy_(saved[f"optimizer.{name}"])
    learner.rewards.load({name: saved[f"rewards.{name}"] for name in learner.rewards.tensors()})
    actor, critic = (tree.unflatten(part, saved, f"state.{i}") for i, part in enumerate(learner.state))
    learner.state = AgentState(actor, critic)
    learner.episodes.running_return = saved["episodes.return"].numpy().copy()
    learner.episodes.running_length = saved["episodes.length"].numpy().copy()
    rows = saved["episodes.recent"].tolist()
    learner.episodes.recent = [(ret, int(length), success) for ret, length, success in rows]


def load_weights(agent: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy weights and observation statistics into an agent."""
    prefix = "agent."
    found = {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}
    agent.load_state_dict(found)


def _check_shapes(path: Path, saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """A file that does not fit is whole: the run that it is of is not begun again over it."""
    other = f"{path} is of other spaces or settings, or of another version of recollect"
    mend = "start a new run with --run-id, or in another --out"
    missing, extra = sorted(set(wanted) - set(saved)), sorted(set(saved) - set(wanted))
    if missing or extra:
        raise UsageError(f"{other}: it lacks {missing[:3]} and has {extra[:3]} instead; {mend}")
    for name, x in wanted.items():
        if name != "episodes.recent" and saved[name].shape != x.shape:
            raise UsageError(
                f"{other}: {name} has shape {tuple(saved[name].shape)}, here it is {tuple(x.shape)}; {mend}"
            )


# A folder of them -----------------------------------------------------------------------------


def path_of(folder: Path, iteration: int) -> Path:
    """Where the checkpoint of an iteration lies."""
    return folder / f"iteration-{iteration:08d}.safetensors"


def existing(folder: Path) -> list[Path]:
    """Checkpoints of a folder, oldest first."""
    return sorted(folder.glob("iteration-*.safetensors"))


def clear(folder: Path) -> None:
    """Remove all checkpoints."""
    for path in existing(folder):
        path.unlink(missing_ok=True)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what interrupted saves left over."""
    for path in [*existing(folder)[:-keep], *folder.glob(".*.tmp")]:
        path.unlink(missing_ok=True)
