"""YAML of anyone: by libyaml as by PyYAML, and nothing that overflows the stack."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recollect.common.yaml_text import DEEPEST, dump_yaml, load_yaml

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DATA = st.recursive(LEAVES, lambda part: st.lists(part) | st.dictionaries(st.text(), part), max_leaves=9)


@given(DATA)
def test_documents_are_those_of_the_slow_classes(data):
    text = dump_yaml(data)
    assert load_yaml(text) == yaml.safe_load(text) == data


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 5000 + "]" * 5000,
        "- " * 20_000 + "1",
        "\n".join(" " * i + "a:" for i in range(500)),
    ],
)
def test_what_is_nested_too_deep_is_refused_and_not_composed(text):
    with pytest.raises(yaml.YAMLError, match=f"nested more than {DEEPEST} deep"):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "lines"), [("a: 1\nb:\n  c: 2\n  c: 3\n", "3 and 4"), ("{c: 1, b: 2, c: 1}", "1 and 1")]
)
def test_a_key_that_stands_twice_is_refused(text, lines):
    """PyYAML keeps the last value: the first section of a file would have no effect."""
    with pytest.raises(yaml.YAMLError, match=f"'c' stands twice, in lines {lines}"):
        load_yaml(text)


def test_equal_keys_of_other_mappings_and_types_are_read():
    assert load_yaml("a: {c: 1}\nb: {c: 2}\n1: 3\n'1': 4") == {"a": {"c": 1}, "b": {"c": 2}, 1: 3, "1": 4}


def test_what_is_nested_less_is_read():
    data = load_yaml("[" * DEEPEST + "7" + "]" * DEEPEST)
    for _ in range(DEEPEST):
        (data,) = data
    assert data == 7
