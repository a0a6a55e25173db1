"""The documentation says what the code does: metrics, options, references, links and examples."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

import recollect
from recollect import cli, encoder, memory
from recollect.common.metrics import METRICS
from recollect.config.assembly import PARTS
from recollect.config.config import RunConfig
from recollect.config.flags import ALIASES, SHORT, flag_of, options_of, resolve, values_in

from .forks import run_script

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
TEXTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
RUNNABLE = (
    *(
        "README.md",
        "docs/guide.md",
        "docs/custom_memory.md",
        "docs/action_masks.md",
        "docs/privileged.md",
    ),
    *("docs/trials.md", "docs/starting_points.md", "docs/encoders.md", "docs/questions.md"),
    *("docs/many_agents.md", "docs/self_play.md"),
)
# Blocks that others import from, by what they define.
FILES = {"class EmaConfig": "my_memory.py", "class ObjectsConfig": "my_encoder.py"}

# Stand before every example: a few hundred steps instead of many thousands, one thread, no output.
SMALL = """
import recollect, recollect.run.api
_iterate_run = recollect.run.api.iterate_run
def iterate_run(config, destination, factory=None):
    from dataclasses import replace
    config = replace(config, threads=1, val_episodes=2, env=replace(config.env, num_envs=4))
    return _iterate_run(config, replace(destination, quiet=True), factory)
recollect.run.api.iterate_run = recollect.run.run.iterate_run = iterate_run
"""


def blocks(text, language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def table_keys(text):
    """The first cell of every row that begins with one name in backticks."""
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def commands(text):
    """Every use of the command line in a text: (command, flags), in blocks and in backticks."""
    lines = "\n".join(blocks(text, "bash")).splitlines() + re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        line = line.partition("#")[0]
        match = re.search(r"(?:^|\s)recollect (\w+)(.*)", line)
        name, rest = match.groups() if match else (None, line if re.match(r"\s*--?\w", line) else "")
        flags = re.findall(r"(?:^|\s)(--[a-zA-Z][\w.-]*|-[a-z]+)\b", rest)
        if name or flags:
            yield name, [flag.replace("_", "-") for flag in flags]


def known_flags(command):
    """What a command takes, with the fields of every memory where it takes the options of train."""
    place = cli.COMMANDS[command]
    kind = getattr(importlib.import_module(f"recollect.{place.module}"), place.options)
    options = set(options_of(kind))
    if {"config", "settings"} & set(kind.__dataclass_fields__):
        fields = {f.name for config in memory.available().values() for f in dataclasses.fields(config)} | {
            "keep"
        }
        encoders = encoder.available().values()
        fields |= {f"encoder.{f.name}" for config in encoders for f in dataclasses.fields(config)}
        options |= OPTIONS | {f"{branch}.{name}" for branch in ("actor", "critic") for name in fields}
        options |= {"config", "cpu"}
    aliases = {name for name in ALIASES if resolve(name, options) in options}
    return {flag_of(name) for name in options | aliases} | {f"-{name}" for name in aliases & set(SHORT)}


OPTIONS = set(values_in(RunConfig())) | set(PARTS)
KNOWN = {command: known_flags(command) for command in cli.COMMANDS}
ANY = set().union(*KNOWN.values())


def unknown_flags(text):
    """Commands and flags in a text that the command line does not know."""
    wrong = []
    for name, flags in commands(text):
        if name is not None and name not in cli.COMMANDS:
            wrong.append(name)
        known = KNOWN.get(name, ANY) | {"--help", "--help-all"}
        wrong += [f for f in flags if f not in known and not f.startswith("--env.kwargs.")]
    return wrong


PACKAGE = Path(recollect.__file__).parent
MODULES = [
    ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for p in PACKAGE.rglob("*.py")
    if p.parent != PACKAGE
]
SUFFIXES = {"py", "md", "json", "jsonl", "yaml", "html"}  # names of files, and not of functions


def missing_references(text):
    """`module.name` references to nothing in recollect."""
    references = re.findall(r"`(?:recollect\.)?([a-z_]+(?:\.\w+)+)`", text)
    names = {module.split(".")[-1] for module in MODULES}
    about_modules = (ref for ref in references if ref.split(".")[0] in names)
    return [ref for ref in about_modules if ref.split(".")[-1] not in SUFFIXES and not resolves(ref)]


def resolves(reference):
    """Whether a dotted name, of a module with or without its folder, leads to something."""
    first, *parts = reference.split(".")
    return any(leads(module, parts) for module in MODULES if module.split(".")[-1] == first)


def leads(module, parts):
    """Whether names lead on from a module: attributes first, then modules."""
    value = importlib.import_module(f"recollect.{module}")
    for n, part in enumerate(parts):
        if not hasattr(value, part):
            is_field = dataclasses.is_dataclass(value) and part in value.__dataclass_fields__
            return is_field or leads_to_module(module, part, parts[n + 1 :])
        value = getattr(value, part)
    return True


def leads_to_module(module, part, parts):
    return f"{module}.{part}" in MODULES and leads(f"{module}.{part}", parts)


def shrunk(code):
    """An example with every budget made small."""
    return re.sub(r"\b\d{1,3}_\d{3}\b", "600", code).replace("episodes=100", "episodes=2")


def is_config_field(reference):
    """Whether `ppo.gamma` and the like are options rather than functions; `memory.width` is two of them."""
    name = reference.replace("_", "-")
    both = f"--actor.{name.removeprefix('memory.')}" if name.startswith("memory.") else ""
    return f"--{name}" in ANY or both in {*ANY, "--actor.name"}


# Ratios of times as fractions, and columns with internal targets. A reader needs "9.4x faster".
UNWRITTEN = re.compile(r"\| asked \||\bby a hair\b|\| 1/\d+(?:\.\d+)? \|")


# The checks fire ------------------------------------------------------------------------------


def test_the_checks_fire():
    assert table_keys("| `step` | x |\n| key |\n| `a`, `b` | y |\n") == ["step"]
    assert unknown_flags("`--ppo.gama 1` and `recollect trane X` and `--ppo.gamma 1 -m ppo`") == [
        "--ppo.gama",
        "trane",
    ]
    assert unknown_flags("```bash\nrecollect resume x --steps 3  # --nothing\n```\n") == ["--steps"]
    assert missing_references("`ppo.collect`, `ppo.colect`, `rollout.Rollout.wrte`, `run.py`") == [
        "ppo.colect",
        "rollout.Rollout.wrte",
    ]
    assert shrunk("train(steps=100_000)").endswith("train(steps=600)")
    assert UNWRITTEN.findall("| a | asked |\n| 1 | 1/9.4 | <= 1/8 |\n misses by a hair") == [
        "| asked |",
        "| 1/9.4 |",
        "by a hair",
    ]


def test_an_example_that_fails_is_noticed_and_the_next_one_runs(tmp_path):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_script(tmp_path, "1 / 0")
    with pytest.raises(AssertionError, match="SystemExit"):
        run_script(tmp_path, "import sys; sys.exit(3)")
    run_script(tmp_path, "import recollect; recollect.train")


# The pages keep them --------------------------------------------------------------------------


def test_every_metric_is_explained_once():
    assert sorted(table_keys(TEXTS["docs/metrics.md"])) == sorted(METRICS)


@pytest.mark.parametrize("page", TEXTS)
def test_every_option_exists(page):
    assert unknown_flags(TEXTS[page]) == []


@pytest.mark.parametrize("page", TEXTS)
def test_every_reference_leads_somewhere(page):
    assert [name for name in missing_references(TEXTS[page]) if not is_config_field(name)] == []


def test_the_algorithm_page_refers_to_functions():
    text = TEXTS["docs/algorithm.md"]
    items = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    assert len(items) >= 20
    for number, item in items:
        found = [n for n in re.findall(r"`([a-z_]+(?:\.\w+)+)`", item) if resolves(n)]
        assert found, f"item {number} names no function"


@pytest.mark.parametrize("page", TEXTS)
def test_ratios_are_words_and_targets_stay_inside(page):
    assert UNWRITTEN.findall(TEXTS[page]) == []


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files(page):
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?:)([^)#]+)", TEXTS[page])
    assert [link for link in links if not (folder / link).exists()] == []


def test_the_architecture_page_lists_every_folder():
    package = Path(recollect.__file__).parent
    folders = {path.parent.name for path in package.glob("*/*.py")}
    assert folders == set(re.findall(r"^\| `(\w+)/` \|", TEXTS["ARCHITECTURE.md"], re.MULTILINE))


@pytest.mark.parametrize("page", RUNNABLE)
def test_python_examples_run(page, tmp_path):
    """In a new process and an empty folder; a block that others import from is a module there."""
    code = blocks(TEXTS[page], "python")
    assert code
    script = [SMALL]
    for i, block in enumerate(code):
        if file := next((file for text, file in FILES.items() if text in block), None):
            (tmp_path / file).write_text(block)
        else:
            # A folder is named after seed and second, so each block writes to a place of its own.
            script += [f"import os\nos.mkdir('{i}'), os.chdir('{i}')", shrunk(block), "os.chdir('..')"]
    run_script(tmp_path, "\n".join(script))


@pytest.mark.parametrize("page, folder", [("guide", "configs"), ("studies", "studies")])
def test_a_table_lists_every_file(page, folder):
    files = {f"{folder}/{file.name}" for file in (ROOT / folder).iterdir()}
    rows = re.findall(rf"^\| `({folder}/\w+\.yaml)` \|", TEXTS[f"docs/{page}.md"], re.MULTILINE)
    assert sorted(rows) == sorted(files)
