"""Imports of many modules, as those of torch, in less time."""

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Import without looking for garbage, and let no later collection look at what was imported: it stays.

    Nothing is set apart where all modules are there already, as in a second command of one process: garbage
    of the first would be kept.
    """
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if len(sys.modules) > known:
            gc.freeze()
