"""torch has one accelerator per process: where there is a GPU, the simulated device is left out."""

import torch

if torch.cuda.is_available() or torch.backends.mps.is_available():
    collect_ignore = ["test_fake.py", "test_graphs.py", "test_training.py", "test_uses.py"]
