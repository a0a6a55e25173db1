"""Pages that are generated: they are what their scripts write, and the examples of the reference run."""

import importlib.util
import json
import re

import pytest

import recollect

from ..helpers import sampled
from .forks import run_script
from .test_docs import ROOT, SMALL, TEXTS, blocks, shrunk


def script(name):
    """The module of a script in docs/_ext."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["reference", "hyperparameters"])
def test_a_generated_page_is_up_to_date(name):
    assert TEXTS[f"docs/{name}.md"] == script(name).render(), f"run python docs/_ext/{name}.py"


def test_every_public_name_has_an_entry():
    names = set(recollect.__all__) - {"__version__"}
    assert {f"recollect.{name}" for name in names} <= set(script("reference").NAMES)


def run_blocks(code, folder):
    """Blocks of code in one process, made small."""
    run_script(folder, "\n".join([SMALL, *map(shrunk, code)]))


@pytest.mark.thorough
def test_the_examples_of_the_reference_run(tmp_path):
    code = blocks(TEXTS["docs/reference.md"], "python")
    assert len(code) == len(script("reference").NAMES) + 1
    run_blocks(code, tmp_path)


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", sampled(NOTEBOOKS, NOTEBOOKS[0]), ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    cells = json.loads(path.read_text())["cells"]
    assert "colab.research.google.com" in "".join(cells[0]["source"])
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for block in code for line in block.splitlines() if not block.startswith("%%writefile ")]
    # Lines for the shell of the notebook: installing, which is done here.
    assert all("pip install" in line for line in lines if line.startswith(("%", "!")))
    for block in code:
        if block.startswith("%%writefile "):
            name, _, text = block.removeprefix("%%writefile ").partition("\n")
            (tmp_path / name.strip()).write_text(text)
    plain = [re.sub(r"^[%!].*$", "", block, flags=re.M) for block in code if not block.startswith("%%")]
    run_blocks(plain, tmp_path)
    assert all(not cell.get("outputs") for cell in cells), "clear the outputs before a commit"


def test_there_are_three_notebooks():
    assert len(NOTEBOOKS) == 3
