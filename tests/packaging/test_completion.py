"""Completion scripts do their work in the real shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
ASK_BASH = 'COMP_WORDS=({words}); COMP_CWORD={last}; _copycat_completion copycat; printf "%s\\n" "${{COMPREPLY[@]}}"'
ASK = {
    "bash": "source <(copycat completion bash); complete -p copycat >&2; " + ASK_BASH,
    "fish": 'copycat completion fish | source; complete -C "{line}"',
    "zsh": "autoload -Uz compinit; compinit -u -D; source <(copycat completion zsh); print ${{_comps[copycat]}} >&2; "
    "words=({words}); CURRENT={count}; _arguments() {{ print -r -- $*; }}; _copycat_completion",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """PATH with a `copycat` of this checkout."""
    command = tmp_path / "bin/copycat"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/copycat.py "$@"\n', "utf-8")
    command.chmod(0o755)
    (tmp_path / "copycat.py").write_text(
        f"import sys\nsys.path.insert(0, {str(PROJECT)!r})\nsys.argv[0] = 'copycat'\nfrom copycat_agent.cli.main import main\nmain()\n",
        "utf-8",
    )
    return {"PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}


@pytest.mark.parametrize(("typed", "completed"), [("ch", "check"), ("run --until", "--until-idle")])
@pytest.mark.parametrize("shell", ASK)
def test_a_word_is_completed(environment: dict[str, str], shell: str, typed: str, completed: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    line = f"copycat {typed}"
    asked = ASK[shell].format(words=line, last=len(line.split()) - 1, count=len(line.split()), line=line)
    done = subprocess.run([shell, "-c", asked], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert re.search(rf'(^|["\s]){completed}(["\s]|$)', done.stdout, re.MULTILINE), (done.stdout, done.stderr)
    assert shell == "fish" or "_copycat_completion" in done.stderr


def test_another_shell_is_refused_with_the_list(environment: dict[str, str]) -> None:
    done = subprocess.run(["copycat", "completion", "tcsh"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert all(shell in done.stderr for shell in ("bash", "zsh", "fish"))
