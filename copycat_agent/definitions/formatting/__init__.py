"""Canonical form of definitions: order of keys, indentation and quotes; comments stay, and so does the meaning."""

from __future__ import annotations

from copycat_agent.definitions.formatting.emit import emit, flow, quoted, sort_keys, written
from copycat_agent.definitions.formatting.tree import read_tree
from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, SequenceNode, SyntaxProblem, decode, parse_mapping, plain_value
from copycat_agent.options import Definition, Options

__all__ = ["MeaningChangedError", "flow", "format_text", "quoted", "written"]


class MeaningChangedError(Exception):
    """Formatting would change the meaning of the text, so it is not done."""


def format_text(content: bytes, model: type[Options] = Definition) -> str:
    """Returns the file's text in canonical form; formatting that once more yields the same.

    `model` describes the file: keys come in its order. Raises `SyntaxProblem` if it is no YAML of a definition, and
    `MeaningChangedError` if the result would not mean the same, which is checked: the caller leaves the file alone.
    """
    text = decode(content)
    before = parse_mapping(text)
    tree = read_tree(text)
    if not tree.has_aliases:  # an alias has to come after its anchor
        sort_keys(tree.root, model)
    made = emit(tree.root)
    try:
        after = parse_mapping(decode(made.encode()))
    except SyntaxProblem:
        raise MeaningChangedError from None
    if _meaning(before) != _meaning(after):
        raise MeaningChangedError
    return made


def _meaning(node: Node) -> object:
    """Returns what loading sees of a node: numbers as they are written, texts without their quotes, keys without their order."""
    if isinstance(node, Scalar):
        value = plain_value(node.text) if node.plain else node.text
        return type(value).__name__, node.text if value is not None else None
    if isinstance(node, SequenceNode):
        return [_meaning(item) for item in node.items]
    assert isinstance(node, MappingNode)
    return {key: _meaning(value) for key, value in node.items.items()}
