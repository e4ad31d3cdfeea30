"""From files to definitions: one file, a directory of them, the agent's own."""

from __future__ import annotations

import hashlib
import os
from types import MappingProxyType
from typing import TYPE_CHECKING

from copycat_agent.definitions.composing import compose, compose_agent, overridden
from copycat_agent.definitions.loaded import Loaded, LoadedFile, reread, warnings, without_takers, without_twins
from copycat_agent.definitions.masking import Masker
from copycat_agent.definitions.meaning import doubtful
from copycat_agent.definitions.problems import Finding, Places
from copycat_agent.definitions.reader import Reader
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX, Mark, SyntaxProblem, decode, parse_mapping
from copycat_agent.errors import DefinitionError, Problem
from copycat_agent.options import AgentOptions
from copycat_agent.small_files import read_small_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_directory(
    directory: Path,
    agent: AgentOptions,
    *,
    resolve_env: bool = True,
    offline: bool = False,
    environ: Mapping[str, str] | None = None,
    known: Mapping[Path, LoadedFile] = MappingProxyType({}),
) -> Loaded:
    """Load every `*.yaml` and `*.yml` of `directory`, sorted; hidden files and deeper directories are skipped.

    Raises nothing: one bad file stops no other, and a directory that cannot be read is a problem too. Of two files with
    one name neither loads: the name is the key of the offsets, and which of them is meant is not for us to guess. `offline`: see
    `load_file`. `known` are files that are as they were when they were loaded, with the same agent options: they are not read again.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"} and not path.name.startswith("."))
    except OSError as error:
        problem = Problem(str(directory), 0, 0, "unreadable", f"cannot read the directory: {error.strerror}")
        return Loaded((), (problem,), ())
    chosen = [path for path in paths if not path.is_dir()]
    how = {"resolve_env": resolve_env, "offline": offline}
    files = without_twins([known.get(path) or load_file(path, agent, environ=environ, **how) for path in chosen])
    files = without_takers(files)
    problems = tuple(problem for file in files for problem in file.problems)
    return Loaded(files, problems, (*warnings(files), *reread(files), *(doubt for file in files for doubt in file.doubts)))


def load_file(
    path: Path, agent: AgentOptions, *, resolve_env: bool = True, offline: bool = False, environ: Mapping[str, str] | None = None
) -> LoadedFile:
    """Load one definition, with the agent's Kafka options under its own. Raises nothing; `environ` defaults to `os.environ`.

    `offline` is for looking at samples, where Kafka's settings are not needed: no secret is read, and a variable need not be set. A
    name stands for each, told in `LoadedFile.assumed`. What has to be known all the same is a problem.
    """
    environ = environ if environ is not None else os.environ
    loaded = _load(path, None, agent, environ, resolve_env=resolve_env, offline=offline)
    if offline and loaded.definition is None and not loaded.problems:  # a name will not do, as for a number
        return _load(path, None, agent, environ, resolve_env=True)
    return loaded


def load_content(
    path: Path, content: bytes, agent: AgentOptions, *, resolve_env: bool = True, environ: Mapping[str, str] | None = None
) -> LoadedFile:
    """`load_file` for a file that would hold `content`; what is at `path`, if anything, is not looked at."""
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
    """The agent's options: the file at `path` (None: only defaults) under what the command line says.

    `overrides` maps dotted options (`kafka.bootstrap_servers`) to values; those that are None say nothing. `offline`: see `load_file`.
    Raises `DefinitionError` with every problem.
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
    """`config` when it is given, else `agent.yaml` beside `directory` when there is one."""
    beside = directory.absolute().parent / "agent.yaml"
    return config or (beside if beside.exists() else None)


def _read(
    path: Path, environ: Mapping[str, str], *, resolve_env: bool, offline: bool = False, content: bytes | None = None
) -> tuple[Reader | None, Places, tuple[Problem, ...], bytes]:
    """Parse a file, or what it would hold. The reader is None when there are problems that stop here. Last comes the content's digest."""
    masker, text = Masker(), ""
    try:
        content = read_small_file(path, FILE_BYTES_MAX) if content is None else content
        text = content.decode(errors="replace")
        text = decode(content)
        root = parse_mapping(text)
    except (OSError, SyntaxProblem) as error:
        places = Places(str(path), text, None, masker)
        if isinstance(error, OSError):
            return None, places, (places.problem_at(Mark(0, 0), "unreadable", f"cannot be read: {error.strerror}"),), b""
        return None, places, (places.problem_at(error.mark, error.code, error.text, error.hint),), b""
    reader = Reader(root, environ if resolve_env else None, masker, offline=offline)
    return reader, Places(str(path), text, root, masker), (), digest_of(content)


def digest_of(content: bytes) -> bytes:
    """What `LoadedFile.digest` is for a file that holds `content`."""
    return hashlib.blake2b(content, digest_size=16).digest()
