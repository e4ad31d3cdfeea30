"""Loads definitions: YAML files -> frozen options, strictly, with the position of every error; and finds the origin of a value.

`load_directory` is what `run` and `check` use; `load_file` takes one definition, `load_agent` the agent's own file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from copycat_agent.definitions.composing import compose, compose_agent, overridden
from copycat_agent.definitions.load_result import (
    NO_ADDRESS,
    LoadedFile,
    LoadResult,
    beside,
    renamed,
    reread,
    warnings,
    without_clashes,
    without_takers,
    without_twins,
)
from copycat_agent.definitions.models import Loc, key_of
from copycat_agent.definitions.options_reader import Reader
from copycat_agent.definitions.problems import DefinitionText, Finding
from copycat_agent.definitions.record_rules import doubtful
from copycat_agent.definitions.secret_values import Masker
from copycat_agent.definitions.yaml_tree import (
    FILE_BYTES_MAX,
    MappingNode,
    Mark,
    Node,
    SequenceNode,
    SyntaxProblem,
    decode,
    parse_mapping,
    way_to,
)
from copycat_agent.errors import DefinitionError, Problem
from copycat_agent.options import AgentOptions, Definition, Options
from copycat_agent.small_files import is_directory, is_there, read_small_file

__all__ = [
    "NO_ADDRESS",
    "Finding",
    "LoadResult",
    "LoadedFile",
    "Origin",
    "beside",
    "digest_of",
    "find_agent_file",
    "findings_of",
    "lines_of",
    "load_agent",
    "load_content",
    "load_directory",
    "load_file",
    "origins",
    "problem_in",
]


def load_directory(
    directory: Path,
    agent: AgentOptions,
    *,
    resolve_env: bool = True,
    offline: bool = False,
    environ: Mapping[str, str] | None = None,
    known: Mapping[Path, LoadedFile] = MappingProxyType({}),
    drafts: Mapping[Path, bytes] = MappingProxyType({}),
) -> LoadResult:
    """Loads every `*.yaml` and `*.yml` of `directory`, sorted; hidden files and deeper directories are skipped.

    Raises nothing: one bad file stops no other, and a directory that cannot be read is a problem too. Of two files with one name neither
    loads: the name is the key of the offsets, and the loader must not guess which one is meant. `offline`: see `load_file`. `known` are
    files that are unchanged since they were loaded, with the same agent options: they are not read again. `drafts` are contents of files
    that are not written yet.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"} and not path.name.startswith("."))
    except OSError as error:
        problem = Problem(str(directory), 0, 0, "unreadable", f"cannot read the directory: {error.strerror}")
        return LoadResult((), (problem,), ())
    chosen = sorted({*(path for path in paths if not is_directory(path)), *drafts})
    how = {"resolve_env": resolve_env, "offline": offline}
    read = {path: load_content(path, content, agent, resolve_env=resolve_env, environ=environ) for path, content in drafts.items()}
    files = without_twins([read.get(path) or known.get(path) or load_file(path, agent, environ=environ, **how) for path in chosen])
    files = without_clashes(without_takers(files))
    problems = tuple(problem for file in files for problem in file.problems)
    return LoadResult(
        files, problems, (*warnings(files), *reread(files), *renamed(files), *(doubt for file in files for doubt in file.doubts))
    )


def load_file(
    path: Path, agent: AgentOptions, *, resolve_env: bool = True, offline: bool = False, environ: Mapping[str, str] | None = None
) -> LoadedFile:
    """Loads one definition, with the agent's Kafka options under its own. Raises nothing; `environ` defaults to `os.environ`.

    `offline` is for trying samples, which do not need Kafka's settings: no secret is read, and a variable need not be set. A name stands
    for each, listed in `LoadedFile.assumed`. Values that are needed all the same are problems.
    """
    environ = environ if environ is not None else os.environ
    loaded = _load(path, None, agent, environ, resolve_env=resolve_env, offline=offline)
    if offline and loaded.definition is None and not loaded.problems:  # a name is no valid value, as for a number
        return _load(path, None, agent, environ, resolve_env=True)
    return loaded


def load_content(
    path: Path, content: bytes, agent: AgentOptions, *, resolve_env: bool = True, environ: Mapping[str, str] | None = None
) -> LoadedFile:
    """Loads as `load_file` a file that would hold `content`; an existing file at `path` is not read."""
    return _load(path, content, agent, environ if environ is not None else os.environ, resolve_env=resolve_env)


def _load(
    path: Path, content: bytes | None, agent: AgentOptions, environ: Mapping[str, str], *, resolve_env: bool, offline: bool = False
) -> LoadedFile:
    reader, places, problems, digest = _read(path, environ, resolve_env=resolve_env, offline=offline, content=content)
    if reader is None:
        return LoadedFile(path, None, None, problems)
    definition = compose(reader, agent)
    if reader.findings and path.stem == "agent":
        problem = places.problem_at(Mark(0, 0), "misplaced", "agent.yaml is no definition", "put it beside this directory, not into it")
        return LoadedFile(path, None, None, (problem,))
    name = reader.text(("name",))
    at = places.problem(Finding(("name",), "", ""))
    doubts = () if definition is None else places.problems(doubtful(definition))
    name_at, assumed = (at.line, at.column, at.source_line), tuple(dict.fromkeys(reader.met_by_samples()))
    return LoadedFile(path, name, definition, places.problems(reader.findings), name_at, doubts, assumed, digest)


def load_agent(
    path: Path | None,
    overrides: Mapping[str, object] | None = None,
    *,
    resolve_env: bool = True,
    offline: bool = False,
    environ: Mapping[str, str] | None = None,
) -> AgentOptions:
    """Returns the agent's options: the file at `path` (None: only defaults), overridden by the command line.

    `overrides` maps dotted options (`kafka.bootstrap_servers`) to values; None sets nothing. `offline`: see `load_file`. Raises
    `DefinitionError` with every problem.
    """
    agent = AgentOptions()
    if path is not None:
        environ = environ if environ is not None else os.environ
        reader, places, problems, _ = _read(path, environ, resolve_env=resolve_env, offline=offline)
        if reader is None:
            raise DefinitionError(problems)
        agent = compose_agent(reader)
        if reader.findings:
            raise DefinitionError(places.problems(reader.findings))
    return overridden(agent, {option: value for option, value in (overrides or {}).items() if value is not None})


def find_agent_file(directory: Path, config: Path | None = None) -> Path | None:
    """Returns `config` if it is given, else an existing `agent.yaml` beside `directory`; None if there is none."""
    beside = directory.absolute().parent / "agent.yaml"
    return config or (beside if is_there(beside) else None)


def _read(
    path: Path, environ: Mapping[str, str], *, resolve_env: bool, offline: bool = False, content: bytes | None = None
) -> tuple[Reader | None, DefinitionText, tuple[Problem, ...], bytes]:
    """Parses a file, or its new content. The reader is None if problems prevent reading. The last item is the content's digest."""
    masker, text = Masker(), ""
    try:
        content = read_small_file(path, FILE_BYTES_MAX) if content is None else content
        text = content.decode(errors="replace")
        text = decode(content)
        root = parse_mapping(text)
    except (OSError, SyntaxProblem) as error:
        places = DefinitionText(str(path), text, None, masker)
        if isinstance(error, OSError):
            return None, places, (places.problem_at(Mark(0, 0), "unreadable", f"cannot be read: {error.strerror}"),), b""
        return None, places, (places.problem_at(error.mark, error.code, error.text, error.hint),), b""
    reader = Reader(root, environ if resolve_env else None, masker, offline=offline)
    return reader, DefinitionText(str(path), text, root, masker), (), digest_of(content)


def findings_of(content: bytes, agent: AgentOptions) -> tuple[Finding, ...]:
    """Returns the findings in a definition that would hold `content`, by option instead of by line. References are not resolved.

    Secrets are hidden. Raises `DefinitionError` if it is no map in YAML.
    """
    reader, _places, problems, _ = _read(Path("definition"), {}, resolve_env=False, content=content)
    if reader is None:
        raise DefinitionError(problems)
    compose(reader, agent)
    mask = reader.masker
    return tuple(one._replace(text=mask(one.text), hint=mask(one.hint)) for one in dict.fromkeys(reader.findings))


def digest_of(content: bytes) -> bytes:
    """Returns the `LoadedFile.digest` of a file that holds `content`."""
    return hashlib.blake2b(content, digest_size=16).digest()


OriginKind = Literal["definition", "changed", "agent", "command line", "default"]
"""changed: from the definition's file, which no longer says what runs; so its lines are not given."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A value by its dotted option, as the definition would write it (secrets masked), and its origin.

    `path` and `line` are those of the file for `definition` and `agent`; `line` is 0 if there is none.
    """

    option: str
    value: object
    kind: OriginKind
    path: str = ""
    line: int = 0


def origins(
    path: Path, agent_path: Path | None, definition: Definition, agent: AgentOptions, overridden: Collection[str] = ()
) -> tuple[Origin, ...]:
    """Returns every value of `definition`, which was loaded from `path` with `agent` under it, in the order of the options.

    `overridden` are the dotted options of agent.yaml that the command line set. Reads both files again and raises nothing: if the
    definition's file has changed since, or cannot be read, its values are given as `changed`.
    """
    own, defaults = _tree(path), _tree(agent_path) if agent_path else None
    is_current = own is not None and load_file(path, agent).definition == definition
    finder = _Finder(path, own, is_current, agent_path, defaults, frozenset(overridden))
    return tuple(finder.origin(loc, value, is_set=is_set) for loc, value, is_set in _leaves(definition, definition.masked(), (), True))


def lines_of(path: Path, section: str) -> tuple[int, ...]:
    """Returns the line numbers of the file at which the items of a list begin. Empty if the file cannot be read any more."""
    node = _tree(path)
    items = node.items.get(section) if node is not None else None
    return tuple(item.start.line for item in items.items) if isinstance(items, SequenceNode) else ()


def problem_in(path: Path, finding: Finding) -> Problem:
    """Returns a problem in a definition that was loaded from `path`, at its position in the file's present content."""
    try:
        text = decode(read_small_file(path, FILE_BYTES_MAX))
    except (OSError, SyntaxProblem):
        text = ""
    return DefinitionText(str(path), text, _tree(path), Masker()).problem(finding)


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
        """Returns the origin of a value of the Kafka section that the definition does not set; after merging all of them look set."""
        if option in self.overridden:
            return Origin(option, value, "command line")
        if self.agent is not None and _holds(self.agent, loc):
            return Origin(option, value, "agent", str(self.agent_path), _mark(self.agent, loc).line)
        return Origin(option, value, "default")


def _leaves(options: Options, shown: dict[str, Any], loc: Loc, is_set: bool) -> Iterator[tuple[Loc, object, bool]]:  # noqa: FBT001
    """Yields place, value and whether it was set, of everything that is not a section."""
    for name, info in type(options).model_fields.items():
        if name not in shown:  # the tests, which are not part of what runs
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
    """Returns whether the document has a value at `loc`."""
    return len(way_to(node, loc)) == len(loc)


def _mark(node: Node | None, loc: Loc) -> Mark:
    """Returns the position of the key of `loc`, or of a parent: a short form sets several options in one place."""
    way = way_to(node, loc)
    return (way[-1][0] or way[-1][1]).start if way else Mark(0, 0)


def _tree(path: Path) -> MappingNode | None:
    try:
        return parse_mapping(decode(read_small_file(path, FILE_BYTES_MAX)))
    except (OSError, SyntaxProblem):
        return None
