"""The wheel has all that the package needs, and works where nothing else of the clone is."""

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "recollect"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, because files of earlier builds in the clone would get into the wheel.
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "dist", "."]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    (path,) = (folder / "dist").glob("*.whl")
    return path


@pytest.mark.thorough
def test_the_wheel_has_every_file_of_the_package_and_no_others(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {f"recollect/{path.relative_to(SOURCE).as_posix()}" for path in files}


@pytest.mark.thorough
def test_the_wheel_trains_in_an_environment_of_its_own(wheel, tmp_path):
    """Its dependencies are those of this environment; the package is that of the wheel."""
    venv.create(tmp_path / "venv", symlinks=os.name != "nt")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    # Not the editable install of the clone, which is a .pth file that only site.addsitedir reads.
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    python = tmp_path / "venv" / "bin" / "python"
    command = [python, "-m", "recollect", "demo", "CartPole-v1", "--steps", "3000", "--out", "runs"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "trained" in result.stdout and len(list(tmp_path.rglob("curve.png"))) == 1
    where = [python, "-c", "import recollect; print(recollect.__file__)"]
    path = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout
    assert str(packages) in path
