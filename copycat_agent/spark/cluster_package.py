"""This package as a file that travels with the jobs: executors need its dependencies, not itself."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import copycat_agent

NAME = "copycat_agent.zip"


def build(directory: Path) -> Path:
    """Write the package into `directory` and return the file's path. Raises OSError.

    Where Python has compiled a module already, the compiled one goes along: an executor's Python of the same version takes it as
    long as the source's time and size agree, which saves each of its processes a second.
    """
    root = Path(copycat_agent.__file__).resolve().parent
    path = directory / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for source in sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "__pycache__"):
            name = source.relative_to(root.parent)
            archive.write(source, name)
            if source.suffix != ".py":  # data, such as the patterns of grok
                continue
            compiled = Path(importlib.util.cache_from_source(str(source)))
            if compiled.is_file():
                archive.write(compiled, name.with_suffix(".pyc"))
    path.chmod(0o600)
    return path
