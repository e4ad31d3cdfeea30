"""Problems of definitions as a terminal shows them.

A module of its own, below `definitions`: commands that only ask the agent do without all that loads a definition.
"""

from __future__ import annotations

from copycat_agent.errors import Problem

_BOLD, _RED, _YELLOW, _CYAN, _END = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[0m"


def printable(text: str) -> str:
    """`text` as one line that no terminal acts upon: whatever is not printable (controls, bidi marks, surrogates) as U+FFFD."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "\ufffd" for character in text)


def render(problem: Problem, *, kind: str = "error", color: bool = False) -> str:
    """`file:line:col: error[CODE] text`, the line, a caret and the hint; no line end at the end.

    Whether to color is the caller's decision (terminal, NO_COLOR, --no-color). `kind` is `error` or `warning`.
    """
    bold, paint, cyan, end = (_BOLD, _RED if kind == "error" else _YELLOW, _CYAN, _END) if color else ("", "", "", "")
    place = f":{problem.line}:{problem.column}" if problem.line else ""
    lines = [f"{bold}{printable(problem.path)}{place}:{end} {paint}{kind}[{problem.code}]{end} {problem.text}"]
    if problem.source_line.strip():
        number = str(problem.line)
        column = min(problem.column, len(problem.source_line) + 1)
        lines.append(f"{cyan}{number} |{end} {problem.source_line}")
        lines.append(f"{' ' * len(number)} {cyan}|{end} {' ' * (column - 1)}{paint}^{end}")
    if problem.hint:
        lines.append(f"  {cyan}hint:{end} {problem.hint}")
    return "\n".join(lines)
