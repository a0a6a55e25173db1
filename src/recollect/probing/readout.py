"""The targets that are read out of a memory state: earlier observations, actions and hidden quantities.

Shapes.  T steps of N environments, R selected steps, F features.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent, Branch, build_agent
from ..agent.nets import Rows
from ..common import rng
from ..common.intervals import Floats
from ..common.tree import Tree
from ..config.config import RunConfig
from ..encoder.leaves import one_hot
from ..envs import Array
from ..run.recording import Record, float_leaves, has_memory, memory_states
from .linear import Places, ReadOut, Sources, Target, read_targets, split_episodes
from .ridge import Split

LAGS = (1, 2, 4, 8)  # steps ago
UNTRAINED = 5  # agents of the same shape with initial weights
WIDEST = 512  # features; more are projected to this number
MOST_STEPS, MOST_TARGETS = 20_000, 32
REPORTS = ("success", "is_success")  # reported at the end of an episode: no targets


class Material(NamedTuple):
    """What read-outs are fitted to.

    selected    the steps (T, N); all other fields are of these R steps
    projection  of the floats of a state to features; None: the features are the floats
    """

    selected: Array
    projection: Tensor | None
    sources: Sources
    targets: list[Target]
    parts: Split
    places: Places

    def read(self) -> list[ReadOut]:
        """The read-out of every target that varies."""
        return read_targets(self.sources, self.targets, self.parts, self.places)


def collect_material(agent: Agent, config: RunConfig, record: Record, seed: int) -> Material | None:
    """Memory states of the actor, or of the critic if the actor has no memory, with all targets.

    None: neither has a memory.
    """
    branch = _branch_with_memory(agent)
    if branch is None:
        return None
    # An index that the noise of ablate.py does not use. It must not change, nor may the order of the draws
    # below: both decide the numbers of every read-out.
    random = rng.generator(seed, rng.Purpose.PROBE, len(LAGS))
    selected = _select_steps(record.valid, random)
    projection = _draw_projection(_state_width(branch), random)
    memory, *untrained = (
        _collect_states(one, record, selected, projection)
        for one in (branch, *build_untrained(agent, config, seed))
    )
    seen, names = _collect_observations(agent, record.rows)
    pictures = [
        record.rows.obs[name][:-1][torch.from_numpy(selected)].flatten(1).float()
        for name, leaf in agent.actor.inputs.leaves.items()
        if leaf.kind == "picture"
    ]
    now = torch.cat([torch.from_numpy(seen[selected]), *pictures], -1)
    observation = project(now, _draw_projection(now.shape[1], random))
    targets = [
        *_past_targets(seen, names, record.step, selected),
        *_action_targets(agent, record.rows, selected),
    ]
    targets += [Target(name, x[:-1][selected]) for name, x in record.hidden.items() if name not in REPORTS]
    places = Places(record.episode[selected], record.step[selected])
    sources = Sources(memory, untrained, observation)
    parts = split_episodes(places.episode, random)
    return Material(selected, projection, sources, targets, parts, places)


def _branch_with_memory(agent: Agent) -> Branch | None:
    """The actor, else the branch that values depend on, whichever has a memory."""
    return next((branch for branch in (agent.actor, agent.critic.trunk) if has_memory(branch)), None)


def build_untrained(agent: Agent, config: RunConfig, seed: int) -> Iterator[Branch]:
    """The same branch of untrained agents; recorded observations are normalised already."""
    spaces = agent.obs_spec, agent.action_spec
    for fresh_seed in rng.env_seeds(seed, rng.Purpose.PROBE, 0, UNTRAINED):
        fresh = build_agent(spaces, config.actor, config.critic, False, fresh_seed)
        like = next(agent.parameters())
        branch = _branch_with_memory(fresh.to(like.device, like.dtype))
        assert branch is not None
        # Dropout would make its states random.
        yield branch.eval()


def _select_steps(valid: Array, random: np.random.Generator) -> Array:
    """A mask (T, N) of valid steps, at most MOST_STEPS."""
    places = np.flatnonzero(valid)
    selected = np.zeros(valid.size, dtype=bool)
    selected[random.permutation(places)[:MOST_STEPS]] = True
    return selected.reshape(valid.shape)


@torch.no_grad()
def _collect_states(branch: Branch, record: Record, selected: Array, projection: Tensor | None) -> Floats:
    """The floats of the memory state after each selected step (R, F)."""
    collected: list[Floats] = []
    # strict=False: row T has a state, but is no step.
    for here, state in zip(selected, memory_states(branch, record.rows), strict=False):
        if here.any():
            collected.append(project(flatten(state).cpu()[torch.from_numpy(here)], projection))
    return np.concatenate(collected)


def flatten(state: Tree) -> Tensor:
    """All floats of a state (B, W), in single precision."""
    return torch.cat([leaf.reshape(len(leaf), -1) for leaf in float_leaves(state).values()], 1).float()


def _state_width(branch: Branch) -> int:
    return sum(leaf[0].numel() for leaf in float_leaves(branch.memory.initial_state(1)).values())


def _draw_projection(width: int, random: np.random.Generator) -> Tensor | None:
    """A random projection to WIDEST features; None if there are at most as many."""
    if width <= WIDEST:
        return None
    return torch.from_numpy(random.standard_normal((width, WIDEST), dtype=np.float32)) / width**0.5


def project(x: Tensor, projection: Tensor | None) -> Floats:
    """Floats of states (R, W) as features (R, F)."""
    return np.asarray((x if projection is None else x @ projection).numpy(), dtype=np.float64)


def _collect_observations(agent: Agent, rows: Rows) -> tuple[Array, list[str]]:
    """Observations without pictures, as the agent gets them (T, N, F), and a name for each entry."""
    parts, names = [np.zeros((*rows.first[:-1].shape, 0), dtype=np.float32)], list[str]()
    leaves = agent.actor.inputs.leaves
    for name, leaf in leaves.items():
        x, prefix = rows.obs[name][:-1], "entry" if len(leaves) == 1 else f"{name} entry"
        if leaf.kind == "discrete":
            parts.append(one_hot(x, leaf.sizes, torch.float32).numpy())
            names += [f"{prefix} {i} is {k}" for i, size in enumerate(leaf.sizes) for k in range(size)]
        elif leaf.kind != "picture":
            parts.append(x.flatten(2).float().numpy())
            names += [f"{prefix} {i}" for i in range(leaf.width)]
    return np.concatenate(parts, -1), names


def _past_targets(seen: Array, names: list[str], step: Array, selected: Array) -> Iterator[Target]:
    """Entries of earlier observations; of many those that vary most."""
    spread = seen[selected].std(0)
    # Stable, so that entries with equal spread are chosen alike on every machine.
    chosen = sorted(np.argsort(-spread, kind="stable")[:MOST_TARGETS])
    for lag in LAGS:
        for i in chosen:
            before = np.full(step.shape, np.nan)
            before[lag:] = np.where(step[lag:] >= lag, seen[:-lag, :, i], np.nan)
            yield Target(names[i], before[selected], lag)


def _action_targets(agent: Agent, rows: Rows, selected: Array) -> Iterator[Target]:
    """The previous action; of more than two choices, whether it was each of them."""
    before = rows.prev_action[:-1].double().numpy()
    before = np.where(rows.first[:-1, :, None].numpy(), np.nan, before)[selected]
    spec = agent.action_spec
    for i in range(spec.width):
        name = "action before" if spec.width == 1 else f"action before, component {i}"
        if spec.kind == "gaussian" or spec.sizes[i] <= 2:
            yield Target(name, before[:, i])
            continue
        for choice in range(min(spec.sizes[i], MOST_TARGETS)):
            values = np.where(np.isnan(before[:, i]), np.nan, before[:, i] == choice)
            yield Target(f"{name} is {choice}", values)
