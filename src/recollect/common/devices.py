"""Devices of the networks: which one a name means on this machine, and what makes equal runs equal there."""

import contextlib
import os
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .distributed import ALONE, Ranks
from .errors import OutOfMemoryError, UsageError

AUTOMATIC = "cuda", "mps"  # what `auto` considers, beside the CPU
LARGE = 500_000  # weights from which `auto` takes a GPU


def check_name(name: str) -> None:
    """Raise UsageError unless a name has the form of a device."""
    try:
        known = name == "auto" or torch.device(name).type != "meta"
    except RuntimeError:
        known = False
    if not known:
        raise UsageError(f"device {name!r} is unknown; take auto, cpu, cuda, cuda:1 or mps")


def accelerator() -> torch.device | None:
    """The kind of GPU that this machine and this build of torch have."""
    return torch.accelerator.current_accelerator(check_available=True)


def automatic() -> str | None:
    """The kind of GPU that `auto` can choose on this machine."""
    gpu = accelerator()
    return gpu.type if gpu is not None and gpu.type in AUTOMATIC else None


def choose(name: str, agent: nn.Module | None) -> str:
    """The device that `auto` means for an agent; any other name stays as it is.

    A GPU for convolutions and from LARGE weights on, else the CPU: a step of a small network is too little
    work for a GPU, and its copies and calls cost more than the arithmetic.
    """
    if name != "auto":
        return name
    gpu = automatic()
    if agent is None or gpu is None:
        return "cpu"
    weights = list(agent.parameters())
    large = sum(p.numel() for p in weights) >= LARGE or any(p.ndim == 4 for p in weights)
    return gpu if large else "cpu"


def find_device(name: str, ranks: Ranks = ALONE) -> torch.device:
    """The device of a name; UsageError if this machine does not have it. Each process takes its own GPU."""
    device = torch.device(name)
    if device.type == "cpu":
        return device
    # For equal bits (`deterministic`). cuBLAS reads it at its first use, which may be an evaluation.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    gpu = accelerator()
    if gpu is None or gpu.type != device.type:
        raise UsageError(f"device {name}: {_missing(device.type)}; take --device cpu")
    count = torch.accelerator.device_count()
    if ranks.local_size > 1:
        if device.index is not None or device.type != "cuda" or ranks.local_size > count:
            raise UsageError(
                f"device {name}: each of {ranks.local_size} processes needs a GPU of its own, here are "
                f"{count}; take --device cuda with as many processes as GPUs, or --device cpu"
            )
        return torch.device(device.type, ranks.rank % ranks.local_size)
    if device.index is not None and device.index >= count:
        raise UsageError(f"device {name}: this machine has {count}, counted from 0; take --device cpu")
    return device


def _missing(kind: str) -> str:
    if kind == "cuda" and not torch.backends.cuda.is_built():
        return "this build of torch has no CUDA (docs/gpu.md has the line that installs one with it)"
    return f"torch sees no {kind} device on this machine"


def describe(device: torch.device) -> str:
    """A device with all that its rounding depends on."""
    if device.type != "cuda":
        return device.type
    cudnn = torch.backends.cudnn.version()
    return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, cuDNN {cudnn}"


def announcement(device: torch.device) -> str | None:
    """A line on the device, where there was a choice."""
    no_choice = device.type == "cpu" and automatic() is None
    return None if no_choice else f"device: {device} ({describe(device)})"


def send(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device; nothing waits for the copy."""
    if device.type not in ("cpu", "mps"):
        # A copy from other memory would wait until the device has done all that it was given before.
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished, so that a clock can be read."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextlib.contextmanager
def training_on(device: torch.device) -> Iterator[None]:
    """Let equal runs give equal bits on a GPU, and report in one line that its memory is full."""
    # Of several GPUs, pinned memory and captured graphs belong to the current one.
    with reported_memory(device), torch.accelerator.device_index(device.index), deterministic(device):
        yield


@contextlib.contextmanager
def reported_memory(device: torch.device) -> Iterator[None]:
    """Report in one line that the memory of a device is full."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"{device} is out of memory; checkpoints are intact. Take more ppo.num_minibatches, fewer "
            "env.num_envs, or a smaller memory (its width, layers or context)"
        ) from error


@contextlib.contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Deterministic kernels, and products in full precision.

    On CUDA equality also needs CUBLAS_WORKSPACE_CONFIG (`find_device`) and the same GPU model, driver and
    versions. torch promises none on mps.
    """
    if device.type in ("cpu", "mps"):
        yield
        return
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.benchmark,
        cudnn.allow_tf32,
        matmul.allow_tf32,
    )
    _set_modes(True, False, False, False)
    try:
        yield
    finally:
        _set_modes(*before)


def _set_modes(exact: bool, benchmark: bool, cudnn_tf32: bool, matmul_tf32: bool) -> None:
    torch.use_deterministic_algorithms(exact)
    torch.backends.cudnn.benchmark = benchmark
    # TF32 rounds products at 1e-3, and acting and learning would then disagree by as much.
    torch.backends.cudnn.allow_tf32 = cudnn_tf32
    torch.backends.cuda.matmul.allow_tf32 = matmul_tf32
