"""The shape of the source: who imports whom, how long things get, and what is never used.

Every rule is a function over source text, tried on a bad example before it is run on the package.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

import recollect

ROOT = Path(recollect.__file__).parent
SOURCES = {str(p.relative_to(ROOT)): p.read_text() for p in sorted(ROOT.rglob("*.py"))}

# Each may import what stands in earlier lines, and nothing of its own line or a later one.
LAYERS = (
    ("_version", "tree", "errors", "heap", "rng", "signals", "episode_log"),
    ("maths", "stats", "ranks"),
    ("envs", "memory"),
    ("pictures",),
    ("nets",),
    ("normalize",),
    ("agent",),
    ("settings",),
    ("optim", "rollout"),
    ("learner", "states"),
    ("ppo",),
    ("a2c", "reinforce", "trpo"),
    ("algorithms",),
    ("config",),
    ("checkpoint", "log", "evaluate", "folder"),
    ("weights",),
    ("tasks", "recurrent_ppo"),
    ("presets",),
    ("build",),
    ("session",),
    ("run",),
)
TOP = ("cli", "__init__", "__main__")
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
RANK |= dict.fromkeys(TOP, len(LAYERS) + 1)
BETWEEN = len(LAYERS)  # modules named nowhere: tools on top of a run, which may use each other
# Where the adapters meet what Gymnasium calls done.
MAY_SAY_DONE = "envs/gym.py"
ALGORITHM = ("ppo.py", "rollout.py", "learner.py")
LONGEST_FUNCTION, LONGEST_ALGORITHM = 50, 200


def part_of(path):
    """The part of the package a file belongs to: a module or a folder."""
    return Path(path).parts[0].removesuffix(".py")


def all_imports(path, source):
    """Every module a file imports, anywhere in it, absolute, as dotted names."""
    here = ["recollect", *Path(path).with_suffix("").parts]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            # from . import name: the name is a module
            names = [alias.name for alias in node.names] if module == ["recollect"] else [""]
            found |= {".".join([*module, name]).strip(".") for name in names}
    return found


def own_imports(path, source):
    """The parts of our own package that a file imports."""
    ours = (name.split(".") for name in all_imports(path, source))
    return {name[1] for name in ours if name[0] == "recollect" and len(name) > 1}


def wrong_imports(path, source):
    """Imports against the order of LAYERS."""
    part = part_of(path)
    rank = RANK.get(part, BETWEEN)
    others = own_imports(path, source) - {part}
    free = rank == BETWEEN or part in TOP
    return sorted(
        other
        for other in others
        if RANK.get(other, BETWEEN) > rank or (RANK.get(other, BETWEEN) == rank and not free)
    )


def functions(source):
    """Every function with its lines, docstring not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield node.name, lines


def long_functions(source):
    return [(name, lines) for name, lines in functions(source) if lines > LONGEST_FUNCTION]


def says_done(source):
    """Lines with `done` as, or in, an identifier."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    word = re.compile(r"(^|_)dones?(_|$)")
    return [t.start[0] for t in tokens if t.type == tokenize.NAME and word.search(t.string)]


def asks_for_kinds(source):
    """Lines of the algorithm that name a memory, or ask what kind something is."""
    words = re.compile(r"isinstance|hasattr|gru|lstm|gpt|trxl", re.IGNORECASE)
    return [n for n, line in enumerate(source.splitlines(), 1) if words.search(line)]


UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile", "torch.load", "torch.save", "yaml.load"}
UNSAFE_CALLS |= {"yaml.unsafe_load", "yaml.full_load"}


def runs_what_it_loads(source):
    """Uses of anything by which data becomes code."""
    found = sorted(n for n in all_imports("x.py", source) if n.split(".")[0] in UNSAFE_MODULES)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            unsafe = [k for k in node.keywords if k.arg == "allow_pickle" and k.value.value]
            if name in UNSAFE_CALLS or unsafe:
                found.append(f"{name}, line {node.lineno}")
    return found


def classes(sources):
    """Name -> definition of every class."""
    trees = (ast.parse(source) for source in sources)
    return {n.name: n for t in trees for n in ast.walk(t) if isinstance(n, ast.ClassDef)}


def decorators(node):
    return [ast.unparse(item) for item in node.decorator_list]


def bases(node):
    return [ast.unparse(base).split(".")[-1] for base in node.bases]


def is_abstract(node):
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    return "ABC" in bases(node) or any("abstractmethod" in decorators(m) for m in methods)


def is_exempt(node, known):
    """Frozen settings and errors may be refined: neither has behaviour to override."""
    frozen = any("frozen=True" in item for item in decorators(node))
    builtin = [name for name in bases(node) if name not in known]
    above = [known[name] for name in bases(node) if name in known]
    error = any(name.endswith(("Error", "Exception", "Warning")) for name in builtin)
    return frozen or error or any(is_exempt(base, known) for base in above)


def deep_inheritance(sources):
    """Classes that inherit from a concrete class of ours."""
    known = classes(sources)
    return [
        f"{node.name}({name})"
        for node in known.values()
        for name in bases(node)
        if name in known and not is_abstract(known[name]) and not is_exempt(node, known)
    ]


def top_level_imports(source):
    """The packages that are imported as soon as a file is."""
    nodes = [node for node in ast.parse(source).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {n.split(".")[0] for node in nodes for n in all_imports("x.py", ast.unparse(node))}


def reached(part):
    """Every part of the package that one imports, by way of others too."""
    seen, waiting = set(), {part}
    while waiting:
        now = waiting.pop()
        seen.add(now)
        files = [item for item in SOURCES.items() if part_of(item[0]) == now]
        waiting |= {other for file in files for other in own_imports(*file)} - seen
    return seen


def outside_imports(part):
    """The packages that a part imports itself."""
    files = [item for item in SOURCES.items() if part_of(item[0]) == part]
    return {name.split(".")[0] for file in files for name in all_imports(*file)}


# The rules fire -------------------------------------------------------------------------------


def test_every_rule_fires_on_a_bad_example():
    assert wrong_imports("memory/x.py", "from ..agent import Agent") == ["agent"]
    assert wrong_imports("memory/x.py", "from ..envs import make") == ["envs"]
    assert wrong_imports("ppo.py", "def f():\n    from . import rng, config") == ["config"]
    assert wrong_imports("learner.py", "import recollect.run") == ["run"]
    assert wrong_imports("run.py", "from .some_tool import x") == ["some_tool"]
    assert wrong_imports("run.py", "from . import cli, ppo\nfrom .envs.gym import x") == ["cli"]
    body = "\n".join(["    x = 1"] * 50)
    assert long_functions(f"def f():\n{body}") == [("f", 51)]
    assert not long_functions(f'def f():\n    """Two\n    lines."""\n{body[10:]}')
    assert says_done("x = 1\nprev_done = 2  # done\nself.dones = abandoned") == [2, 3]
    assert asks_for_kinds("a\nif isinstance(x, y):\nGRU") == [2, 3]
    bad = "import pickle\nmodel.eval()\neval(x)\ntorch.load(f)\nnp.load(f, allow_pickle=True)"
    assert len(runs_what_it_loads(bad)) == 4
    assert runs_what_it_loads("np.load(f, allow_pickle=False)\nyaml.safe_load(f)\nre.compile(p)") == []
    tree = "class A(ABC): ...\nclass B(A): ...\nclass C(B): ...\nclass E(ValueError): ...\n"
    settings = "@dataclass(frozen=True)\nclass S: ...\n@dataclass(frozen=True)\nclass T(S): ...\n"
    assert deep_inheritance([tree + settings + "class F(E): ..."]) == ["C(B)"]


# The package keeps them -----------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES)
def test_imports_point_one_way(path):
    assert wrong_imports(path, SOURCES[path]) == []


@pytest.mark.parametrize("path", SOURCES)
def test_no_function_is_too_long(path):
    assert long_functions(SOURCES[path]) == []


def test_the_algorithm_reads_in_one_sitting():
    assert len(SOURCES["ppo.py"].splitlines()) <= LONGEST_ALGORITHM


@pytest.mark.parametrize("path", SOURCES)
def test_the_word_done_stays_in_the_adapters(path):
    assert path == MAY_SAY_DONE or says_done(SOURCES[path]) == []


@pytest.mark.parametrize("path", ALGORITHM)
def test_the_algorithm_never_asks_which_memory_it_drives(path):
    assert asks_for_kinds(SOURCES[path]) == []


@pytest.mark.parametrize("path", SOURCES)
def test_nothing_that_is_loaded_is_run(path):
    assert runs_what_it_loads(SOURCES[path]) == []


def test_the_algorithm_touches_no_files_clocks_or_screens():
    banned = {"json", "os", "pathlib", "time", "wandb", "tensorboard", "rich", "logging"}
    assert outside_imports("ppo") & banned == set()
    assert "torch.utils.tensorboard" not in all_imports("ppo.py", SOURCES["ppo.py"])


def test_reports_need_no_torch():
    importing = [part for part in reached("report") if "torch" in outside_imports(part)]
    assert importing == []


def test_optuna_is_imported_only_where_settings_are_searched_for():
    assert [path for path in SOURCES if "optuna" in top_level_imports(SOURCES[path])] == []
    assert {part_of(path) for path in SOURCES if "optuna" in outside_imports(part_of(path))} == {"tune"}


def test_nothing_inherits_from_a_concrete_class():
    assert deep_inheritance(SOURCES.values()) == []
