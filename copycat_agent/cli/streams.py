"""The three standard descriptors: somebody may have started us without them."""

from __future__ import annotations

import io
import os
import sys


def occupy_standard_streams() -> None:
    """Put the null device where stdin, stdout or stderr is closed (`2>&-`).

    Otherwise the next file that is opened gets its number, and what libraries and children write to "stderr" goes into the
    offset store; and Python has no stream at all there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - a descriptor, for life


def forgive_encodings() -> None:
    """Write what a terminal's encoding cannot spell, and odd bytes of file names, as backslash escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
