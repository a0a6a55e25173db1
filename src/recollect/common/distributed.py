"""Data-parallel training: one run on several processes, started by torchrun.

    torchrun --nproc-per-node 2 -m recollect train LunarLander-v3 -m ppo_lstm

Each process steps a block of the environments, with their memory states, and computes the gradients of their
steps. Gradients are summed, and rewards, values and counts are gathered through `Ranks`. So all processes
take the same decisions from the same numbers. In a run of one process, `Ranks` does nothing: no copies, no
messages, no rounding.
"""

import contextlib
import importlib
import os
import socket
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from .errors import DisagreementError, LostError, UsageError

PATIENCE = timedelta(minutes=5)  # timeout of every message
INTERFACE = "GLOO_SOCKET_IFNAME"  # the variable by which a user names an interface for Gloo
T = TypeVar("T")


def _allowed_cores(process: int) -> list[int]:
    """The cores that a process may use; process 0 is this one."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(process))
    return list(range(os.cpu_count() or 1))


CORES = len(_allowed_cores(0))  # at import, before `pinned_cores` leaves only a share of them


MOST_THREADS = 1024  # torch ends the process with a segmentation fault if the system refuses a thread


def check_threads(name: str, threads: int) -> None:
    """Raise UsageError for more threads than any machine has."""
    if threads > MOST_THREADS:
        raise UsageError(
            f"{name} is {threads}, at most {MOST_THREADS} are supported; this machine has {CORES} cores"
        )


class Ranks:
    """The processes of a run, from the perspective of one of them.

    rank        index of this process
    size        number of processes
    local_size  number of processes on this machine
    """

    def __init__(self, rank: int = 0, size: int = 1, local_size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.local_size = local_size

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is rank 0, which writes all files and all output."""
        return self.rank == 0

    def block(self, count: int) -> slice:
        """The `count` environments of this rank among the environments of all ranks."""
        return slice(self.rank * count, (self.rank + 1) * count)

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.size > 1:
            self._send(lambda dist: dist.all_reduce(x))
        return x

    def all_reduce_max(self, *numbers: float) -> tuple[float, ...]:
        """The largest value of each number over all ranks."""
        if self.size == 1:
            return numbers
        return tuple(self.all_gather(torch.tensor(numbers, dtype=torch.float64)).amax(0).tolist())

    def all_gather(self, x: Tensor) -> Tensor:
        """The tensors of all ranks, in order of rank: (size, *shape)."""
        if self.size == 1:
            return x[None]
        gathered = x.new_empty(self.size, *x.shape)
        self._send(lambda dist: dist.all_gather(list(gathered.unbind()), x.contiguous()))
        return gathered

    def all_gather_envs(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Tensors (steps, N) of this rank's environments -> (steps, N size) of all ranks, in one message."""
        if self.size == 1:
            return list(parts)
        # float64 holds every float32, bool and count exactly, so one message serves all types.
        gathered = self.all_gather(torch.cat([x.double() for x in parts]))
        together = torch.cat(gathered.unbind(), 1).split([len(x) for x in parts])
        return [x.to(part.dtype) for x, part in zip(together, parts, strict=True)]

    def gather(self, x: T) -> list[T]:
        """The objects of all ranks, on rank 0; on every other rank its own object alone."""
        if self.size == 1:
            return [x]
        gathered: list[Any] | None = [None] * self.size if self.is_rank_zero else None
        self._send(lambda dist: dist.gather_object(x, gathered))
        return gathered or [x]

    def check_equal(self, weights: Sequence[Tensor]) -> None:
        """Raise unless the weights of all ranks are equal bit for bit."""
        if self.size == 1:
            return
        digest = 0
        for x in weights:
            # 32 bits fit into a tensor of integers, so the ranks exchange digests like any other tensor.
            digest = zlib.crc32(x.detach().cpu().numpy().tobytes(), digest)
        digests = self.all_gather(torch.tensor(digest)).tolist()
        differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
        if differing:
            raise DisagreementError(
                f"the weights of processes {differing} of {self.size} differ from those of process 0: their "
                "machines round differently, or their weights were changed; use equal machines and versions"
            )

    def _send(self, message: Callable[[Any], object]) -> None:
        """Call `message` with torch.distributed, which is imported only when it is needed."""
        import torch.distributed as dist

        try:
            message(dist)
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank} of {self.size} lost the others: one ended, or did not answer within "
                f"{PATIENCE.seconds} seconds ({str(error).splitlines()[0]}); resume the run"
            ) from error


ALONE = Ranks()


@contextlib.contextmanager
def process_group() -> Iterator[Ranks]:
    """The processes that torchrun started; without torchrun, or with one process, `ALONE`."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    import torch.distributed as dist

    # This module keeps a reference to the group that exists at its import, and such a group is never
    # destroyed. So it is imported before the group is created.
    importlib.import_module("torch.distributed.nn.functional")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    rank, size, local_rank, local_size = (int(os.environ[name]) for name in names)
    # Before init_process_group: its threads inherit the cores and the scheduling policy.
    with pinned_cores(local_rank, local_size):
        store = _fresh_store(_open_store(rank, size), rank, size)
        with batch_scheduling(), _loopback(local_size == size):
            dist.init_process_group(_backend(), store=store, rank=rank, world_size=size, timeout=PATIENCE)
        try:
            yield Ranks(rank, size, local_size)
        finally:
            dist.destroy_process_group()


def _backend() -> str:
    """What carries messages: NCCL for tensors of GPUs, Gloo for all others."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


@contextlib.contextmanager
def pinned_cores(local_rank: int, local_size: int) -> Iterator[None]:
    """Pin this process to its share of the cores of the machine, unless it is pinned already.

    Without it, a thread that sends gradients waits for a core on which another process computes, until the
    scheduler switches: 4 ms, as long as a minibatch takes.
    """
    cores = _allowed_cores(0)
    share = len(cores) // local_size
    # A process that may use fewer cores than its parent was pinned by the user, whose choice is kept.
    if not (share and hasattr(os, "sched_setaffinity")) or cores != _allowed_cores(os.getppid()):
        yield
        return
    os.sched_setaffinity(0, cores[local_rank * share :][:share])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def batch_scheduling() -> Iterator[None]:
    """Start threads with SCHED_BATCH: when they wake, they do not preempt the thread on their core.

    Gloo has threads that send, and one that receives events. With the default policy, an event preempts the
    sending thread on the same core while it holds a lock. The event thread then spins on that lock until the
    scheduler switches: 4 ms.
    """
    if not hasattr(os, "SCHED_BATCH") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    _schedule(os.SCHED_BATCH)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER)


@contextlib.contextmanager
def _loopback(alone: bool) -> Iterator[None]:
    """Processes that are alone on a machine do not listen where other machines reach them.

    Gloo would listen at the address that the name of the machine stands for.
    """
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if not (alone and names) or INTERFACE in os.environ:
        yield
        return
    os.environ[INTERFACE] = names[0]
    try:
        yield
    finally:
        del os.environ[INTERFACE]


def _schedule(policy: int) -> None:
    with contextlib.suppress(PermissionError):  # the policy affects speed alone
        os.sched_setscheduler(0, policy, os.sched_param(0))


def _open_store(rank: int, size: int) -> Any:
    """The key-value store through which the processes exchange their addresses."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined] # an implicit re-export of torch

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_server = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return TCPStore(address, port, size, is_server, PATIENCE)


def _fresh_store(store: Any, rank: int, size: int) -> Any:
    """A part of the store that no earlier attempt wrote to.

    torchrun keeps one store over its restarts, which contains the addresses of dead processes. So each
    process writes a new random name, and the names of all processes together are the prefix under which they
    meet. A process that still reads an old name waits alone under its prefix and reads again.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined] # as above

    names = [f"process {other}" for other in range(size)]
    store.set(names[rank], uuid.uuid4().hex)
    end = time.monotonic() + PATIENCE.total_seconds()
    prefix = ""
    while time.monotonic() < end:
        newest = "-".join(name.decode() for name in store.multi_get(names))
        if newest != prefix:
            prefix = newest
            store.add(prefix, 1)  # counts the processes that wait under this prefix
        if store.add(prefix, 0) == size:
            return PrefixStore(prefix, store)
        time.sleep(0.02)
    raise LostError(
        f"process {rank} of {size} did not meet the others within {PATIENCE.seconds} seconds; check that all "
        "of them were started, and that MASTER_ADDR can be reached"
    )


def was_restarted() -> bool:
    """Whether torchrun started this process to replace one that failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
