"""Compiling, caching and loading: everything that can go wrong ends in torch and a line."""

import gc
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from recollect.native import library, prebuild

from .cases import kernels


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a compilation without optimisation, which takes a tenth of the time."""
    kernels()
    quick = tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS)
    for module in (library, prebuild):
        monkeypatch.setattr(module, "FLAGS", quick)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.compiler.cache_clear()
    yield tmp_path / "cache" / "recollect"
    library.compiler.cache_clear()


def compiler_script(tmp_path, monkeypatch, name, text):
    """A program in front of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def reason(**options):
    with pytest.raises(library.UnavailableError) as caught:
        library.load(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_library_is_compiled_once_and_announced(cache):
    lines = []
    library.load(lines.append)
    library.load(lines.append)
    assert len(lines) == 1 and "compiling the native kernels" in lines[0]
    (path,) = cache.iterdir()  # no temporary file is left
    assert stat.S_IMODE(path.stat().st_mode) == 0o700 and stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_source_compiler_flags_and_target_are_in_the_name(cache, tmp_path, monkeypatch):
    library.load()
    library.load(flags=["-O1" if flag == "-O0" else flag for flag in library.FLAGS])
    assert len(list(cache.iterdir())) == 2
    real = library.compiler()[0]
    compiler_script(tmp_path, monkeypatch, "gcc", f'[ "$1" = --version ] && echo gcc 99 || exec {real} "$@"')
    library.compiler.cache_clear()
    library.load()
    assert len(list(cache.iterdir())) == 3
    other = tmp_path / "other.h"
    other.write_text("/* another version */")
    before = library.version()
    monkeypatch.setattr(library, "SOURCES", [*library.SOURCES, other])
    library.version.cache_clear()
    try:
        assert library.version() != before
        library.load()
    finally:
        monkeypatch.undo()
        library.version.cache_clear()


def test_no_compiler(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "no C compiler" in reason()


def test_a_library_compiled_earlier_needs_no_compiler(cache, monkeypatch):
    library.load()
    monkeypatch.setenv("PATH", "")
    library.compiler.cache_clear()
    library.load(pytest.fail).vector_width()
    monkeypatch.setattr(library, "version", lambda: "another version")
    assert "no C compiler" in reason()


@pytest.mark.parametrize(
    "script", ["echo gcc 1; [ $1 = --version ] || { echo bad option >&2; exit 1; }", "exit 3"]
)
def test_a_compiler_that_fails(cache, tmp_path, monkeypatch, script):
    for name in library.COMPILERS:
        compiler_script(tmp_path, monkeypatch, name, script)
    assert re.search(r"gcc fails: bad option|no C compiler", reason())
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_compiler_that_takes_too_long_is_ended(cache, tmp_path, monkeypatch):
    compiler_script(tmp_path, monkeypatch, "gcc", "[ $1 = --version ] && echo gcc 1 || exec sleep 60")
    monkeypatch.setattr(library, "COMPILE_SECONDS", 0.2)
    assert "gcc fails" in reason() and "timed out" in reason()
    gc.collect()  # an open pipe would warn here
    assert list(cache.iterdir()) == []


def test_a_compiler_that_writes_no_library(cache, tmp_path, monkeypatch):
    for name in library.COMPILERS:
        compiler_script(tmp_path, monkeypatch, name, "echo gcc 1")
    assert "does not load" in reason()


@pytest.mark.skipif(os.getuid() == 0, reason="root can write everywhere")
def test_a_read_only_cache_folder(cache):
    cache.mkdir(parents=True, mode=0o500)
    assert "cannot be written" in reason()


def test_a_cache_folder_that_cannot_be_created(cache):
    cache.parent.write_text("a file")
    assert "cannot be created" in reason()


def test_a_cache_folder_that_others_can_write(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert "can be written by other users" in reason()


def test_a_library_that_others_can_write(cache):
    library.load()
    (path,) = cache.iterdir()
    path.chmod(0o722)
    assert "can be written by other users" in reason()


@pytest.mark.parametrize("name", ["folder", "library"])
def test_what_belongs_to_another_user_is_not_loaded(cache, monkeypatch, name):
    library.load()
    path = cache if name == "folder" else next(cache.iterdir())
    real = Path.stat

    def foreign(self, **options):
        info = real(self, **options)
        return os.stat_result((*info[:4], info.st_uid + 1, *info[5:10])) if self == path else info

    monkeypatch.setattr(Path, "stat", foreign)
    assert "belongs to another user" in reason()


def test_a_link_in_the_cache_is_not_followed(cache, tmp_path):
    library.load()
    (path,) = cache.iterdir()
    path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    assert "is not a file" in reason()


def test_a_damaged_library(cache, tmp_path, monkeypatch):
    library.load()
    (path,) = cache.iterdir()
    # In another folder: a library that a process has loaded is not read again.
    damaged = tmp_path / "other" / "recollect" / path.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\x7fELF and no more")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert "does not load" in reason()


def test_a_library_with_other_structures(cache, monkeypatch):
    monkeypatch.setattr(library.c, "SIZES", [1, 2, 3, 4])
    assert "structures" in reason()


@pytest.mark.parametrize(
    ("features", "target"),
    [
        ({"sse2", "avx"}, None),
        (library.TARGETS["x86-64-v3"], "x86-64-v3"),
        (library.TARGETS["x86-64-v3"] | library.TARGETS["x86-64-v4"], "x86-64-v4"),
    ],
)
def test_the_target_follows_from_the_processor(monkeypatch, features, target):
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(library, "_processor_features", lambda: features)
    if target is None:
        assert "no AVX2" in reason()
    else:
        assert library.target() == target


def test_a_library_in_the_package_needs_no_compiler(cache, tmp_path, monkeypatch):
    for module in (library, prebuild):
        monkeypatch.setattr(module, "PREBUILT", tmp_path / "prebuilt")
    prebuild.main()
    monkeypatch.setenv("PATH", "")
    library.compiler.cache_clear()
    library.load(pytest.fail).vector_width()
    assert not cache.exists()
    monkeypatch.setattr(library, "version", lambda: "another version")
    assert "no C compiler" in reason()


def test_a_library_in_the_package_that_does_not_load_is_compiled_instead(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(library, "PREBUILT", tmp_path)
    library.prebuilt(library.target()).write_text("no library")
    library.load().vector_width()
    assert len(list(cache.iterdir())) == 1


def test_processes_that_compile_at_the_same_time_see_whole_libraries(cache):
    import sys

    code = f"from recollect.native import library as it; it.FLAGS = {library.FLAGS}; it.load().vector_width()"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(cache.iterdir())) == 1
