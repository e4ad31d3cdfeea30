"""Cancels Spark jobs, also in a JVM that hangs: somebody stopped it, or it only collects garbage. Calls to it never return."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from copycat_agent import logs

if TYPE_CHECKING:
    from copycat_agent.spark.current_session import Session

CANCEL_SECONDS = 15.0
"""A JVM that does not answer for this long when a job is cancelled is killed, and its host starts another one."""

_AGAIN_SECONDS = 0.2

_log = logs.get("spark")


def cancel_job(session: Session, group: str, over: threading.Event) -> None:
    """Cancels the jobs of a group until `over` is set, or the JVM has been killed because it does not answer."""
    answered = time.monotonic()

    def cancel() -> None:
        nonlocal answered
        while not over.wait(_AGAIN_SECONDS):
            with contextlib.suppress(Exception):  # the JVM may be gone, and the job with it
                session.context.cancelJobGroup(group)  # repeated, because it misses a job that is about to start
            answered = time.monotonic()

    try:
        threading.Thread(target=cancel, name=f"{group}-cancel", daemon=True).start()
    except RuntimeError:  # no more threads
        cancel()
    while not over.wait(_AGAIN_SECONDS):
        if time.monotonic() > answered + CANCEL_SECONDS:
            _log.warning("Spark's JVM does not answer and is killed", pid=session.jvm.pid)
            session.jvm.kill()
            break
