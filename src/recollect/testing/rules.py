"""The rules of the contract of memories.

They run in an order in which a mistake violates its own rule before a more general one, so that the error
names the cause.

Shapes.  T steps, B sequences of a batch, in_dim features including those of a separate previous action.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from ..common import tree
from ..common.tree import Tree
from .compare import close, contents, distance, equal, index, require, same, structure
from .subject import (
    BATCH,
    LENGTH,
    Subject,
    continue_equally,
    dependence,
    in_parts,
    inputs_of_last,
    no_flags,
)

DRAWS = 3
RESET_FIX = "where first[t, b], reset every part of the state of sequence b to that of initial_state"
LONGEST = 1024  # steps; a longer reach is not tested


def check_no_module_state(subject: Subject) -> None:
    """A call changes no attribute of the module."""
    memory = subject.memory
    before = contents(memory)
    subject.run(subject.inputs(LENGTH), memory.initial_state(BATCH), subject.flags(LENGTH))
    after = contents(memory)
    changed = sorted(k for k in before.keys() | after.keys() if not same(before.get(k), after.get(k)))
    require(
        not changed,
        "pure",
        f"a call changes {', '.join(changed)} of the module",
        "take the state as an argument and return the new one; store no state and no cache in self",
    )


def check_shapes(subject: Subject) -> None:
    """y is (T, B, out_dim); the returned state has the structure of the given one, batch axis first."""
    memory = subject.memory
    reach = memory.reach
    require(
        reach is None or (isinstance(reach, int) and reach >= 1),
        "shapes",
        f"reach is {reach!r}",
        "set it to the number of steps that y depends on, including the present one, or None if unbounded",
    )
    # Axes of size 1 show a squeeze or a broadcast too many.
    for batch, length in ((BATCH, LENGTH), (BATCH, 1), (1, LENGTH), (1, 1)):
        start = memory.initial_state(batch)
        y, state = subject.run(subject.inputs(length, batch), start, subject.flags(length, batch))
        require(
            bool(y.isfinite().all()),
            "shapes",
            "y has numbers that are not finite for inputs that are",
            "look for a division by 0, a logarithm or root of a negative number, or a sum that overflows",
        )
        wanted = length, batch, memory.out_dim
        require(
            tuple(y.shape) == wanted,
            "shapes",
            f"y has shape {tuple(y.shape)}; (T, B, out_dim) is {wanted}",
            "return one output of out_dim numbers for every step",
        )
        _check_state(start, batch, "initial_state")
        _check_state(state, batch, "the returned state")
        require(
            structure(start) == structure(state),
            "shapes",
            f"the returned state is {structure(state)}, the given one was {structure(start)}",
            "return a state with the structure, shapes and dtypes of initial_state",
        )


def check_dtypes(subject: Subject) -> None:
    """y and every floating-point leaf of the state have the dtype of the module."""
    # In float32 too, in which agents are trained: what is always float64 is right in float64.
    for dtype in (torch.float64, torch.float32):
        memory = copy.deepcopy(subject.memory).to(dtype)
        start, x = memory.initial_state(BATCH), subject.inputs(LENGTH).to(dtype)
        _check_floats(dtype, {f"initial_state.{k}": x for k, x in tree.leaves(start).items()})
        with torch.no_grad():
            y, state = memory(x, start, subject.flags(LENGTH))
        _check_floats(dtype, {"y": y, **{f"state.{k}": x for k, x in tree.leaves(state).items()}})


def check_purity(subject: Subject) -> None:
    """The same arguments give the same result, and no argument is modified."""
    x, state, first = subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH)
    kept = x.clone(), tree.map_leaves(torch.clone, state), first.clone()
    result = subject.run(x, state, first)
    require(
        torch.equal(x, kept[0]) and torch.equal(first, kept[2]) and equal(state, kept[1]),
        "pure",
        "a call modifies its arguments",
        "compute new tensors instead of changing arguments in place: the caller stores the state it passes",
    )
    # Another call in between, which a hidden cache would carry over.
    subject.run(subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH))
    again = subject.run(*kept)
    require(
        torch.equal(result[0], again[0]) and equal(result[1], again[1]),
        "pure",
        "the same arguments give a different result after another call",
        "results may depend on weights and arguments only, not on earlier calls or on random numbers",
    )


def check_no_graph(subject: Subject) -> None:
    """The initial state, and states from acting, require no gradient."""
    memory = subject.memory
    start = memory.initial_state(BATCH)
    state = subject.run(subject.inputs(LENGTH), start, subject.flags(LENGTH))[1]
    for source, tensors in (("initial_state", start), ("a call under no_grad", state)):
        names = [k for k, x in tree.leaves(tensors).items() if x.requires_grad]
        require(
            not names,
            "graph",
            f"{source} returns leaves that require a gradient: {', '.join(names)}",
            "start from tensors without a gradient, and do not enable gradients inside the memory",
        )


def check_no_leaks(subject: Subject) -> None:
    """y[t, b] depends on no later step, no other sequence of the batch and no other episode."""
    t = torch.arange(LENGTH)
    later = (t[:, None] < t)[:, None, :, None]  # (T, 1, T, 1)
    other = ~torch.eye(BATCH, dtype=torch.bool)[None, :, None]  # (1, B, 1, B)
    for _ in range(DRAWS):
        first = subject.flags(LENGTH)
        depends = dependence(subject, subject.past(), first)
        episode = first.cumsum(0)
        separate = episode[:, :, None, None] != episode[None, None]  # (T, B, T, B)
        require(
            not (depends & other).any(),
            "rows",
            f"y of one sequence of the batch depends on x of another {_first_place(depends & other)}",
            "no operation may mix the batch axis (means, norms, views with axes in the wrong order)",
        )
        require(
            not (depends & later).any(),
            "ahead",
            f"y depends on x of a later step {_first_place(depends & later)}",
            "mask later steps; look for an index that is off by one",
        )
        require(
            not (depends & separate).any(),
            "reset",
            f"y depends on x of another episode {_first_place(depends & separate)}",
            "where first[t, b], reset the state of sequence b before x[t, b] is used",
        )


def check_reach(subject: Subject) -> None:
    """y depends on no step beyond `reach`, neither in the call nor through the state."""
    reach = subject.memory.reach
    if reach is None or reach > LONGEST:
        return
    length = reach + 2
    x, first = subject.inputs(length), no_flags(length)
    depends = inputs_of_last(subject, length)
    # From `reach` steps on, the state before the call must not matter: two random ones give the same y.
    one, other = (subject.run(x, subject.past(), first)[0][reach - 1 :] for _ in range(2))
    require(
        not depends[:-reach].any() and close(one, other),
        "reach",
        f"y depends on steps further back than its reach of {reach} steps",
        "state the true number (the reach of layers adds up), or None if it is unbounded",
    )


def check_gradient(subject: Subject) -> None:
    """Inside a chunk, the gradient of the last output reaches the first input within its reach."""
    reach = subject.memory.reach
    length = 16 if reach is None else min(reach, 64)
    require(
        bool(inputs_of_last(subject, length)[0]),
        "gradient",
        f"y[{length - 1}] does not depend on x[0], though the stated reach is {reach}",
        "do not detach inside a call, and state no longer reach than there is",
    )


def check_steps(subject: Subject) -> None:
    """T calls of length 1, and any other split, give the results of one call of length T."""
    for length in (LENGTH, LENGTH, LENGTH + subject.window):
        x, state, first = subject.inputs(length), subject.past(), subject.flags(length)
        first[LENGTH:] = False  # no reset near the end, so that a bounded memory fills up
        whole, end = subject.run(x, state, first)
        for lengths in ([1] * length, [2, 1, length - 3], [length - 1, 1]):
            stepped, last = in_parts(subject, x, state, first, lengths)
            require(
                close(whole, stepped) and continue_equally(subject, end, last),
                "steps",
                f"calls of {lengths[0]}, {lengths[1]}, ... steps differ from one call of {length} "
                f"by {distance(whole, stepped):.2g}",
                "return everything that later outputs need as `state`; within a call, step t must use the "
                "state that a call ending at t-1 would have returned",
            )


def check_episodes(subject: Subject) -> None:
    """One long sequence with resets gives the results of its episodes, each run on its own."""
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
        require(
            close(whole, alone) and continue_equally(subject, end, last),
            "reset",
            f"a sequence of episodes differs from the same episodes run one by one "
            f"by {distance(whole, alone):.2g}",
            RESET_FIX,
        )


def check_single_reset(subject: Subject) -> None:
    """A reset of one sequence makes it equal to a new one, and changes no bit of the others."""
    x, state, row = subject.inputs(1), subject.past(), 1
    first = no_flags(1)
    untouched = subject.run(x, state, first)
    first[0, row] = True
    y, after = subject.run(x, state, first)
    others = torch.tensor([b for b in range(BATCH) if b != row])
    require(
        torch.equal(y[:, others], untouched[0][:, others])
        and equal(index(after, others), index(untouched[1], others)),
        "rows",
        "a reset of one sequence changes other sequences of the batch",
        "reset by the flag of each sequence: state.masked_fill(first[t, :, None], 0)",
    )
    new, begun = subject.run(x, subject.memory.initial_state(BATCH), no_flags(1))
    rows = torch.tensor([row])
    require(
        close(y[:, rows], new[:, rows]) and continue_equally(subject, index(after, rows), index(begun, rows)),
        "reset",
        "a sequence that was reset differs from a new one",
        RESET_FIX,
    )


def check_batch_indexing(subject: Subject) -> None:
    """Selecting sequences of the batch before a call equals selecting them after it."""
    x, state, first = subject.inputs(LENGTH), subject.past(), subject.flags(LENGTH)
    some = torch.tensor([2, 0])
    y, end = subject.run(x, state, first)
    picked, last = subject.run(x[:, some], index(state, some), first[:, some])
    require(
        close(y[:, some], picked) and continue_equally(subject, index(end, some), last),
        "index",
        "results of a sequence depend on the order or the other sequences of the batch",
        "process every sequence independently; the batch axis of every state leaf must be first",
    )


RULES: tuple[Callable[[Subject], None], ...] = (
    check_no_module_state,
    check_shapes,
    check_dtypes,
    check_purity,
    check_no_graph,
    check_no_leaks,
    check_reach,
    check_gradient,
    check_steps,
    check_episodes,
    check_single_reset,
    check_batch_indexing,
)


# Shared by several rules ----------------------------------------------------------------------


def _check_state(state: Tree, batch: int, name: str) -> None:
    require(
        isinstance(state, tuple),
        "shapes",
        f"{name} is a {type(state).__name__}",
        "a state is a nested tuple of tensors, and () for a memory without a state",
    )
    wrong = [k for k, x in tree.leaves(state).items() if x.ndim < 1 or len(x) != batch]
    require(
        not wrong,
        "shapes",
        f"{name} has leaves whose first axis is not the batch of {batch}: {', '.join(wrong)}",
        "put the batch axis first in every leaf, because minibatches select chunks along it",
    )


def _check_floats(dtype: torch.dtype, tensors: dict[str, Tensor]) -> None:
    wrong = [k for k, x in tensors.items() if x.dtype != dtype and (k == "y" or x.is_floating_point())]
    require(
        not wrong,
        "dtype",
        f"{', '.join(wrong)} is not {dtype}, although the module is",
        "create new tensors from a parameter or buffer (new_zeros), so that they have its dtype",
    )


def _first_place(where: Tensor) -> str:
    """The first nonzero entry of a (T, B, T, B) mask, as text."""
    if not where.any():
        return ""
    t, b, u, c = where.nonzero()[0].tolist()
    return f"(y[{t}, {b}] on x[{u}, {c}])"
