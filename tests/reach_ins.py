"""Where tests reach into private names of the product: a rule of `test_architecture.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[1]
TESTS = PROJECT / "tests"
PRODUCT = PROJECT / "copycat_agent"

_PRIVATE = re.compile(r"_[A-Za-z]\w*")
_IN_TEXT = re.compile(r"copycat_agent(\.\w+)*\._[A-Za-z]\w*")
_BY_NAME = ("setattr", "delattr", "getattr", "object")
"""Functions that take an attribute's name as text: those of Python and pytest, and `mock.patch.object`."""


def all_reach_ins() -> dict[str, list[str]]:
    """By test file, relative to the project, `line: name` for each private name of the product that it uses."""
    private = defined(PRODUCT.rglob("*.py"))
    paths = [path for path in TESTS.rglob("*.py") if reach_ins(path, private)]
    return {str(path.relative_to(PROJECT)): reach_ins(path, private - defined(_helpers(path))) for path in paths}


def reach_ins(path: Path, private: set[str]) -> list[str]:
    """Those of one file; `private` is what the product defines, without what the tests define under the same name for themselves."""
    found = []
    for node in nodes(path):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PRODUCT.name:
            names = [alias.name for alias in node.names if _PRIVATE.fullmatch(alias.name)]
        elif isinstance(node, ast.Attribute) and not _is_own(node.value):
            names = [node.attr] if node.attr in private else []
        elif isinstance(node, ast.Call) and _called(node.func) in _BY_NAME:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            names = [text for text in texts if text in private or _IN_TEXT.fullmatch(text)]
        found += [f"{getattr(node, 'lineno', 0)}: {name}" for name in names]
    return found


def defined(paths: Iterable[Path]) -> set[str]:
    """Private names that these files define: functions, classes, variables, attributes, fields."""
    return {name for path in paths for name in _defined_in(path)}


@cache
def _defined_in(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in found if _PRIVATE.fullmatch(name)}


def _helpers(path: Path) -> list[Path]:
    """A test file, what it imports of the tests, directly or not, and the fixtures above it."""
    seen: dict[Path, None] = {}
    todo = [path, *(folder / "conftest.py" for folder in path.parents if folder.is_relative_to(TESTS))]
    while todo:
        one = todo.pop()
        if one not in seen and one.is_file():
            seen[one] = None
            todo += _imported_tests(one)
    return list(seen)


@cache
def _imported_tests(path: Path) -> list[Path]:
    found: list[Path] = []
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            base = PROJECT.joinpath(*str(node.module).split("."))
            found += [base.with_suffix(".py"), *((base / alias.name).with_suffix(".py") for alias in node.names)]
    return found


def nodes(path: Path) -> list[ast.AST]:
    """All nodes of the syntax of a file."""
    return _nodes(path.read_text("utf-8"), str(path))


@cache
def _nodes(text: str, path: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text, path)))


def forget() -> None:
    """Free what has been parsed."""
    for cached in (_nodes, _defined_in, _imported_tests):
        cached.cache_clear()


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _is_own(node: ast.expr) -> bool:
    """A class may use its own private names, and those that it inherits. Names of `KafkaError` begin with an underscore and are public."""
    is_super = isinstance(node, ast.Call) and _called(node.func) == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in ("self", "cls", "KafkaError"))
