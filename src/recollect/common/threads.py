"""The number of threads that torch computes with."""

import contextlib
from collections.abc import Iterator

import torch


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
