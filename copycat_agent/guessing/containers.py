"""What container runtimes write around a line: CRI (containerd, CRI-O) and Docker's json-file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from copycat_agent.guessing import objects
from copycat_agent.guessing.model import Guess, Recogniser, StepGuess

_CRI = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ?(?P<message>.*)")
_ENOUGH = 0.5
_INNER = {"json", "logfmt"}
"""What may come inside and is worth a second step: lines of one program, while `regex` would fail at those of its neighbours."""


def recogniser(inner: Sequence[Recogniser]) -> Recogniser:
    """A recogniser that also looks at the messages, with `inner`."""

    def recognise(lines: Sequence[str]) -> Guess | None:
        cri = [match["message"] for line in lines if (match := _CRI.match(line))]
        docker = [
            row["log"].rstrip("\n")
            for row in objects.rows_of(lines)
            if {"log", "stream", "time"} <= row.keys() and isinstance(row["log"], str)
        ]
        what, messages = ("container log, CRI", cri) if len(cri) >= len(docker) else ("container log, Docker's json-file", docker)
        share = len(messages) / len(lines)
        if share < _ENOUGH:
            return None
        steps = [StepGuess("cri" if messages is cri else "docker", {})]
        found = Guess(what, share, 1.0, tuple(steps), timestamp="event")
        guesses = [one for recogniser in inner if (one := recogniser(messages)) is not None] if messages else []
        best = max(guesses, key=lambda one: one.score, default=None)
        if best is None or best.steps[0].action not in _INNER:
            return found
        first, *others = best.steps
        rest = [step for step in others if step.action != "timestamp"]  # the runtime's time is the better one
        return replace(found, what=f"{what}, with {best.what} inside", steps=(*steps, replace(first, keep=True), *rest))

    return recognise
