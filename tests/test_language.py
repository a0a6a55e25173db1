"""The language of the repository: names, docs and messages use the usual words of the field.

Every rule is a function over text, tried on a bad example before it is run on the repository.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
PAGES = sorted(path for suffix in ("*.js", "*.html") for path in (ROOT / "src").rglob(suffix))
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/learn").glob("*.md")])
SETTINGS = sorted([*(ROOT / "studies").glob("*.yaml"), *(ROOT / "configs").glob("*.yaml")])

# Verbs and pronouns that name nothing.
NO_NAMES = {"found", "said", "told", "asked", "made", "what", "own"}

# Phrase -> the usual words for it.
DIALECT = {
    r"the like of": "a matching",
    r"by a hair": "a figure",
    r"\bmisses by\b": "a figure",
    r"\bg(o|oes|one|oing) on with\b": "resume",
    r"\bwent on with\b": "resumed",
    r"\bleft undone\b": "unfinished",
    r"\btold (apart|from)\b": "distinguished; differs detectably",
    r"\btells? .{0,20}\bapart\b": "distinguishes",
    r"\bdear\b": "expensive",
    r"\bnobody (draws|acts|reads|uses|sees|keeps|asks|asked)\b": "a passive, or what happens instead",
    r"\bhears?\b": "receives, takes as input",
    r"\b(hears|heard) of\b": "is passed",
    r"\bwhat (learns|learned|acts|acted|is held|it holds|it keeps|is said|is asked)\b": "a noun",
    r"\bwhat (a|the) (branch|memory|head|actor|policy|critic) says\b": "the output",
    r"\bwhat (a|the) (memory|state) (holds|keeps)\b": "the memory state",
    r"\bworth what the critic\b": "bootstrap",
    r"\bwhose is whose\b": "which belongs to which",
    r"\bin place of all\b": "instead",
    r"\b(begins?|began|begun|starts?) (from|at|with) nothing\b": "starts from the initial state",
    r"\bremembers? nothing\b": "is reset",
    r"\blooks? back\b": "attends to, context length",
    r"\bshakes? itself\b": "noise",
    r"\bit is a coin\b": "0.5 = no difference",
    r"\bmay pay off\b": "clip range",
    r"\btravel(s|led)? back\b": "flow back",
    r"\berrors travel\b": "gradients flow",
    r"\bspeaks for all\b": "rank 0",
    r"\bmachine that was lost\b": "failed machine",
    r"\bwith(out)? its speeds\b": "velocities hidden",
    r"\bwithout (its |their )?speeds\b": "velocities hidden",
    r"\bwhere(as|by|of)\b": "a new sentence",
    r"\bthereof\b": "a new sentence",
    r"\bof others\b": "third-party",
}


# Names of weights in saved files, which old agents have.
IN_SAVED_FILES = {"trxl.py": {"said"}}


def prose(path: Path) -> list[tuple[int, str]]:
    """Lines of a file that people read: of Python strings and comments, of others everything."""
    text = path.read_text()
    if path.suffix != ".py":
        return list(enumerate(text.splitlines(), 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    lines = [(token.start[0], token.string) for token in tokens if token.type in kinds]
    return [(first + n, line) for first, string in lines for n, line in enumerate(string.splitlines())]


def dialect(lines: list[tuple[int, str]]) -> list[str]:
    """Phrases of DIALECT, with what to write instead."""
    text = "\n".join(line for _, line in lines)
    phrases = [phrase for phrase in DIALECT if re.search(phrase, text, re.IGNORECASE)]  # few, if any
    return [
        f"line {number}: {match.group(0)!r}: {DIALECT[phrase]}"
        for number, line in lines
        for phrase in phrases
        if (match := re.search(phrase, line, re.IGNORECASE))
    ]


def bad_names(source: str) -> list[str]:
    """Variables, parameters, functions and attributes of a class whose name is in NO_NAMES."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append((node.lineno, node.name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.attr))
    return [f"line {line}: {name}" for line, name in names if name.strip("_") in NO_NAMES]


def test_the_rules_fire_on_bad_examples():
    lines = [(1, "An episode that is cut is worth what the critic thinks."), (2, "the gate that Hears it")]
    assert [line.split(":")[0] for line in dialect(lines)] == ["line 1", "line 2"]
    assert dialect([(1, "Truncated episodes bootstrap from the value of the final observation.")]) == []
    assert bad_names("def f(said):\n    found = 1\n    self.own = 2\n    x = found") == [
        "line 1: said",
        "line 2: found",
        "line 3: own",
    ]
    assert bad_names("what_is_left = 1") == []


def test_comments_and_strings_are_read(tmp_path):
    path = tmp_path / "x.py"
    path.write_text('hears = 1  # it hears\nx = f"{hears} hears"\n"""One.\n\nIt hears.\n"""\n')
    assert [line.split(":")[0] for line in dialect(prose(path))] == ["line 1", "line 2", "line 5"]


@pytest.mark.parametrize(
    "files", [PYTHON, PAGES, DOCS, SETTINGS], ids=["python", "pages", "docs", "settings"]
)
def test_the_usual_words_are_used(files):
    faults = {str(path.relative_to(ROOT)): dialect(prose(path)) for path in files}
    assert faults and {path: phrases for path, phrases in faults.items() if phrases} == {}


def test_names_are_nouns_and_verbs():
    faults = {
        f"{path.relative_to(ROOT)}, {name}"
        for path in PYTHON
        for name in bad_names(path.read_text())
        if name.split()[-1] not in IN_SAVED_FILES.get(path.name, set())
    }
    assert faults == set()
