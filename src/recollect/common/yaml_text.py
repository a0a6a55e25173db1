"""YAML as data, of files that anyone may have written."""

from typing import Any

import yaml

MOST_NODES = 100_000  # of a file with all aliases expanded; a config has a few hundred


def load_yaml(text: str, loader_type: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The data of a document; yaml.YAMLError for one that is not valid, or expands to too much."""
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
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    counts[key] = 1 + sum(_expanded(part, counts) for part in parts)
    return counts[key]
