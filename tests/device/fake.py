"""A second device for machines that have only one: `torch.device("fake")`, after `install()`.

A tensor of the device is an ordinary torch tensor with memory of the CPU behind it. One fallback runs every
operation: it takes the same memory as tensors of the CPU, calls the CPU's kernel, and gives the results back
to the device. So all numbers are real, and views, gradients and version counters are torch's own.

refused   what CUDA refuses: tensors of the CPU among those of the device, unless they are single numbers;
          .numpy(); generators of the CPU; in deterministic mode, operations without a deterministic kernel;
          copies and waits while a graph is captured
counted   what is expensive on a GPU: copies to and from the device, and waits for it (`traffic`)
optional  copies with non_blocking=True arrive as late as they may (`late`); products of matrices are rounded
          unlike the CPU's (`rounding`); float64 is refused, as by mps (`float64`)
graphs    torch.fake.CUDAGraph: replay executes the captured operations on the same memory

It uses private functions of torch, so it belongs to the version in constraints.txt. It says nothing about the
speed or the rounding of a real GPU.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

from . import kernels

NAME = "fake"
aten = torch.ops.aten


@dataclass
class Traffic:
    """Copies to the device and from it, waits for it, and operations on it."""

    up: int = 0
    down: int = 0
    waits: int = 0
    operations: int = 0


@dataclass
class Settings:
    """The options of the device, and what happens on it."""

    traffic: Traffic = field(default_factory=Traffic)
    late: bool = False
    rounding: float = 0.0
    float64: bool = True
    under_way: list[Callable[[], None]] = field(default_factory=list)  # late copies, oldest first
    captured: "Graph | None" = None  # the graph that is being captured


device = Settings()


@contextlib.contextmanager
def measured(late: bool = False, rounding: float = 0.0, float64: bool = True) -> Iterator[Traffic]:
    """The traffic within a with-statement, with options."""
    before = device.traffic, device.late, device.rounding, device.float64
    device.traffic, device.late, device.rounding, device.float64 = Traffic(), late, rounding, float64
    try:
        yield device.traffic
        _arrive()
    finally:
        device.under_way.clear()
        device.traffic, device.late, device.rounding, device.float64 = before


def synchronize(_: Any = None) -> None:
    """Wait for the device: late copies arrive."""
    _refuse_capture("a wait")
    device.traffic.waits += 1
    _arrive()


def _arrive() -> None:
    while device.under_way:
        device.under_way.pop(0)()


# Memory ---------------------------------------------------------------------------------------


def is_fake(x: Any) -> bool:
    return isinstance(x, Tensor) and x.device.type == NAME


def _storage_on_device(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the device over memory of the CPU."""
    place = torch.device(NAME, 0)
    storage = torch._C._construct_storage_from_data_pointer(memory.data_ptr(), place, memory.nbytes())
    storage.memory = memory  # keeps it alive: torch preserves the attributes of a storage that lives
    return storage


def host_view(x: Tensor) -> Tensor:
    """The memory of a tensor of the device as a tensor of the CPU."""
    storage = x.untyped_storage()
    if not hasattr(storage, "memory"):  # an empty storage, which torch made without asking the device
        storage.memory = torch.UntypedStorage(storage.nbytes())
    return torch.empty(0, dtype=x.dtype).set_(storage.memory, x.storage_offset(), x.shape, x.stride())


class Translation:
    """The arguments and results of one operation, from the device to the CPU and back."""

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[Tensor, Tensor]] = {}  # by id of the CPU's tensor
        self._storages: dict[int, torch.UntypedStorage] = {}  # of the device, by the storage of the CPU
        self._has_others = False  # whether an argument is a tensor of the CPU

    @property
    def mixes_devices(self) -> bool:
        """Whether tensors of the CPU are among those of the device."""
        return self._has_others and bool(self._pairs)

    def to_host(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            if not is_fake(x):
                self._has_others = True
                return x
            host = host_view(x)
            self._pairs[id(host)] = host, x
            self._storages[host.untyped_storage()._cdata] = x.untyped_storage()
            return host
        if isinstance(x, (list, tuple)):
            return type(x)(self.to_host(part) for part in x)
        return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x

    def to_device(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            # An operation in place returns its argument, which must come back as the same tensor.
            if id(x) in self._pairs:
                return self._pairs[id(x)][1]
            if x.dtype == torch.float64 and not device.float64:
                raise TypeError("the device has no float64")
            return self._attach(x, torch._C._acc.create_empty_tensor([0], x.dtype))
        if isinstance(x, (list, tuple)):
            return type(x)(self.to_device(part) for part in x)
        return x

    def follow_changes(self) -> None:
        """Give the device's tensors the shapes and the memory that an operation gave the CPU's."""
        for host, x in self._pairs.values():
            other_memory = host.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
            if other_memory or host.shape != x.shape or host.stride() != x.stride():
                self._storages.pop(host.untyped_storage()._cdata, None)
                self._attach(host, x)

    def _attach(self, host: Tensor, x: Tensor) -> Tensor:
        """Let x be the same view of the same memory as a tensor of the CPU."""
        memory = host.untyped_storage()
        storage = self._storages.get(memory._cdata)
        if storage is None:
            storage = self._storages[memory._cdata] = _storage_on_device(memory)
        view = host.storage_offset(), host.shape, host.stride()
        return aten.set_.source_Storage_storage_offset._op_dk(torch.DispatchKey.CPU, x, storage, *view)


# Operations -----------------------------------------------------------------------------------

SETS_STORAGE = {
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
TAKES_NUMBERS = {aten.fill_, aten.masked_fill, aten.masked_fill_, aten.where, *INDEXING}
# What torch.use_deterministic_algorithms lists as an error on CUDA; also cumsum, of floats.
NONDETERMINISTIC = {
    *(aten._adaptive_avg_pool2d_backward, aten.adaptive_max_pool2d_backward, aten.avg_pool3d_backward),
    *(aten.reflection_pad1d_backward, aten.reflection_pad2d_backward, aten.grid_sampler_2d_backward),
    *(aten.upsample_linear1d_backward, aten.upsample_bilinear2d_backward, aten.upsample_bicubic2d_backward),
    *(aten.nll_loss2d_forward, aten._ctc_loss_backward, aten.max_unpool2d, aten.put_, aten.histc),
    *(aten.median, aten.nanmedian),
}
ALLOCATE = {aten.empty, aten.empty_strided}  # which may be resized later
# What torch would compose of several operations, at twice the time and more.
COMPOSED = aten.clone.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.zeros_like.default
NOTHING = contextlib.nullcontext()
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution_overrideable}


@dataclass(frozen=True)
class Traits:
    """What the schema of an operation says about it."""

    names: tuple[str, ...]  # of the arguments
    tensors: tuple[int, ...]  # places of arguments that are tensors
    written: frozenset[str]  # arguments that it changes
    is_view: bool
    takes_numbers: bool  # whether single numbers of the CPU may be among its tensors
    indexes: bool
    writes_by_index: bool
    is_random: bool
    waits: bool  # its result, or the shape of its result, is needed on the host


@cache
def traits(op: Any) -> Traits:
    packet, arguments = op.overloadpacket, op._schema.arguments
    aliases = [result.alias_info for result in op._schema.returns]
    tags = [getattr(packet, name).tags for name in packet.overloads()]
    needed = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return Traits(
        names=tuple(x.name for x in arguments),
        tensors=tuple(i for i, x in enumerate(arguments) if str(x.type) == "Tensor"),
        written=frozenset(x.name for x in arguments if x.alias_info is not None and x.alias_info.is_write),
        is_view=op in SETS_STORAGE or any(a is not None and not a.is_write for a in aliases),
        takes_numbers=packet in TAKES_NUMBERS or any(torch.Tag.pointwise in t for t in tags),
        indexes=packet in INDEXING,
        writes_by_index=packet in INDEXING - {aten.index},
        is_random=torch.Tag.nondeterministic_seeded in op.tags,
        waits=bool(needed & set(op.tags)),
    )


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation with a tensor of the device, or one that makes one."""
    facts = traits(op)
    if facts.is_view:  # of sizes and strides alone: the CPU's kernel does it for any device
        return op._op_dk(torch.DispatchKey.CPU, *args, **kwargs)
    device.traffic.operations += 1
    call = Translation()
    host = [call.to_host(x) for x in args]
    host_kwargs = {name: call.to_host(x) for name, x in kwargs.items() if name != "pin_memory"}
    _refuse(op, facts, call, args, kwargs)
    if facts.waits or (facts.writes_by_index and _writes_by_mask(args)):
        synchronize()
    for place in facts.tensors:
        if place < len(host) and isinstance(host[place], (bool, int, float)):
            host[place] = _as_tensor(host[place], args)
    with _own_random_numbers(kwargs.get("generator")) if facts.is_random else NOTHING:
        result = kernels.KERNELS.get(op, op)(*host, **host_kwargs)
    if device.rounding and op.overloadpacket in PRODUCTS:
        result.mul_(1 + device.rounding * torch.sin(1e4 * result))  # the same at every call, as on a GPU
    if facts.written:
        call.follow_changes()
    result = call.to_device(result)
    if device.captured and op.overloadpacket not in ALLOCATE:
        device.captured.add(partial(_run, op, *args, **kwargs), result)
    return result


def _refuse(op: Any, facts: Traits, call: Translation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise for tensors of the CPU, and for operations, that CUDA would refuse."""
    if torch.are_deterministic_algorithms_enabled():
        cumsum = op.overloadpacket is aten.cumsum and args[0].is_floating_point()
        if cumsum or op.overloadpacket in NONDETERMINISTIC:
            raise RuntimeError(f"{op} does not have a deterministic implementation")
    if not call.mixes_devices:
        return
    named = dict(zip(facts.names, args, strict=False)) | kwargs
    for name, x in ((name, x) for name, value in named.items() for x in _flat(value) if not is_fake(x)):
        if name == "indices" and facts.indexes:
            device.traffic.up += 1  # CUDA fetches indices from the CPU, and waits for them
            synchronize()
        elif name in facts.written or x.ndim or not facts.takes_numbers:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{NAME}:0 and {x.device} (argument {name} of {op})"
            )


def _flat(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for part in x:
            yield from _flat(part)


def _writes_by_mask(args: tuple[Any, ...]) -> bool:
    """Whether an operation that writes by indices writes several numbers where a mask is true: how many is
    data. For reads, torch calls nonzero, which is counted."""
    return args[2].numel() != 1 and any(x.dtype == torch.bool for x in _flat(args[1]))


def _as_tensor(x: float, args: tuple[Any, ...]) -> Tensor:
    """A number where a kernel takes a tensor, in a dtype that promotes no other argument."""
    other = next((y.dtype for y in _flat(args)), None)
    fits = other is not None and (other.is_floating_point if isinstance(x, float) else other != torch.bool)
    return torch.tensor(x, dtype=other if fits and not isinstance(x, bool) else None)


# Copies ---------------------------------------------------------------------------------------


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy into target; between the CPU and the device it is counted, and may be late."""
    down = is_fake(source) and not is_fake(target)
    up = is_fake(target) and not is_fake(source)
    a, b = (host_view(x) if is_fake(x) else x for x in (source, target))
    if up or down:
        _refuse_capture("a copy")
    elif device.captured:
        device.captured.add(partial(_copy, source, target), target)
    device.traffic.up += up
    device.traffic.down += down
    # Memory that is not pinned could be reused before it is copied, so CUDA waits.
    if (down and not non_blocking) or (up and not (non_blocking and a.is_pinned())):
        synchronize()
    if device.late and non_blocking and down:
        result = a.clone()
        b.copy_(~a if b.dtype == torch.bool else a - 1)  # wrong numbers, where they are read too early
        device.under_way.append(lambda: b.copy_(result))
        return target
    b.copy_(a)
    if device.late and non_blocking and up and a.is_pinned():
        device.under_way.append(partial(_check_unchanged, a, a.clone()))
    return target


def _check_unchanged(source: Tensor, sent: Tensor) -> None:
    if not torch.equal(source, sent):
        raise RuntimeError("pinned memory was written to while a copy of it was under way")


def _to_copy(
    x: Tensor, *, dtype: Any = None, device: Any = None, non_blocking: bool = False, **rest: Any
) -> Tensor:
    stays = device is None or device.type == NAME
    like = host_view(x) if is_fake(x) else x
    host = torch.empty_like(like, dtype=dtype, memory_format=rest.get("memory_format"))
    return _copy(x, Translation().to_device(host) if stays else host, non_blocking)


_pinned: set[int] = set()  # addresses


def _pin(x: Tensor, _: Any = None) -> Tensor:
    copy = x.clone(memory_format=torch.contiguous_format)
    address = copy.untyped_storage().data_ptr()
    _pinned.add(address)
    weakref.finalize(copy.untyped_storage(), _pinned.discard, address)
    return copy


def _is_pinned(x: Tensor, _: Any = None) -> bool:
    return x.untyped_storage().data_ptr() in _pinned


# Graphs ---------------------------------------------------------------------------------------


class Graph:
    """Captured operations. As on CUDA, capturing computes nothing: results are there after a replay."""

    def __init__(self) -> None:
        self._operations: list[tuple[Callable[[], Any], list[Tensor]]] = []

    def add(self, operation: Callable[[], Any], result: Any) -> None:
        """Keep an operation, with the tensors that it gave."""
        self._operations.append((operation, list(_flat(result))))

    def replay(self) -> None:
        """Execute all operations again, with one call, in the same memory."""
        before = device.traffic.operations
        for operation, results in self._operations:
            for result, again in zip(results, _flat(operation()), strict=True):
                if again is not result:
                    host_view(result).copy_(host_view(again))
        device.traffic.operations = before + 1

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Capture the operations of the with-statement."""
        device.captured = self
        try:
            yield
        finally:
            device.captured = None
        for _, results in self._operations:
            for x in results:
                host_view(x).fill_(-1)


def _refuse_capture(what: str) -> None:
    if device.captured:
        raise RuntimeError(f"{what} is not permitted while a graph is captured")


# Random numbers -------------------------------------------------------------------------------

_default = torch.Generator()
_generators = {_default._cdata: _default}


@contextlib.contextmanager
def _own_random_numbers(generator: torch.Generator | None) -> Iterator[None]:
    """Without a generator, draw from that of the device, and leave that of the CPU as it is."""
    if generator is not None:
        if generator._cdata not in _generators:
            raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
        yield
        return
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(_default.get_state())
    try:
        yield
    finally:
        _default.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


class _Module(backend_registration._DummyBackendModule):
    """torch.fake"""

    synchronize = staticmethod(synchronize)
    CUDAGraph = Graph
    graph = staticmethod(Graph.capture)

    def manual_seed_all(self, seed: int) -> None:
        _default.manual_seed(seed)

    manual_seed = manual_seed_all

    def get_rng_state(self, _: Any = NAME) -> Tensor:
        return _default.get_state()

    def set_rng_state(self, state: Tensor, _: Any = NAME) -> None:
        _default.set_state(state)

    def set_device(self, _: Any) -> None:
        pass


# Registration ---------------------------------------------------------------------------------

_libraries: list[torch.library.Library] = []
_clone_of_torch = torch.UntypedStorage.clone


def _clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    if storage.device.type != NAME:
        return _clone_of_torch(storage)
    return _storage_on_device(storage.memory.clone())


def _structured() -> Iterator[Any]:
    """Operations that torch would split into an allocation and a call with `out`, like those in COMPOSED.

    Not `index`: of masks, torch calls nonzero first, which is counted.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    for full_name in torch._C._dispatch_get_all_op_names():
        if full_name.startswith("aten::") and has_kernel(full_name, "CompositeExplicitAutogradNonFunctional"):
            name, _, overload = full_name.removeprefix("aten::").partition(".")
            if name != "index":
                yield getattr(getattr(aten, name), overload or "default")


def install() -> torch.device:
    """Register the device with torch, once in a process."""
    if not _libraries:
        torch.UntypedStorage.clone = _clone_storage
        # A thread of autograd for the device would need Python while the process ends, and abort it.
        torch.autograd.set_multithreading_enabled(False)
        backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
        fallback, operations = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        fallback.fallback(_run, "PrivateUse1")
        # Operations that torch routes elsewhere, or refuses, before it asks a fallback.
        for op in [*kernels.KERNELS, *COMPOSED, *_structured()]:
            operations.impl(op.name(), partial(_run, op), "PrivateUse1")
        operations.impl("_copy_from", _copy, "PrivateUse1")
        operations.impl("_copy_from_and_resize", lambda x, y: _copy(x, y.resize_(x.shape)), "PrivateUse1")
        operations.impl("_to_copy", _to_copy, "PrivateUse1")
        operations.impl("_pin_memory", _pin, "CPU")
        operations.impl("is_pinned", _is_pinned, "CPU")
        _libraries.extend([fallback, operations])
    return torch.device(NAME)
