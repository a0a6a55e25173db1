"""The number of threads that torch computes with, and the one thread that trains."""

import contextlib
from collections.abc import Iterator
from threading import get_ident

import torch

from .errors import UsageError


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads within the block, and with as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread within the block. Also a decorator.

    For work in small batches: a second thread would only wait, and more threads may round differently, so
    results would depend on the number of cores.
    """
    with threads(1):
        yield


# The threads of this process in which runs are in progress.
_TRAINING: list[int] = []


@contextlib.contextmanager
def only_thread() -> Iterator[None]:
    """Refuse a run while one is in progress in another thread.

    Number of threads, precision and generators of torch are those of the whole process: each run would
    change them under the other, and neither would repeat.
    """
    thread = get_ident()
    if any(other != thread for other in _TRAINING):
        raise UsageError(
            "another thread of this process trains, and torch has one state for both; train in processes, "
            "as recollect.compare does"
        )
    _TRAINING.append(thread)
    try:
        yield
    finally:
        _TRAINING.remove(thread)
