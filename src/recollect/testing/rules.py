"""The rules of a memory, in an order in which each mistake meets its own before a more general one.

Shapes.  T rows, B rows of a batch, in_dim features, with those of an action that comes apart.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..common import tree
from ..common.tree import Tree
from .compare import close, contents, demand, distance, equal, index, same, structure
from .subject import (
    BATCH,
    LENGTH,
    Subject,
    dependence,
    go_on_alike,
    in_parts,
    no_flags,
    rows_seen_by_last,
)

DRAWS = 3
CLEAR = "where first[t, b], every part of row b's state must become what initial_state gives"
LONGEST = 1024  # rows over which a stated reach is tested


def keeps_nothing(subject: Subject) -> None:
    """Nothing stays in the module from one call to the next."""
    memory = subject.memory
    before = contents(memory)
    subject.run(subject.inputs(LENGTH), memory.initial_state(BATCH), subject.flags(LENGTH))
    after = contents(memory)
    changed = sorted(k for k in before.keys() | after.keys() if not same(before.get(k), after.get(k)))
    demand(
        not changed,
        "pure",
        f"a call changes {', '.join(changed)} of the module",
        "what is remembered goes in and comes out as `state`; keep no state, and no cache, in self",
    )


def has_shapes(subject: Subject) -> None:
    """y is (T, B, out_dim); the state comes out as it went in, batch axis first."""
    memory = subject.memory
    reach = memory.reach
    demand(
        reach is None or (isinstance(reach, int) and reach >= 1),
        "shapes",
        f"reach is {reach!r}",
        "state how many rows y can see, the present one included, or None if that is unbounded",
    )
    for batch, length in ((BATCH, LENGTH), (BATCH, 1), (1, LENGTH), (1, 1)):
        start = memory.initial_state(batch)
        y, state = subject.run(subject.inputs(length, batch), start, subject.flags(length, batch))
        wanted = length, batch, memory.out_dim
        demand(
            tuple(y.shape) == wanted,
            "shapes",
            f"y is {tuple(y.shape)} where (T, B, out_dim) is {wanted}",
            "give one output of out_dim numbers for every row",
        )
        _check_state(start, batch, "initial_state")
        _check_state(state, batch, "the state given out")
        demand(
            structure(start) == structure(state),
            "shapes",
            f"the state comes out as {structure(state)} and went in as {structure(start)}",
            "give out a state of the very structure, shapes and types that initial_state makes",
        )


def has_types(subject: Subject) -> None:
    """y and every leaf of real numbers are of the module's own type."""
    memory = subject.memory
    y, state = subject.run(subject.inputs(LENGTH), memory.initial_state(BATCH), subject.flags(LENGTH))
    found = {"y": y, **{f"state.{k}": x for k, x in tree.leaves(state).items()}}
    wrong = [k for k, x in found.items() if x.is_floating_point() and x.dtype != torch.float64]
    demand(
        y.is_floating_point() and not wrong,
        "dtype",
        f"{', '.join(wrong) or 'y'} is not float64 though the module is",
        "make new tensors from a parameter or buffer (new_zeros), so that they follow the module",
    )


def is_pure(subject: Subject) -> None:
    """The same arguments give the same result, and none of them is modified."""
    x, state, first = subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH)
    kept = x.clone(), tree.map_leaves(torch.clone, state), first.clone()
    result = subject.run(x, state, first)
    demand(
        torch.equal(x, kept[0]) and torch.equal(first, kept[2]) and equal(state, kept[1]),
        "pure",
        "a call modifies its arguments",
        "work on new tensors: the caller keeps the state it hands in",
    )
    subject.run(subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH))
    again = subject.run(*kept)
    demand(
        torch.equal(result[0], again[0]) and equal(result[1], again[1]),
        "pure",
        "the same arguments give another result after another call",
        "a result may depend on weights and arguments alone, not on earlier calls or on chance",
    )


def gives_no_graph(subject: Subject) -> None:
    """States from acting, and the initial one, hold no graph of gradients."""
    memory = subject.memory
    start = memory.initial_state(BATCH)
    state = subject.run(subject.inputs(LENGTH), start, subject.flags(LENGTH))[1]
    for what, found in (("initial_state", start), ("a call under no_grad", state)):
        holding = [k for k, x in tree.leaves(found).items() if x.requires_grad]
        demand(
            not holding,
            "graph",
            f"{what} gives leaves that require a gradient: {', '.join(holding)}",
            "begin from plain zeros, and turn gradients on nowhere inside the memory",
        )


def leaks_nothing(subject: Subject) -> None:
    """y[t, b] depends on no later row, no other row of the batch and no other episode."""
    t = torch.arange(LENGTH)
    later = (t[:, None] < t)[:, None, :, None]  # (T, 1, T, 1)
    other = ~torch.eye(BATCH, dtype=torch.bool)[None, :, None]  # (1, B, 1, B)
    for _ in range(DRAWS):
        first = subject.flags(LENGTH)
        seen = dependence(subject, subject.past(), first)
        episode = first.cumsum(0)
        apart = episode[:, :, None, None] != episode[None, None]  # (T, B, T, B)
        demand(
            not (seen & other).any(),
            "rows",
            f"y of one row of the batch depends on x of another {_place(seen & other)}",
            "no operation may mix the batch axis (means, norms, views in the wrong order)",
        )
        demand(
            not (seen & later).any(),
            "ahead",
            f"y depends on x of a later time {_place(seen & later)}",
            "mask what comes later; look for an index that is off by one",
        )
        demand(
            not (seen & apart).any(),
            "reset",
            f"y depends on x of another episode {_place(seen & apart)}",
            "where first[t, b], clear row b before x[t, b] is read",
        )


def keeps_reach(subject: Subject) -> None:
    """y sees no further back than `reach` says, in the call and through the state."""
    reach = subject.memory.reach
    if reach is None or reach > LONGEST:
        return
    length = reach + 2
    x, first = subject.inputs(length), no_flags(length)
    seen = rows_seen_by_last(subject, length)
    here, there = (subject.run(x, subject.past(), first)[0][reach - 1 :] for _ in range(2))
    demand(
        not seen[:-reach].any() and close(here, there),
        "reach",
        f"y sees further back than its reach of {reach} rows",
        "state the true number (layers count), or None if it is unbounded",
    )


def carries_gradient(subject: Subject) -> None:
    """Inside a chunk the gradient of the last output reaches the first input in its reach."""
    reach = subject.memory.reach
    length = 16 if reach is None else min(reach, 64)
    demand(
        bool(rows_seen_by_last(subject, length)[0]),
        "gradient",
        f"y[{length - 1}] does not depend on x[0], though the stated reach is {reach}",
        "do not detach inside a call, and state no reach that is not there",
    )


def equals_its_steps(subject: Subject) -> None:
    """T calls of length 1, and any other split, equal one call of length T."""
    for length in (LENGTH, LENGTH, LENGTH + subject.window):
        x, state, first = subject.inputs(length), subject.past(), subject.flags(length)
        first[LENGTH:] = False  # so that a window fills up
        whole, end = subject.run(x, state, first)
        for lengths in ([1] * length, [2, 1, length - 3], [length - 1, 1]):
            stepped, last = in_parts(subject, x, state, first, lengths)
            demand(
                close(whole, stepped) and go_on_alike(subject, end, last),
                "steps",
                f"calls of {lengths[0]}, {lengths[1]}, ... rows differ from one call of {length} "
                f"by {distance(whole, stepped):.2g}",
                "give out all that y will need as `state`; in one call, row t must read what "
                "a call that ended at t-1 would have given out",
            )


def equals_its_episodes(subject: Subject) -> None:
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
        demand(
            close(whole, alone) and go_on_alike(subject, end, last),
            "reset",
            f"a sequence of episodes differs from the same episodes run alone "
            f"by {distance(whole, alone):.2g}",
            CLEAR,
        )


def resets_one_row(subject: Subject) -> None:
    """A reset of one row makes it fresh, and the others stay as they are, to the last bit."""
    x, state, row = subject.inputs(1), subject.past(), 1
    first = no_flags(1)
    untouched = subject.run(x, state, first)
    first[0, row] = True
    y, after = subject.run(x, state, first)
    others = torch.tensor([b for b in range(BATCH) if b != row])
    demand(
        torch.equal(y[:, others], untouched[0][:, others])
        and equal(index(after, others), index(untouched[1], others)),
        "rows",
        "a reset of one row changes other rows of the batch",
        "clear with the flags of each row: state.masked_fill(first[t, :, None], 0)",
    )
    new, begun = subject.run(x, subject.memory.initial_state(BATCH), no_flags(1))
    own = torch.tensor([row])
    demand(
        close(y[:, own], new[:, own]) and go_on_alike(subject, index(after, own), index(begun, own)),
        "reset",
        "a row that was reset differs from a fresh one",
        CLEAR,
    )


def indexes_its_batch(subject: Subject) -> None:
    """Taking some rows of the batch before the call equals taking them after it."""
    x, state, first = subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH)
    some = torch.tensor([2, 0])
    y, end = subject.run(x, state, first)
    picked, last = subject.run(x[:, some], index(state, some), first[:, some])
    demand(
        close(y[:, some], picked) and go_on_alike(subject, index(end, some), last),
        "index",
        "rows of the batch give other results in another company or order",
        "treat every row alone; every leaf of the state needs its batch axis first",
    )


RULES: tuple[Callable[[Subject], None], ...] = (
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


# Said by several rules ------------------------------------------------------------------------


def _check_state(state: Tree, batch: int, what: str) -> None:
    demand(
        isinstance(state, tuple),
        "shapes",
        f"{what} is a {type(state).__name__}",
        "a state is a nested tuple of tensors, () if there is nothing to remember",
    )
    wrong = [k for k, x in tree.leaves(state).items() if x.ndim < 1 or len(x) != batch]
    demand(
        not wrong,
        "shapes",
        f"{what} has leaves whose first axis is not the batch of {batch}: {', '.join(wrong)}",
        "put the batch axis first in every leaf: chunks of a rollout are picked along it",
    )


def _place(where: Tensor) -> str:
    """The first place of a (T, B, T, B) mask, in words."""
    if not where.any():
        return ""
    t, b, u, c = where.nonzero()[0].tolist()
    return f"(y[{t}, {b}] on x[{u}, {c}])"
