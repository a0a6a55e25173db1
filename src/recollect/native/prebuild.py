"""Compile the kernels into the package, for every instruction set of this machine's architecture.

    python -m recollect.native.prebuild

Run before a wheel is built, with the C library and the compiler of its platform tag.
"""

import platform

from .library import FLAGS, PREBUILT, TARGETS, build, compiler, march, prebuilt


def main() -> None:
    """Compile and print the paths."""
    PREBUILT.mkdir(exist_ok=True)
    for isa in ["arm64"] if platform.machine() in ("arm64", "aarch64") else TARGETS:
        build(compiler()[0], (*FLAGS, *march(isa)), prebuilt(isa))
        prebuilt(isa).chmod(0o755)
        print(prebuilt(isa))


if __name__ == "__main__":
    main()
