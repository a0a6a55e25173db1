"""Keep freed memory in the process.

Every update allocates and frees the same amount of memory. glibc returns free memory at the end of the heap
to the system, which must clear each page when it is allocated again. Whether this happens depends on the
other allocations, so equal runs differed in speed.
"""

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
LARGEST = 32 * 2**20  # bytes; the largest M_MMAP_THRESHOLD that glibc accepts


def keep_freed_memory() -> None:
    """Make glibc keep freed memory; with another C library nothing changes."""
    if os.name == "nt":  # which has no library that contains the whole program
        return
    library = ctypes.CDLL(None)
    # Blocks above M_MMAP_THRESHOLD go back to the system whenever they are freed, so it is raised as well.
    if hasattr(library, "mallopt") and library.mallopt(MMAP_THRESHOLD, LARGEST):
        library.mallopt(TRIM_THRESHOLD, 2**30)


def release_freed_memory() -> None:
    """Make glibc return freed memory to the system once, so that resident memory is memory in use."""
    library = None if os.name == "nt" else ctypes.CDLL(None)
    if library is not None and hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
