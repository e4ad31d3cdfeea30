"""Which fields the mutable classes of the product have, those of their bases in the product among them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.reach_ins import nodes

_NO_FIELDS = ("KW_ONLY", "ClassVar", "InitVar")
"""Annotations in the body of a dataclass that declare no field."""
_FROZEN_BASES = {"NamedTuple", "BaseModel", "TypedDict"}
"""Whose classes, and all classes below them, hold values that do not change."""


class Classes:
    """All classes of the package below `root`, by name. A name that two classes have stands for both of them where it is a base."""

    def __init__(self, root: Path) -> None:
        self._by_name: dict[str, list[ast.ClassDef]] = defaultdict(list)
        for path in root.rglob("*.py"):
            for node in nodes(path):
                if isinstance(node, ast.ClassDef):
                    self._by_name[node.name].append(node)

    def mutable_fields(self) -> dict[str, set[str]]:
        """The fields of each class that is no frozen value, by its name: the most where two have it."""
        found: dict[str, set[str]] = {}
        for name, classes in self._by_name.items():
            for node in classes:
                lineage = [node, *self._ancestors(node)]
                if not (_is_frozen(node) or any(_FROZEN_BASES & _bases(one) for one in lineage)):
                    fields = {field for one in lineage for field in _own_fields(one)}
                    found[name] = max(found.get(name, set()), fields, key=len)
        return found

    def _ancestors(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        for base in _bases(node):
            for one in self._by_name.get(base, ()):
                if one is not node:
                    yield one
                    yield from self._ancestors(one)


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}


def _is_frozen(node: ast.ClassDef) -> bool:
    return any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)


def _own_fields(node: ast.ClassDef) -> Iterator[str]:
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        declared = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        yield from (ast.unparse(one.target) for one in declared if not ast.unparse(one.annotation).startswith(_NO_FIELDS))
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _assigned(method)


def _assigned(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What the method assigns to its first argument, `self` by whatever name, also as a part of a tuple."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    is_static = any(ast.unparse(one) in {"staticmethod", "classmethod"} for one in method.decorator_list)
    if not arguments or is_static:
        return
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _name(node.value) == arguments[0].arg:
            yield node.attr


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
