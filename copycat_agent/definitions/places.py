"""From a finding in a document to a `Problem` with file, line, column and the line's text, secrets masked."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from copycat_agent.definitions.document import Mapping, Mark, Node, Scalar, Sequence, printable
from copycat_agent.definitions.masking import masked_lines
from copycat_agent.definitions.reading import plain_value
from copycat_agent.errors import Problem

if TYPE_CHECKING:
    from copycat_agent.definitions.masking import Masker
    from copycat_agent.definitions.wording import Finding

PROBLEMS_MAX = 50
"""Problems told per file; whoever has more starts with these."""


class Places:
    """One file's text, for quoting from it. `text` may be anything; `root` is None when it could not be parsed."""

    def __init__(self, path: str, text: str, root: Node | None, masker: Masker) -> None:
        self._path, self._text, self._root, self._masker = path, text, root, masker

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        return masked_lines(self._text)

    def problem_at(self, mark: Mark, code: str, text: str, hint: str = "") -> Problem:
        """A problem at a known place; line 0 means the file as a whole."""
        line = self._lines[mark.line - 1] if 0 < mark.line <= len(self._lines) else ""
        shown = printable(self._masker(line)).rstrip()
        words = printable(self._masker(text)), printable(self._masker(hint))
        return Problem(self._path, mark.line, mark.column, code, *words, shown)

    def problem(self, finding: Finding) -> Problem:
        """A problem where the finding is: at the value, or at the key when there is no value to point to."""
        return self.problem_at(self._mark(finding), finding.code, finding.text, finding.hint)

    def problems(self, findings: list[Finding]) -> tuple[Problem, ...]:
        """All of them in the file's order, at most `PROBLEMS_MAX` and a last one that says how many more."""
        found = sorted(dict.fromkeys(map(self.problem, findings[: 10 * PROBLEMS_MAX])), key=lambda each: (each.line, each.column))
        if len(found) > PROBLEMS_MAX:
            more = self.problem_at(Mark(0, 0), "more", f"and {len(findings) - PROBLEMS_MAX} more problems in this file")
            return (*found[:PROBLEMS_MAX], more)
        return tuple(found)

    def _mark(self, finding: Finding) -> Mark:
        node: Node | None = self._root
        key: Scalar | None = None
        for step in finding.loc:
            if isinstance(node, Mapping) and isinstance(step, str) and step in node.items:
                key = node.keys[step]
                node = node.items[step]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                node, key = node.items[step], None
            else:
                break  # the place is absent: point to what it is absent from
        else:
            if node and not finding.on_key and not _is_null(node) and (key is None or node.start.line == key.start.line):
                return node.start
        if key is not None:
            return key.start
        return node.start if node is not None else Mark(0, 0)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and plain_value(node.text) is None
