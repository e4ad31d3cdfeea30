"""Packages that only some definitions need: extras of copycat-agent, in the words of pip."""

from __future__ import annotations

from importlib.util import find_spec

_MODULES = {"msk-iam": "aws_msk_iam_sasl_signer", "sql": "pandas"}
"""Extra -> a module that comes with it and with nothing else."""


def lacking(extra: str) -> tuple[str, str] | None:
    """What is missing and what to type, None where the extra is installed. Nothing is imported."""
    module = _MODULES[extra]
    if find_spec(module) is not None:
        return None
    return f"the Python package {module} is not installed", f"pip install 'copycat-agent[{extra}]'"
