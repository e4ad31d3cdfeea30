"""Where each value of a definition comes from: its file, agent.yaml, the command line, or a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from copycat_agent.definitions.loading import load_file
from copycat_agent.definitions.masking import Masker
from copycat_agent.definitions.models import Loc, key_of
from copycat_agent.definitions.problems import Finding, Places
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX, MappingNode, Mark, Node, SequenceNode, SyntaxProblem, decode, parse_mapping
from copycat_agent.options import AgentOptions, Definition, Options
from copycat_agent.small_files import read_small_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from copycat_agent.errors import Problem

OriginKind = Literal["definition", "changed", "agent", "command line", "default"]
"""changed: from the definition's file, which no longer says what runs; so its lines are not told."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A value by its dotted option, as the definition would write it (secrets masked), and where it was said.

    `path` and `line` are those of the file for `definition` and `agent`; `line` is 0 where there is none to name.
    """

    option: str
    value: object
    kind: OriginKind
    path: str = ""
    line: int = 0


def origins(
    path: Path, agent_path: Path | None, definition: Definition, agent: AgentOptions, overridden: Collection[str] = ()
) -> tuple[Origin, ...]:
    """Every value of `definition`, which was loaded from `path` with `agent` under it, in the order of the options.

    `overridden` are the dotted options of agent.yaml that the command line set. Reads both files again and raises nothing:
    where the definition's says something else by now, or cannot be read, its values are told as `changed`.
    """
    own, defaults = _tree(path), _tree(agent_path) if agent_path else None
    is_current = own is not None and load_file(path, agent).definition == definition
    finder = _Finder(path, own, is_current, agent_path, defaults, frozenset(overridden))
    return tuple(finder.origin(loc, value, is_set=is_set) for loc, value, is_set in _leaves(definition, definition.masked(), (), True))


def lines_of(path: Path, section: str) -> tuple[int, ...]:
    """Where each item of a list of the definition begins, as line numbers of its file. Empty when it cannot be read any more."""
    node = _tree(path)
    items = node.items.get(section) if node is not None else None
    return tuple(item.start.line for item in items.items) if isinstance(items, SequenceNode) else ()


def problem_in(path: Path, finding: Finding) -> Problem:
    """Something wrong in a definition that was loaded from `path`, with the place as its file has it now."""
    try:
        text = decode(read_small_file(path, FILE_BYTES_MAX))
    except (OSError, SyntaxProblem):
        text = ""
    return Places(str(path), text, _tree(path), Masker()).problem(finding)


@dataclass(frozen=True, slots=True)
class _Finder:
    path: Path
    own: Node | None
    is_current: bool
    agent_path: Path | None
    agent: Node | None
    overridden: frozenset[str]

    def origin(self, loc: Loc, value: object, *, is_set: bool) -> Origin:
        option = ".".join(map(str, loc))
        if loc[0] == "kafka" and not _holds(self.own, loc):
            return self._inherited(loc, option, value)
        if not self.is_current:
            return Origin(option, value, "changed", str(self.path)) if is_set else Origin(option, value, "default")
        mark = _mark(self.own, loc)
        if not is_set or not mark.line:
            return Origin(option, value, "default")
        return Origin(option, value, "definition", str(self.path), mark.line)

    def _inherited(self, loc: Loc, option: str, value: object) -> Origin:
        """A value of the Kafka section that the definition does not set; merging has made all of them look set."""
        if option in self.overridden:
            return Origin(option, value, "command line")
        if self.agent is not None and _holds(self.agent, loc):
            return Origin(option, value, "agent", str(self.agent_path), _mark(self.agent, loc).line)
        return Origin(option, value, "default")


def _leaves(options: Options, shown: dict[str, Any], loc: Loc, is_set: bool) -> Iterator[tuple[Loc, object, bool]]:  # noqa: FBT001
    """Place, value and whether it was said, of everything that is no section of its own."""
    for name, info in type(options).model_fields.items():
        if name not in shown:  # the tests, which are no part of what runs
            continue
        value, at = getattr(options, name), (*loc, key_of(name, info))
        said = is_set and name in options.model_fields_set
        if isinstance(value, Options) and isinstance(shown[name], dict):
            yield from _leaves(value, shown[name], at, said)
        elif isinstance(value, tuple) and value and isinstance(value[0], Options) and isinstance(shown[name], list):
            for number, (item, text) in enumerate(zip(value, shown[name], strict=True)):
                yield from _leaves(item, text, (*at, number), said)
        elif isinstance(value, dict) and value and isinstance(shown[name], dict):
            yield from (((*at, str(key)), each, said) for key, each in shown[name].items())
        else:
            yield at, shown[name], said


def _holds(node: Node | None, loc: Loc) -> bool:
    """Whether the document says something at `loc`."""
    for step in loc:
        if not isinstance(node, MappingNode) or step not in node.items:
            return False
        node = node.items[str(step)]
    return node is not None


def _mark(node: Node | None, loc: Loc) -> Mark:
    """Where the key of `loc` stands, or of what it is a part of: a short form says several options in one place."""
    mark = Mark(0, 0)
    for step in loc:
        if isinstance(node, MappingNode) and step in node.items:
            mark, node = node.keys[str(step)].start, node.items[str(step)]
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            mark = node.start
        else:
            break
    return mark


def _tree(path: Path) -> MappingNode | None:
    try:
        return parse_mapping(decode(read_small_file(path, FILE_BYTES_MAX)))
    except (OSError, SyntaxProblem):
        return None
