"""Checkpoints: a learner as one safetensors file with JSON in its header; data only, written atomically.

A file is complete or does not exist: it is written under a temporary name, synced and renamed. It contains
a digest of tensors and metadata, so damage is detected before anything is loaded. Loading checks everything
first and copies then, so a learner never mixes two states.
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
from ..common.output_paths import sync_folder
from ..envs import Envs, EnvState
from ..learn.learner import Learner, first_row
from ..learn.rollout import Row

FORMAT = 1
PER_ENV = ("row.", "state.", "envs.")  # prefixes of tensors whose first axis is N, the environments
COUNTERS = "iteration", "step", "episodes", "skipped", "skipped_in_a_row"
# What a checkpoint says about its run; and what only some versions say.
ABOUT_RUN = {
    **{"config": dict, "versions": dict, "counters": dict},
    **{"offset": int, "time": float | int, "best": float | int},
}
SINCE = {"episodes_offset": int, "rate_factor": float | int, "device": str, "kernels": str, "processes": int}


# Files ----------------------------------------------------------------------------------------


def write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write a file atomically. On an error the old file remains, and the temporary file is removed."""
    # Clones, because safetensors refuses tensors that share memory, and weights are views of one vector.
    dense = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    # This exact text is hashed and stored, so `read` can check the digest before anything is parsed. Not
    # strict JSON: `best` is -Infinity until the first validation. Not sorted: the order of the entries of an
    # observation is that of the input weights.
    text = json.dumps(meta, allow_nan=True)
    header = {"format": str(FORMAT), "meta": text, "sha256": _digest(dense, text)}
    # In the same folder, because a rename is atomic only within a file system; `prune` knows the pattern.
    temporary = path.with_name(f".{path.name}.tmp")
    # The folder may have been removed during the run, or be missing in a copy of it.
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "wb") as file:
            file.write(to_bytes(dense, header))
            file.flush()
            # Before the rename: otherwise a power cut could leave a renamed file without its contents.
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)  # it stores the rename


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata; CheckpointError if the file is incomplete, foreign or damaged, and another
    UsageError if it may be whole: on a disk that does not answer, or of another version."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
    except (SafetensorError, FileNotFoundError) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if "sha256" not in header or "meta" not in header:
        raise CheckpointError(f"{path} was not written by recollect: its header has no digest")
    if header.get("format") != str(FORMAT):
        raise UsageError(
            f"{path} has format {header.get('format')}, this version reads {FORMAT}; use the version of "
            "recollect that wrote it, or a newer one"
        )
    if _digest(tensors, header["meta"]) != header["sha256"]:
        raise CheckpointError(f"{path} is damaged: its contents do not match their digest")
    try:
        meta = json.loads(header["meta"])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its metadata does not parse: {error}") from error
    if not isinstance(meta, dict):
        raise CheckpointError(f"{path} was not written by recollect: its metadata is no mapping")
    return tensors, meta


def amend(path: Path, about: Mapping[str, Any]) -> None:
    """Replace some of the metadata of a file."""
    tensors, meta = read(path)
    write(path, tensors, {**meta, **about})


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """The digest of metadata and tensors: names, dtypes, shapes and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):  # safetensors may reorder them
        x = tensors[name]
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# A learner ------------------------------------------------------------------------------------


def learner_tensors(learner: Learner) -> dict[str, Tensor]:
    """All tensors of a learner by path. Most share memory with it: training overwrites them in place."""
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
        "adaptations": {
            name: torch.tensor(adaptation.value, dtype=torch.float64)
            for name, adaptation in learner.adaptations.items()
        },
        "novelty": learner.novelty.tensors() if learner.novelty else {},
        "opponents": learner.opponents.tensors() if learner.opponents else {},
    }
    return tree.leaves(parts)


def counters(learner: Learner) -> dict[str, int]:
    """All counters of a learner."""
    skipped = learner.optimizer.skipped, learner.optimizer.skipped_in_a_row
    values = learner.iteration, learner.step, learner.episodes.finished, *skipped
    return dict(zip(COUNTERS, values, strict=True))


def save(path: Path, learner: Learner, envs: Envs, meta: Mapping[str, Any]) -> None:
    """Save the learner and its environments, between two iterations.

    All processes of a run must call this. Rank 0 gathers the environments of all and writes the file.
    """
    tensors = learner_tensors(learner)
    data: dict[str, Any] = {}
    if envs.adapter.tier == "native":
        state = envs.adapter.get_state()
        for name, x in state.arrays.items():
            assert len(x) == envs.num_envs, f"envs.{name} has shape {x.shape}; its first axis must be N"
            tensors[f"envs.{name}"] = torch.from_numpy(np.ascontiguousarray(x))
        data = state.data
    block = {name: x.cpu() for name, x in tensors.items() if name.startswith(PER_ENV)}
    blocks = learner.ranks.gather((block, data))
    # Only after `gather`, which waits for every rank.
    if not learner.ranks.is_rank_zero:
        return
    # In the order of ranks, which is the order of environments, as if one process had them all.
    joined = {name: torch.cat([tensors_of_rank[name] for tensors_of_rank, _ in blocks]) for name in block}
    envs_data = [data_of_rank for _, data_of_rank in blocks]
    write(
        path,
        tensors | joined,
        {
            **meta,
            "counters": counters(learner),
            "kernel_error": learner.engine.error,
            "envs": envs_data[0] if len(blocks) == 1 else envs_data,
            "processes": len(blocks),
        },
    )


def restore(path: Path, learner: Learner, envs: Envs, seed: int) -> dict[str, Any]:
    """Restore a new learner and new environments from a file; return its metadata.

    The learner is filled after the file has passed all checks. Environments are changed before: barrier
    environments are reset to compare them, for which past opponents are restored, as they may act first.
    """
    tensors, meta = read(path)
    _check_about_run(path, meta)
    block = learner.ranks.block(envs.num_envs)
    # A file contains the environments of all ranks; each rank restores its block.
    tensors |= {name: x[block] for name, x in tensors.items() if name.startswith(PER_ENV) and x.ndim}
    saved = {name: x for name, x in tensors.items() if not name.startswith("envs.")}
    _check_shapes(path, saved, learner_tensors(learner))
    # Copies, because training writes into these arrays.
    obs = {name: saved[f"row.obs.{name}"].numpy().copy() for name in learner.row.obs}
    if envs.adapter.tier == "native":
        try:
            envs.adapter.set_state(_env_state(path, tensors, meta, learner.ranks, envs.num_envs))
        except UsageError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} holds no state of these environments: {error!r}") from error
    else:
        # A checkpoint of these falls on a barrier, where they were just reset. The same keys must give the
        # observations that were saved; if not, the resumed run would silently differ.
        if learner.opponents:
            # Before the first row, before which they may act. The latest has the weights of the agent.
            load_weights(learner.agent, saved)
            learner.opponents.load(_part("opponents", saved))
        fresh = first_row(envs, learner.agent, seed, meta["counters"]["iteration"], learner.ranks)
        if any((fresh.obs[name] != x).any() for name, x in obs.items()):
            raise UsageError(
                f"{path}: the environments do not repeat from their seeds, so this run cannot be resumed: "
                f"begin a new one with --run-id, or remove {path.parents[1]} and run this again"
            )
    row = {name: saved[f"row.{name}"].numpy().copy() for name in Row._fields if name != "obs"}
    learner.row = Row(obs=obs, **row)
    _fill(learner, saved, meta["counters"])
    return meta


def _check_about_run(path: Path, meta: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a file, whose digest is right, does not describe a run."""
    wrong = [name for name, kind in ABOUT_RUN.items() if not isinstance(meta.get(name), kind)]
    wrong += [name for name, kind in SINCE.items() if name in meta and not isinstance(meta[name], kind)]
    if not wrong:
        wrong = [name for name in COUNTERS if not isinstance(meta["counters"].get(name), int)]
    if wrong:
        raise CheckpointError(
            f"{path} does not describe a run: {', '.join(wrong)} is missing or no value of it"
        )


def _env_state(
    path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], ranks: Ranks, num_envs: int
) -> EnvState:
    """The saved state of the environments of this process."""
    processes = meta.get("processes", 1)
    if processes != ranks.size:
        raise UsageError(
            f"{path} was saved by {processes} processes, here are {ranks.size}; the state of these "
            f"environments cannot be split differently: resume with torchrun --nproc-per-node {processes}"
        )
    arrays = {name: x.numpy() for name, x in _part("envs", tensors).items()}
    for name, x in arrays.items():
        if len(x) != num_envs:
            raise UsageError(
                f"{path} is of another version of recollect: envs.{name} has {len(x)} entries, not one for "
                f"each of {num_envs} environments; start a new run with --run-id, or in another --out"
            )
    return EnvState(arrays, meta["envs"] if processes == 1 else meta["envs"][ranks.rank])


def _fill(learner: Learner, saved: dict[str, Tensor], counts: Mapping[str, int]) -> None:
    """Copy everything but the row and the environments into a learner."""
    learner.iteration, learner.step = counts["iteration"], counts["step"]
    learner.episodes.finished = counts["episodes"]
    learner.optimizer.skipped = counts["skipped"]
    learner.optimizer.skipped_in_a_row = counts["skipped_in_a_row"]
    load_weights(learner.agent, saved)
    # In place: weights and moments are views of flat vectors, which training continues to use.
    for name, x in learner.optimizer.tensors().items():
        x.copy_(saved[f"optimizer.{name}"])
    learner.rewards.load(_part("rewards", saved))
    actor, critic = (tree.unflatten(part, saved, f"state.{i}") for i, part in enumerate(learner.state))
    learner.state = AgentState(actor, critic)
    learner.episodes.running_return = saved["episodes.return"].numpy().copy()
    learner.episodes.running_length = saved["episodes.length"].numpy().copy()
    rows = saved["episodes.recent"].tolist()
    for name, adaptation in learner.adaptations.items():
        adaptation.value = float(saved[f"adaptations.{name}"])
    if learner.novelty:
        learner.novelty.load(_part("novelty", saved))
    learner.episodes.recent = [(ret, int(length), success) for ret, length, success in rows]


def _part(name: str, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a part of a learner, by their names in it."""
    return {key.removeprefix(f"{name}."): x for key, x in saved.items() if key.startswith(f"{name}.")}


def load_weights(agent: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy weights and observation statistics into an agent."""
    agent.load_state_dict(_part("agent", tensors))


def _check_shapes(path: Path, saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise UsageError if the tensors of a file are not those of the learner.

    Not a CheckpointError: the file is intact, so the run must not restart and overwrite it.
    """
    problem = f"{path} is of other spaces or settings, or of another version of recollect"
    fix = "start a new run with --run-id, or in another --out"
    missing, extra = sorted(set(wanted) - set(saved)), sorted(set(saved) - set(wanted))
    if missing or extra:
        raise UsageError(f"{problem}: it lacks {missing[:3]} and has {extra[:3]} instead; {fix}")
    for name, x in wanted.items():
        given, here = tuple(saved[name].shape), tuple(x.shape)
        # The list of recent episodes grows up to its limit, so its length differs between checkpoints.
        if given != here and (name != "episodes.recent" or given[1:] != here[1:]):
            raise UsageError(f"{problem}: {name} has shape {given}, here it is {here}; {fix}")


# A folder of checkpoints ----------------------------------------------------------------------


def path_of(folder: Path, iteration: int) -> Path:
    """The path of the checkpoint of an iteration."""
    # Padded with zeros: `existing` takes the order of names for the order of iterations.
    return folder / f"iteration-{iteration:08d}.safetensors"


def existing(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(folder.glob("iteration-*.safetensors"))


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and temporary files of interrupted saves."""
    paths = existing(folder)
    for path in [*paths[: max(0, len(paths) - keep)], *folder.glob(".*.tmp")]:
        path.unlink(missing_ok=True)
