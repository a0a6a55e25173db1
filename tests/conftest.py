"""What every test shares: one thread, and how many examples hypothesis tries."""

import os

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
hypothesis.settings.register_profile("nightly", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side, so none may take the cores of another."""
    torch.set_num_threads(1)
