"""Definitions in one form: order of keys, indentation and quotes as everybody writes them; comments stay, and so does the meaning.

`format_text` makes the text, `rewrite` replaces the file by it: all of it or nothing, and nobody else's change is lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from copycat_agent.definitions.yaml_tree import MappingNode, Node, Scalar, SequenceNode, SyntaxProblem, decode, parse_mapping, plain_value
from copycat_agent.options import Definition, Options
from copycat_agent.workbench.formatting.emit import emit, flow, quoted, sort_keys, written
from copycat_agent.workbench.formatting.tree import read_tree

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


def rewrite(path: Path, before: bytes, content: bytes) -> None:
    """Put `content` in place of `before`, atomically and for good; mode, owner and attributes stay, a link goes on leading there.

    Raises OSError when that cannot be done, and when the file holds something else than `before` by now; the file is as it was then.
    A file with several names (hard links) leaves its other names with the old text.
    """
    target = path.resolve(strict=True)
    status = target.stat()
    # a hidden name: neither the agent nor `check` takes it for a definition
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".fmt", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _like(descriptor, target, status)
            os.fsync(descriptor)
        if target.read_bytes() != before:
            raise OSError(errno.EAGAIN, "somebody changed it meanwhile, so it is left alone", str(path))  # noqa: TRY301 - it cleans up too
        os.replace(name, target)  # noqa: PTH105 - as the rest of this function
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise
    _sync_directory(target.parent)


def _like(descriptor: int, target: Path, status: os.stat_result) -> None:
    """Give the new file what the old one has beside its text."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)  # before the mode: it would clear bits of it
    os.fchmod(descriptor, status.st_mode & 0o7777)
    with contextlib.suppress(OSError):  # a file system without attributes, or one that lets nobody set them
        for name in os.listxattr(target):
            os.setxattr(descriptor, name, os.getxattr(target, name))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
