"""The number of threads that torch computes with."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread within the block, and with as many as before after it. Also a decorator.

    For work in small batches: a second thread would only wait, and more threads may round differently, so
    results would depend on the number of cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
