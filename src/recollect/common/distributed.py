"""One run on several processes, which torchrun begins: each has a block of the environments.

    torchrun --nproc-per-node 2 -m recollect train LunarLander-v3 -m ppo_lstm

A process steps its own environments, keeps its own memories and learns from its own rows. What it must
know of the others goes through here: sums of gradients, what came of a rollout, counts. Alone, all of
this is nothing: no copy, no message, no rounding. All processes make the same decisions, because they
make them from the same numbers.
"""

import contextlib
import importlib
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from .errors import DisagreementError, LostError

PATIENCE = timedelta(minutes=5)  # until a process that says nothing is given up
T = TypeVar("T")


def _allowed(process: int) -> list[int]:
    """The cores that a process may use; 0 is this one."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(process))
    return list(range(os.cpu_count() or 1))


CORES = len(_allowed(0))  # counted before this process is bound to a share of them


class Ranks:
    """The processes of a run, seen from one of them."""

    def __init__(self, rank: int = 0, size: int = 1, local_size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.local_size = local_size  # processes on this machine, including this one

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
            digest = zlib.crc32(x.detach().numpy().tobytes(), digest)
        digests = self.all_gather(torch.tensor(digest)).tolist()
        differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
        if differing:
            raise DisagreementError(
                f"processes {differing} of {self.size} have other weights than process 0: their machines do "
                "not compute alike, or something changed them"
            )

    def _send(self, message: Callable[[Any], object]) -> None:
        import torch.distributed as dist

        try:
            message(dist)
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank} of {self.size} lost the others: one ended, or did not answer within "
                f"{PATIENCE.seconds} seconds ({str(error).splitlines()[0]})"
            ) from error


ALONE = Ranks()


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """All processes that torchrun began; without torchrun, or in a world of one, this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    import torch.distributed as dist

    # Its functions keep the group they find when it is imported; a group that is kept never ends.
    importlib.import_module("torch.distributed.nn.functional")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    rank, size, local_rank, local_size = (int(os.environ[name]) for name in names)
    with bound(local_rank, local_size):  # before the threads begin that send
        store = _fresh(_store(rank, size), rank, size)
        with polite():
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
        try:
            yield Ranks(rank, size, local_size)
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def bound(place: int, neighbours: int) -> Iterator[None]:
    """Keep to a share of the cores, unless somebody has bound this process already.

    Else a thread that sends waits where another process computes, until the system takes turns: for 4 ms,
    where a minibatch takes 4.
    """
    whole = _allowed(0)
    each = len(whole) // neighbours
    if not (each and hasattr(os, "sched_setaffinity")) or whole != _allowed(os.getppid()):
        yield
        return
    os.sched_setaffinity(0, whole[place * each :][:each])
    try:
        yield
    finally:
        os.sched_setaffinity(0, whole)


@contextlib.contextmanager
def polite() -> Iterator[None]:
    """Threads that begin in here wait, when they wake, until whoever has their core lets go of it.

    Gloo has threads that send and one that waits for news. Where news interrupts who sends, on the same
    core, it asks again and again for a lock that the other holds, until the system takes turns: for 4 ms.
    """
    if not hasattr(os, "SCHED_BATCH") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    _schedule(os.SCHED_BATCH)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER)


def _schedule(policy: int) -> None:
    with contextlib.suppress(PermissionError):  # slower, no less right
        os.sched_setscheduler(0, policy, os.sched_param(0))


def _store(rank: int, size: int) -> Any:
    """Where processes find one another."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    begins = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return TCPStore(address, port, size, begins, PATIENCE)


def _fresh(store: Any, rank: int, size: int) -> Any:
    """A part of it that no earlier attempt wrote to.

    torchrun keeps one store over its restarts, with the addresses of processes that are dead. So each
    process writes a name that nobody had, and all names together are the place where all meet: whoever
    read an old name finds nobody there and reads again.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    names = [f"process {other}" for other in range(size)]
    store.set(names[rank], uuid.uuid4().hex)
    end, place = time.monotonic() + PATIENCE.total_seconds(), ""
    while time.monotonic() < end:
        found = "-".join(name.decode() for name in store.multi_get(names))
        if found != place:
            place = found
            store.add(place, 1)
        if store.add(place, 0) == size:
            return PrefixStore(place, store)
        time.sleep(0.02)
    raise LostError(f"process {rank} of {size} did not meet the others within {PATIENCE.seconds} seconds")


def restarted() -> bool:
    """Whether torchrun began this process in place of one that failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
