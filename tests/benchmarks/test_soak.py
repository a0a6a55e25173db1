"""The measurements of long runs."""

import os

import pytest

from benchmarks import soak


def result(mebibytes, rollouts=6000):
    seconds = [float(i) for i in range(1, len(mebibytes) + 1)]
    sizes = {"seconds": seconds, "mebibytes": mebibytes, "rollouts": rollouts}
    return {"case": "EnvPool", "checkpoints": 5, "log_bytes": 1024 * rollouts, **sizes}


def test_the_slope_is_that_of_the_second_half_in_eight_hours():
    growing = result([50.0] * 50 + [100 + 0.1 * i for i in range(50)])
    # 0.1 MiB a second for 100 seconds of 6,000 rollouts, and ten times as many rollouts.
    assert soak.slope(growing) == pytest.approx(100, rel=0.02)
    assert soak.slope(result([100.0] * 100)) == pytest.approx(0, abs=1e-9)
    assert soak.table([growing])[2].startswith("| EnvPool | 6,000 | 100 MiB | 105 MiB | +100.")
    assert soak.table([growing])[2].endswith(" MiB | 5 | 1.00 KiB a rollout |")


def test_memory_of_a_process_is_that_of_its_children_as_well():
    assert soak.resident(os.getpid()) > 50 * 2**20
    assert soak.resident(2**22 + 1) == 0
