"""Random inputs: words of a command line, data of files, bytes; almost right, or hostile."""

import copy
import json
import random
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import yaml

from recollect.config.assembly import OPTIONS
from recollect.config.flags import flag_of, options_of

NUMBERS = ["0", "1", "2", "7", "0.5", "-1", "1e-3", "16", "64", "1000"]
MODELS = ["ppo", "ppo_gru", "ppo_gpt_shared", "gru", "lstm", "gpt2", "none", "stack"]
STRANGE = [
    *(
        "",
        " ",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e-400",
        "99999999999999999999",
        "1_0",
        "0x10",
        "١٢",
        "+",
        "-",
        "--",
    ),
    *(
        "none",
        "true",
        "[]",
        "{}",
        "[1, 2",
        "a,b",
        "x=y",
        "=",
        "%s%n{0}",
        "$(touch ran)",
        "`touch ran`",
        "🦊",
        "\udcff",
    ),
    *(
        "../../../etc/passwd",
        "/dev/full",
        "/",
        ".",
        "..",
        "~",
        "a/../../b",
        "named:Thing",
        "named.part:Thing-v0",
    ),
    *("a" * 3000, "line\nbreak", "\x1b[31m", "C:\\x", "None", "-1e999", "1e3", "100000000000"),
]
NAMES = [
    "CartPole-v1",
    "CartPoleMasked",
    "poc",
    "popgym:RepeatFirstEasy",
    "probe:recall",
    "minigrid:x",
    "named:E",
]
# What YAML allows and a reader must survive.
YAML_PIECES = [
    "!!python/object/apply:os.system ['touch ran']",
    "!!python/name:hostile.Thing",
    "&a [*a]",
    "*unknown",
    "<<: {a: 1}",
    "\t",
    "? [a, b]\n: c\n",
    "[" * 400,
    "{a: " * 400,
    "---\n",
    "\ufeff",
    "\x00",
    "x" * 20_000,
    "!!binary aGk=",
    "2026-01-01",
    "1" * 5000,
    "'",
    ": :",
    "a: 1\na: 2\n",
    "&a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b]\nd: [*c, *c, *c, *c, *c]\n",
]
VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        10**12,
        10**400,
        0.5,
        float("nan"),
        float("inf"),
        1e-320,
        "",
        "x",
        "hostile:Thing",
    ),
    *(
        [],
        {},
        [[]],
        [None],
        {"name": "hostile:Thing"},
        {"a": {"b": {}}},
        [10**9, 10**9],
        "../..",
        "/dev/full",
        [1.5],
    ),
    {"name": "gru", "width": 10**9},
]


def word(dice: random.Random, kind: Any) -> str:
    """A word for an option of this type, right in most cases."""
    if dice.random() < 0.3:
        return dice.choice(STRANGE)
    choices = [one for one in (get_args(kind) or (kind,)) if one is not NoneType]
    if not all(isinstance(one, type) for one in choices):
        return str(dice.choice(choices))  # of a Literal
    if bool in choices:
        return dice.choice(["true", "false"])
    if str in choices:
        return dice.choice([*MODELS, *NAMES])
    return dice.choice(NUMBERS)


def flags(dice: random.Random, known: Mapping[str, Any], most: int) -> list[str]:
    """Some options with values, few of them misspelled, twice, or without a value."""
    words: list[str] = []
    for name in dice.choices(list(known), k=dice.randint(0, most)):
        kind = known[name]
        flag = flag_of(name)
        if dice.random() < 0.05:
            flag = dice.choice(
                [flag[:-1], flag + "x", flag.replace("-", "_"), "-" + flag, f"{flag}={word(dice, kind)}"]
            )
        count = (
            dice.choice([0, 1, 1, 2, 3]) if get_origin(kind) is tuple else dice.choice([1, 1, 1, 1, 1, 0, 2])
        )
        words += [
            flag,
            *(word(dice, get_args(kind)[0] if get_origin(kind) is tuple else kind) for _ in range(count)),
        ]
    return words


def options(kind: type, with_train: bool) -> dict[str, Any]:
    """The options of a command by name, with those of train where it takes them."""
    return {**(OPTIONS if with_train else {}), **options_of(kind)}


# Data -----------------------------------------------------------------------------------------


def changed(dice: random.Random, data: Any) -> Any:
    """Nested data with one or two places replaced, removed, renamed or repeated."""
    data = copy.deepcopy(data)
    for _ in range(dice.randint(1, 2)):
        places = list(_places(data))
        if not places:
            return dice.choice(VALUES)
        parent, key = dice.choice(places)
        match dice.randrange(5):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[dice.choice([key + "x", "", "imports", "name", "hostile:Thing", key.upper()])] = (
                    parent.pop(key)
                )
            case 2 if isinstance(parent, list):
                parent.extend(parent)
            case 3:
                other, name = dice.choice(places)
                parent[key] = copy.deepcopy(other[name] if _holds(other, name) else None)
            case _:
                parent[key] = copy.deepcopy(dice.choice(VALUES))
    return data


def _holds(parent: Any, key: Any) -> bool:
    return key in parent if isinstance(parent, dict) else key < len(parent)


def _places(data: Any) -> Any:
    """All places of nested data, each as its container and its key there."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(entries):
        if not isinstance(data, dict) or isinstance(key, str):
            yield data, key
        yield from _places(value)


def yaml_text(dice: random.Random, source: Path) -> bytes:
    """A YAML file like this one, with other data or other text."""
    text = source.read_text(encoding="utf-8")
    if dice.random() < 0.6:
        return yaml.safe_dump(
            changed(dice, yaml.safe_load(text)), allow_unicode=True, sort_keys=False
        ).encode("utf-8", "surrogatepass")
    if dice.random() < 0.5:
        return bytes_like(dice, text.encode())
    lines = text.splitlines()
    place = dice.randrange(len(lines) + 1)
    piece = dice.choice(YAML_PIECES)
    lines[place:place] = [piece] if dice.random() < 0.5 else [f"steps: {piece}"]
    return "\n".join(lines).encode()


def json_text(dice: random.Random, text: str) -> bytes:
    """A JSON file, or lines of JSON, with other data or other bytes."""
    if dice.random() < 0.3:
        return bytes_like(dice, text.encode())
    lines = text.splitlines() if text.count("\n{") else [text]
    place = dice.randrange(len(lines))
    lines[place] = json.dumps(changed(dice, json.loads(lines[place])))
    return ("\n".join(lines) + "\n").encode()


def bytes_like(dice: random.Random, data: bytes) -> bytes:
    """The data with flipped bits, cut, with a piece twice, of zeros, or with other bytes inside."""
    new = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(new) + 1)
        match dice.randrange(5):
            case 0 if place < len(new):
                new[place] ^= 1 << dice.randrange(8)
            case 1:
                new = new[:place]
            case 2:
                new[place:place] = new[place : place + dice.randrange(1, 2000)]
            case 3:
                new[place : place + 100] = bytes(len(new[place : place + 100]))
            case _:
                new[place:place] = dice.randbytes(dice.randrange(1, 20))
    return bytes(new)
