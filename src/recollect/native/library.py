"""The kernels as a library: from the wheel, or compiled at first use into the cache of the user, and loaded.

A library is code, so it is loaded only from a folder that nobody else can write. Its name has a digest of
all that it was compiled from and with; another version never takes its place.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..common.signals import AT_EXIT
from . import structures as c

SOURCES = sorted(path for suffix in ("*.c", "*.h") for path in Path(__file__).parent.glob(suffix))
COMPILERS = ("gcc", "clang", "cc")
# -ffp-contract=off: products are fused where the source says so, and nowhere else.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden")
# The processor features of each target, as /proc/cpuinfo names them.
TARGETS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
}
PREBUILT = Path(__file__).parent / "prebuilt"
COMPILE_SECONDS = 120.0


class UnavailableError(Exception):
    """The kernels cannot be used on this machine; the message says why."""


@functools.cache
def version() -> str:
    """The version of the kernels: a digest of their source. Equal versions compute equal bits."""
    return _digest(*(path.read_bytes() for path in SOURCES))


def target() -> str:
    """The instruction set that the kernels are compiled for on this machine."""
    machine = platform.machine()
    if machine in ("arm64", "aarch64"):
        return "arm64"
    features = _processor_features()
    for name, needed in TARGETS.items():
        if needed <= features:
            return name
    raise UnavailableError(f"the processor ({machine}) has no AVX2")


def load(
    announce: Callable[[str], None] = lambda line: None,
    isa: str | None = None,
    flags: Sequence[str] | None = None,
) -> ctypes.CDLL:
    """The library for this machine; an UnavailableError if it cannot be built or must not be loaded.

    announce  called with a line before a compilation
    isa       the instruction set; None: `target()`
    flags     of the compiler; None: FLAGS
    """
    if not hasattr(os, "getuid"):  # Windows: nothing could tell whether a folder is private
        raise UnavailableError("they need Linux or macOS")
    isa = isa or target()
    if flags is None and prebuilt(isa).exists():
        with contextlib.suppress(UnavailableError):  # as on a system with an older C library
            return _load(prebuilt(isa))
    flags = (*(flags or FLAGS), *march(isa))
    folder, source = _cache_folder(), _digest(version().encode(), " ".join(flags).encode())
    try:
        program, program_version = compiler()
    except UnavailableError:
        # One compiled earlier, as by a shell with another PATH: every compiler gives the same bits.
        earlier = sorted(folder.glob(f"kernels-{isa}-{source}-*.so"))
        if not earlier:
            raise
        path = earlier[0]
    else:
        path = folder / f"kernels-{isa}-{source}-{_digest(program_version.encode())}.so"
        if not path.exists():
            announce(f"compiling the native kernels for {isa} with {program}: once, a few seconds")
            build(program, flags, path)
    _check_private(path)
    return _load(path)


def prebuilt(isa: str) -> Path:
    """Where a wheel has the library: as safe as the Python beside it, and of this version of the source."""
    return PREBUILT / f"kernels-{isa}-{version()}.so"


def march(isa: str) -> tuple[str, ...]:
    """The compiler's option for an instruction set."""
    return () if isa == "arm64" else (f"-march={isa}",)


def _load(path: Path) -> ctypes.CDLL:
    try:
        return _bind(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"{path} does not load: {error}") from error


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions of a library, and compare its structures with ours."""
    library.gradients.argtypes = (
        ctypes.POINTER(c.Program),
        ctypes.c_int,
        ctypes.POINTER(c.Batch),
        ctypes.c_int,
    )
    library.pack_weights.argtypes = (ctypes.POINTER(c.Program),)
    library.act.argtypes = (ctypes.POINTER(c.Actor), ctypes.c_int)
    library.values.argtypes = (ctypes.POINTER(c.Program), ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    size, pointer = ctypes.c_int, ctypes.c_void_p
    library.scan_forward.argtypes = (size,) * 3 + (pointer,) * 5
    library.scan_backward.argtypes = (size,) * 3 + (pointer,) * 8
    library.oscillate_forward.argtypes = library.scan_forward.argtypes
    library.oscillate_backward.argtypes = library.scan_backward.argtypes
    library.stabilise.argtypes = library.scan_forward.argtypes
    for function in (library.convolution_forward, library.convolution_backward):
        function.argtypes = (ctypes.POINTER(c.Convolution),)
    for function in (library.matrix_forward, library.matrix_backward, library.matrix_scratch):
        function.argtypes = (ctypes.POINTER(c.Matrix),)
    gated = library.gated_forward, library.gated_backward, library.gated_scratch, library.gated_saved
    for function in gated:
        function.argtypes = (ctypes.POINTER(c.Gated),)
    for function in (library.gated_norm_forward, library.gated_norm_backward, library.gated_norm_scratch):
        function.argtypes = (ctypes.POINTER(c.GatedNorm),)
    for function in (*gated[2:], library.matrix_scratch, library.gated_norm_scratch):
        function.restype = ctypes.c_long
    buffer = (ctypes.c_int * 64)()  # room for the structures of other versions
    sizes = buffer[: library.structure_sizes(buffer)]
    if sizes != c.SIZES:
        raise OSError(f"its structures have {sizes} bytes, here they have {c.SIZES}")
    return library


def build(program: str, flags: Sequence[str], path: Path) -> None:
    """Compile into a temporary file and rename it: another process sees a whole library or none."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError as error:
        raise UnavailableError(
            f"the cache folder {path.parent} cannot be written: {error.strerror}"
        ) from error
    os.close(handle)
    try:
        source = Path(__file__).parent / "kernels.c"
        command = [program, *flags, str(source), "-o", name]
        code, errors = _compile(command)
        if code:
            message = (errors.strip().splitlines() or [f"exit code {code}"])[0]
            raise UnavailableError(f"{program} fails: {message}")
        os.chmod(name, 0o700)
        os.replace(name, path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{program} fails: {error}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def _compile(command: Sequence[str]) -> tuple[int, str]:
    """Run a compiler; its exit code and its errors. A stop ends it with all processes that it has started."""
    # In a separate process group: the compiler proper is a child of gcc, and would outlive it.
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.killpg(process.pid, signal.SIGTERM)  # not SIGKILL: gcc removes its temporary files
        Path(command[-1]).unlink(missing_ok=True)

    AT_EXIT.add(end)
    with process:  # waits for its end, and closes its pipe
        try:
            _, errors = process.communicate(timeout=COMPILE_SECONDS)
            return process.returncode, errors
        except BaseException:
            end()
            raise
        finally:
            AT_EXIT.discard(end)


@functools.cache
def compiler() -> tuple[str, str]:
    """The C compiler, and the first line of its version."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            result = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if not result.returncode:
            return path, result.stdout.splitlines()[0]
    raise UnavailableError("no C compiler (gcc or clang)")


def _cache_folder() -> Path:
    """The folder of compiled kernels, made if needed."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(home).expanduser() / "recollect"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"the cache folder {folder} cannot be created: {error.strerror}") from error
    _check_private(folder)
    return folder


def _check_private(path: Path) -> None:
    """Raise unless only this user can write to a file or folder: anybody else could put code there."""
    try:
        info = path.stat(follow_symlinks=False)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from error
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        raise UnavailableError(f"{path} is not a file or folder, and is not loaded")
    if info.st_uid != os.getuid():
        raise UnavailableError(f"{path} belongs to another user, and is not loaded")
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnavailableError(f"{path} can be written by other users, and is not loaded: chmod go-w")


def _processor_features() -> set[str]:
    if sys.platform != "linux":
        return set()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((set(line.split()[2:]) for line in lines if line.startswith("flags")), set())


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]
