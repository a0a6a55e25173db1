"""Freed memory stays with the process.

An update frees what it asked for, and the next asks for as much. Where the C library gives memory back in
between, as it does when too much of it lies free at the end of the heap, the system clears every page
anew. Whether that happens depends on what else lies there, so it made equal runs unequally fast.
"""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc, of which there is no other list here
LARGEST = 32 * 2**20  # bytes; glibc keeps no larger piece


def keep_freed_memory() -> None:
    """Ask glibc to; where there is another C library nothing changes."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt") and library.mallopt(MMAP_THRESHOLD, LARGEST):
        library.mallopt(TRIM_THRESHOLD, 2**30)
