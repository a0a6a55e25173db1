"""What every test shares: one thread, and how many examples hypothesis tries."""

import gc
import os

# Before torch is imported, and for every process that a test starts: threads that wait for one another on
# busy cores take longer than the work that they share.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
hypothesis.settings.register_profile("nightly", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# No test ends with a loss of power, and to wait for the disk takes as long as a short run computes.
os.fsync = lambda descriptor: None


@pytest.fixture(autouse=True, scope="module")
def keep_what_is_there() -> None:
    """Tests and the packages that earlier ones imported are not searched for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side, so none may take the cores of another."""
    torch.set_num_threads(1)
