"""Memory that is freed and asked for again costs no page faults."""

import platform
import subprocess
import sys

import pytest

CODE = """
import ctypes, resource, sys
import torch
from recollect.common.malloc import MMAP_THRESHOLD, keep_freed_memory

def passes(count):
    for _ in range(count):
        kept = [torch.ones(2**20) for _ in range(32)]  # 4 MB each
        del kept

# By itself glibc gives memory back by luck; so each piece is, until it is told otherwise.
ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**17)
if sys.argv[1] == "kept":
    keep_freed_memory()
passes(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
passes(4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    said = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True)
    return int(said.stdout)


# musl and macOS have no mallopt: keep_freed_memory does nothing there, and there is nothing to see.
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_what_is_freed_is_not_cleared_again():
    assert faults("kept") < 50
    assert faults("not") > 200, "the control: 512 MB given back are 256 pages of the largest size"
