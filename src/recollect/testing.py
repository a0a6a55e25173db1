"""The contract of a memory as a check that runs, for the memories here and for yours.

    from recollect.testing import check_memory
    check_memory(MyConfig(width=8))

`check_memory` raises an AssertionError that names the first broken rule and how to mend it.
`check_agent` does the same for a whole agent: acting must equal learning.

Shapes.  T rows, B rows of a batch, in_dim features, with those of an action that comes apart.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from . import tree
from .agent import Agent
from .envs.spaces import Leaf
from .memory import MemoryConfig
from .nets import Rows
from .rollout import slice_rows
from .states import Reads
from .tree import Tree

BATCH = 3
LENGTH = 9
DRAWS = 3
ACTION = 2  # features of an action that comes apart
TOLERANCE = 1e-10  # float64 rounds at 1e-16; a memory may add in another order, but not much more
CLEAR = "where first[t, b], every part of row b's state must become what initial_state gives"
LONGEST = 1024  # rows over which a stated reach is tested
LONGEST_WINDOW = 128  # rows with which a bounded memory is filled


def check_memory(config: MemoryConfig, in_dim: int = 5) -> None:
    """Run the whole contract on the memory that `config` builds, in float64."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        subject = _Subject(config, in_dim)
        for rule in RULES:
            rule(subject)


def check_agent(agent: Agent, length: int = 8, num_envs: int = BATCH) -> None:
    """Acting row by row must equal learning from chunks of `length` rows, in float64.

    The agent is copied, not changed.
    """
    agent = copy.deepcopy(agent).double().eval()
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(0)
        rows = _random_rows(agent, 2 * length, num_envs)
        state = agent.initial_state(num_envs)
        for name, branch, start in (
            ("actor", agent.actor, state.actor),
            ("critic", agent.value, agent.value_state(state)),
        ):
            acted, learned = _both_ways(branch, rows, start, length)
            _demand(
                _close(acted, learned, 1e-12),
                "agent",
                f"the {name} computes other numbers row by row than in chunks of {length} rows "
                f"(largest difference {_distance(acted, learned):.2g})",
                "run check_memory on its memory; layers around it must treat every row alone",
            )


# What the rules are tested on -----------------------------------------------------------------


class _Subject:
    """A memory under test, and random rows for it."""

    def __init__(self, config: MemoryConfig, in_dim: int) -> None:
        # Without dropout, as in acting.
        apart = (ACTION,) if config.action_apart else ()
        self.in_dim = in_dim + sum(apart)
        self.memory = config.build(self.in_dim, *apart).double().eval()
        with torch.no_grad():
            for p in self.memory.parameters():
                p.add_(0.05 * torch.randn_like(p))  # weights that begin at 0 would hide a leak

    def inputs(self, length: int, batch: int = BATCH) -> Tensor:
        """(T, B, in_dim)."""
        return torch.randn(length, batch, self.in_dim, dtype=torch.float64)

    def flags(self, length: int, batch: int = BATCH) -> Tensor:
        """`first` (T, B): every fourth row opens an episode, by chance."""
        return torch.rand(length, batch) < 0.25

    @property
    def window(self) -> int:
        """Rows that fill a bounded memory, unless it is very long."""
        return min(self.memory.reach or 0, LONGEST_WINDOW)

    def past(self, batch: int = BATCH) -> Tree:
        """The state of rows that remember as much as they can."""
        length = LENGTH + self.window
        x = self.inputs(length, batch)
        return self.run(x, self.memory.initial_state(batch), no_flags(length, batch))[1]

    @torch.no_grad()
    def run(self, x: Tensor, state: Tree, first: Tensor) -> tuple[Tensor, Tree]:
        """One call, without gradients."""
        y, state = self.memory(x, state, first)
        return y, state


def no_flags(length: int, batch: int = BATCH) -> Tensor:
    """`first` (T, B) of one episode that goes on."""
    return torch.zeros(length, batch, dtype=torch.bool)


# Rules ----------------------------------------------------------------------------------------


def keeps_nothing(subject: _Subject) -> None:
    """Nothing stays in the module from one call to the next."""
    memory = subject.memory
    before = _contents(memory)
    subject.run(subject.inputs(LENGTH), memory.initial_state(BATCH), subject.flags(LENGTH))
    after = _contents(memory)
    changed = sorted(k for k in before.keys() | after.keys() if not _same(before.get(k), after.get(k)))
    _demand(
        not changed,
        "pure",
        f"a call changes {', '.join(changed)} of the module",
        "what is remembered goes in and comes out as `state`; keep no state, and no cache, in self",
    )


def has_shapes(subject: _Subject) -> None:
    """y is (T, B, out_dim); the state comes out as it went in, batch axis first."""
    memory = subject.memory
    reach = memory.reach
    _demand(
        reach is None or (isinstance(reach, int) and reach >= 1),
        "shapes",
        f"reach is {reach!r}",
        "state how many rows y can see, the present one included, or None if that is unbounded",
    )
    for batch, length in ((BATCH, LENGTH), (BATCH, 1), (1, LENGTH), (1, 1)):
        start = memory.initial_state(batch)
        y, state = subject.run(subject.inputs(length, batch), start, subject.flags(length, batch))
        wanted = length, batch, memory.out_dim
        _demand(
            tuple(y.shape) == wanted,
            "shapes",
            f"y is {tuple(y.shape)} where (T, B, out_dim) is {wanted}",
            "give one output of out_dim numbers for every row",
        )
        _check_state(start, batch, "initial_state")
        _check_state(state, batch, "the state given out")
        _demand(
            _structure(start) == _structure(state),
            "shapes",
            f"the state comes out as {_structure(state)} and went in as {_structure(start)}",
            "give out a state of the very structure, shapes and types that initial_state makes",
        )


def has_types(subject: _Subject) -> None:
    """y and every leaf of real numbers are of the module's own type."""
    memory = subject.memory
    y, state = subject.run(subject.inputs(LENGTH), memory.initial_state(BATCH), subject.flags(LENGTH))
    found = {"y": y, **{f"state.{k}": x for k, x in tree.leaves(state).items()}}
    wrong = [k for k, x in found.items() if x.is_floating_point() and x.dtype != torch.float64]
    _demand(
        y.is_floating_point() and not wrong,
        "dtype",
        f"{', '.join(wrong) or 'y'} is not float64 though the module is",
        "make new tensors from a parameter or buffer (new_zeros), so that they follow the module",
    )


def is_pure(subject: _Subject) -> None:
    """The same arguments give the same result, and none of them is modified."""
    x, state, first = subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH)
    kept = x.clone(), tree.map_leaves(torch.clone, state), first.clone()
    result = subject.run(x, state, first)
    _demand(
        torch.equal(x, kept[0]) and torch.equal(first, kept[2]) and _equal(state, kept[1]),
        "pure",
        "a call modifies its arguments",
        "work on new tensors: the caller keeps the state it hands in",
    )
    subject.run(subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH))
    again = subject.run(*kept)
    _demand(
        torch.equal(result[0], again[0]) and _equal(result[1], again[1]),
        "pure",
        "the same arguments give another result after another call",
        "a result may depend on weights and arguments alone, not on earlier calls or on chance",
    )


def gives_no_graph(subject: _Subject) -> None:
    """States from acting, and the initial one, hold no graph of gradients."""
    memory = subject.memory
    start = memory.initial_state(BATCH)
    state = subject.run(subject.inputs(LENGTH), start, subject.flags(LENGTH))[1]
    for what, found in (("initial_state", start), ("a call under no_grad", state)):
        holding = [k for k, x in tree.leaves(found).items() if x.requires_grad]
        _demand(
            not holding,
            "graph",
            f"{what} gives leaves that require a gradient: {', '.join(holding)}",
            "begin from plain zeros, and turn gradients on nowhere inside the memory",
        )


def leaks_nothing(subject: _Subject) -> None:
    """y[t, b] depends on no later row, no other row of the batch and no other episode."""
    t = torch.arange(LENGTH)
    later = (t[:, None] < t)[:, None, :, None]  # (T, 1, T, 1)
    other = ~torch.eye(BATCH, dtype=torch.bool)[None, :, None]  # (1, B, 1, B)
    for _ in range(DRAWS):
        first = subject.flags(LENGTH)
        seen = _dependence(subject, subject.past(), first)
        episode = first.cumsum(0)
        apart = episode[:, :, None, None] != episode[None, None]  # (T, B, T, B)
        _demand(
            not (seen & other).any(),
            "rows",
            f"y of one row of the batch depends on x of another {_place(seen & other)}",
            "no operation may mix the batch axis (means, norms, views in the wrong order)",
        )
        _demand(
            not (seen & later).any(),
            "ahead",
            f"y depends on x of a later time {_place(seen & later)}",
            "mask what comes later; look for an index that is off by one",
        )
        _demand(
            not (seen & apart).any(),
            "reset",
            f"y depends on x of another episode {_place(seen & apart)}",
            "where first[t, b], clear row b before x[t, b] is read",
        )


def keeps_reach(subject: _Subject) -> None:
    """y sees no further back than `reach` says, in the call and through the state."""
    reach = subject.memory.reach
    if reach is None or reach > LONGEST:
        return
    length = reach + 2
    x, first = subject.inputs(length), no_flags(length)
    seen = _rows_seen_by_last(subject, length)
    here, there = (subject.run(x, subject.past(), first)[0][reach - 1 :] for _ in range(2))
    _demand(
        not seen[:-reach].any() and _close(here, there),
        "reach",
        f"y sees further back than its reach of {reach} rows",
        "state the true number (layers count), or None if it is unbounded",
    )


def carries_gradient(subject: _Subject) -> None:
    """Inside a chunk the gradient of the last output reaches the first input in its reach."""
    reach = subject.memory.reach
    length = 16 if reach is None else min(reach, 64)
    _demand(
        bool(_rows_seen_by_last(subject, length)[0]),
        "gradient",
        f"y[{length - 1}] does not depend on x[0], though the stated reach is {reach}",
        "do not detach inside a call, and state no reach that is not there",
    )


def equals_its_steps(subject: _Subject) -> None:
    """T calls of length 1, and any other split, equal one call of length T."""
    for length in (LENGTH, LENGTH, LENGTH + subject.window):
        x, state, first = subject.inputs(length), subject.past(), subject.flags(length)
        first[LENGTH:] = False  # so that a window fills up
        whole, end = subject.run(x, state, first)
        for lengths in ([1] * length, [2, 1, length - 3], [length - 1, 1]):
            stepped, last = _in_parts(subject, x, state, first, lengths)
            _demand(
                _close(whole, stepped) and _go_on_alike(subject, end, last),
                "steps",
                f"calls of {lengths[0]}, {lengths[1]}, ... rows differ from one call of {length} "
                f"by {_distance(whole, stepped):.2g}",
                "give out all that y will need as `state`; in one call, row t must read what "
                "a call that ended at t-1 would have given out",
            )


def equals_its_episodes(subject: _Subject) -> None:
    """One long sequence with flags equals its episodes, each run alone."""
    for _ in range(DRAWS):
        x, first = subject.inputs(2 * LENGTH, 1), subject.flags(2 * LENGTH, 1)
        first[0] = True
        whole, end = subject.run(x, subject.past(1), first)
        starts = first[:, 0].nonzero()[:, 0].tolist()
        parts, last = [], subject.past(1)
        for start, stop in zip(starts, [*starts[1:], len(x)], strict=True):
            fresh = subject.memory.initial_state(1)
            y, last = subject.run(x[start:stop], fresh, no_flags(stop - start, 1))
            parts.append(y)
        alone = torch.cat(parts)
        _demand(
            _close(whole, alone) and _go_on_alike(subject, end, last),
            "reset",
            f"a sequence of episodes differs from the same episodes run alone "
            f"by {_distance(whole, alone):.2g}",
            CLEAR,
        )


def resets_one_row(subject: _Subject) -> None:
    """A reset of one row makes it fresh, and the others stay as they are, to the last bit."""
    x, state, row = subject.inputs(1), subject.past(), 1
    first = no_flags(1)
    untouched = subject.run(x, state, first)
    first[0, row] = True
    y, after = subject.run(x, state, first)
    others = torch.tensor([b for b in range(BATCH) if b != row])
    _demand(
        torch.equal(y[:, others], untouched[0][:, others])
        and _equal(_index(after, others), _index(untouched[1], others)),
        "rows",
        "a reset of one row changes other rows of the batch",
        "clear with the flags of each row: state.masked_fill(first[t, :, None], 0)",
    )
    new, begun = subject.run(x, subject.memory.initial_state(BATCH), no_flags(1))
    own = torch.tensor([row])
    _demand(
        _close(y[:, own], new[:, own]) and _go_on_alike(subject, _index(after, own), _index(begun, own)),
        "reset",
        "a row that was reset differs from a fresh one",
        CLEAR,
    )


def indexes_its_batch(subject: _Subject) -> None:
    """Taking some rows of the batch before the call equals taking them after it."""
    x, state, first = subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH)
    some = torch.tensor([2, 0])
    y, end = subject.run(x, state, first)
    picked, last = subject.run(x[:, some], _index(state, some), first[:, some])
    _demand(
        _close(y[:, some], picked) and _go_on_alike(subject, _index(end, some), last),
        "index",
        "rows of the batch give other results in another company or order",
        "treat every row alone; every leaf of the state needs its batch axis first",
    )


# In an order in which each mistake meets its own rule before a more general one.
RULES: tuple[Callable[[_Subject], None], ...] = (
    keeps_nothing,
    has_shapes,
    has_types,
    is_pure,
    gives_no_graph,
    leaks_nothing,
    keeps_reach,
    carries_gradient,
    equals_its_steps,
    equals_its_episodes,
    resets_one_row,
    indexes_its_batch,
)


# Who sees whom --------------------------------------------------------------------------------


def _dependence(subject: _Subject, state: Tree, first: Tensor) -> Tensor:
    """Whether y[t, b] depends on x[u, c], by the gradient of a random mixture: (T, B, T, B)."""
    length, batch = first.shape
    x = subject.inputs(length, batch).requires_grad_()
    y, _ = subject.memory(x, state, first)
    mixture = y @ torch.randn(y.shape[-1], dtype=y.dtype)
    seen = torch.zeros(length, batch, length, batch, dtype=torch.bool)
    for t in range(length):
        for b in range(batch):
            seen[t, b] = _rows_with_gradient(mixture[t, b], x)
    return seen


def _rows_seen_by_last(subject: _Subject, length: int) -> Tensor:
    """Whether the last y of one episode depends on x[u]: bool (T,)."""
    x = subject.inputs(length, 1).requires_grad_()
    y, _ = subject.memory(x, subject.past(1), no_flags(length, 1))
    mixture = y[-1, 0] @ torch.randn(y.shape[-1], dtype=y.dtype)
    return _rows_with_gradient(mixture, x)[:, 0]


def _rows_with_gradient(scalar: Tensor, x: Tensor) -> Tensor:
    """Where the gradient of a scalar by x (T, B, in_dim) is not exactly 0: bool (T, B)."""
    if not scalar.requires_grad:
        return torch.zeros(x.shape[:2], dtype=torch.bool)
    (gradient,) = torch.autograd.grad(scalar, x, retain_graph=True, allow_unused=True)
    if gradient is None:
        return torch.zeros(x.shape[:2], dtype=torch.bool)
    return (gradient != 0).any(-1)


def _place(where: Tensor) -> str:
    """The first place of a (T, B, T, B) mask, in words."""
    if not where.any():
        return ""
    t, b, u, c = where.nonzero()[0].tolist()
    return f"(y[{t}, {b}] on x[{u}, {c}])"


# Comparing ------------------------------------------------------------------------------------


def _demand(holds: bool, rule: str, found: str, mend: str) -> None:
    if not holds:
        raise AssertionError(f"contract, {rule}: {found}. To mend it: {mend}.")


def _close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    return a.shape == b.shape and _distance(a, b) <= tolerance * (1 + float(b.abs().max()))


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _equal(a: Tree, b: Tree) -> bool:
    """Whether two trees are the same to the last bit."""
    left, right = tree.leaves(a), tree.leaves(b)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def _go_on_alike(subject: _Subject, a: Tree, b: Tree) -> bool:
    """Whether two states remember the same, told by what follows: their layout may differ."""
    found = list(tree.leaves(a).values())
    if not found:
        return True
    x, first = subject.inputs(LENGTH, len(found[0])), no_flags(LENGTH, len(found[0]))
    return _close(subject.run(x, a, first)[0], subject.run(x, b, first)[0])


def _index(state: Tree, rows: Tensor) -> Tree:
    return tree.map_leaves(lambda leaf: leaf[rows], state)


def _check_state(state: Tree, batch: int, what: str) -> None:
    _demand(
        isinstance(state, tuple),
        "shapes",
        f"{what} is a {type(state).__name__}",
        "a state is a nested tuple of tensors, () if there is nothing to remember",
    )
    wrong = [k for k, x in tree.leaves(state).items() if x.ndim < 1 or len(x) != batch]
    _demand(
        not wrong,
        "shapes",
        f"{what} has leaves whose first axis is not the batch of {batch}: {', '.join(wrong)}",
        "put the batch axis first in every leaf: chunks of a rollout are picked along it",
    )


def _in_parts(
    subject: _Subject, x: Tensor, state: Tree, first: Tensor, lengths: list[int]
) -> tuple[Tensor, Tree]:
    """Calls of these lengths, one after another."""
    parts = []
    for part, flags in zip(torch.split(x, lengths), torch.split(first, lengths), strict=True):
        y, state = subject.run(part, state, flags)
        parts.append(y)
    return torch.cat(parts), state


def _structure(state: Any) -> Any:
    """A state with every tensor replaced by its shape behind the batch axis and its type."""
    if isinstance(state, Tensor):
        return tuple(state.shape[1:]), str(state.dtype)
    if isinstance(state, dict):
        return {key: _structure(value) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(_structure(value) for value in state)
    return type(state).__name__


def _contents(module: nn.Module) -> dict[str, Any]:
    """Everything a module and its parts hold, by name; tensors copied."""
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            found[f"{path}.{key}" if path else key] = _copied(value)
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(part) for part in value]
    return value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or bool(a == b)


# Rows for a whole agent -----------------------------------------------------------------------


def _both_ways(branch: Reads, rows: Rows, state: Tree, length: int) -> tuple[Tensor, Tensor]:
    """What a branch says row by row, and over two chunks side by side from their states."""
    num_envs = rows.first.shape[1]
    said, starts = [], []
    for t in range(2 * length):
        if t % length == 0:
            starts.append(state)
        y, state = branch(slice_rows(rows, slice(t, t + 1)), state)
        said.append(y)
    joined = tree.map_leaves(lambda x: x.flatten(0, 1), tree.stack(starts))

    def cut(x: Tensor) -> Tensor:
        return torch.cat(torch.split(x, length), 1)

    chunks = Rows({k: cut(x) for k, x in rows.obs.items()}, *map(cut, rows[1:]))
    learned = branch(chunks, joined)[0]
    return torch.cat(said), torch.cat(torch.split(learned, num_envs, 1))


def _random_rows(agent: Agent, length: int, num_envs: int) -> Rows:
    """Rows (T, N, ...) such as an environment could give."""
    first = torch.rand(length, num_envs) < 0.2
    first[0] = True
    obs = {key: _random_leaf(leaf, length, num_envs) for key, leaf in agent.obs_spec.leaves.items()}
    spec = agent.action_spec
    if agent.policy.discrete:
        action = torch.stack([torch.randint(n, (length, num_envs)) for n in spec.sizes], -1)
    else:
        action = torch.randn(length, num_envs, spec.width, dtype=torch.float64)
    reward = torch.randn(length, num_envs, dtype=torch.float64)
    return Rows(agent.normalizer(obs), first, action * ~first[..., None], reward * ~first)


def _random_leaf(leaf: Leaf, length: int, num_envs: int) -> Tensor:
    if leaf.kind == "picture":
        return torch.randint(256, (length, num_envs, *leaf.shape), dtype=torch.uint8)
    if leaf.kind == "discrete":
        return torch.stack([torch.randint(n, (length, num_envs)) for n in leaf.sizes], -1)
    x = torch.randn(length, num_envs, *leaf.shape, dtype=torch.float64)
    return (x > 0).double() if leaf.kind == "binary" else x
