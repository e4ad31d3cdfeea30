"""Definitions: YAML files -> frozen options, strictly, with the place of everything that is wrong.

`load_directory` is what `run` and `check` use; `load_file` takes one definition, `load_agent` the agent's own file.
"""

from __future__ import annotations

from copycat_agent.definitions.loaded import NO_ADDRESS, Loaded, LoadedFile
from copycat_agent.definitions.loading import (
    Origin,
    digest_of,
    find_agent_file,
    lines_of,
    load_agent,
    load_content,
    load_directory,
    load_file,
    origins,
    problem_in,
)
from copycat_agent.definitions.problems import Finding, render
from copycat_agent.definitions.yaml_tree import printable

__all__ = [
    "NO_ADDRESS",
    "Finding",
    "Loaded",
    "LoadedFile",
    "Origin",
    "digest_of",
    "find_agent_file",
    "lines_of",
    "load_agent",
    "load_content",
    "load_directory",
    "load_file",
    "origins",
    "printable",
    "problem_in",
    "render",
]
