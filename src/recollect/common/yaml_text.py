"""YAML as data, of files that anyone may have written."""

from typing import Any, TypeAlias

import yaml

try:  # those of libyaml are ten times as fast, and are missing in few builds of PyYAML
    from yaml import CSafeDumper as SafeDumper
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeDumper, SafeLoader  # type: ignore[assignment]

Loader: TypeAlias = SafeLoader

MOST_NODES = 100_000  # of a file with all aliases expanded; a config has a few hundred
DEEPEST = 100  # nested collections; libyaml's composer would overflow the stack in deeper ones


def load_yaml(text: str, loader_type: type[Loader] = Loader) -> Any:
    """The data of a document; yaml.YAMLError for one that is not valid, or expands to too much."""
    _check_depth(text)
    loader = loader_type(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        nodes = _expanded(node, {})
        if nodes > MOST_NODES:
            raise yaml.YAMLError(
                f"its aliases expand to {nodes:.2g} entries, at most {MOST_NODES:,} are read"
            )
        return loader.construct_document(node)
    finally:
        loader.dispose()


def dump_yaml(data: Any) -> str:
    """Plain data as a document, in its own order."""
    return str(yaml.dump(data, Dumper=SafeDumper, sort_keys=False))


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"its entries are nested more than {DEEPEST} deep")


def _check_keys(node: yaml.MappingNode) -> None:
    """Refuse a key that stands twice: YAML forbids it, and PyYAML would drop the first value."""
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name, line = (key.tag, key.value), key.start_mark.line + 1
        if name in lines:
            raise yaml.YAMLError(f"{key.value!r} stands twice, in lines {lines[name]} and {line}")
        lines[name] = line


def _expanded(node: yaml.Node, counts: dict[int, int]) -> int:
    """The number of nodes if each alias were a copy.

    counts  those of the nodes so far, by their ids; 0 while a node is counted
    """
    key = id(node)
    if key in counts:
        if not counts[key]:
            raise yaml.YAMLError("it contains itself by an alias")
        return counts[key]
    counts[key] = 0
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    counts[key] = 1 + sum(_expanded(part, counts) for part in parts)
    return counts[key]
