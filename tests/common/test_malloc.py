"""Memory that is freed and asked for again costs no page faults."""

import platform
import subprocess
import sys

import pytest

CODE = """
import ctypes, resource
import torch
from recollect.common.malloc import MMAP_THRESHOLD, keep_freed_memory

def passes(count):
    for _ in range(count):
        kept = [torch.ones(2**20) for _ in range(32)]  # 4 MB each
        del kept

def faults():
    passes(3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    passes(4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

# By itself glibc gives memory back by luck; so each piece is, until it is told otherwise.
ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**17)
given_back = faults()
keep_freed_memory()
print(given_back, faults())
"""


# musl and macOS have no mallopt: keep_freed_memory does nothing there, and there is nothing to see.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.thorough
def test_what_is_freed_is_not_cleared_again():
    said = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    given_back, kept = map(int, said.stdout.split())
    assert kept < 50
    assert given_back > 200, "the control: 512 MB given back are 256 pages of the largest size"
