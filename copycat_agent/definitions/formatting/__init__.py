"""Definitions in one form: order of keys, indentation and quotes as everybody writes them; comments stay, and so does the meaning."""

from __future__ import annotations

from copycat_agent.definitions.formatting.emit import emit, flow, quoted, sort_keys, written
from copycat_agent.definitions.formatting.tree import read_tree
from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, SequenceNode, SyntaxProblem, decode, parse_mapping, plain_value
from copycat_agent.options import Definition, Options

__all__ = ["Changed", "flow", "format_text", "quoted", "written"]


class Changed(Exception):  # noqa: N818  a finding about our own work, which the caller puts in words
    """Formatting would change what the text says, so it is not done."""


def format_text(content: bytes, model: type[Options] = Definition) -> str:
    """The file's text in canonical form; formatting that once more yields the same.

    `model` describes the file: keys come in its order. Raises `SyntaxProblem` for what is no definition's YAML, and `Changed`
    when the result would not mean the same, which is checked: the caller leaves the file alone.
    """
    text = decode(content)
    before = parse_mapping(text)
    tree = read_tree(text)
    if not tree.has_aliases:  # an alias has to come behind what it stands for
        sort_keys(tree.root, model)
    made = emit(tree.root)
    try:
        after = parse_mapping(decode(made.encode()))
    except SyntaxProblem:
        raise Changed from None
    if _meaning(before) != _meaning(after):
        raise Changed
    return made


def _meaning(node: Node) -> object:
    """What loading sees of a node: a number as it is written, texts by themselves, keys without their order."""
    if isinstance(node, Scalar):
        value = plain_value(node.text) if node.plain else node.text
        return type(value).__name__, node.text if value is not None else None
    if isinstance(node, SequenceNode):
        return [_meaning(item) for item in node.items]
    assert isinstance(node, MappingNode)
    return {key: _meaning(value) for key, value in node.items.items()}
