"""What a memory is asked for: what was seen and done before, and what is hidden.

Shapes.  T rows of N environments, R of them that are asked, F features.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..agent.agent import Agent, Branch, build_agent
from ..agent.nets import Rows, one_hot
from ..common import rng
from ..common.intervals import Floats
from ..config.config import RunConfig
from ..envs import Array
from ..run.recording import Record, float_leaves, has_memory, memory_states
from .linear import Answer, Places, Question, Sources, answers, split

LAGS = (1, 2, 4, 8)  # steps ago
UNTRAINED = 5  # agents of the same shape with initial weights
WIDEST = 512  # features; more are projected to so many
MOST_ROWS, MOST_FEATURES = 20_000, 32  # that are asked, and that are asked for
REPORTS = ("success", "is_success")  # of an end, and nothing to remember


def read(agent: Agent, config: RunConfig, record: Record, seed: int) -> list[Answer]:
    """What the actor's memory knows, or the critic's where the actor has none."""
    branch = _remembering(agent)
    if branch is None:
        return []
    random = rng.generator(seed, rng.Purpose.PROBE, len(LAGS))
    asked = _asked(record.valid, random)
    projection = _projection(_width(branch), random)
    memory, *untrained = (
        _remembered(one, record, asked, projection) for one in (branch, *_untrained(agent, config, seed))
    )
    seen, names = _seen(agent, record.rows)
    pictures = [
        record.rows.obs[name][:-1][torch.from_numpy(asked)].flatten(1).float()
        for name, leaf in agent.obs_spec.leaves.items()
        if leaf.kind == "picture"
    ]
    now = torch.cat([torch.from_numpy(seen[asked]), *pictures], -1)
    observation = _projected(now, _projection(now.shape[1], random))
    questions = [*_past(seen, names, record.step, asked), *_action(agent, record.rows, asked)]
    questions += [Question(name, x[:-1][asked]) for name, x in record.hidden.items() if name not in REPORTS]
    places = Places(record.episode[asked], record.step[asked])
    sources = Sources(memory, untrained, observation)
    return answers(sources, questions, split(places.episode, random), places)


def _remembering(agent: Agent) -> Branch | None:
    """The branch that is read from, if any remembers."""
    branch = agent.actor if has_memory(agent.actor) else agent.critic
    return branch if isinstance(branch, Branch) and has_memory(branch) else None


def _untrained(agent: Agent, config: RunConfig, seed: int) -> Iterator[Branch]:
    """The same branch of agents that never learned. They read what the trained agent read: rows that are
    recorded are normalised already."""
    spaces = agent.obs_spec, agent.action_spec
    for fresh_seed in rng.env_seeds(seed, rng.Purpose.PROBE, 0, UNTRAINED):
        fresh = build_agent(spaces, config.actor, config.critic, False, fresh_seed)
        branch = _remembering(fresh.to(next(agent.parameters()).dtype))
        assert branch is not None
        yield branch.eval()


def _asked(valid: Array, random: np.random.Generator) -> Array:
    """Rows (T, N) in which somebody acted, no more of them than are needed."""
    places = np.flatnonzero(valid)
    asked = np.zeros(valid.size, dtype=bool)
    asked[random.permutation(places)[:MOST_ROWS]] = True
    return asked.reshape(valid.shape)


@torch.no_grad()
def _remembered(branch: Branch, record: Record, asked: Array, projection: Tensor | None) -> Floats:
    """The floats of the state after each row that is asked (R, F)."""
    kept: list[Floats] = []
    for here, state in zip(asked, memory_states(branch, record.rows), strict=False):
        if here.any():
            flat = torch.cat([leaf.flatten(1) for leaf in float_leaves(state).values()], 1)
            kept.append(_projected(flat[torch.from_numpy(here)].float(), projection))
    return np.concatenate(kept)


def _width(branch: Branch) -> int:
    return sum(leaf[0].numel() for leaf in float_leaves(branch.memory.initial_state(1)).values())


def _projection(width: int, random: np.random.Generator) -> Tensor | None:
    """A fixed random map to features that can be regressed on; None where there are few enough."""
    if width <= WIDEST:
        return None
    return torch.from_numpy(random.standard_normal((width, WIDEST), dtype=np.float32)) / width**0.5


def _projected(x: Tensor, projection: Tensor | None) -> Floats:
    return np.asarray((x if projection is None else x @ projection).numpy(), dtype=np.float64)


def _seen(agent: Agent, rows: Rows) -> tuple[Array, list[str]]:
    """What was seen but for pictures, as the agent was told it (T, N, F), and a name for each number."""
    parts, names = [np.zeros((*rows.first[:-1].shape, 0), dtype=np.float32)], list[str]()
    for name, leaf in agent.obs_spec.leaves.items():
        x, which = rows.obs[name][:-1], "entry" if len(agent.obs_spec.leaves) == 1 else f"{name} entry"
        if leaf.kind == "discrete":
            parts.append(one_hot(x, leaf.sizes, torch.float32).numpy())
            names += [f"{which} {i} is {k}" for i, size in enumerate(leaf.sizes) for k in range(size)]
        elif leaf.kind != "picture":
            parts.append(x.flatten(2).float().numpy())
            names += [f"{which} {i}" for i in range(leaf.width)]
    return np.concatenate(parts, -1), names


def _past(seen: Array, names: list[str], step: Array, asked: Array) -> Iterator[Question]:
    """What was seen some steps ago; of many numbers those that vary most."""
    spread = seen[asked].std(0)
    chosen = sorted(np.argsort(-spread, kind="stable")[:MOST_FEATURES])
    for lag in LAGS:
        for i in chosen:
            before = np.full(step.shape, np.nan)
            before[lag:] = np.where(step[lag:] >= lag, seen[:-lag, :, i], np.nan)
            yield Question(names[i], before[asked], lag)


def _action(agent: Agent, rows: Rows, asked: Array) -> Iterator[Question]:
    """The action before; of more than two choices, whether it was each of them."""
    before = rows.prev_action[:-1].double().numpy()
    before = np.where(rows.first[:-1, :, None].numpy(), np.nan, before)[asked]
    spec = agent.action_spec
    for i in range(spec.width):
        name = "action before" if spec.width == 1 else f"action before, component {i}"
        if spec.kind == "gaussian" or spec.sizes[i] <= 2:
            yield Question(name, before[:, i])
            continue
        for choice in range(min(spec.sizes[i], MOST_FEATURES)):
            values = np.where(np.isnan(before[:, i]), np.nan, before[:, i] == choice)
            yield Question(f"{name} is {choice}", values)
