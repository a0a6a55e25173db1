"""The shape of the source: who imports whom, how long things get, and what is never used.

Every rule is a function over source text, tried on a bad example before it is run on the package.
"""

import ast
import io
import re
import tokenize
from functools import partial
from pathlib import Path

import recollect

ROOT = Path(recollect.__file__).parent
SOURCES = {str(p.relative_to(ROOT)): p.read_text() for p in sorted(ROOT.rglob("*.py"))}
MODULES = {".".join(Path(p).with_suffix("").parts).removesuffix(".__init__") for p in SOURCES}

# From the bottom up: a folder imports from earlier lines only, and not from others of its line.
ORDER = (
    ("_version", "common"),
    ("envs", "memory", "reporting"),
    ("encoder",),
    ("agent",),
    ("learn",),
    ("native",),
    ("config",),
    ("run",),
    ("testing", "probing"),
    ("watching", "comparison"),
    ("tuning",),
    ("commands",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, line in enumerate(ORDER) for name in line}
# Where the adapters meet Gymnasium's `done`.
MAY_SAY_DONE = "envs/cartpole.py"
# All of learn/ but its options, which check the types of what users write.
ALGORITHM = ("agent/agent.py", *(p for p in SOURCES if p.startswith("learn/") and p != "learn/settings.py"))
# Tools that look into agents ask memories, branches and players for quantities, and never what they are.
INSPECTING = ("run/recording.py", *(p for p in SOURCES if p.startswith(("probing/", "watching/"))))
AGENT_KINDS = r"isinstance\(.*(branch|critic|memory)|agent\.shared|_hook\(|\b(gru|lstm|gpt2?|trxl)\b"
LONGEST_FUNCTION, LONGEST_ALGORITHM, LONGEST_FILE = 50, 180, 330
FILES_IN_ROOT = 6


def part_of(path):
    """The folder of a file; the module itself in the root."""
    return Path(path).parts[0].removesuffix(".py")


def module_of(path):
    """agent/nets.py -> agent.nets, agent/__init__.py -> agent."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def imports(path, source, modules=(), types=True):
    """Every module a file imports, anywhere in it, as dotted names; our own without `recollect.`.

    modules  our own modules: `from .agent import nets` then names agent.nets, and not agent
    types    whether to count imports under TYPE_CHECKING, which are never executed
    """
    package = ["recollect", *Path(path).parent.parts]
    tree = ast.parse(source)
    if not types:
        tree.body = [node for node in tree.body if not is_for_types(node)]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            inside = {f"{module}.{alias.name}" for alias in node.names}
            submodules = {name for name in inside if name.removeprefix("recollect.") in modules}
            names |= submodules
            if len(submodules) < len(inside):
                names.add(module)
    return {name.removeprefix("recollect.") if name != "recollect" else "__init__" for name in names}


def is_for_types(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def wrong_imports(path, source):
    """Imports against ORDER."""
    part = part_of(path)
    others = {name.split(".")[0] for name in imports(path, source, MODULES)} & set(RANK) - {part}
    return sorted(other for other in others if RANK[other] >= RANK[part] and part != "__main__")


def graph(sources):
    """Module -> the modules of ours that it imports when it is executed."""
    modules = {module_of(path) for path in sources}
    return {
        module_of(path): imports(path, source, modules, types=False) & modules
        for path, source in sources.items()
    }


def cycles(edges):
    """Modules that reach themselves by way of what they import."""
    return sorted(module for module in edges if module in reached(edges[module], edges))


def reached(start, edges):
    """Modules and all that they import, by way of others too."""
    seen, waiting = set(), set(start)
    while waiting:
        module = waiting.pop()
        seen.add(module)
        waiting |= edges.get(module, set()) - seen
    return seen


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


def asks_for_kinds(source, kinds=r"isinstance|hasattr|gru|lstm|gpt|trxl|(agent|self)\.shared"):
    """Lines whose code names a memory, or asks what kind something is; comments and docstrings may."""
    words = re.compile(kinds, re.IGNORECASE)
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    return [n for n, line in enumerate(ast.unparse(tree).splitlines(), 1) if words.search(line)]


UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile", "torch.load", "torch.save", "yaml.load"}
UNSAFE_CALLS |= {"yaml.unsafe_load", "yaml.full_load"}


def runs_what_it_loads(source):
    """Uses of anything by which data becomes code."""
    found = sorted(n for n in imports("x.py", source) if n.split(".")[0] in UNSAFE_MODULES)
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
    return {n.split(".")[0] for node in nodes for n in imports("x.py", ast.unparse(node))}


def broken(rule, paths=SOURCES):
    """The files that break a rule, each with how."""
    return {path: faults for path in paths if (faults := rule(SOURCES[path]))}


def outside_imports(path):
    """The packages of others that a file imports."""
    return {name.split(".")[0] for name in imports(path, SOURCES[path])}


# The rules fire -------------------------------------------------------------------------------


def test_every_rule_fires_on_a_bad_example():
    assert wrong_imports("memory/x.py", "from ..agent.agent import Agent") == ["agent"]
    assert wrong_imports("memory/x.py", "from ..envs import make") == ["envs"]
    assert wrong_imports(
        "learn/ppo.py", "def f():\n    from ..common import rng\n    from ..config import x"
    ) == ["config"]
    assert wrong_imports("learn/learner.py", "import recollect.run.run") == ["run"]
    assert wrong_imports("probing/x.py", "from ..watching.player import y") == ["watching"]
    assert wrong_imports("run/run.py", "from .. import cli\nfrom ..envs.gym import x") == ["cli"]
    circle = {
        "a/x.py": "from .y import f",
        "a/y.py": "def f():\n    from . import z",
        "a/z.py": "from .x import g",
    }
    assert cycles(graph(circle)) == ["a.x", "a.y", "a.z"]
    types = {"a/x.py": "from .y import f", "a/y.py": "if TYPE_CHECKING:\n    from .x import X"}
    assert cycles(graph(types)) == []
    body = "\n".join(["    x = 1"] * 50)
    assert long_functions(f"def f():\n{body}") == [("f", 51)]
    assert not long_functions(f'def f():\n    """Two\n    lines."""\n{body[10:]}')
    assert says_done("x = 1\nprev_done = 2  # done\nself.dones = abandoned") == [2, 3]
    assert asks_for_kinds("a\nif isinstance(x, y):\n    GRU\nagent.shared") == [2, 3, 4]
    assert asks_for_kinds(
        "isinstance(x, str)\nisinstance(x, Branch)\nx.register_forward_hook(f)", AGENT_KINDS
    ) == [2, 3]
    assert asks_for_kinds('a = 1  # GRU\n"""A GRU."""') == []
    bad = "import pickle\nmodel.eval()\neval(x)\ntorch.load(f)\nnp.load(f, allow_pickle=True)"
    assert len(runs_what_it_loads(bad)) == 4
    assert runs_what_it_loads("np.load(f, allow_pickle=False)\nyaml.safe_load(f)\nre.compile(p)") == []
    tree = "class A(ABC): ...\nclass B(A): ...\nclass C(B): ...\nclass E(ValueError): ...\n"
    settings = "@dataclass(frozen=True)\nclass S: ...\n@dataclass(frozen=True)\nclass T(S): ...\n"
    assert deep_inheritance([tree + settings + "class F(E): ..."]) == ["C(B)"]


# The package keeps them -----------------------------------------------------------------------


def test_imports_point_one_way():
    wrong = {path: wrong_imports(path, source) for path, source in SOURCES.items()}
    assert {path: others for path, others in wrong.items() if others} == {}


def test_no_import_leads_back():
    assert cycles(graph(SOURCES)) == []


def test_every_folder_has_its_place_in_the_order():
    assert {part_of(path) for path in SOURCES} == set(RANK)
    assert len(list(ROOT.glob("*.*"))) <= FILES_IN_ROOT


def test_no_function_is_too_long():
    assert broken(long_functions) == {}


def test_no_file_is_too_long():
    assert [path for path, source in SOURCES.items() if len(source.splitlines()) > LONGEST_FILE] == []


def test_the_algorithm_reads_in_one_sitting():
    assert len(SOURCES["learn/ppo.py"].splitlines()) <= LONGEST_ALGORITHM


def test_the_word_done_stays_in_the_adapters():
    assert broken(says_done).keys() == {MAY_SAY_DONE}


def test_the_algorithm_never_asks_which_memory_it_drives():
    assert broken(asks_for_kinds, ALGORITHM) == {}


def test_tools_never_ask_which_branch_or_memory_they_look_into():
    assert broken(partial(asks_for_kinds, kinds=AGENT_KINDS), INSPECTING) == {}


def test_nothing_that_is_loaded_is_run():
    assert broken(runs_what_it_loads) == {}


def test_the_algorithm_touches_no_files_clocks_or_screens():
    banned = {"json", "os", "pathlib", "time", "wandb", "tensorboard", "rich", "logging"}
    assert outside_imports("learn/ppo.py") & banned == set()


def test_reports_need_no_torch():
    edges = graph(SOURCES)
    modules = reached({module for module in edges if module.split(".")[0] == "reporting"}, edges)
    files = [path for path in SOURCES if module_of(path) in modules]
    assert len(files) > 20
    assert [path for path in files if "torch" in outside_imports(path)] == []


def test_optuna_is_imported_only_where_settings_are_searched_for():
    assert [path for path in SOURCES if "optuna" in top_level_imports(SOURCES[path])] == []
    assert {part_of(path) for path in SOURCES if "optuna" in outside_imports(path)} == {"tuning"}


def test_nothing_inherits_from_a_concrete_class():
    assert deep_inheritance(SOURCES.values()) == []
